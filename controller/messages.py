"""Builds OpenFlow 1.3 messages from our values, and values from what switches report.

`pkt_mark` is Open vSwitch's extension (NXM_NX_PKT_MARK, class 1, field 33); both frameworks carry it as a masked match
under OpenFlow 1.3.  A large fabric repeats most rules on many switches, so a rule's bytes are built once.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network
from struct import pack_into
from typing import Any

from controller.compat import Framework
from controller.pipeline import (
    Action,
    AddRule,
    Barrier,
    Choose,
    DeleteRule,
    Drop,
    Match,
    Output,
    ReadPorts,
    ReadTables,
    Request,
    Rule,
    SendPacket,
    Table,
    ToController,
    Wipe,
)

COOKIE = 0x0FAB
"""Marks our rules in `ovs-ofctl dump-flows`."""
XID_OFFSET = 4
"""Bytes before the transaction number in an OpenFlow header."""


@dataclass(frozen=True, slots=True)
class PortCounters:
    """What a switch counted on one port since it was made."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


class Messages:
    """Encodes requests to bytes and decodes replies, with one framework's parser."""

    def __init__(self, framework: Framework) -> None:
        """Ryu's message classes want a datapath for its constants only; `self` is enough of one."""
        self.ofproto, self.ofproto_parser = framework.ofproto, framework.parser
        self._rule_bytes: dict[AddRule | DeleteRule, bytes] = {}

    def encode(self, request: Request, xid: int) -> bytes:
        """One OpenFlow message."""
        if isinstance(request, AddRule | DeleteRule):
            if request not in self._rule_bytes:
                self._rule_bytes[request] = self._serialise(self._rule_message(request))
            message = bytearray(self._rule_bytes[request])
        else:
            message = bytearray(self._serialise(self._message(request)))
        pack_into("!I", message, XID_OFFSET, xid)
        return bytes(message)

    def rule(self, stat: Any) -> Rule | None:
        """An entry of a flow-stats reply as a value; None where it is none that we could have written."""
        fields = dict(stat.match.items())
        try:
            match = Match(
                eth_type=fields.pop("eth_type", None),
                ipv4_dst=_network(fields.pop("ipv4_dst", None)),
                arp_op=fields.pop("arp_op", None),
                choice=fields.pop("metadata", None),
                **_mark(fields.pop("pkt_mark", None)),
            )
            action = self._action(stat.instructions)
            table = Table(stat.table_id)
        except ValueError:
            return None
        timed = stat.idle_timeout or stat.hard_timeout
        if fields or action is None or timed or stat.cookie != COOKIE:
            return None
        return Rule(table=table, priority=stat.priority, match=match, action=action)

    @staticmethod
    def port_counters(stat: Any) -> PortCounters:
        """An entry of a port-stats reply as a value."""
        return PortCounters(
            rx_packets=stat.rx_packets,
            tx_packets=stat.tx_packets,
            rx_bytes=stat.rx_bytes,
            tx_bytes=stat.tx_bytes,
            rx_dropped=stat.rx_dropped,
            tx_dropped=stat.tx_dropped,
        )

    @staticmethod
    def _serialise(message: Any) -> bytes:
        message.set_xid(0)
        message.serialize()
        return bytes(message.buf)

    def _message(self, request: Request) -> Any:
        of, parser = self.ofproto, self.ofproto_parser
        match request:
            case Wipe():
                return self._flow_mod(of.OFPFC_DELETE, of.OFPTT_ALL, 0, parser.OFPMatch(), [], cookie=0)
            case Barrier():
                return parser.OFPBarrierRequest(self)
            case ReadTables():
                return parser.OFPFlowStatsRequest(self)
            case ReadPorts():
                return parser.OFPPortStatsRequest(self, 0, of.OFPP_ANY)
            case SendPacket(port, frame):
                actions = [parser.OFPActionOutput(port)]
                return parser.OFPPacketOut(self, of.OFP_NO_BUFFER, of.OFPP_CONTROLLER, actions, frame)
            case _:
                raise TypeError(f"{request!r} is not a plain request")

    def _rule_message(self, request: AddRule | DeleteRule) -> Any:
        rule, of = request.rule, self.ofproto
        if isinstance(request, DeleteRule):
            return self._flow_mod(of.OFPFC_DELETE_STRICT, rule.table, rule.priority, self._match(rule.match), [])
        return self._flow_mod(
            of.OFPFC_ADD, rule.table, rule.priority, self._match(rule.match), self._instructions(rule.action)
        )

    def _flow_mod(
        self, command: int, table: int, priority: int, match: Any, instructions: list[Any], *, cookie: int = COOKIE
    ) -> Any:
        return self.ofproto_parser.OFPFlowMod(
            self,
            cookie=cookie,
            command=command,
            table_id=int(table),
            priority=int(priority),
            match=match,
            instructions=instructions,
            out_port=self.ofproto.OFPP_ANY,
            out_group=self.ofproto.OFPG_ANY,
        )

    def _match(self, match: Match) -> Any:
        fields: dict[str, object] = {}
        if match.eth_type is not None:
            fields["eth_type"] = match.eth_type
        if match.arp_op is not None:
            fields["arp_op"] = match.arp_op
        if match.ipv4_dst is not None:
            fields["ipv4_dst"] = (str(match.ipv4_dst.network_address), str(match.ipv4_dst.netmask))
        if match.choice is not None:
            fields["metadata"] = match.choice
        if match.mark is not None:
            fields["pkt_mark"] = (match.mark, match.mark_mask)
        return self.ofproto_parser.OFPMatch(**fields)

    def _instructions(self, action: Action) -> list[Any]:
        of, parser = self.ofproto, self.ofproto_parser
        match action:
            case Drop():
                return []
            case Choose(choice):
                return [
                    parser.OFPInstructionWriteMetadata(choice, 2**64 - 1),
                    parser.OFPInstructionGotoTable(int(Table.CHOICE)),
                ]
            case Output(port):
                output = parser.OFPActionOutput(port, 0)
            case ToController():
                output = parser.OFPActionOutput(of.OFPP_CONTROLLER, of.OFPCML_NO_BUFFER)
        return [parser.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, [output])]

    def _action(self, instructions: list[Any]) -> Action | None:
        of, parser = self.ofproto, self.ofproto_parser
        match instructions:
            case []:
                return Drop()
            case [write, goto] if isinstance(write, parser.OFPInstructionWriteMetadata):
                return Choose(write.metadata) if getattr(goto, "table_id", None) == Table.CHOICE else None
            case [apply] if getattr(apply, "type", None) == of.OFPIT_APPLY_ACTIONS:
                match apply.actions:
                    case [output] if isinstance(output, parser.OFPActionOutput):
                        return ToController() if output.port == of.OFPP_CONTROLLER else Output(output.port)
        return None


def _network(value: Any) -> IPv4Network | None:
    """Ryu gives a plain string where every bit counts, else (address, mask)."""
    if value is None:
        return None
    return IPv4Network(value) if isinstance(value, str) else IPv4Network("/".join(value))


def _mark(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    mark, mask = value if isinstance(value, tuple) else (value, 2**32 - 1)
    return {"mark": mark, "mark_mask": mask}
