"""Mininet's hosts and switches without what makes them slow: no process until somebody asks for one.

Mininet starts a shell per node, waits for its prompt, and speaks to the kernel by typing commands into it.  Here a host
is a network namespace that a descriptor holds; the shell starts with the first `.cmd()`.  Mininet's own names are kept.
"""

import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from mininet.node import Node, OVSSwitch

from testbed import host_stack
from testbed.namespace import Namespace
from testbed.netlink import NetlinkSocket, Request
from topologies.errors import InternalError, RunFailed

PROMPT = chr(127)
"""What Mininet waits for at the end of a command's output."""


class LazyNode(Node):  # type: ignore[misc]  # Mininet has no types
    """A node whose shell starts when it is first used."""

    namespace: Namespace | None = None
    """Its own network namespace; None for a switch, which lives in the fabric's."""
    route: NetlinkSocket
    """A netlink socket in its namespace."""
    shell: "subprocess.Popen[bytes] | None"
    stopped = False

    def __init__(self, name: str, *, inNamespace: bool) -> None:  # noqa: N803
        """Mininet's, without a shell."""
        Node.__init__(self, name, inNamespace=inNamespace)  # not a switch's, which guesses a datapath id from the name
        self._made = True

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        """What Mininet calls when it makes a node: nothing yet."""

    def start_shell(self) -> None:
        """Starts the shell if there is none and waits for its prompt.  Raises RunFailed when it dies instead."""
        if self.shell is not None:
            return
        if self.stopped:
            raise RunFailed(f"{self.name}: the fabric is gone, no command can run on it")
        self.master, self.slave = pty.openpty()
        # setsid --ctty makes the pseudo-terminal the shell's own: Ctrl-C (Mininet's sendInt) then reaches the command
        argv = ["setsid", "--ctty", "bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        with self.entered():
            self.shell = subprocess.Popen(
                argv,
                stdin=self.slave,
                stdout=self.slave,
                stderr=self.slave,
                env={**os.environ, "PS1": PROMPT, "PS2": "", "HISTFILE": ""},
            )
        self.stdin = self.stdout = os.fdopen(self.master, "r")
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout)
        self.outToNode[self.stdout.fileno()] = self.inToNode[self.stdin.fileno()] = self
        self.execed, self.lastCmd, self.lastPid, self.readbuf = False, None, None, ""
        while not self.read(1024).endswith(PROMPT):
            self.pollOut.poll()
        self.waiting = False
        self.cmd("unset HISTFILE; stty -echo; set +m")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread, and what it starts, is in the node's network namespace."""
        with self.namespace.entered() if self.namespace is not None else nullcontext():
            yield

    @property
    def pid(self) -> int | None:
        """The shell's process id, for whoever enters a node by it; starts the shell."""
        if self._pid is None and not self.stopped and self._made:
            self.start_shell()
            assert self.shell is not None
            self._pid = self.shell.pid
        return self._pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        self._pid = value

    _pid: int | None = None
    _made = False

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command line in the node's shell and returns what it printed."""
        self.start_shell()
        return super().cmd(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802
        """Starts a command line in the node's shell."""
        self.start_shell()
        super().sendCmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> "subprocess.Popen[Any]":
        """A process in the node's namespace; takes what Mininet's takes (strings, lists, `shell=True`)."""
        argv = list(args[0]) if len(args) == 1 and isinstance(args[0], list) else [str(arg) for arg in args]
        shell = kwargs.pop("shell", False)
        if shell:
            argv = ["sh", "-c", " ".join(argv)]
        elif len(argv) == 1:
            argv = argv[0].split()
        argv = [*kwargs.pop("mncmd", []), *argv]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True, **kwargs}
        with self.entered():
            return subprocess.Popen(argv, **options)

    def apply(self, *requests: Request) -> None:
        """Netlink requests in the node's namespace.  Raises KernelRefused."""
        self.route.execute(requests)

    def terminate(self) -> None:
        """Ends the shell and what runs in its foreground."""
        self.stopped = True
        if self.shell is not None and self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGHUP)
            try:
                self.shell.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(self.shell.pid, signal.SIGKILL)
        if self.shell is not None:
            for descriptor in (self.stdout.fileno(),):
                self.outToNode.pop(descriptor, None)
                self.inToNode.pop(descriptor, None)
        self.cleanup()

    def __repr__(self) -> str:
        """Like Mininet's, but without starting a shell to learn its pid."""
        interfaces = ",".join(f"{interface.name}:{interface.IP()}" for interface in self.intfList())
        return f"<{type(self).__name__} {self.name}: {interfaces} pid={self._pid}> "

    @classmethod
    def setup(cls) -> None:
        """Mininet looks for mnexec and ifconfig here; neither is used."""


class FabricHost(LazyNode):
    """A host of the fabric: a network namespace."""

    def __init__(self, name: str, namespace: Namespace, route: NetlinkSocket) -> None:
        """Wraps a namespace that exists."""
        super().__init__(name, inNamespace=True)
        self.namespace, self.route = namespace, route

    def config(self, **_params: Any) -> dict[str, object]:
        """The fabric has configured the host; Mininet has nothing to do."""
        return {}

    @contextmanager
    def congestion_control(self, name: str, *, instead_of: str) -> Iterator[None]:
        """New sockets of this host run `name` until the context ends.  Raises UnknownName or MissingFeature."""
        with self.entered():
            host_stack.use_congestion_control(name)
        try:
            yield
        finally:
            with self.entered():
                host_stack.use_congestion_control(instead_of)

    @contextmanager
    def rto_min(self, rto_min_us: int, *, instead_of: int) -> Iterator[None]:
        """New sockets of this host have this least retransmission timeout until the context ends.

        Raises MissingFeature.
        """
        with self.entered():
            host_stack.use_rto_min(rto_min_us)
        try:
            yield
        finally:
            with self.entered():
                host_stack.use_rto_min(instead_of)


class FabricSwitch(LazyNode, OVSSwitch):  # type: ignore[misc]
    """A switch of the fabric: a bridge of its Open vSwitch."""

    def __init__(self, name: str, dpid: int, route: NetlinkSocket, management: str) -> None:
        """`management` is the bridge's own OpenFlow socket, which `dpctl` speaks to."""
        LazyNode.__init__(self, name, inNamespace=False)
        self.route, self.management = route, management
        self.dpid = f"{dpid:0{self.dpidLen}x}"
        self.opts, self.listenPort, self.controlIntf = "", None, None
        self.failMode, self.datapath, self.protocols, self.batch = "secure", "kernel", "OpenFlow13", False

    def dpctl(self, *args: str) -> Any:
        """ovs-ofctl on this switch, in the OpenFlow version that it speaks."""
        return self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self.management, *args[1:])

    def defaultIntf(self) -> Any:  # noqa: N802
        """The interface of the lowest port."""
        return LazyNode.defaultIntf(self)

    def start(self, controllers: object) -> None:
        """The fabric has started every switch in one transaction."""

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803
        """The fabric stops every switch at once."""

    def attach(self, intf: object) -> None:
        """Refused: ports come from the topology."""
        raise InternalError(f"{self.name}: ports are declared in the topology, not attached later")

    @classmethod
    def batchStartup(cls, switches: Any, run: object = None) -> Any:  # noqa: N802
        """Done already."""
        return switches

    @classmethod
    def batchShutdown(cls, switches: Any, run: object = None) -> Any:  # noqa: N802
        """Ends the shells; the bridges go with the fabric."""
        for switch in switches:
            switch.terminate()
        return switches
