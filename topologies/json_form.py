"""A Topology as JSON and back, exactly: what the controller's process and the run folder read."""

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

from topologies.errors import UserError
from topologies.model import Host, Interface, Link, Switch, Topology

SCHEMA = "fabric-topology/1"
"""Changes when a reader of the old form would misread the new one."""


def to_json(topology: Topology) -> dict[str, Any]:
    """Only dicts, lists, strings and whole numbers; units are in the names."""
    return {
        "schema": SCHEMA,
        "name": topology.name,
        "parameters": dict(topology.parameters),
        "mtu": topology.mtu,
        "hosts": [{"name": host.name, "pod": host.pod, "rack": host.rack} for host in topology.hosts],
        "switches": [
            {"name": switch.name, "dpid": switch.dpid, "tier": switch.tier, "pod": switch.pod}
            for switch in topology.switches
        ],
        "links": [
            {
                "a": _interface(link.a),
                "b": _interface(link.b),
                "rate_bps": link.rate_bps,
                "delay_ns": link.delay_ns,
                "buffer_bytes": link.buffer_bytes,
                "number": link.number,
            }
            for link in topology.links
        ],
    }


def from_json(data: Mapping[str, Any]) -> Topology:
    """The Topology that `to_json` was given.  Raises UserError for anything that is not such a form."""
    if data.get("schema") != SCHEMA:
        raise UserError(f"not a topology in the form {SCHEMA}: its schema is {data.get('schema')!r}")
    try:
        return Topology(
            name=data["name"],
            parameters=dict(data["parameters"]),
            mtu=data["mtu"],
            hosts=tuple(Host(**host) for host in data["hosts"]),
            switches=tuple(Switch(**switch) for switch in data["switches"]),
            links=tuple(
                Link(**{**link, "a": _interface_from(link["a"]), "b": _interface_from(link["b"])})
                for link in data["links"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"not a topology in the form {SCHEMA}: {type(error).__name__}: {error}") from error


def _interface(end: Interface) -> dict[str, Any]:
    placed: dict[str, Any] = {"node": end.node, "port": end.port, "name": end.name}
    return placed if end.ip is None else {**placed, "ip": str(end.ip), "mac": end.mac}


def _interface_from(data: Mapping[str, Any]) -> Interface:
    return Interface(**{**data, "ip": IPv4Address(data["ip"])}) if "ip" in data else Interface(**data)
