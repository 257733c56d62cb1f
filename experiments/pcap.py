"""Where `--pcap` puts its taps: a word from the command line -> the interfaces it means."""

from topologies.errors import UnknownName
from topologies.model import Topology


def capture_points(words: str, topology: Topology) -> tuple[str, ...]:
    """`none`, `hosts`, `all`, or a comma list of hosts, switches and interfaces -> interface names in topology order.

    Raises UnknownName for a word that is none of these.
    """
    every = [end.name for end in topology.interfaces()]
    wanted: set[str] = set()
    for word in words.split(","):
        wanted |= _named(word.strip(), topology, every)
    return tuple(name for name in every if name in wanted)


def _named(word: str, topology: Topology, every: list[str]) -> set[str]:
    if word == "none":
        return set()
    if word == "all":
        return set(every)
    if word == "hosts":
        return {end.name for end in topology.host_interfaces()}
    if word in topology.interfaces_of:
        return {end.name for end in topology.interfaces_of[word]}
    if word in every:
        return {word}
    raise UnknownName("capture point", word, ["none", "hosts", "all", *topology.interfaces_of, *every])
