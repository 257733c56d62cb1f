"""results.json: what a run measured, as one versioned file that this module alone writes and reads.

The same seed gives the same file, byte for byte: it holds no wall-clock time, process id or path of the machine, and
its numbers are rounded when they are made.  Units are in the names; GB is 1e9 bytes, as in nccl-tests.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.run_folder import read_json
from topologies.errors import UserError

SCHEMA = "fabric-testbed.results/1"
"""Changes its number when a field changes its meaning or goes; new fields and sections do not change it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Record):
    """One iteration of one operation."""

    op: str
    bytes: int = Field(ge=0, description="S of nccl-tests: the whole array, over all ranks where each holds a part")
    ranks: int = Field(ge=1)
    iteration: int = Field(ge=0, description="from 0; warm-up iterations are not rows")
    time_us: float = Field(gt=0, description="from the common start to the end of the slowest rank")
    algbw_GBps: float = Field(ge=0, description="bytes / time")  # noqa: N815 - the unit's spelling
    busbw_GBps: float = Field(ge=0, description="algbw x the operation's factor: what a link must carry")  # noqa: N815
    wrong: int = Field(ge=0, description="elements, over all ranks, that differ from the expected value")

    @classmethod
    def of(
        cls, *, op: str, size_bytes: int, ranks: int, iteration: int, time_ns: int, factor: float, wrong: int
    ) -> "Row":
        """Rates follow from size and time: bytes per nanosecond are GB/s."""
        algbw = size_bytes / time_ns
        return cls(
            op=op,
            bytes=size_bytes,
            ranks=ranks,
            iteration=iteration,
            time_us=round(time_ns / 1e3, 3),
            algbw_GBps=round(algbw, 6),
            busbw_GBps=round(algbw * factor, 6),
            wrong=wrong,
        )


class LinkUse(_Record):
    """One direction of one cable over the whole job, warm-up included."""

    name: str = Field(description="FROM>TO, the names of the interfaces at its ends")
    rate_bps: int = Field(gt=0)
    tx_bytes: int = Field(ge=0, description="that left the port, Ethernet headers included")
    tx_packets: int = Field(ge=0)
    rx_packets: int = Field(ge=0, description="that arrived at the other end")
    drops: int = Field(ge=0, description="packets that the port's queue refused: they are in neither tx nor rx")
    utilisation: float = Field(ge=0, description="share of the rate, over the time in which operations ran")
    drops_by_cause: dict[str, int] = Field(default={}, description="egress, shared, headroom, watchdog, flush")
    marks: int = Field(default=0, ge=0, description="packets that the port marked (CE)")
    pauses_sent: int = Field(default=0, ge=0, description="PFC XOFF frames out of this port, refreshes included")
    pauses_received: int = Field(default=0, ge=0, description="PFC XOFF frames that told this port to stop")
    paused_us: float = Field(default=0, ge=0, description="time in which a class of the port was told to stop")
    queue_max_bytes: int = Field(default=0, ge=0, description="most that waited at once since the fabric was made")

    @classmethod
    def of(
        cls, *, name: str, rate_bps: int, tx_bytes: int, tx_packets: int, rx_packets: int, drops: int, busy_ns: int
    ) -> "LinkUse":
        """`busy_ns` is the time in which operations ran; 0 makes the utilisation 0."""
        share = tx_bytes * 8e9 / (rate_bps * busy_ns) if busy_ns else 0.0
        return cls(
            name=name,
            rate_bps=rate_bps,
            tx_bytes=tx_bytes,
            tx_packets=tx_packets,
            rx_packets=rx_packets,
            drops=drops,
            utilisation=round(share, 6),
        )


class FlowPath(_Record):
    """Where one flow went."""

    src: str = Field(description="address")
    dst: str
    proto: str
    sport: int
    dport: int
    mark: int = Field(description="the path number in skb->mark")
    packets: int
    bytes: int
    path: tuple[str, ...] = Field(description="egress interfaces in order, the sender's NIC first")


class Claim(_Record):
    """What an experiment says must be seen, and what was.  A claim that fails does not make a run invalid."""

    claim: str
    expected: str
    measured: str
    holds: bool


class Results(BaseModel):
    """The file.  Further top-level sections are an experiment's own and survive reading and writing."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="constants")

    schema_: str = Field(SCHEMA, alias="schema")
    valid: bool
    reasons: tuple[str, ...] = Field((), description="why not valid, one sentence each")
    experiment: str
    topology: str
    policy: str
    seed: int
    clock: str
    ranks: int
    rows: tuple[Row, ...]
    links: tuple[LinkUse, ...]
    paths: tuple[FlowPath, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def sections(self) -> Mapping[str, Any]:
        """What the experiment added."""
        return self.model_extra or {}


def write_results(path: Path, results: Results) -> None:
    """Equal results give equal bytes; the file appears whole or not at all."""
    text = json.dumps(results.model_dump(mode="json", by_alias=True), indent=1, allow_nan=False) + "\n"
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def read_results(path: Path) -> Results:
    """Reads and checks a results.json.  Raises UserError that names the file and the first field at fault."""
    found = read_json(path)
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise UserError(f"{path}: schema is {schema!r}, this version reads {SCHEMA!r}")
    try:
        return Results.model_validate(found)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise UserError(f"{path}: {field}: {fault['msg']}") from error
