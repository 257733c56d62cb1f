"""The kinds of port by the name that a fabric is built with."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from testbed.port.fabric_port import FabricPort
from testbed.port.interface import Port
from testbed.port.stock import StockPort
from topologies.errors import UnknownName

PORTS: Mapping[str, Callable[[], Port]] = MappingProxyType({FabricPort.name: FabricPort, StockPort.name: StockPort})
"""Name -> how to make one with its default settings; the first is what a fabric has when nobody says otherwise."""
DEFAULT = FabricPort.name


def port_named(name: str) -> Port:
    """A port of that kind.  Raises UnknownName."""
    if name not in PORTS:
        raise UnknownName("port", name, PORTS)
    return PORTS[name]()
