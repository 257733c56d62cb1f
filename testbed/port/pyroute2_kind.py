"""Teaches pyroute2 the `fabric` qdisc, for scripts that already hold an IPRoute.

    register()
    route.tc("add", "fabric", index, port=PortConfig(rate_bps=100 * 10**9))
    for message in route.get_qdiscs(index):
        decode(message.get_attr("TCA_OPTIONS"))
        decode_stats(message.get_attr("TCA_STATS2").get_attr("TCA_STATS_APP"))

The testbed itself batches its requests through `testbed.netlink`; the bytes are the same.
"""

from types import SimpleNamespace
from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl.tcmsg import plugins

from testbed.port.netlink import KIND, encode
from testbed.traffic_control import TC_H_ROOT


class _Statistics(nla):  # type: ignore[misc]
    """TCA_STATS2 with our part as bytes."""

    nla_map = (
        ("TCA_STATS_UNSPEC", "none"),
        ("TCA_STATS_BASIC", "hex"),
        ("TCA_STATS_RATE_EST", "hex"),
        ("TCA_STATS_QUEUE", "hex"),
        ("TCA_STATS_APP", "cdata"),
    )


def _get_parameters(arguments: dict[str, Any]) -> bytes:
    return encode(arguments["port"])


def _fix_request(request: dict[str, Any]) -> None:
    request.pop("port", None)


def register() -> None:
    """From now on pyroute2 takes kind "fabric" with `port=PortConfig(...)`; twice is harmless."""
    plugins[KIND] = SimpleNamespace(
        parent=TC_H_ROOT,
        get_parameters=_get_parameters,
        fix_request=_fix_request,
        options=nla.cdata,
        stats=nla.cdata,
        stats2=_Statistics,
    )
