"""Open vSwitch's cache of decisions, which outlives a change of its tables.

The kernel's datapath forwards by a cache of earlier decisions.  After a rule changed, a thread of ovs-vswitchd looks at
every entry again, some milliseconds later (4 ms were measured here, from a barrier's reply to the first packet on its
new way): meanwhile packets still go to the dead port, although the tables that the switch reports are right.  A switch
made of silicon has no such cache.  So a controller that is told where ovs-vswitchd listens (`--flow-cache`) has it
forgotten when a repair is in the tables; without, repairs last that much longer than `failures` says.
"""

import json
import socket
from pathlib import Path

from topologies.errors import RunFailed

_COMMAND = "revalidator/purge"
_TIMEOUT_S = 10.0


def forget(control: Path) -> None:
    """Lets every packet be looked up in the tables again; `control` is ovs-vswitchd's --unixctl.  Raises RunFailed."""
    request = json.dumps({"method": _COMMAND, "params": [], "id": 0}).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(control))
            connection.sendall(request)
            reply = _reply(connection)
    except OSError as error:
        raise RunFailed(f"ovs-vswitchd does not answer on {control}: {error}") from error
    if reply.get("error") is not None:
        raise RunFailed(f"ovs-vswitchd refused {_COMMAND}: {reply['error']}")


def _reply(connection: socket.socket) -> dict[str, object]:
    """JSON-RPC has no frames: it is complete when it parses."""
    data = b""
    while received := connection.recv(4096):
        data += received
        try:
            found: dict[str, object] = json.loads(data)
        except ValueError:
            continue
        return found
    raise OSError("the connection was closed")
