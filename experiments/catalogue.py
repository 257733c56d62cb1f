"""Which experiments there are: every script of this folder that declares an EXPERIMENT."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from experiments.experiment import Experiment
from topologies.errors import InternalError, UnknownName

FOLDER = Path(__file__).parent


def scripts() -> Iterator[Path]:
    """The scripts, found by their text: nothing is imported."""
    for path in sorted(FOLDER.glob("*.py")):
        names = {
            target.id
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if "EXPERIMENT" in names:
            yield path


def load(name: str) -> Experiment:
    """The experiment called `name`.  Raises UnknownName."""
    known = [path.stem for path in scripts()]
    if name not in known:
        raise UnknownName("experiment", name, known)
    experiment = importlib.import_module(f"experiments.{name}").EXPERIMENT
    if not isinstance(experiment, Experiment):
        raise InternalError(f"experiments/{name}.py: EXPERIMENT is not an Experiment")
    return experiment
