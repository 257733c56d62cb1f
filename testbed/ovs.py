"""Open vSwitch of our own: one ovsdb-server and one ovs-vswitchd per fabric, in its namespace and its directory.

A second vswitchd beside the machine's would fight over the one kernel datapath of their namespace.  Ours runs in the
fabric's network namespace, whose datapath is its own, under the virtual clock and the real one alike: the machine's
instance, if there is one, sees nothing, and nothing of ours can be left behind in its database.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from topologies.errors import MissingFeature, RunFailed
from topologies.model import Topology

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
CPU_COUNT_NS = 11 * 10**9
"""count_cpu_cores of OVS answers 0 until the monotonic clock has passed 10 s, and then no handler thread is started."""
TIMEOUT_S = 60
_LOCAL_PORT = 65534
"""OFPP_LOCAL: the port that every bridge has towards the machine."""
REMEDY = "install the package openvswitch-switch"


@dataclass(frozen=True, kw_only=True)
class Controller:
    """Where the switches look for their controller."""

    target: str
    """In OVS's grammar: `tcp:127.0.0.1:6653`, `unix:/path`."""


class OpenVSwitch:
    """A running instance; a context manager."""

    def __init__(self, directory: Path) -> None:
        """`directory` holds database, sockets and logs; nothing is started yet."""
        self.directory = directory
        self._stack = ExitStack()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What makes every ovs-* command speak to this instance."""
        where = str(self.directory)
        return {"OVS_RUNDIR": where, "OVS_LOGDIR": where, "OVS_DBDIR": where, "OVS_SYSCONFDIR": where}

    @property
    def unixctl(self) -> Path:
        """Where ovs-vswitchd takes commands (ovs-appctl)."""
        return self.directory / "vswitchd.ctl"

    def management(self, switch: str) -> str:
        """The OpenFlow socket that a bridge listens on for ovs-ofctl."""
        return f"unix:{self.directory}/{switch}.mgmt"

    def __enter__(self) -> "OpenVSwitch":
        """Starts both daemons.  Raises MissingFeature, or RunFailed with the end of the log."""
        self.directory.mkdir(parents=True, exist_ok=True)
        time.sleep(max(0, CPU_COUNT_NS - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) / 1e9)
        database, socket = self.directory / "conf.db", self.directory / "db.sock"
        with self._stack:
            self._run("ovsdb-tool", "create", str(database), str(SCHEMA))
            self._start(
                "ovsdb-server", str(database), f"--remote=punix:{socket}", f"--unixctl={self.directory}/ovsdb.ctl"
            )
            self._await(socket, "ovsdb-server")
            self._vsctl("--no-wait", "init")
            self._start("ovs-vswitchd", f"unix:{socket}", f"--unixctl={self.unixctl}")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends both daemons; the datapath goes with the namespace."""
        self._stack.close()

    def build(self, topology: Topology, *, tag: str, fail_mode: str) -> None:
        """Every bridge with every port in one transaction; returns when the datapath has them.  Raises RunFailed."""
        self._vsctl(*bridge_commands(topology, tag=tag, fail_mode=fail_mode))
        self._verify(topology)

    def connect(self, topology: Topology, target: str) -> None:
        """Points every switch at a controller, in one transaction."""
        self._vsctl(*controller_commands(topology, target))

    def settle(self) -> None:
        """Returns when the switch daemon has acted on everything that it was told and has seen."""
        self._vsctl("set", "Open_vSwitch", ".", f"external_ids:settled={time.monotonic_ns()}")

    def version(self) -> str:
        """Of the daemon."""
        return self._run("ovs-vswitchd", "--version").splitlines()[0]

    def connected(self) -> Mapping[str, bool]:
        """Switch name -> whether it talks to its controller."""
        rows = self._list("Bridge", "name,controller")
        controllers = {uuid: bool(up) for uuid, up in self._list("Controller", "_uuid,is_connected")}
        return {str(name): bool(controllers.get(str(controller))) for name, controller in rows}

    def _verify(self, topology: Topology) -> None:
        bridges = {
            name: (dpid, protocols) for name, dpid, protocols in self._list("Bridge", "name,datapath_id,protocols")
        }
        for switch in topology.switches:
            wanted = (f"{switch.dpid:016x}", "OpenFlow13")
            if bridges.get(switch.name) != wanted:
                raise RunFailed(
                    f"switch {switch.name}: asked for dpid and protocol {wanted}, got {bridges.get(switch.name)}"
                )
        self._verify_ports(topology)

    def _verify_ports(self, topology: Topology) -> None:
        found = {name: (number, error) for name, number, error in self._list("Interface", "name,ofport,error")}
        wanted: list[tuple[str, str, int]] = [(switch.name, switch.name, _LOCAL_PORT) for switch in topology.switches]
        ports = (end for end in topology.interfaces() if end.node in topology.switch_named)
        wanted += [(end.node, end.name, end.port) for end in ports]
        for switch, interface, port in wanted:
            number, error = found.get(interface, (None, "no such interface"))
            if number != port:
                raise RunFailed(
                    f"switch {switch}: asked for {interface} as port {port}, got {number} ({error}); "
                    f"{self._tail('ovs-vswitchd')}"
                )

    def _list(self, table: str, columns: str) -> list[list[object]]:
        text = self._vsctl("--format=json", f"--columns={columns}", "list", table)
        return [[_plain(value) for value in row] for row in json.loads(text)["data"]]

    def _vsctl(self, *arguments: str) -> str:
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                raise RunFailed(f"{name} ended with code {daemon.returncode}; {self._tail(name)}")
        return self._run("ovs-vsctl", f"--timeout={TIMEOUT_S}", f"--db=unix:{self.directory}/db.sock", *arguments)

    def _run(self, *argv: str) -> str:
        try:
            done = subprocess.run(
                argv, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise MissingFeature(f"the command {argv[0]} is missing", REMEDY) from error
        if done.returncode != 0:
            said = done.stderr.strip()[-2000:]
            raise RunFailed(f"{argv[0]} failed with code {done.returncode}: {said}; {self._tail('ovs-vswitchd')}")
        return done.stdout

    def _start(self, name: str, *arguments: str) -> None:
        # The daemons stay our children and die with us, even by SIGKILL: nobody is left to tell them to end.
        argv = ["setpriv", "--pdeathsig", "KILL", name, *arguments, "-vconsole:off", "-vsyslog:off"]
        argv += [f"--log-file={self.directory}/{name}.log", "--no-chdir"]
        try:
            daemon = subprocess.Popen(
                argv, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except FileNotFoundError as error:
            raise MissingFeature("the command setpriv is missing", "install the package util-linux") from error
        self._daemons[name] = daemon
        self._stack.callback(_end, daemon)

    def _await(self, path: Path, name: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not path.exists():
            if self._daemons[name].poll() is not None or time.monotonic() > deadline:
                raise RunFailed(f"{name} did not start; {self._tail(name)}")
            time.sleep(0.001)

    def _tail(self, name: str) -> str:
        log = self.directory / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines()[-10:] if log.exists() else []
        return f"the end of its log: {' | '.join(lines)}"


def bridge_commands(topology: Topology, *, tag: str, fail_mode: str) -> Sequence[str]:
    """The arguments of the one ovs-vsctl that makes every switch."""
    words: list[str] = [
        "set", "Open_vSwitch", ".", "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1"
    ]  # fmt: skip
    for switch in topology.switches:
        words += ["--", "add-br", switch.name, "--", "set", "Bridge", switch.name]
        words += [f"fail_mode={fail_mode}", "protocols=OpenFlow13", f"external_ids:fabric-testbed={tag}"]
        words += [f"other_config:datapath-id={switch.dpid:016x}", f"other_config:dp-desc={switch.name}"]
        words += ["other_config:disable-in-band=true"]
        for end in topology.interfaces_of[switch.name]:
            words += ["--", "add-port", switch.name, end.name]
            words += ["--", "set", "Interface", end.name, f"ofport_request={end.port}"]
    return words


def controller_commands(topology: Topology, target: str) -> Sequence[str]:
    """The arguments of the one ovs-vsctl that points every switch at `target`."""
    words: list[str] = []
    for switch in topology.switches:
        words += ["--", "set-controller", switch.name, target]
        words += ["--", "set", "Controller", switch.name, "inactivity_probe=0", "max_backoff=1000"]
    return words


def _plain(value: object) -> object:
    """OVSDB's ["uuid", X] and ["set", []] as plain values."""
    if isinstance(value, list) and value and value[0] == "uuid":
        return value[1]
    if isinstance(value, list) and value and value[0] in ("set", "map"):
        return None if not value[1] else json.dumps(value[1])
    return value


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(timeout=5)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
