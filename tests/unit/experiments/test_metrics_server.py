"""Counters over HTTP: on the loopback only, while there is something to say, and never under the virtual clock."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from experiments.metrics_server import CONTENT_TYPE, MetricsServer, check_metrics
from topologies.errors import RunFailed, UserError

PAGE = "# TYPE fabric_x gauge\nfabric_x 1\n"


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer(0) as found:
        yield found


def get(server: MetricsServer, path: str = "/metrics") -> tuple[int, str, str]:
    """Status, content type, body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def test_a_page_is_made_anew_for_each_request(server: MetricsServer) -> None:
    numbers = iter(range(10))
    with server.showing(lambda: f"fabric_x {next(numbers)}\n"):
        assert [get(server)[2] for _ in range(3)] == ["fabric_x 0\n", "fabric_x 1\n", "fabric_x 2\n"]


def test_prometheus_is_told_what_it_gets(server: MetricsServer) -> None:
    with server.showing(lambda: PAGE):
        assert get(server) == (200, CONTENT_TYPE, PAGE)
        assert get(server, "/metrics?x=1")[0] == 200
        assert get(server, "/")[0] == 404


def test_before_and_after_there_is_nothing_to_say(server: MetricsServer) -> None:
    assert get(server)[0] == 503
    with server.showing(lambda: PAGE):
        pass
    assert get(server)[0] == 503


def test_an_error_is_the_scraper_s_and_not_the_run_s(server: MetricsServer) -> None:
    def broken() -> str:
        raise RunFailed("the kernel refused")

    with server.showing(broken):
        assert get(server)[::2] == (500, "the kernel refused\n")
    with server.showing(lambda: PAGE):
        assert get(server)[0] == 200


def test_nobody_else_s_machine_can_ask(server: MetricsServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"--metrics {port}: .*choose a port that is free"):
            MetricsServer(port)


def test_under_the_virtual_clock_it_is_refused_with_what_would_do() -> None:
    with pytest.raises(UserError, match=r"--metrics 9464: .*export DIR --format prometheus.*or choose --clock real"):
        check_metrics(9464, "virtual")
    for port in (0, 65536, -1):
        with pytest.raises(UserError, match=rf"--metrics {port}: a TCP port is 1\.\.65535"):
            check_metrics(port, "real")
    check_metrics(9464, "real")
    check_metrics(None, "virtual")
