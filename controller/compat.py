"""The only file that knows how Ryu 4.34 and OS-Ken 4.2.2 differ, and what they need on a current Python.

Ryu is unmaintained: it imports `eventlet.wsgi.ALREADY_HANDLED`, which eventlet dropped, so the name is put back first
(faucetsdn/ryu issues 138 and 169), and its `ryu-manager` script does not start for the same reason.  OS-Ken is its
maintained fork; it has no manager script any more, and its default hub of native threads neither ends its threads nor
reports a lost switch, so we ask for the hub that Ryu has.  With one kind of hub a controller is one thread under both:
no locks, and the same order of events in every run.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from topologies.errors import MissingFeature, UnknownName, UserError

FRAMEWORKS: Mapping[str, tuple[str, str]] = {"ryu": ("ryu", "RyuApp"), "os_ken": ("os-ken", "OSKenApp")}
"""Python package -> (name of its distribution, name of its application class)."""

Handler = Callable[[Any], None]
Thread = Any


@dataclass(frozen=True, kw_only=True)
class Framework:
    """An OpenFlow framework, ready to use.  Its untyped modules stay in here, in messages.py and in app.py."""

    name: str
    version: str
    hub: Any
    ofproto: Any
    parser: Any
    _modules: Mapping[str, Any]

    def application(self, handlers: Mapping[str, tuple[Handler, tuple[str, ...]]]) -> Any:
        """An application class of the framework: event name -> (handler, states of the connection it is wanted in)."""
        modules = self._modules
        body: dict[str, Any] = {"OFP_VERSIONS": [self.ofproto.OFP_VERSION]}
        for event, (handler, states) in handlers.items():
            dispatchers = [getattr(modules["controller.handler"], f"{state}_DISPATCHER") for state in states]
            listen_to = modules["controller.handler"].set_ev_cls(
                getattr(modules["controller.ofp_event"], event), dispatchers
            )
            body[f"on_{event}"] = listen_to(_method(handler))
        base = getattr(modules["base.app_manager"], FRAMEWORKS[self.name][1])
        return type("FabricApp", (base,), body)

    def start(self, application: Any, address: tuple[str, int]) -> None:
        """Starts the framework's own OpenFlow handler and our application, and listens.

        Raises UserError where the address cannot be listened on: the framework itself would only log it and go on.
        """
        manager = self._modules["base.app_manager"].AppManager.get_instance()
        controller = self._modules["controller.controller"]
        handler = self._modules["controller.ofp_handler"].OFPHandler
        base = handler.__mro__[1]
        quiet_handler = type(handler.__name__, (handler,), {"start": base.start})
        for each in (quiet_handler, application):
            manager.instantiate(each).start()
        try:
            server = self.hub.StreamServer(address, controller.datapath_connection_factory)
        except OSError as error:
            raise UserError(
                f"--listen {address[0]}:{address[1]}: {error.strerror}; is another controller running?"
            ) from None
        self.hub.spawn(server.serve_forever)

    def listen_unix(self, path: str) -> Any:
        """A listening socket in the file system, whose `accept` and `recv` let the others run."""
        return self.hub.listen(path, family=socket.AF_UNIX)

    def wait_readable(self, fd: int) -> None:
        """Lets the others run until the descriptor can be read."""
        importlib.import_module("eventlet.hubs").trampoline(fd, read=True)


@contextmanager
def _own_distutils() -> Iterator[None]:
    """Ryu compares versions with distutils; setuptools' stand-in imports all of setuptools."""
    stand_in = sys.modules.get("_distutils_hack") if sys.version_info < (3, 12) else None
    if stand_in is not None:
        stand_in.remove_shim()
    try:
        yield
    finally:
        if stand_in is not None:
            stand_in.add_shim()


def _method(handler: Handler) -> Callable[[Any, Any], None]:
    def method(_app: Any, event: Any) -> None:
        handler(event)

    return method


def default_framework() -> str:
    """`ryu` where it is installed, else `os_ken`."""
    return "ryu" if importlib.util.find_spec("ryu") else "os_ken"


@cache
def load(name: str | None = None) -> Framework:
    """Imports a framework.  Raises UnknownName, or MissingFeature where it is not installed."""
    name = name or default_framework()
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS)
    distribution = FRAMEWORKS[name][0]
    if importlib.util.find_spec(name) is None:
        raise MissingFeature(f"the OpenFlow framework {distribution} is not installed", f"pip install {distribution}")
    os.environ["EVENTLET_NO_GREENDNS"] = "yes"  # names are never resolved; dnspython costs 1 s in the guest
    os.environ["OSKEN_HUB_TYPE"] = os.environ["RYU_HUB_TYPE"] = "eventlet"
    with (
        _own_distutils(),
        warnings.catch_warnings(record=True),
    ):  # eventlet announces its retirement, and puts its own filter first
        wsgi = importlib.import_module("eventlet.wsgi")
        if not hasattr(wsgi, "ALREADY_HANDLED"):
            setattr(wsgi, "ALREADY_HANDLED", object())  # noqa: B010  mypy does not know the name either
        wanted = ("base.app_manager", "controller.controller", "controller.handler", "controller.ofp_event")
        modules = {part: importlib.import_module(f"{name}.{part}") for part in (*wanted, "controller.ofp_handler")}
    return Framework(
        name=name,
        version=importlib.metadata.version(distribution),
        hub=importlib.import_module(f"{name}.lib.hub"),
        ofproto=importlib.import_module(f"{name}.ofproto.ofproto_v1_3"),
        parser=importlib.import_module(f"{name}.ofproto.ofproto_v1_3_parser"),
        _modules=modules,
    )
