"""`python -m controller` as a process: its exit codes, its control socket, its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller import compat
from controller.selector.selector import Selector
from topologies.json_form import to_json
from topologies.registry import parse_topology

DEADLINE_S = 30
Start = Callable[..., subprocess.Popen[str]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def loadable(load: Callable[..., Selector]) -> None:
    """Skips where selectors cannot be loaded."""
    load({})


@pytest.fixture
def start(loadable: None, program: Path) -> Iterator[Start]:
    """Starts controllers, which are killed if a test leaves them."""
    running: list[subprocess.Popen[str]] = []
    environment = {**os.environ, "FABRIC_TESTBED_CACHE": str(program.parents[1])}

    def start_one(*options: str, port: int | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "controller", "--topology", "star:hosts=2", "--listen"]
        command += [f"127.0.0.1:{port or free_port()}", *options]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
        return running[-1]

    yield start_one
    for process in running:
        process.kill()
        process.communicate()


def connected(path: Path, process: subprocess.Popen[str]) -> socket.socket:
    """A connection to the control socket, once there is one."""
    deadline = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX)
        if connection.connect_ex(str(path)) == 0:
            return connection
        connection.close()
        time.sleep(0.02)
    raise AssertionError(f"no control socket: exit code {process.poll()}")


def ask(connection: socket.socket, request: bytes) -> dict[str, object]:
    connection.sendall(request + b"\n")
    with connection.makefile() as replies:
        reply: dict[str, object] = json.loads(replies.readline())
    return reply


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--topology", "star:hosts=2", "--policy", "ecpm"], "unknown policy 'ecpm'; known: dctcp, e_ecmp, ecmp"),
        (["--topology", "star:host=2"], "unknown parameter"),
        (["--topology", "absent.json"], "--topology absent.json: "),
        (["--topology", "star:hosts=2", "--listen", "6653"], "--listen 6653: write HOST:PORT"),
    ],
)
def test_a_users_mistake_exits_with_2_and_says_what_would_do(options: list[str], message: str) -> None:
    done = subprocess.run([sys.executable, "-m", "controller", *options], capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_framework_is_a_users_mistake(start: Start) -> None:
    process = start("--framework", "pox")
    assert "unknown framework 'pox'; known: os_ken, ryu" in process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 2


@pytest.mark.parametrize("framework", sorted(compat.FRAMEWORKS))
def test_the_control_socket_answers_until_it_is_told_to_stop(start: Start, tmp_path: Path, framework: str) -> None:
    path = tmp_path / "control"
    process = start("--framework", framework, "--control", str(path), "--policy", "ecmp:seed=5")
    with connected(path, process) as connection, connected(path, process) as another:
        reply = ask(connection, b'{"do": "wait_ready", "timeout_s": 0.1}')
        assert reply == {"ok": False, "error": "not ready after 0.1 s: switch s1 (dpid 1): not connected"}
        counters = ("unrecorded_packets", "flowlets", "evictions")
        assert ask(another, b'{"do": "flows"}') == {"ok": True, "flows": [], **dict.fromkeys(counters, 0)}
        assert "no statistics of ports s1-eth1, s1-eth2" in str(ask(connection, b'{"do": "port_stats"}')["error"])
        description = ask(another, b'{"do": "describe"}')
        assert str(description["framework"]).startswith(f"{framework} ")
        assert description["policy_parameters"] == {"seed": 5, "polarised": False}
        assert "unknown request 'dance'; known: describe, failures, flows, policy" in str(
            ask(connection, b'{"do": "dance"}')["error"]
        )
        for nonsense in (b"", b"{", b"[]", b"{}", b'{"do": ["x"]}', b'{"do": "wait_ready", "timeout_s": "soon"}'):
            assert ask(connection, nonsense)["ok"] is False
        assert ask(connection, b'{"do": "shutdown"}') == {"ok": True}
    assert process.wait(DEADLINE_S) == 0
    assert not path.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(start: Start, tmp_path: Path, number: int) -> None:
    process = start("--control", str(tmp_path / "control"))
    connected(tmp_path / "control", process).close()
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == 0
    assert not (tmp_path / "control").exists()


def test_a_socket_left_by_a_killed_controller_is_taken_over(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "control"
    first = start("--control", str(path))
    connected(path, first).close()
    first.kill()
    first.wait()
    connected(path, start("--control", str(path))).close()


def test_a_port_in_use_is_named(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start(port=taken.getsockname()[1])
        message = process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 2
    assert "Address already in use; is another controller running?" in message


def test_two_controllers_do_not_share_a_control_socket(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "control"
    connected(path, start("--control", str(path))).close()
    second = start("--control", str(path))
    assert "another controller answers there" in second.communicate(timeout=DEADLINE_S)[1]
    assert second.returncode == 2


@pytest.mark.usefixtures("loadable")
def test_it_dies_with_its_parent(tmp_path: Path, program: Path) -> None:
    path = tmp_path / "control"
    command = [sys.executable, "-m", "controller", "--topology", "star:hosts=2", "--die-with-parent"]
    command += ["--listen", f"127.0.0.1:{free_port()}", "--control", str(path)]
    code = f"import subprocess, sys; subprocess.Popen({command!r}); sys.stdin.read()"
    environment = {**os.environ, "FABRIC_TESTBED_CACHE": str(program.parents[1])}
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True, env=environment) as parent:
        connected(path, parent).close()
        parent.kill()
    deadline = time.monotonic() + DEADLINE_S
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not path.exists()


def test_a_topology_comes_from_a_file_too(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    file.write_text(json.dumps(to_json(parse_topology("leaf_spine:leaves=2,spines=2,hosts=1"))))
    process = start("--topology", str(file), "--control", str(tmp_path / "control"))
    with connected(tmp_path / "control", process) as connection:
        error = str(ask(connection, b'{"do": "wait_ready", "timeout_s": 0}')["error"])
    assert all(f"switch {name} " in error for name in ("leaf1", "leaf2", "spine1", "spine2"))
