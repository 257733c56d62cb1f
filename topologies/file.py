"""Fabrics from YAML: any nodes and cables, with every mistake reported at once as `file: path: what is wrong`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from topologies import parameters as read
from topologies.builder import Builder, address_of
from topologies.errors import UnknownName, UserError
from topologies.file_mistakes import mistakes_in
from topologies.file_schema import ENTRIES, SETTINGS, End, FabricFile, LinkEntry
from topologies.model import Host, Switch, Topology


def read_file(path: Path, settings: Mapping[str, str] | None = None) -> Topology:
    """The fabric that a file describes, with `settings` in place of the file's own mtu, rate, delay or buffer.

    Raises UserError with one line per mistake, each naming the file and the path of the field.
    """
    settings = settings or {}
    for key in settings:
        if key not in SETTINGS:
            raise UnknownName(f"setting of {path}", key, SETTINGS)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    return read_text(text, where=str(path), name=path.stem, settings=settings)


def read_text(text: str, *, where: str, name: str, settings: Mapping[str, str] | None = None) -> Topology:
    """As `read_file`, from text; `where` begins every message, `name` is the fabric's unless the text has one."""
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise UserError(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise UserError(f"{where}: a fabric is a mapping with hosts, switches and links")
    try:
        fabric = FabricFile.model_validate({**data, **(settings or {})})
    except ValidationError as error:
        raise UserError("\n".join(f"{where}: {line}" for line in _lines(error))) from None
    mistakes = [f"{where}: {line}" for line in mistakes_in(fabric)]
    if mistakes:
        raise UserError("\n".join(mistakes))
    try:
        return _build(fabric, name, settings or {})
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


class _StrictLoader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; here that is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raises ConstructorError for a key that is there twice."""
        keys = Counter(key.value for key, _ in node.value)
        for key, times in keys.items():
            if times > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key '{key}' is given twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _lines(error: ValidationError) -> Iterator[str]:
    """Pydantic's findings in our words: `links[3].rate: '100X' is not a rate; ...`."""
    for finding in error.errors():
        place = finding["loc"]
        message = finding["msg"].removeprefix("Value error, ")
        if finding["type"] == "extra_forbidden":
            model = ENTRIES.get(str(place[0]), FabricFile) if len(place) > 1 else FabricFile
            message = f"unknown key; known: {', '.join(model.model_fields)}"
        elif finding["type"] == "missing":
            message = "is missing"
        yield f"{_path(place)}: {message}"


def _path(place: tuple[int | str, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return "".join(steps).removeprefix(".")


def _build(fabric: FabricFile, name: str, settings: Mapping[str, str]) -> Topology:
    builder = Builder(mtu=fabric.mtu)
    racks = _racks(fabric)
    pods = {switch.name: switch.pod for switch in fabric.switches}
    taken = {switch.dpid for switch in fabric.switches if switch.dpid is not None}
    nodes: dict[str, Host | Switch] = {}
    for host in fabric.hosts:
        leaf, *others = dict.fromkeys(_leaves_of(fabric, host.name))
        nodes[host.name] = builder.host(host.name, pod=pods[leaf], rack=0 if others else racks[leaf])
    free = (number for number in range(1, len(fabric.switches) + len(taken) + 1) if number not in taken)
    for switch in fabric.switches:
        dpid = next(free) if switch.dpid is None else switch.dpid
        nodes[switch.name] = builder.switch(switch.name, tier=switch.tier, pod=switch.pod, dpid=dpid)
    for end in (end for link in fabric.links for end in link.ends if end.port is not None):
        builder.reserve(end.node, end.port or 0)
    addresses = _Addresses(fabric, racks)
    for link in fabric.links:
        for _ in range(link.cables):
            one, other = link.ends
            builder.cable(
                nodes[one.node],
                nodes[other.node],
                _wire(fabric, link),
                address=addresses.take(one, other),
                ports=(one.port, other.port),
            )
    return builder.topology(fabric.name or name, parameters=settings)


def _wire(fabric: FabricFile, link: LinkEntry) -> read.Wire:
    return read.wire(
        rate=link.rate or fabric.rate,
        delay=link.delay or fabric.delay,
        buffer=link.buffer or fabric.buffer,
    )


def _leaves_of(fabric: FabricFile, host: str) -> Iterator[str]:
    """The switches that a host is cabled to, in the order of the links."""
    for link in fabric.links:
        one, other = link.ends
        if host == one.node:
            yield other.node
        elif host == other.node:
            yield one.node


def _racks(fabric: FabricFile) -> Mapping[str, int]:
    """Leaf -> its number inside its pod, from 1, in the order of the switches."""
    with_hosts = {leaf for host in fabric.hosts for leaf in _leaves_of(fabric, host.name)}
    seen: Counter[int] = Counter()
    racks: dict[str, int] = {}
    for switch in fabric.switches:
        if switch.name in with_hosts:
            seen[switch.pod] += 1
            racks[switch.name] = seen[switch.pod]
    return racks


class _Addresses:
    """Hands out the hosts' addresses: those that the file gives, else the next free 10.pod.leaf.host."""

    def __init__(self, fabric: FabricFile, racks: Mapping[str, int]) -> None:
        self._given = {host.name: iter(host.addresses) for host in fabric.hosts}
        self._taken = {address for host in fabric.hosts for address in host.addresses}
        self._pods = {switch.name: switch.pod for switch in fabric.switches}
        self._racks = racks
        self._next: Counter[str] = Counter()

    def take(self, one: End, other: End) -> IPv4Address | None:
        """For the host's end of a link; None between switches.  Raises UserError when a leaf has too many hosts."""
        host, leaf = (one.node, other.node) if one.node in self._given else (other.node, one.node)
        if host not in self._given:
            return None
        given = next(self._given[host], None)
        return self._free(leaf) if given is None else given

    def _free(self, leaf: str) -> IPv4Address:
        while True:
            self._next[leaf] += 1
            address = address_of(pod=self._pods[leaf], leaf=self._racks[leaf], host=self._next[leaf])
            if address not in self._taken:
                return address
