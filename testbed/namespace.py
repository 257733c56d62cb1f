"""Network namespaces without a process in them, and what is read and written inside: sysctls, sysfs, offloads.

A namespace lives as long as a descriptor, a process or a bind mount refers to it.  Ours are held by descriptors only:
when the process that built a fabric ends, however it ends, the kernel takes hosts, cables and switch ports away.
"""

import array
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from testbed.netlink import KernelRefused
from topologies.errors import RunFailed

CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL("libc.so.6", use_errno=True)
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
"""The same on every architecture (include/uapi/asm-generic/unistd.h), Linux 5.2 and later; glibc 2.36 wraps them."""
_FSCONFIG_CMD_CREATE = 6
_SIOCETHTOOL = 0x8946
_ETHTOOL_GSTRINGS, _ETHTOOL_GSSET_INFO, _ETHTOOL_GFEATURES, _ETHTOOL_SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
_ETH_SS_FEATURES = 4
"""Of linux/ethtool.h."""
PROC_SYS = Path("/proc/sys")


def _check(result: int, what: str) -> int:
    if result < 0:
        raise KernelRefused(code=ctypes.get_errno(), what=what)
    return result


def current_namespace() -> int:
    """A descriptor of the calling thread's network namespace; the caller closes it."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Namespace:
    """One network namespace, held by a descriptor."""

    def __init__(self, name: str) -> None:
        """Makes a fresh one and stays where it was.  Raises KernelRefused (EPERM: not root)."""
        self.name = name
        before = current_namespace()
        try:
            _check(_LIBC.unshare(CLONE_NEWNET), f"make the network namespace of {name}")
            self.fd = current_namespace()
        finally:
            _check(_LIBC.setns(before, CLONE_NEWNET), "return to the former network namespace")
            os.close(before)

    def close(self) -> None:
        """Lets go of it; the kernel removes it with everything in it once no process is left inside."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread, and whatever it starts or opens meanwhile, is inside."""
        before = current_namespace()
        try:
            self.enter()
            yield
        finally:
            _check(_LIBC.setns(before, CLONE_NEWNET), "return to the former network namespace")
            os.close(before)

    def enter(self) -> None:
        """Moves the calling thread in for good: what a forked rank does."""
        _check(_LIBC.setns(self.fd, CLONE_NEWNET), f"enter the network namespace of {self.name}")


def write_sysctl(key: str, value: str) -> None:
    """Sets `net/ipv4/tcp_ecn` in the namespace the thread is in.  Raises KernelRefused naming key and value."""
    try:
        with (PROC_SYS / key).open("w") as file:
            file.write(value)
    except OSError as error:
        raise KernelRefused(code=error.errno or 0, what=f"set sysctl {key} to '{value}'") from error


def read_sysctl(key: str) -> str | None:
    """Its value with white space normalised, None where this kernel has no such key."""
    try:
        return " ".join((PROC_SYS / key).read_text().split())
    except FileNotFoundError:
        return None


class Sysfs:
    """The sysfs of the namespace that the thread is in when this is made, as a mount that no mount table shows.

    The /sys of the machine shows the interfaces of the namespace that mounted it; ours live elsewhere.
    """

    def __init__(self) -> None:
        """Mounts it.  Raises KernelRefused."""
        context = _check(_LIBC.syscall(_SYS_FSOPEN, b"sysfs", 1), "open a sysfs context")
        try:
            _check(_LIBC.syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), "create a sysfs")
            self._root = _check(_LIBC.syscall(_SYS_FSMOUNT, context, 1, 0), "mount a sysfs")
        finally:
            os.close(context)

    def close(self) -> None:
        """Unmounts it."""
        os.close(self._root)

    def write(self, path: str, value: str) -> None:
        """Writes `class/net/h1-eth0/gro_flush_timeout`.  Raises KernelRefused."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._root)
            try:
                os.write(fd, value.encode())
            finally:
                os.close(fd)
        except OSError as error:
            raise KernelRefused(code=error.errno or 0, what=f"set {path} to '{value}'") from error

    def read(self, path: str) -> str:
        """Its text.  Raises KernelRefused."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._root)
            try:
                return os.read(fd, 4096).decode().strip()
            finally:
                os.close(fd)
        except OSError as error:
            raise KernelRefused(code=error.errno or 0, what=f"read {path}") from error


class Offloads:
    """Segmentation and aggregation switches of interfaces in the namespace where this was made."""

    def __init__(self) -> None:
        """Opens the socket that the requests go through, and learns which bits mean what on this kernel."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        names = tuple(self._feature_names("lo"))
        self._masks = offload_masks(names)
        self._blocks = -(-len(names) // 32)

    def close(self) -> None:
        """Frees the socket."""
        self._socket.close()

    def set(self, interface: str, wanted: Mapping[str, bool]) -> None:
        """Turns `tso`, `gso`, `gro` on or off, every kind of each.  Raises KernelRefused."""
        valid = requested = 0
        for offload, on in wanted.items():
            valid |= self._masks[offload]
            requested |= self._masks[offload] if on else 0
        words = [_ETHTOOL_SFEATURES, self._blocks]
        for block in range(self._blocks):
            words += [valid >> 32 * block & 0xFFFFFFFF, requested >> 32 * block & 0xFFFFFFFF]
        self._ethtool(interface, array.array("I", words), f"set the offloads {dict(wanted)} of {interface}")

    def get(self, interface: str) -> dict[str, bool]:
        """What is in force: an offload is on when any kind of it is."""
        data = array.array("I", [_ETHTOOL_GFEATURES, self._blocks, *[0] * 4 * self._blocks])
        self._ethtool(interface, data, f"read the offloads of {interface}")
        active = sum(data[4 + 4 * block] << 32 * block for block in range(self._blocks))
        return {offload: bool(active & mask) for offload, mask in self._masks.items()}

    def _feature_names(self, interface: str) -> Iterator[str]:
        count = array.array("I", [_ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0, 0])
        self._ethtool(interface, count, "count the kernel's offloads")
        names = array.array("I", [_ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, count[4], *[0] * 8 * count[4]])
        self._ethtool(interface, names, "list the kernel's offloads")
        text = names.tobytes()[12:]
        for start in range(0, 32 * count[4], 32):
            yield text[start : start + 32].split(b"\0")[0].decode()

    def _ethtool(self, interface: str, data: "array.array[int]", what: str) -> None:
        try:
            fcntl.ioctl(self._socket, _SIOCETHTOOL, struct.pack("16sP8x", interface.encode(), data.buffer_info()[0]))
        except OSError as error:
            raise KernelRefused(code=error.errno or 0, what=what) from error


@cache
def offload_masks(names: tuple[str, ...]) -> dict[str, int]:
    """Offload -> its bits.  TSO has several kinds, and new kernels have more than the old ETHTOOL_STSO reaches."""
    bits = {name: 1 << bit for bit, name in enumerate(names)}
    tso = sum(bit for name, bit in bits.items() if name.startswith("tx-tcp"))
    return {"tso": tso, "gso": bits["tx-generic-segmentation"], "gro": bits["rx-gro"]}


def is_guest() -> bool:
    """Whether this kernel is the guest: User-Mode Linux, a machine that is ours alone."""
    return "User Mode Linux" in Path("/proc/cpuinfo").read_text()


@contextmanager
def own_network(name: str) -> Iterator[Namespace]:
    """The calling thread works in a fresh network namespace, and is back in its own afterwards.

    Switch ports, Open vSwitch and the controller live there: nothing of ours can meet anything of the machine's.
    """
    if os.getuid() != 0:
        raise RunFailed("only root may build a fabric on a kernel; without root use --clock virtual")
    namespace = Namespace(name)
    try:
        with namespace.entered():
            yield namespace
    finally:
        namespace.close()
