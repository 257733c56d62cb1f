"""What `series/*.parquet` of a run folder hold: this file is their one description, and what is written is held to it.

    series/ports.parquet     every port and traffic class at every sample
    series/sockets.parquet   every established TCP connection of every host, at its own samples
    series/ranks.parquet     what every rank did, from when to when; written whether or not ports were sampled

Times are nanoseconds of the run's clock since the experiment's `run` began.  Counters count since the fabric was made:
the last value less the first is what results.json says of the link.  Units are in the names.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

VERSION: Final = "fabric-testbed.series/1"
"""In each file's metadata under `schema`; another number when a column changes its meaning or goes."""
WHOLE_PORT: Final = -1
"""In `class`: all traffic classes together, and what belongs to none."""

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())


def _schema(columns: Mapping[str, tuple["pa.DataType", str]]) -> "pa.Schema":
    fields = [
        pa.field(name, kind, nullable=False, metadata={"meaning": meaning}) for name, (kind, meaning) in columns.items()
    ]
    return pa.schema(fields, metadata={"schema": VERSION})


PORTS: Final = _schema(
    {
        "time_ns": (pa.int64(), "of the reading; the last is after the fabric has come to rest"),
        "interface": (_TEXT, "whose egress port it is"),
        "class": (pa.int8(), "traffic class 0..7, or -1: the whole port; a class begins to appear when it is used"),
        "queue_bytes": (pa.int64(), "waiting now, what is being serialised not counted"),
        "queue_max_bytes": (pa.int64(), "most that waited at once since the sample before"),
        "sent_bytes": (pa.int64(), "whole port: has left it, pauses included; class: serialisation has begun"),
        "sent_packets": (pa.int64(), "the same"),
        "sending_ns": (
            pa.int64(),
            "time in which the port was serialising; of a class: 0, a port keeps one such clock",
        ),
        "marked_packets": (pa.int64(), "ECT made CE here"),
        "dropped_packets": (pa.int64(), "refused or flushed by this port, all causes"),
        "pauses_sent": (pa.int64(), "PFC XOFF frames, refreshes included"),
        "pauses_received": (pa.int64(), "PFC XOFF frames that told this port to stop"),
        "paused_ns": (pa.int64(), "time in which it was told to stop; whole port: summed over its classes"),
    }
)
SOCKETS: Final = _schema(
    {
        "time_ns": (pa.int64(), "of the reading"),
        "host": (_TEXT, "whose end of the connection it is"),
        "local_address": (_TEXT, "IPv4"),
        "local_port": (pa.int32(), "TCP"),
        "remote_address": (_TEXT, "IPv4"),
        "remote_port": (pa.int32(), "TCP"),
        "cwnd_packets": (pa.int64(), "congestion window"),
        "srtt_ns": (pa.int64(), "smoothed round trip, which Linux tells in whole microseconds; 0: not measured yet"),
        "retransmitted_packets": (pa.int64(), "segments sent again so far"),
        "timeouts": (pa.int64(), "retransmission timeouts so far"),
        "delivery_rate_bps": (pa.int64(), "the latest that TCP measured, of payload; 0: none yet"),
        "delivered_packets": (pa.int64(), "acknowledged so far"),
        "delivered_ce_packets": (pa.int64(), "of these, said to have arrived marked"),
    }
)
RANKS: Final = _schema(
    {
        "job": (pa.int32(), "from 1, in the order in which the experiment started them"),
        "rank": (pa.int32(), "within the job"),
        "host": (_TEXT, "where it ran"),
        "kind": (_TEXT, "operation, compute, communication, or wait: for the others at a line-up"),
        "name": (_TEXT, "of the operation or line-up; equal on all ranks for one collective"),
        "step": (pa.int32(), "of training, negative for warm-up; elsewhere how many of its name and kind came before"),
        "start_ns": (pa.int64(), ""),
        "end_ns": (pa.int64(), ""),
        "size_bytes": (pa.int64(), "of the array communicated; 0 where nothing is"),
    }
)
FILES: Final[Mapping[str, "pa.Schema"]] = {"ports": PORTS, "sockets": SOCKETS, "ranks": RANKS}
"""Name of the file without `.parquet` -> its columns."""
