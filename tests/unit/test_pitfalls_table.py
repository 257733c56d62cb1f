"""The table of known faults names tests that exist, for every fault."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
ROWS = dict(re.findall(r"^\| (P\d\d) \|(.*)$", (TESTS / "pitfalls.md").read_text(), re.MULTILINE))


def functions(path: Path) -> set[str]:
    """Names of a file's tests."""
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_fault_has_a_row() -> None:
    assert sorted(ROWS) == [f"P{number:02}" for number in range(1, 26)]


@pytest.mark.parametrize("fault", sorted(ROWS))
def test_the_tests_of_a_row_exist(fault: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", ROWS[fault])
    assert named, "a fault that cannot occur has a test of what makes it impossible"
    for file, name in named:
        assert name in functions(TESTS / file), f"{file}::{name}"
