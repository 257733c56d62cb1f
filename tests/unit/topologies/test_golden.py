"""Addresses, ports and datapath ids never move by accident: the files in tests/golden/topologies say what they are."""

import json
from pathlib import Path

import pytest

from topologies.json_form import to_json
from topologies.registry import TOPOLOGIES, parse_topology

GOLDEN = sorted((Path(__file__).resolve().parents[2] / "golden" / "topologies").glob("*.json"))


def test_every_generator_and_an_example_file_have_one() -> None:
    names = {path.stem for path in GOLDEN}
    assert names >= set(TOPOLOGIES)
    assert "two_rates" in names


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_as_it_was(path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    spec = golden.pop("spec")
    assert to_json(parse_topology(spec)) == golden, "if meant: tests/golden/topologies/regenerate.py"
