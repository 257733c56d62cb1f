"""The grammar of a fabric file: what may be written where.  topologies/README.md explains it by example."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from topologies import parameters as read
from topologies.errors import UserError

SUBNET = IPv4Network("10.0.0.0/8")
"""Where every host lives: hosts' addresses have prefix length 8."""

_END = re.compile(r"([A-Za-z][A-Za-z0-9_.]*)(?::(\d+))?")


def _checked(parse: Callable[[str, str], object]) -> BeforeValidator:
    """Keeps the text as written, but only if `parse` takes it."""

    def check(value: Any) -> str:
        try:
            parse("", str(value))
        except UserError as error:
            raise ValueError(str(error).removeprefix(": ")) from None
        return str(value)

    return BeforeValidator(check)


def _named(value: Any) -> Any:
    """`h1` is short for `{name: h1}`."""
    return {"name": value} if isinstance(value, str) else value


def _ended(value: Any) -> Any:
    """`[h1, leaf1]` is short for `{ends: [h1, leaf1]}`."""
    return {"ends": value} if isinstance(value, list) else value


def _in_subnet(address: IPv4Address) -> IPv4Address:
    if address not in SUBNET:
        raise ValueError(f"{address} is not in {SUBNET}")
    return address


Rate = Annotated[str, _checked(read.rate_of)]
Delay = Annotated[str, _checked(read.delay_of)]
Buffer = Annotated[str, _checked(lambda name, text: read.buffer_of(name, text, rate_bps=1))]
Address = Annotated[IPv4Address, AfterValidator(_in_subnet)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class End(_Entry):
    """`leaf1:3` is port 3 of leaf1, `leaf1` its next free port."""

    node: str
    port: int | None = None


def _split(value: Any) -> Any:
    match = _END.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not NODE or NODE:PORT")
    return {"node": match[1], "port": match[2]}


class HostEntry(_Entry):
    """A machine; its NICs are its ends of links, in the order of the links."""

    name: str
    addresses: tuple[Address, ...] = ()
    """One per NIC, or none for 10.pod.leaf.host."""


class SwitchEntry(_Entry):
    """A switch."""

    name: str
    tier: str = "switch"
    pod: int = Field(default=0, ge=0, le=255)
    dpid: int | None = Field(default=None, ge=1, lt=2**48)
    """None for the next free number."""


class LinkEntry(_Entry):
    """One cable, or several in parallel; what is not said is as at the top of the file."""

    ends: tuple[Annotated[End, BeforeValidator(_split)], Annotated[End, BeforeValidator(_split)]]
    rate: Rate | None = None
    delay: Delay | None = None
    buffer: Buffer | None = None
    cables: int = Field(default=1, ge=1, le=16)


class FabricFile(_Entry):
    """A whole file."""

    name: str | None = None
    """None for the file's name without its ending."""
    mtu: int = Field(default=9000, ge=576, le=65521)
    rate: Rate = "100G"
    delay: Delay = "1us"
    buffer: Buffer = "auto"
    hosts: tuple[Annotated[HostEntry, BeforeValidator(_named)], ...] = Field(min_length=1)
    switches: tuple[Annotated[SwitchEntry, BeforeValidator(_named)], ...] = Field(min_length=1)
    links: tuple[Annotated[LinkEntry, BeforeValidator(_ended)], ...] = Field(min_length=1)


SETTINGS = ("mtu", "rate", "delay", "buffer")
"""What `FILE.yaml:key=value` may set."""

ENTRIES: dict[str, type[_Entry]] = {"hosts": HostEntry, "switches": SwitchEntry, "links": LinkEntry}
"""List -> what is in it."""
