"""The guest's side: a run is watched while it lasts, and what was seen is left in the run folder as plain arrays.

    with Recording(fabric, sampling) as recording:     time 0
        ...                                            the experiment
        recording.rest()                               no more periods
        ...                                            the fabric comes to rest
                                                       one last sample
    recording.write(folder)                            series/*.npz, which `tables.py` makes into Parquet on the machine

Making Parquet in the guest would cost each run the import of a large library under a slow kernel.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from experiments.run_folder import write_json
from experiments.series.sampling import SOCKETS_EVERY, Sampling
from testbed.fabric import Fabric
from testbed.port.reading import Column
from testbed.sampler import Sampler, Series

ABOUT: Final = "about.json"
IDLE_PERIOD_NS: Final = 10**12
"""Longer than any run: nothing is read before it is told to rest."""
_PORT_FIELDS: Final = ("queue_bytes", "peak_bytes", "delivered_bytes", "delivered_packets", "busy_ns")
_DROPS: Final = tuple(f"dropped_packets_{cause}" for cause in ("egress", "shared", "headroom", "watchdog", "flush"))
_SUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "marked_packets": ("marked",),
    "dropped_packets": _DROPS,
    "pauses_sent": ("pauses_sent",),
    "pauses_received": ("pauses_received",),
    "paused_ns": ("paused_ns",),
}
"""Column -> the fields of a class that make it up."""
_CLASS_FIELDS: Final = (
    *("queue_bytes", "peak_bytes", "sent_bytes", "sent_packets"),
    *(name for fields in _SUMS.values() for name in fields),
)
Arrays = Mapping[str, NDArray[Any]]


class Recording:
    """A context manager around the experiment and the fabric's coming to rest."""

    def __init__(self, fabric: Fabric, sampling: Sampling) -> None:
        """Nothing is read yet."""
        self._fabric, self._sampling = fabric, sampling
        self._sampler: Sampler | None = None
        self._stack = ExitStack()
        self.start_ns = 0
        """CLOCK_MONOTONIC at the entry: time 0 of every series."""

    def __enter__(self) -> "Recording":
        """Takes the first sample."""
        ports = list(self._fabric.plan.placed)
        if self._sampling.period_ns is not None or self._sampling.idle:
            self._sampler = self._stack.enter_context(
                Sampler(
                    self._fabric,
                    interfaces=ports,
                    period_ns=self._sampling.period_ns or IDLE_PERIOD_NS,
                    port_fields=_PORT_FIELDS,
                    class_fields=_CLASS_FIELDS,
                    most_samples=self._sampling.most_samples(len(ports)),
                    socket_hosts=[host.name for host in self._fabric.topology.hosts],
                    sockets_every=SOCKETS_EVERY,
                    last=True,
                )
            )
        if self._sampler is not None and self._sampling.idle:
            self._sampler.rest()
        self.start_ns = self._sampler.start_ns if self._sampler is not None else time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes the last sample.  Raises RunFailed when the sampler failed meanwhile."""
        self._stack.close()

    def longest_queue(self) -> tuple[str, int]:
        """The switch port with the longest queue of late, in bytes; no name where nothing waited or is sampled."""
        if self._sampler is None or self._sampling.idle:
            return "", 0
        placed = self._fabric.plan.placed
        waited = {name: size for name, size in self._sampler.recent().items() if placed[name].host is None}
        name = max(waited, key=lambda each: waited[each])
        return (name, waited[name]) if waited[name] else ("", 0)

    def rest(self) -> None:
        """The experiment has ended: only the last sample is still to come."""
        if self._sampler is not None:
            self._sampler.rest()

    def totals(self) -> dict[str, dict[str, int]] | None:
        """Interface -> column of ports.parquet -> last less first, of the whole port; None: nothing was sampled."""
        if self._sampler is None or self._sampling.idle:
            return None
        tables = {name: _whole(series, 0, self.start_ns) for name, series in self._sampler.series().items()}
        return {
            name: {key: int(column[-1]) - int(column[0]) for key, column in table.items()}
            for name, table in tables.items()
        }

    def write(self, folder: Path, *, events_start_ns: int | None) -> None:
        """Into `folder`, once the context has been left.  Events of results.json count from `events_start_ns`."""
        folder.mkdir(exist_ok=True)
        write_json(
            folder / ABOUT,
            {
                "start_ns": self.start_ns,
                "wall_start_ns": time.time_ns() - time.monotonic_ns() + self.start_ns,
                "events_start_ns": None if events_start_ns is None else events_start_ns - self.start_ns,
                "first_period_ns": self._sampling.period_ns,
                "adaptive": self._sampling.adaptive,
            },
        )
        if self._sampler is None or self._sampling.idle:
            return
        series = self._sampler.series()
        _save(folder / "ports.npz", port_columns(series, self.start_ns))
        if (found := self._sampler.sockets()) is not None:
            times = {"time_ns": found.time_ns - self.start_ns, "host": found.host}
            _save(folder / "sockets.npz", {**times, **found.ends, **found.fields})


def _save(path: Path, columns: Arrays) -> None:
    np.savez(path, allow_pickle=False, **dict(columns))


def _sum(columns: Sequence[Column]) -> Column:
    return np.asarray(np.sum(columns, axis=0), dtype=np.int64)


def port_columns(series: Mapping[str, Series], start_ns: int) -> dict[str, NDArray[Any]]:
    """The columns of ports.parquet, `interface` as a number into `interfaces`; by time, interface and class."""
    names = list(series)
    tables = [
        table
        for number, name in enumerate(names)
        for table in (
            _whole(series[name], number, start_ns),
            *(_of_class(series[name], index, number, start_ns) for index in series[name].classes),
        )
    ]
    columns = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
    order = np.lexsort((columns["class"], columns["interface"], columns["time_ns"]))
    return {"interfaces": np.array(names), **{key: values[order] for key, values in columns.items()}}


def _whole(series: Series, number: int, start_ns: int) -> Arrays:
    length = len(series["now_ns"])
    return {
        "time_ns": series["now_ns"] - start_ns,
        "interface": np.full(length, number, dtype=np.int32),
        "class": np.full(length, -1, dtype=np.int8),
        "queue_bytes": series["queue_bytes"],
        "queue_max_bytes": series["peak_bytes"],
        "sent_bytes": series["delivered_bytes"],
        "sent_packets": series["delivered_packets"],
        "sending_ns": series["busy_ns"],
        **{key: _sum([series.total(name) for name in fields]) for key, fields in _SUMS.items()},
    }


def _of_class(series: Series, index: int, number: int, start_ns: int) -> Arrays:
    values = {
        "queue_bytes": series.of_class(index, "queue_bytes"),
        "queue_max_bytes": series.of_class(index, "peak_bytes"),
        "sent_bytes": series.of_class(index, "sent_bytes"),
        "sent_packets": series.of_class(index, "sent_packets"),
        **{key: _sum([series.of_class(index, name) for name in fields]) for key, fields in _SUMS.items()},
    }
    used = np.any(np.stack(list(values.values())) != 0, axis=0)
    length = int(used.sum())
    return {
        "time_ns": (series["now_ns"] - start_ns)[used],
        "interface": np.full(length, number, dtype=np.int32),
        "class": np.full(length, index, dtype=np.int8),
        "sending_ns": np.zeros(length, dtype=np.int64),
        **{key: column[used] for key, column in values.items()},
    }
