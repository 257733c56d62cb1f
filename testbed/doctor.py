"""What this machine can do under each clock, found by trying it, and how to get what is missing.

Everything that a clock needs is one line of PROBES.  A probe does the real thing, in a network namespace of its own
that is gone with the process that made it; nothing is inferred from version numbers or lists of modules.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from testbed.guest import kernel
from topologies.errors import TestbedError

Clock = Literal["virtual", "real"]
_TIMEOUT_S = 30
_VETH = "ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up"


class Machine(Protocol):
    """What probes may do: the edge that a test replaces."""

    @property
    def is_root(self) -> bool:
        """Whether we may do all that a fabric needs."""

    def has_command(self, name: str) -> bool:
        """Whether a program of that name is to be found."""

    def try_in_namespace(self, script: str) -> bool:
        """Whether a shell script succeeds as root in a fresh network namespace."""

    def boots_guest(self) -> bool:
        """Whether a guest boots and runs a command."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One thing that a clock needs, or can make use of."""

    name: str
    needed_for: tuple[Clock, ...]
    """Empty for what only some settings ask for; those refuse by themselves where it is missing."""
    remedy: str
    look: Callable[[Machine], bool]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a probe found."""

    name: str
    needed_for: tuple[Clock, ...]
    present: bool
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """All that was found; as text, the page that `./run doctor` shows."""

    checks: tuple[Check, ...]

    def missing(self, clock: Clock) -> list[Check]:
        """What `clock` needs and this machine lacks."""
        return [check for check in self.checks if clock in check.needed_for and not check.present]

    def ready(self, clock: Clock) -> bool:
        """Whether a run on `clock` can start."""
        return not self.missing(clock)

    def __str__(self) -> str:
        """A table with a line per check, and a verdict with remedies per clock."""
        width = max(len(check.name) for check in self.checks)
        lines = [f"{'':8} {'needed for':14} what"]
        for check in self.checks:
            state = "yes" if check.present else "MISSING" if check.needed_for else "no"
            lines.append(f"{state:8} {', '.join(check.needed_for) or 'some settings':14} {check.name:{width}}".rstrip())
        for clock in ("virtual", "real"):
            lines += ["", *self._verdict(clock)]
        return "\n".join(lines)

    def _verdict(self, clock: Clock) -> list[str]:
        missing = self.missing(clock)
        if not missing:
            return [f"--clock {clock}: works on this machine"]
        remedies = dict.fromkeys(check.remedy for check in missing)  # each once, in order
        return [f"--clock {clock}: does not work yet; what to do:", *(f"  - {remedy}" for remedy in remedies)]


def _command(name: str, package: str, *clocks: Clock) -> Probe:
    remedy = f"install the package {package} (./run does it)"
    return Probe(
        name=f"command {name}", needed_for=clocks, remedy=remedy, look=lambda machine: machine.has_command(name)
    )


def _kernel(name: str, script: str, option: str) -> Probe:
    """A feature of the machine's own kernel: `script` uses it in a namespace of its own."""
    remedy = (
        f"boot a kernel with CONFIG_{option} (Debian's has it; the Vagrant machine runs one), or use --clock virtual"
    )
    return Probe(name=name, needed_for=("real",), remedy=remedy, look=lambda machine: machine.try_in_namespace(script))


def _congestion_control(name: str, *, needed_for: tuple[Clock, ...]) -> Probe:
    return Probe(
        name=f"congestion control {name} in namespaces",
        needed_for=needed_for,
        remedy=f"modprobe tcp_{name}, and add {name} to the sysctl net.ipv4.tcp_allowed_congestion_control",
        look=lambda machine: machine.try_in_namespace(f"echo {name} > /proc/sys/net/ipv4/tcp_congestion_control"),
    )


FABRIC_PORTS = Probe(
    name="queueing discipline fabric",
    needed_for=("real",),
    remedy="build and load the module in testbed/port/qdisc (its README says how), or do without shared buffers, ECN "
    "and PFC: --set port.kind=stock",
    # tc cannot set its options, so the kernel refuses to make one; only our own code words it so
    look=lambda machine: machine.try_in_namespace(f"{_VETH} && tc qdisc add dev d0 root fabric 2>&1 | grep -q fabric:"),
)
"""Ports by default; `--set port.kind=stock` does without."""

PROBES: tuple[Probe, ...] = (
    Probe(
        name="root",
        needed_for=("real",),
        remedy="run as root: sudo ./run ... (the real clock changes this machine's network)",
        look=lambda machine: machine.is_root,
    ),
    Probe(
        name="a guest boots",
        needed_for=("virtual",),
        remedy="./run setup builds the guest kernel; if it is built, FABRIC_TESTBED_CACHE/setup.log and the error of "
        "`./run shell --topology star` say what is wrong",
        look=lambda machine: machine.boots_guest(),
    ),
    _command("ovs-vswitchd", "openvswitch-switch", "virtual", "real"),
    _command("ovsdb-server", "openvswitch-switch", "virtual", "real"),
    _command("mnexec", "mininet", "virtual", "real"),
    _command("clang", "clang", "virtual", "real"),
    _command("ip", "iproute2", "virtual", "real"),
    _command("tc", "iproute2", "virtual", "real"),
    _command("ethtool", "ethtool", "virtual", "real"),
    _command("setpriv", "util-linux", "virtual", "real"),
    _command("tshark", "tshark", "virtual", "real"),
    _kernel("network namespaces", "true", "NET_NS"),
    _kernel("virtual cables (veth)", _VETH, "VETH"),
    _kernel("Open vSwitch datapath", "ovs-dpctl add-dp probe && ovs-dpctl del-dp probe", "OPENVSWITCH"),
    _kernel(
        "queueing discipline netem",
        f"{_VETH} && tc qdisc add dev d0 root netem delay 1us rate 1gbit limit 1000",
        "NET_SCH_NETEM",
    ),
    FABRIC_PORTS,
    _kernel("queueing discipline clsact", f"{_VETH} && tc qdisc add dev d0 clsact", "NET_SCH_INGRESS"),
    _kernel(
        "BPF classifier (cls_bpf)",
        f"{_VETH} && tc qdisc add dev d0 clsact && tc filter add dev d0 ingress bpf da bytecode '1,6 0 0 4294967295,'",
        "NET_CLS_BPF",
    ),
    _congestion_control("cubic", needed_for=("real",)),
    *(_congestion_control(name, needed_for=()) for name in ("reno", "dctcp", "bbr")),
)


class ThisMachine:
    """The machine that we run on."""

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0

    def has_command(self, name: str) -> bool:
        return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is not None

    def try_in_namespace(self, script: str) -> bool:
        if not self.is_root:
            return False
        try:
            completed = subprocess.run(
                ["unshare", "--net", "--mount", "sh", "-c", script],
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return False
        return completed.returncode == 0

    def boots_guest(self) -> bool:
        from testbed.guest.machine import Boot, boot

        try:
            kernel.find()
            with tempfile.TemporaryDirectory() as folder:
                return boot(Boot(command=("true",), run_dir=Path(folder), wall_limit_s=_TIMEOUT_S)) == 0
        except TestbedError:
            return False


def inspect(machine: Machine | None = None, probes: Iterable[Probe] = PROBES) -> Capabilities:
    """Try everything.  Changes nothing on the machine; takes about a second."""
    machine = machine or ThisMachine()
    return Capabilities(
        checks=tuple(
            Check(name=p.name, needed_for=p.needed_for, present=p.look(machine), remedy=p.remedy) for p in probes
        )
    )


def missing_for(clock: Clock, machine: Machine | None = None) -> list[Check]:
    """What `clock` needs and this machine lacks, trying only what it needs."""
    return inspect(machine, (probe for probe in PROBES if clock in probe.needed_for)).missing(clock)
