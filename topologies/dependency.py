"""Whether lossless traffic on given paths can deadlock: the channel dependency graph and a cycle in it.

    s1-eth3 -> s2-eth3      a packet that left through s1-eth3 waits in s2 for s2-eth3: as long as it does, the buffer
                            behind s1-eth3 stays full, and s1-eth3 may stay paused

Where those arrows close a circle, every buffer on it can be full of packets that wait for the next one: no pause ends.
Without a circle some buffer always drains, so every pause ends (Dally and Seitz, IEEE Trans. Computers C-36, 1987: for
deterministic paths, no cycle is enough).  A circle is not a deadlock yet: it takes traffic that fills it.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise


def cycle(paths: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The egress interfaces of one cyclic buffer dependency in order, from the first by name; empty if there is none.

    A path is the egress interfaces in order, the sender's NIC first.  Paths in any order give the same answer.
    """
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_edges_from(sorted(edge for path in paths for edge in pairwise(path)))
    try:
        found = [tail for tail, _ in nx.find_cycle(graph)]
    except nx.NetworkXNoCycle:
        return ()
    first = found.index(min(found))
    return (*found[first:], *found[:first])
