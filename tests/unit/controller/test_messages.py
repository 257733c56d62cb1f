"""OpenFlow 1.3 on the wire, under both frameworks."""

from struct import unpack_from
from types import SimpleNamespace

import pytest

from controller.compat import Framework
from controller.forwarding import plan
from controller.messages import COOKIE, Messages, PortCounters
from controller.pipeline import (
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
    Wipe,
)
from topologies.registry import parse_topology

FLOW_MOD, BARRIER_REQUEST, MULTIPART_REQUEST, PACKET_OUT = 14, 20, 18, 13
MARK_RULE = Rule(
    table=Table.CHOICE, priority=200, match=Match(choice=7, mark=0x0200, mark_mask=0xFF00), action=Output(3)
)


def wire_match(message: bytes) -> bytes:
    """The match of a flow-mod without its header and padding."""
    kind, length = unpack_from("!HH", message, 48)
    assert kind == 1
    return message[52 : 48 + length]


def test_a_mark_is_matched_under_its_mask_by_the_extension_of_open_vswitch(framework: Framework) -> None:
    match = wire_match(Messages(framework).encode(AddRule(MARK_RULE), 1))
    pkt_mark = bytes.fromhex("0001 43 08 00000200 0000ff00".replace(" ", ""))  # NXM class 1, field 33 masked, 8 bytes
    metadata = bytes.fromhex("8000 04 08 0000000000000007".replace(" ", ""))
    assert pkt_mark in match
    assert match.replace(pkt_mark, b"") == metadata


@pytest.mark.parametrize("spec", ["leaf_spine", "fat_tree:k=4", "rail"])
def test_every_rule_comes_back_as_it_went(framework: Framework, spec: str) -> None:
    """A flow-mod and a flow-stats entry share match and instructions: what we write we must be able to recognise."""
    messages = Messages(framework)
    for rule in set().union(*plan(parse_topology(spec)).values()):
        message = messages.encode(AddRule(rule), 5)
        assert messages.rule(as_stat(framework, message)) == rule


def as_stat(framework: Framework, message: bytes, **changes: object) -> SimpleNamespace:
    match = framework.parser.OFPMatch.parser(message, 48)
    at, instructions = 48 + (unpack_from("!H", message, 50)[0] + 7) // 8 * 8, []
    while at < len(message):
        instruction = framework.parser.OFPInstruction.parser(message, at)
        instructions.append(instruction)
        at += instruction.len
    cookie, _, table, _, idle, hard, priority = unpack_from("!QQBBHHH", message, 8)
    stat = {"table_id": table, "priority": priority, "cookie": cookie, "idle_timeout": idle, "hard_timeout": hard}
    return SimpleNamespace(**{**stat, "match": match, "instructions": instructions, **changes})


@pytest.mark.parametrize("changes", [{"idle_timeout": 5}, {"cookie": 0}, {"table_id": 9}])
def test_an_entry_that_differs_in_what_a_rule_does_not_say_is_not_ours(
    framework: Framework, changes: dict[str, int]
) -> None:
    message = Messages(framework).encode(AddRule(MARK_RULE), 1)
    assert Messages(framework).rule(as_stat(framework, message, **changes)) is None


def test_an_entry_with_another_field_or_action_is_not_ours(framework: Framework) -> None:
    parser, of = framework.parser, framework.ofproto
    apply = parser.OFPInstructionActions
    for match, instructions in (
        (parser.OFPMatch(in_port=1), []),
        (parser.OFPMatch(), [parser.OFPInstructionMeter(1)]),
        (parser.OFPMatch(), [apply(of.OFPIT_WRITE_ACTIONS, [parser.OFPActionOutput(1)])]),
        (parser.OFPMatch(), [apply(of.OFPIT_APPLY_ACTIONS, [parser.OFPActionGroup(1)])]),
        (parser.OFPMatch(), [apply(of.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(1), parser.OFPActionOutput(2)])]),
        (parser.OFPMatch(), [parser.OFPInstructionWriteMetadata(1, 2**64 - 1), parser.OFPInstructionGotoTable(9)]),
    ):
        stat = SimpleNamespace(
            table_id=0,
            priority=1,
            cookie=COOKIE,
            idle_timeout=0,
            hard_timeout=0,
            match=match,
            instructions=instructions,
        )
        assert Messages(framework).rule(stat) is None


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (AddRule(MARK_RULE), FLOW_MOD),
        (DeleteRule(MARK_RULE), FLOW_MOD),
        (Wipe(), FLOW_MOD),
        (Barrier(), BARRIER_REQUEST),
        (ReadTables(), MULTIPART_REQUEST),
        (ReadPorts(), MULTIPART_REQUEST),
        (SendPacket(3, b"frame"), PACKET_OUT),
    ],
)
def test_every_request_is_one_message_with_its_number(framework: Framework, request_: Request, kind: int) -> None:
    messages = Messages(framework)
    for xid in (1, 0xFFFFFFFF, 2):  # the second and third come from the cache
        message = messages.encode(request_, xid)
        assert unpack_from("!BBHI", message) == (4, kind, len(message), xid)


def test_a_wipe_reaches_every_table_and_every_cookie(framework: Framework) -> None:
    cookie, cookie_mask, table, command = unpack_from("!QQBB", Messages(framework).encode(Wipe(), 1), 8)
    assert (cookie, cookie_mask, table, command) == (0, 0, framework.ofproto.OFPTT_ALL, framework.ofproto.OFPFC_DELETE)


def test_a_deletion_is_strict(framework: Framework) -> None:
    message = Messages(framework).encode(DeleteRule(MARK_RULE), 1)
    assert unpack_from("!B", message, 25)[0] == framework.ofproto.OFPFC_DELETE_STRICT
    assert wire_match(message) == wire_match(Messages(framework).encode(AddRule(MARK_RULE), 1))


def test_both_frameworks_write_the_same_bytes() -> None:
    from controller import compat

    ryu, os_ken = (Messages(compat.load(name)) for name in ("ryu", "os_ken"))
    for rule in set().union(*plan(parse_topology("fat_tree:k=4")).values()):
        assert ryu.encode(AddRule(rule), 9) == os_ken.encode(AddRule(rule), 9)


def test_actions_are_what_they_say(framework: Framework) -> None:
    messages = Messages(framework)
    for action in (Drop(), Output(4), Choose(2**48 - 1)):
        rule = Rule(table=Table.ROUTE, priority=1, match=Match(), action=action)
        assert messages.rule(as_stat(framework, messages.encode(AddRule(rule), 1))) == rule


def test_port_counters_are_taken_over(framework: Framework) -> None:
    names = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")
    stat = SimpleNamespace(**{name: at for at, name in enumerate(names)})
    assert Messages.port_counters(stat) == PortCounters(**{name: at for at, name in enumerate(names)})
