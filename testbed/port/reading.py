"""Statistics of chosen ports, read one port at a time and kept raw; decoded later, thousands at once, into arrays.

Reading one port leaves the high-water marks of the others alone, which a dump of the namespace would not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from testbed.netlink import NetlinkSocket, Request, attributes
from testbed.port.config import CLASSES
from testbed.port.netlink import XSTATS_VERSION
from testbed.traffic_control import RTM_GETQDISC, TC_H_ROOT, TCA_STATS2, tcmsg
from topologies.errors import InternalError

Column = NDArray[np.int64]

_TCMSG_BYTES, _STATS_APP = 20, 4

_CAUSES: Final = ("egress", "shared", "headroom", "watchdog", "flush")
PORT_FIELDS: Final = (
    *("now_ns", "queue_packets", "queue_bytes", "peak_bytes", "wire_packets", "wire_bytes"),
    *("delivered_packets", "delivered_bytes", "wire_flushed_packets", "wire_flushed_bytes"),
    *("control_packets", "control_bytes", "control_ignored", "control_failed", "busy_ns"),
    *("buffer_id", "buffer_ports", "pool_bytes", "shared_bytes", "shared_peak_bytes"),
)
"""struct fabric_xstats of qdisc/sch_fabric.h, in its order; what they mean: `stats.PortStats`."""
CLASS_FIELDS: Final = (
    *("enqueued_packets", "enqueued_bytes", "sent_packets", "sent_bytes"),
    *(f"dropped_{unit}_{cause}" for unit in ("packets", "bytes") for cause in _CAUSES),
    *("marked", "unmarkable", "queue_packets", "queue_bytes", "peak_packets", "peak_bytes", "wait_ns"),
    *("pauses_sent", "resumes_sent", "pauses_received", "resumes_received", "paused_ns"),
    *("watchdog_fired", "watchdog_restored", "ingress_bytes", "headroom_bytes", "headroom_peak_bytes", "state"),
)
"""struct fabric_class_xstats, in its order; `stats.ClassStats`.  `state`: 1 paused, 2 storm, 4 has sent XOFF."""

_SHORT: Final = frozenset({"buffer_id", "buffer_ports", "state"})
_HEAD: Final = [("version", "=u4"), ("class_mask", "=u4")]
_PORT: Final = np.dtype([*_HEAD, *((name, "=u4" if name in _SHORT else "=u8") for name in PORT_FIELDS)])
_CLASS: Final = np.dtype([*((name, "=u4" if name in _SHORT else "=u8") for name in CLASS_FIELDS), ("pad", "=u4")])


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Readings of one port in order: name -> one number per reading."""

    port: Mapping[str, Column]
    classes: Mapping[int, Mapping[str, Column]]
    """Class -> the same; a class that had not been used at a reading has zeros there."""


def question(index: int, where: str) -> Request:
    """Asks for one port's statistics; `where` names it in an error message."""
    body = tcmsg(index=index, handle=0, parent=TC_H_ROOT)
    return Request(kind=RTM_GETQDISC, body=body, what=f"read the port of {where}")


def read_raw(socket: NetlinkSocket, questions: Sequence[Request]) -> list[bytes]:
    """The raw statistics of each port asked for, in order.  Raises KernelRefused."""
    return [attributes(attributes(it[_TCMSG_BYTES:])[TCA_STATS2])[_STATS_APP] for it in socket.ask(questions)]


def decode_columns(readings: Sequence[bytes], port: Sequence[str], classes: Sequence[str]) -> Columns:
    """Picks the fields `port` and `classes` out of raw readings.  Raises InternalError for another kind of qdisc."""
    runs = [_run(list(group)) for _, group in groupby(readings, key=lambda reading: reading[: 2 * 4])]
    used = sorted({index for _, found in runs for index in found})
    return Columns(
        port={name: _joined(head[name] for head, _ in runs) for name in port},
        classes={
            index: {name: _joined(_of_class(head, found, index, name) for head, found in runs) for name in classes}
            for index in used
        },
    )


def _run(readings: Sequence[bytes]) -> tuple[NDArray[Any], Mapping[int, NDArray[Any]]]:
    """Readings with the same classes in use: the port's part, and each class's."""
    mask = int.from_bytes(readings[0][4:8], "little")
    used = [index for index in range(CLASSES) if mask >> index & 1]
    whole = np.dtype([("port", _PORT), *((f"class{index}", _CLASS) for index in used)])
    if int.from_bytes(readings[0][:4], "little") != XSTATS_VERSION or len(readings[0]) != whole.itemsize:
        raise InternalError(f"the fabric qdisc speaks other statistics than version {XSTATS_VERSION}")
    table = np.frombuffer(b"".join(readings), dtype=whole)
    return table["port"], {index: table[f"class{index}"] for index in used}


def _of_class(head: NDArray[Any], found: Mapping[int, NDArray[Any]], index: int, name: str) -> NDArray[Any]:
    return found[index][name] if index in found else np.zeros(len(head), dtype=np.int64)


def _joined(parts: Iterator[NDArray[Any]]) -> Column:
    return np.concatenate([part.astype(np.int64) for part in parts])
