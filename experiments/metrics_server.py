"""A running fabric's counters over HTTP, for Prometheus: `--metrics PORT` under the real clock, on this machine only.

    curl http://127.0.0.1:9464/metrics

The server listens in the machine's own network namespace, before the fabric gives us another one.  Each request reads
all counters through sockets of its own, so a scrape costs the run three dumps per namespace and nothing else.  Under
the virtual clock there is nobody to ask: time stands still between two packets, and the guest has no way out.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from topologies.errors import TestbedError, UserError

if TYPE_CHECKING:
    from testbed.counters import Counters
    from testbed.fabric import Fabric

LOOPBACK: Final = "127.0.0.1"
PATH: Final = "/metrics"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NOT_YET: Final = "the fabric is not there yet, or no more\n"
MOST_PORT: Final = 65_535


def check_metrics(port: int | None, clock: str) -> None:
    """Raises UserError for a port that is none, and under the virtual clock."""
    if port is None:
        return
    if clock != "real":
        raise UserError(
            f"--metrics {port}: under the virtual clock nobody can look while a run lasts; leave it out and use "
            "`./run export DIR --format prometheus` afterwards, or choose --clock real"
        )
    if not 1 <= port <= MOST_PORT:
        raise UserError(f"--metrics {port}: a TCP port is 1..{MOST_PORT}; Prometheus' exporters use 9100 and above")


class MetricsServer:
    """A context manager; it listens from entry on, and has something to say while `showing`."""

    def __init__(self, port: int) -> None:
        """Binds; 0 is any free port.  Raises UserError where the port is taken."""
        try:
            self._server = _Server((LOOPBACK, port), _Handler)
        except OSError as error:
            raise UserError(f"--metrics {port}: {error.strerror}; choose a port that is free") from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> "MetricsServer":
        """Answers from now on."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def showing(self, page: Callable[[], str]) -> Iterator[None]:
        """Answers with what `page` makes, in a thread of the server's; on leaving nobody is in it any more."""
        self._server.page = page
        try:
            yield
        finally:
            with self._server.asking:
                self._server.page = None


class _Server(HTTPServer):
    page: Callable[[], str] | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asking = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"only {PATH} is here\n")
            return
        with self.server.asking:
            page = self.server.page
            try:
                self._answer(*((HTTPStatus.OK, page()) if page else (HTTPStatus.SERVICE_UNAVAILABLE, NOT_YET)))
            except TestbedError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n")

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on the user's terminal: a scrape every second would fill it."""


@contextmanager
def live_metrics(server: MetricsServer | None, fabric: "Fabric") -> Iterator[None]:
    """Shows this fabric while the context lasts; to be entered where its switches' namespace is the thread's."""
    if server is None:
        yield
        return
    from experiments.export.prometheus import link_rates, port_metrics, text

    topology = fabric.topology
    with fabric.port_sockets(fabric.plan.placed) as routes:

        def page() -> str:
            return text([link_rates(topology), *port_metrics(rows(fabric.counters(routes)), topology)])

        with server.showing(page):
            yield


def rows(counters: "Mapping[str, Counters]") -> Iterator[dict[str, Any]]:
    """Counters as the rows of ports.parquet that they would be."""
    from experiments.series.schema import WHOLE_PORT

    for name, of_port in counters.items():
        yield {
            "interface": name,
            "class": WHOLE_PORT,
            "queue_bytes": of_port.port.backlog_bytes,
            "queue_max_bytes": of_port.port.queue_max_bytes,
            "sent_bytes": of_port.tx_bytes,
            "sent_packets": of_port.tx_packets,
            "marked_packets": of_port.port.marked_packets,
            "dropped_packets": of_port.port.dropped_packets,
            "pauses_sent": of_port.port.pauses_sent,
            "pauses_received": of_port.port.pauses_received,
            "paused_ns": of_port.port.paused_ns,
        }
