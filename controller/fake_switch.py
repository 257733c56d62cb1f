"""An Open vSwitch in memory: holds our rules, answers our requests, says where a packet leaves.

It serves the tests, and anyone who wants to ask a plan a question without a kernel.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from controller.core import Core
from controller.forwarding import Plan
from controller.pipeline import (
    ETH_TYPE_IPV4,
    AddRule,
    Barrier,
    Choose,
    DeleteRule,
    Drop,
    Match,
    Output,
    ReadTables,
    Request,
    Rule,
    Table,
    ToController,
    Wipe,
)
from topologies.model import Interface, Topology

MOST_HOPS = 64
"""A packet that is still under way after this many switches goes round in circles."""


@dataclass(frozen=True, kw_only=True)
class Packet:
    """The fields of a packet that rules can see."""

    ipv4_dst: IPv4Address | None = None
    eth_type: int = ETH_TYPE_IPV4
    arp_op: int | None = None
    mark: int = 0


class FakeSwitch:
    """One switch's flow tables."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """`rules` are there from the start, as after a restart of the controller."""
        self.rules = set(rules)

    def apply(self, request: Request) -> None:
        """Does what a switch does on a flow message; others change nothing."""
        match request:
            case AddRule(rule):
                self.rules = {old for old in self.rules if _place(old) != _place(rule)} | {rule}
            case DeleteRule(rule):
                self.rules = {old for old in self.rules if _place(old) != _place(rule)}
            case Wipe():
                self.rules.clear()

    def forward(self, packet: Packet) -> Output | ToController | Drop:
        """What happens to a packet, by the highest rule that matches in each table."""
        choice: int | None = None
        table = Table.ROUTE
        while True:
            found = [rule for rule in self.rules if rule.table == table and _matches(rule.match, packet, choice)]
            action = max(found, key=lambda rule: rule.priority).action if found else Drop()
            if not isinstance(action, Choose):
                return action
            choice, table = action.choice, Table.CHOICE


def converse(core: Core, dpid: int, switch: FakeSwitch, requests: Iterable[Request]) -> int:
    """Plays a switch against the core until neither has anything to say; the number of requests made."""
    todo, count = list(requests), 0
    while todo:
        request = todo.pop(0)
        count += 1
        match request:
            case ReadTables():
                todo += core.tables(dpid, sorted(switch.rules, key=repr), more=False)
            case Barrier():
                todo += core.acknowledged(dpid)
            case _:
                switch.apply(request)
    return count


class FakeFabric:
    """All switches of a topology, cabled."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        """Every switch holds its part of the plan."""
        self._topology = topology
        self._switch = {switch.name: FakeSwitch(plan[switch.dpid]) for switch in topology.switches}
        self._end = {(end.node, end.port): end for end in topology.interfaces()}

    def trace(self, source: Interface, packet: Packet) -> tuple[str, ...]:
        """The egress interfaces of a packet, from the sender's NIC on, as path_marks.path gives them.

        Ends where the packet is dropped or meets the controller.  Raises ValueError when it goes round in circles.
        """
        egress, here = [source.name], self._topology.peer_of[source.name]
        while here.node in self._switch:
            if len(egress) > MOST_HOPS:
                raise ValueError(f"a packet loops: {egress}")
            action = self._switch[here.node].forward(packet)
            if not isinstance(action, Output):
                break
            leaving = self._end[here.node, action.port]
            egress.append(leaving.name)
            here = self._topology.peer_of[leaving.name]
        return tuple(egress)


def _place(rule: Rule) -> tuple[Table, int, Match]:
    return rule.table, rule.priority, rule.match


def _matches(match: Match, packet: Packet, choice: int | None) -> bool:
    return (
        match.eth_type in (None, packet.eth_type)
        and match.arp_op in (None, packet.arp_op)
        and match.choice in (None, choice)
        and (match.ipv4_dst is None or (packet.ipv4_dst is not None and packet.ipv4_dst in match.ipv4_dst))
        and (match.mark is None or packet.mark & match.mark_mask == match.mark)
    )
