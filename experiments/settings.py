"""What a user may set of an experiment: a pydantic class per experiment, one documented field per knob.

A field's description is its help text; its value arrives as the text after `--set key=`.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from topologies.errors import UserError
from topologies.units import parse_delay, parse_flops, parse_rate, parse_size


class Settings(BaseModel):
    """The base of every experiment's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def _from_text(parse: Callable[[str], object]) -> BeforeValidator:
    """Text goes through `parse`; a value that is no text is the field's own default and passes.

    pydantic collects ValueError with the field's name, so the parsers' UserError is handed on as one.
    """

    def convert(value: object) -> object:
        try:
            return parse(value) if isinstance(value, str) else value
        except UserError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(convert)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(parse_size(part) for part in text.split(","))


def _delays(text: str) -> tuple[int, ...]:
    return tuple(parse_delay(part) for part in text.split(","))


Size = Annotated[int, _from_text(parse_size)]
"""Bytes, written `64M` or `25MiB`."""
Sizes = Annotated[tuple[int, ...], _from_text(_sizes)]
"""Several sizes in bytes, written `1M,16M`."""
Delay = Annotated[int, _from_text(parse_delay)]
"""Nanoseconds, written `5us`."""
Delays = Annotated[tuple[int, ...], _from_text(_delays)]
"""Several times in nanoseconds, written `200ms,5ms`."""
Rate = Annotated[int, _from_text(parse_rate)]
"""Bits per second, written `25G`."""
Flops = Annotated[int, _from_text(parse_flops)]
"""Floating-point operations per second, written `2T`."""
Words = Annotated[tuple[str, ...], _from_text(_words)]
"""Several names, written `gather,scatter`."""
Integers = Annotated[tuple[int, ...], _from_text(_words)]
"""Several whole numbers, written `4,8,16`."""


def written(text: str) -> Any:
    """A default as a user would write it, for `Field(default=written("1M,16M"))`: the help shows it so."""
    return text


Chosen = TypeVar("Chosen", bound=BaseModel)


def parse_settings(kind: type[Chosen], values: Mapping[str, str], *, prefix: str = "") -> Chosen:
    """Text per key -> a checked `kind`.  Raises UserError that lists every fault, each with what would do."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise UserError("\n".join(_faults(kind, error, prefix))) from error


def parse_all(*groups: tuple[type[BaseModel], Mapping[str, str], str]) -> list[BaseModel]:
    """Several (kind, values, prefix) at once; one UserError lists the faults of all."""
    parsed, faults = [], []
    for kind, values, prefix in groups:
        try:
            parsed.append(parse_settings(kind, values, prefix=prefix))
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return parsed


def _faults(kind: type[BaseModel], error: ValidationError, prefix: str) -> Iterator[str]:
    for fault in error.errors():
        key = prefix + ".".join(str(part) for part in fault["loc"][:1])
        if fault["type"] == "extra_forbidden":
            yield f"--set {key}: no such key; known: {', '.join(prefix + name for name in kind.model_fields)}"
        else:
            yield f"--set {key}={fault['input']}: {fault['msg'].removeprefix('Value error, ')}"


def describe_settings(
    kind: type[BaseModel], *, prefix: str = "", instead: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[str, str, str]]:
    """(key, default, meaning) of each field, for help texts; `instead` are defaults that replace the kind's own."""
    return [
        (prefix + name, instead.get(name, _as_written(field.default)), field.description or "")
        for name, field in kind.model_fields.items()
    ]


def _as_written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
