"""`NAME:key=value,...` and `FILE.yaml:key=value,...` as a user types them."""

import pytest

from topologies.errors import UnknownName, UserError
from topologies.registry import TOPOLOGIES, parse_topology


def test_a_name_alone_has_the_defaults() -> None:
    topology = parse_topology("leaf_spine")
    assert (len(topology.hosts), len(topology.switches), topology.mtu) == (16, 8, 9000)
    assert {link.rate_bps for link in topology.links} == {10**11}


def test_parameters_by_name() -> None:
    topology = parse_topology(" leaf_spine:leaves=2, hosts=1,rate=400G ")
    assert [host.name for host in topology.hosts] == ["h1", "h2"]
    assert {link.rate_bps for link in topology.links} == {4 * 10**11}


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UnknownName) as caught:
        parse_topology("leafspine:hosts=4")
    assert "unknown topology 'leafspine'" in str(caught.value)
    for name in (*TOPOLOGIES, "FILE.yaml"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("star:hosts", "'hosts' is not key=value"),
        ("star:hosts=", "'hosts=' is not key=value"),
        ("star:=4", "'=4' is not key=value"),
        ("star:hosts=4,hosts=5", "hosts is given twice"),
        ("", "unknown topology ''"),
        ("nowhere.yaml", "nowhere.yaml: cannot be read"),
        ("topologies/two_rates.yaml:hosts=4", "unknown setting of topologies/two_rates.yaml 'hosts'"),
    ],
)
def test_malformed_specs(spec: str, complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_topology(spec)
    assert complaint in str(caught.value)
