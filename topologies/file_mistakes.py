"""What the grammar of a fabric file cannot see: unknown nodes, ports taken twice, addresses that do not fit."""

from collections import Counter
from collections.abc import Iterator

from topologies.file_schema import End, FabricFile, LinkEntry


def mistakes_in(fabric: FabricFile) -> Iterator[str]:
    """`links[4].ends[1]: node 's9' does not exist; ...`: one line per mistake, in the order of the file's lists."""
    yield from _nics(fabric)
    hosts = {host.name for host in fabric.hosts}
    nodes = hosts | {switch.name for switch in fabric.switches}
    taken: dict[tuple[str, int], str] = {}
    for number, link in enumerate(fabric.links):
        if all(end.node in hosts for end in link.ends):
            yield f"links[{number}].ends: both are hosts; a link needs a switch at one end at least"
        for side, end in enumerate(link.ends):
            place = f"links[{number}].ends[{side}]"
            if end.node not in nodes:
                yield f"{place}: node '{end.node}' does not exist; declare it under hosts or switches"
            if end.port is not None:
                yield from _port(place, link, end, on_host=end.node in hosts)
                first = taken.setdefault((end.node, end.port), place)
                if first != place:
                    yield f"{place}: port {end.port} of {end.node} is taken by {first}"


def _port(place: str, link: LinkEntry, end: End, *, on_host: bool) -> Iterator[str]:
    if end.port == 0 and not on_host:
        yield f"{place}: a switch's ports are numbered from 1"
    if link.cables > 1:
        yield f"{place}: parallel cables cannot all be at port {end.port}; leave the port out"


def _nics(fabric: FabricFile) -> Iterator[str]:
    nics = Counter(end.node for link in fabric.links for end in link.ends for _ in range(link.cables))
    for number, host in enumerate(fabric.hosts):
        if not nics[host.name]:
            yield f"hosts[{number}]: {host.name} is not in any link"
        elif host.addresses and len(host.addresses) != nics[host.name]:
            yield f"hosts[{number}].addresses: {len(host.addresses)} given, {host.name} has {nics[host.name]} NICs"
