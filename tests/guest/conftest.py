"""Fixtures of the tests that boot the guest: one run serves many assertions wherever it can."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.guest import kernel
from tests.guest.runs import Run, run

HERE = Path(__file__).parent
RunExperiment = Callable[..., Run]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the guest: `pytest -m 'not guest'` leaves it out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.guest)


@pytest.fixture(scope="session")
def guest_kernel() -> Path:
    """The kernel that `./run setup` built.  Its absence is an error that says what to do, not a reason to skip."""
    return kernel.find()


@pytest.fixture(scope="session")
def run_experiment(guest_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> RunExperiment:
    """`run_experiment("all_reduce", "--topology", "star")` in a new folder; it may fail: see Run.succeeded."""

    def start(script: str | Path, *arguments: str, **options: object) -> Run:
        out = options.pop("out", None) or tmp_path_factory.mktemp("run") / "out"
        return run(script, *arguments, out=out, **options)  # type: ignore[arg-type]

    return start
