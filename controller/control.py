"""The control socket: one JSON object per line, a request and its reply, as many as you like on one connection.

    {"do": "wait_ready", "timeout_s": 30}  ->  {"ok": true, "switches": 8, "rules": 80}
    {"do": "port_stats"}                   ->  {"ok": true, "ports": {"leaf1-eth1": {"rx_packets": ...}, ...}}
    {"do": "flows"}                        ->  {"ok": true, "flows": [{"src": ..., "path": [...]}], "flowlets": 0, ...}
    {"do": "failures"}                     ->  {"ok": true, "down": ["leaf1-spine2"], "detections": [...]}
    {"do": "policy", "policy": "ecmp:seed=7"} -> {"ok": true, "policy": "ecmp:seed=7"}   in force from now on
    {"do": "rates", "rates_bps": {"leaf1-spine1": 25000000000}} -> {"ok": true}          noticed: so they run now
    {"do": "describe"}                     ->  {"ok": true, "framework": "ryu 4.34", "policy": ..., ...}
    {"do": "shutdown"}                     ->  {"ok": true}

What cannot be done is answered with {"ok": false, "error": "a sentence"}.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from ipaddress import IPv4Address
from typing import Any

from controller.app import App
from controller.path_marks import connected, path
from controller.selector.maps import FlowRecord
from controller.selector.selector import Selector
from topologies.errors import TestbedError, UnknownName, UserError
from topologies.graph import NOTHING
from topologies.model import Interface, Topology

LONGEST_LINE = 1 << 16
"""Bytes of a request."""
READY_TIMEOUT_S = 30.0


class Control:
    """Answers requests; one greenlet per connection."""

    def __init__(
        self,
        app: App,
        selector: Selector,
        description: Mapping[str, object],
        stop: Callable[[], None],
        failures: Callable[[], Mapping[str, object]] = dict,
        use: Callable[[str], None] = lambda _spec: None,
        down_of: Callable[[int], frozenset[str]] = lambda _number: NOTHING,
        run_at: Callable[[Mapping[str, int]], None] = lambda _rates_bps: None,
    ) -> None:
        """`stop` ends the controller; `description` is what `describe` replies, `failures` makes the reply to that.

        `use` puts another policy in force, from now on; `down_of` says which links a record was sent without; `run_at`
        is told of links at another rate.
        """
        self._use, self._down_of, self._run_at = use, down_of, run_at
        self._app, self._selector, self._description, self._stop = app, selector, dict(description), stop
        self._verbs: Mapping[str, Callable[[Mapping[str, Any]], dict[str, object]]] = {
            "wait_ready": self._wait_ready,
            "port_stats": self._port_stats,
            "flows": self._flows,
            "failures": lambda _: dict(failures()),
            "describe": lambda _: dict(self._description),
            "policy": self._policy,
            "rates": self._rates,
            "shutdown": self._shutdown,
        }

    def serve(self, listener: Any) -> None:
        """Accepts connections for ever."""
        while True:
            connection, _ = listener.accept()
            self._app.framework.hub.spawn(self._converse, connection)

    def answer(self, line: bytes) -> dict[str, object]:
        """One request's reply."""
        try:
            request = json.loads(line)
            verb = request["do"]
            if verb not in self._verbs:
                raise UnknownName("request", str(verb), self._verbs)
            return {"ok": True, **self._verbs[verb](request)}
        except TestbedError as error:
            return {"ok": False, "error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"ok": False, "error": f"not a request: {error!r}; write for instance {{'do': 'wait_ready'}}"}

    def _converse(self, connection: Any) -> None:
        waiting = b""
        with connection:
            while len(waiting) < LONGEST_LINE and (received := connection.recv(4096)):
                *lines, waiting = (waiting + received).split(b"\n")
                for line in lines:
                    connection.sendall(json.dumps(self.answer(line)).encode() + b"\n")

    def _wait_ready(self, request: Mapping[str, Any]) -> dict[str, object]:
        timeout_s = float(request.get("timeout_s", READY_TIMEOUT_S))
        if not self._app.wait(lambda: not self._app.problems(), timeout_s):
            raise UserError(f"not ready after {timeout_s:g} s: {'; '.join(self._app.problems())}")
        core = self._app.core
        return {"switches": len(core.topology.switches), "rules": core.rule_count}

    def _port_stats(self, _request: Mapping[str, Any]) -> dict[str, object]:
        return {"ports": port_stats_json(self._app)}

    def _flows(self, _request: Mapping[str, Any]) -> dict[str, object]:
        topology = self._app.core.topology
        end_of = {end.ip: end for end in topology.host_interfaces() if end.ip is not None}
        records = sorted(self._selector.flows(), key=lambda each: tuple(asdict(each.flow).values()))
        return {
            "flows": [describe_flow(topology, end_of, record, self._down_of(record.down)) for record in records],
            **asdict(self._selector.counters()),
        }

    def _policy(self, request: Mapping[str, Any]) -> dict[str, object]:
        self._use(str(request["policy"]))
        return {"policy": request["policy"]}

    def _rates(self, request: Mapping[str, Any]) -> dict[str, object]:
        self._run_at({str(name): int(rate_bps) for name, rate_bps in request["rates_bps"].items()})
        return {}

    def _shutdown(self, _request: Mapping[str, Any]) -> dict[str, object]:
        self._stop()
        return {}


def port_stats_json(app: App) -> dict[str, dict[str, int]]:
    """Interface name -> its counters, read now.  Raises RunFailed."""
    counters = app.port_stats()
    return {name: asdict(counters[name]) for name in sorted(counters)}


def describe_flow(
    topology: Topology,
    end_of: Mapping[IPv4Address, Interface],
    record: FlowRecord,
    down: frozenset[str] = NOTHING,
) -> dict[str, object]:
    """A flow on one of its paths, as it is replied; `down` is what was down when it chose that.

    The path is empty where an end is none of our hosts, and where there was no way.
    """
    flow = record.flow
    source, destination = end_of.get(flow.src), end_of.get(flow.dst)
    egress: tuple[str, ...] = ()
    if source and destination and connected(topology, source, destination, down):
        egress = path(topology, source, destination, record.mark, down)
    return {
        "src": str(flow.src),
        "dst": str(flow.dst),
        "proto": flow.proto,
        "sport": flow.sport,
        "dport": flow.dport,
        "mark": record.mark,
        "packets": record.packets,
        "bytes": record.bytes,
        "path": list(egress),
    }
