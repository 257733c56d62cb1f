"""What TCP counted at hosts, from the kernel's text."""

from experiments.tcp_events import TcpEvents, section

SNMP = "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens RetransSegs\nTcp: 4 7\n"
NETSTAT = "TcpExt: TCPTimeouts TCPLossProbes TCPOFOQueue TCPDSACKRecv\nTcpExt: 1 2 30 4\nIpExt: InOctets\nIpExt: 99\n"


def test_counters_are_found_by_name() -> None:
    assert TcpEvents.parse(SNMP, NETSTAT) == TcpEvents(
        retransmitted=7, timeouts=1, loss_probes=2, out_of_order=30, needless=4
    )


def test_a_section_has_what_happened_meanwhile_and_where() -> None:
    before = {"h1": TcpEvents(out_of_order=5, retransmitted=2), "h2": TcpEvents(timeouts=1), "h3": TcpEvents()}
    after = {"h1": TcpEvents(out_of_order=9, retransmitted=2), "h2": TcpEvents(timeouts=1), "h3": TcpEvents(needless=2)}
    found = section(before, after)
    assert (found["out_of_order"], found["needless"], found["retransmitted"], found["timeouts"]) == (4, 2, 0, 0)
    assert set(found["hosts"]) == {"h1", "h3"}
    assert found["hosts"]["h1"]["out_of_order"] == 4
