"""Loads the path selector, fills its tables, hangs it on ports, reads what it saw."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import product
from pathlib import Path
from socket import if_nametoindex
from types import TracebackType
from typing import Self

from controller.selector import libbpf, maps
from controller.selector.flow_hash import Flow
from controller.selector.selection import MOST_LINKS, MOST_PLACES, NO_CHOICE, Selection
from controller.selector.tc import TrafficControl
from topologies.errors import RunFailed, UserError

PROGRAM = "select_by_hash"
MOST_FLOWS = 1 << 18
"""Entries of the flow table: 128 hosts, all to all, eight connections each way; 22 MB of the kernel's memory."""

LEAST_TAKEN = 1 << 10
"""Entries for paths that flows have left; otherwise a quarter of the flow table's."""


class Selector:
    """The program in the kernel with its tables; a context manager that leaves no trace."""

    def __init__(self, program: Path, leaf_of: Mapping[IPv4Address, str], *, flows: int = MOST_FLOWS) -> None:
        """`leaf_of` says behind which leaf every host address is.  Raises MissingFeature where it cannot be loaded."""
        self._leaf_of = leaf_of
        self._leaves = {name: at for at, name in enumerate(dict.fromkeys(leaf_of.values()))}
        self._entries: dict[str, set[bytes]] = {maps.ASSIGNED: set(), maps.EXACT: set(), maps.ROUTES: set()}
        self.generation = 0
        """Counts changes of the tables: a flow of an earlier one chooses again."""
        self._attached: set[str] = set()
        self._undo = ExitStack()
        try:
            self._object = libbpf.Object(program)
            self._undo.callback(self._object.close)
            self._object.resize(maps.FLOWS, flows)
            self._object.resize(maps.TAKEN, max(flows // 4, LEAST_TAKEN))
            self._object.resize(maps.ROUTES, max(len(self._leaves) ** 2 * MOST_PLACES, 1))
            self._object.resize(maps.HOSTS, max(len(leaf_of), 1))
            for table in (maps.WIDTHS, maps.ROUTES_OF):
                self._object.resize(table, max(len(self._leaves) ** 2, 1))
            self._object.load()
            self.program = self._object.program(PROGRAM)
            self._control = self._undo.enter_context(TrafficControl())
            for ip, leaf in leaf_of.items():
                libbpf.update(self._table(maps.HOSTS), maps.address(ip), maps.number(self._leaves[leaf]))
        except BaseException:
            self._undo.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detaches from every port and unloads."""
        self._undo.close()

    def select(self, selection: Selection, down: int = 0) -> None:
        """Puts a policy in force; flows under way choose again with their next packet.

        `down` numbers the set of links that are down from now on: what a flow sends under one number is counted apart
        from what it sends under another, even where its mark is the same.
        """
        for at, (source, destination) in enumerate(product(self._leaves, repeat=2)):
            widths = maps.packed_widths(selection.widths.get((source, destination), NO_CHOICE))
            libbpf.update(self._table(maps.WIDTHS), maps.number(at), widths)
            count = len(selection.routes.get((source, destination), ()))
            libbpf.update(self._table(maps.ROUTES_OF), maps.number(at), maps.routes_of(count))
        pairs = {maps.pair(src, dst): maps.number(mark) for (src, dst), mark in selection.assigned.items()}
        self._write(maps.ASSIGNED, pairs)
        self._write(maps.EXACT, {maps.flow_key(flow): maps.number(mark) for flow, mark in selection.exact.items()})
        self._write(maps.ROUTES, dict(self._routes(selection)))
        self.generation += 1
        settings = maps.settings(selection, self.generation, len(self._leaves), down)
        libbpf.update(self._table(maps.SETTINGS), maps.FIRST, settings)

    def _routes(self, selection: Selection) -> Iterator[tuple[bytes, bytes]]:
        """Entries of `routes`; their links are in their table, idle, before."""
        numbers = {name: number for number, name in enumerate(sorted(selection.cost_ps), start=1)}
        if len(numbers) > MOST_LINKS:
            raise UserError(f"a choice by load knows at most {MOST_LINKS} links, this fabric has {len(numbers)}")
        for name, number in numbers.items():
            libbpf.update(self._table(maps.LINKS), maps.number(number), maps.link(selection.cost_ps[name]))
        for at, (source, destination) in enumerate(product(self._leaves, repeat=2)):
            for number, route in enumerate(selection.routes.get((source, destination), ())):
                links = [numbers[name] for name in route.links] if selection.by_load else []
                yield maps.route_key(at, number), maps.route(route.mark, links)

    def _write(self, table: str, wanted: Mapping[bytes, bytes]) -> None:
        """The table's entries become these."""
        for key, value in wanted.items():
            libbpf.update(self._table(table), key, value)
        for key in sorted(self._entries[table] - set(wanted)):
            libbpf.delete(self._table(table), key)
        self._entries[table] = set(wanted)

    def attach(self, interface: str) -> None:
        """Selects for what comes in at this interface; again is harmless.  Raises RunFailed, MissingFeature."""
        index = _index(interface)
        if index is None:
            raise RunFailed(f"interface {interface} does not exist in the controller's network namespace")
        try:
            self._hang(interface, index)
        except OSError as error:
            raise RunFailed(f"the selector cannot be attached to {interface}: {error.strerror}") from error

    def lost(self, indices: set[int] | None) -> list[str]:
        """Which of these interfaces (None: of all) this was attached to and may no longer be."""
        return [name for name in sorted(self._attached) if indices is None or _index(name) in indices]

    def flows(self) -> Iterator[maps.FlowRecord]:
        """Every flow that was seen, once for each path on which it sent anything."""
        left: dict[tuple[Flow, int, int], maps.FlowRecord] = {}
        for key, value in libbpf.entries(self._table(maps.TAKEN), maps.TAKEN_KEY_BYTES, maps.TAKEN_ENTRY_BYTES):
            record = maps.taken_record(key, value)
            left[record.flow, record.mark, record.down] = record
        for key, value in libbpf.entries(self._table(maps.FLOWS), maps.FLOW_KEY_BYTES, maps.FLOW_ENTRY_BYTES):
            now = maps.flow_record(key, value)
            before = left.pop((now.flow, now.mark, now.down), None)
            if before is not None:
                now = replace(now, packets=now.packets + before.packets, bytes=now.bytes + before.bytes)
            yield now
        yield from left.values()

    def counters(self) -> maps.Counters:
        """What the data path counted of itself."""
        value = libbpf.lookup(self._table(maps.COUNTERS), maps.FIRST, maps.COUNTERS_BYTES)
        if value is None:
            raise RunFailed("the selector's counters are gone")
        return maps.counters(value)

    def unrecorded_packets(self) -> int:
        """Packets that `flows` misses because a table was full; they had their path all the same."""
        return self.counters().unrecorded_packets

    def _table(self, name: str) -> int:
        return self._object.table(name)

    def _hang(self, interface: str, index: int) -> None:
        made_here = self._control.add_clsact(index)
        self._control.set_filter(index, self.program, PROGRAM)
        if interface not in self._attached:
            self._attached.add(interface)
            self._undo.callback(self._unhang, interface, whole=made_here)

    def _unhang(self, interface: str, *, whole: bool) -> None:
        """An interface that has gone took everything with it."""
        index = _index(interface)
        if index is not None:
            with suppress(OSError):  # the interface may go at any moment
                if whole:
                    self._control.delete_clsact(index)
                else:
                    self._control.delete_filter(index)


def _index(interface: str) -> int | None:
    try:
        return if_nametoindex(interface)
    except OSError:
        return None
