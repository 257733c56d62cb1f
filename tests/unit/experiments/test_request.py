"""What the user asked for survives the way into the guest, and what makes no sense is refused before it starts."""

from pathlib import Path

import pytest

from experiments.request import Request, split_settings
from topologies.errors import UserError


def test_a_request_comes_back_from_its_file_unchanged(tmp_path: Path) -> None:
    asked = Request(
        experiment="all_reduce",
        script="/x/all_reduce.py",
        topology="leaf_spine:leaves=2",
        policy="ecmp",
        seed=7,
        settings={"sizes": "1M"},
        host={"cc": "dctcp"},
        pcap="hosts",
    )
    asked.write(tmp_path / "request.json")
    assert Request.read(tmp_path / "request.json") == asked


def test_host_keys_are_told_from_the_experiments_own() -> None:
    assert split_settings(["sizes=1M,2M", "host.cc=dctcp"]) == ({"sizes": "1M,2M"}, {"cc": "dctcp"}, {})


@pytest.mark.parametrize(
    ("pairs", "named"),
    [(["sizes"], "sizes"), (["=1"], "=1"), (["a=1", "a=2"], "a"), (["host.cc=x", "host.cc=y"], "cc")],
)
def test_a_malformed_or_repeated_setting_is_named(pairs: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        split_settings(pairs)
