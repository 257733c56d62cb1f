"""A generator as the command line sees it: a function with keyword-only parameters, and what they mean.

    def star(*, hosts: Annotated[int, "hosts on the switch"] = 8, ...) -> Topology:      one function per file
    GENERATOR = Generator(star)                                                          name, summary, parameters

The function's signature is the only place where a parameter, its default and its meaning are written.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, get_args, get_origin

from topologies.errors import UnknownName, UserError
from topologies.model import Topology
from topologies.parameters import naming


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One knob of a generator."""

    name: str
    default: str | int
    meaning: str

    def __str__(self) -> str:
        """`rate=100G`, as it may be written after `NAME:`."""
        return f"{self.name}={self.default}"


@dataclass(frozen=True)
class Generator:
    """Makes a Topology from parameters given by name."""

    function: Callable[..., Topology]

    @property
    def name(self) -> str:
        """What the registry and Mininet's `--topo` call it."""
        return self.function.__name__

    @property
    def summary(self) -> str:
        """One line for `./run list`: the first sentence of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition(".  ")[0]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """In the order of the function's signature, which is also the order of Mininet's positional arguments."""
        return tuple(_parameter(one) for one in inspect.signature(self.function).parameters.values())

    def build(self, given: Mapping[str, str | int | float]) -> Topology:
        """The fabric.  Raises UserError naming topology and parameter, UnknownName for a mistyped parameter."""
        known = {parameter.name for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise UnknownName(f"parameter of {self.name}", name, [str(parameter) for parameter in self.parameters])
        with naming(f"topology {self.name}"):
            return self.function(**given)

    def build_positional(self, *values: str | int | float, **given: str | int | float) -> Topology:
        """The fabric from values in the order of `parameters`: `leaf_spine,4,4,4`.  Raises UserError."""
        names = [parameter.name for parameter in self.parameters]
        if len(values) > len(names):
            raise UserError(f"topology {self.name} takes at most {len(names)} parameters: {', '.join(names)}")
        by_position = dict(zip(names, values, strict=False))
        for name in by_position.keys() & given.keys():
            raise UserError(f"topology {self.name}: {name} is given twice")
        return self.build({**by_position, **given})


def _parameter(declared: inspect.Parameter) -> Parameter:
    if get_origin(declared.annotation) is not Annotated:
        raise TypeError(f"parameter {declared.name} needs Annotated[type, 'what it means']")
    return Parameter(name=declared.name, default=declared.default, meaning=get_args(declared.annotation)[1])
