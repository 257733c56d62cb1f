"""The controller as a process of its own, as in a real network, and the questions we ask it.

    python -m controller --topology topology.json --policy ecmp --listen 127.0.0.1:6653 --control control.sock

The control socket answers one JSON object per line; `controller/README.md` lists the questions.
"""

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from topologies.errors import RunFailed

READY_TIMEOUT_S = 30.0
"""How long switches may take to connect and to acknowledge every rule; pitfall P19 asks for a bounded wait."""


class ControllerProcess:
    """Runs the controller beside a fabric.  A context manager: leaving it ends the process."""

    def __init__(
        self,
        *,
        topology: Path,
        policy: str,
        seed: int,
        log: Path,
        socket_path: Path,
        detection_delay: str = "1ms",
        flow_cache: Path | None = None,
        port: int = 6653,
    ) -> None:
        """`topology` is a JSON file; `log` takes all that the controller prints."""
        self.endpoint = f"127.0.0.1:{port}"
        self._argv = [
            *(sys.executable, "-m", "controller"),
            *("--topology", str(topology), "--policy", policy, "--seed", str(seed)),
            *("--detection-delay", detection_delay),
            *(("--flow-cache", str(flow_cache)) if flow_cache is not None else ()),
            *("--listen", self.endpoint, "--control", str(socket_path), "--die-with-parent"),
        ]
        self._log, self._socket_path = log, socket_path
        self._undo = ExitStack()
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> "ControllerProcess":
        log = self._undo.enter_context(self._log.open("wb"))
        self._process = subprocess.Popen(self._argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self._undo.callback(self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def wait_ready(self) -> dict[str, Any]:
        """Returns once every switch holds every rule.  Raises RunFailed naming what is missing."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        self._wait_for_socket(deadline)
        return self.ask({"do": "wait_ready", "timeout_s": READY_TIMEOUT_S})

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """One question, one answer.  Raises RunFailed with the controller's own words when it refuses."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(self._socket_path))
            stream = connection.makefile("rw")
            stream.write(json.dumps(question) + "\n")
            stream.flush()
            line = stream.readline()
        if not line:
            raise RunFailed(f"the controller went away while asked '{question['do']}':\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise RunFailed(f"controller: {answer['error']}")
        return answer

    def _wait_for_socket(self, deadline: float) -> None:
        while not self._socket_path.exists():
            if self._process.poll() is not None:
                raise RunFailed(f"the controller ended with exit code {self._process.returncode}:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise RunFailed(f"the controller did not listen on its control socket in time:\n{self._tail()}")
            time.sleep(0.01)  # a poll of the condition above: a path has no event to wait for

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket_path.unlink(missing_ok=True)
