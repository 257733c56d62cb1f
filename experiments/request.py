"""What the user asked for, checked on the machine before a guest boots and carried into it as one JSON file."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from experiments.run_folder import read_json, write_json
from topologies.errors import UserError

Clock = Literal["virtual", "real"]
CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run, as asked for.  Everything is text or a number so that it survives JSON unchanged."""

    experiment: str
    script: str
    """The experiment's file, which the guest runs again; in the checkout, where it is there."""
    topology: str
    policy: str
    clock: Clock = "virtual"
    seed: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    """`--set` for the experiment itself."""
    host: Mapping[str, str] = field(default_factory=dict)
    """`--set host.KEY=VALUE`: the hosts' stacks and NICs."""
    port: Mapping[str, str] = field(default_factory=dict)
    """`--set port.KEY=VALUE`: what ports are made of."""
    policy_changes: str = ""
    """What the policy file says, word for word."""
    failures: str = ""
    """The failures, a line each (failure_schedule.py)."""
    events_from: str = "run"
    """Where the times of both count from."""
    detection_delay: str = "1ms"
    """How long the controller waits before it believes that a link is down, or up again."""
    pcap: str = "none"
    sample: str = "auto"
    """How often ports and sockets are looked at (series/sampling.py)."""
    mn_cli: bool = False

    def write(self, path: Path) -> None:
        """As JSON."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Request":
        """What `write` wrote."""
        return cls(**read_json(path))

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return dataclasses.asdict(self)


def named_script(path: Path) -> str:
    """A script as a request names it: within the checkout, if it lies there, so that no result knows where that is."""
    path = path.resolve()
    return str(path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path)


HOST_PREFIX = "host."
PORT_PREFIX = "port."


def split_settings(pairs: Iterable[str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """`["sizes=1M", "host.cc=dctcp"]` -> ({"sizes": "1M"}, {"cc": "dctcp"}, {}): own, host, port.  Raises UserError."""
    groups: dict[str, dict[str, str]] = {"": {}, HOST_PREFIX: {}, PORT_PREFIX: {}}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"--set {pair}: write key=value")
        prefix = next((each for each in (HOST_PREFIX, PORT_PREFIX) if key.startswith(each)), "")
        target, name = groups[prefix], key.removeprefix(prefix)
        if name in target:
            raise UserError(f"--set {key} is given twice")
        target[name] = value
    return groups[""], groups[HOST_PREFIX], groups[PORT_PREFIX]


def read_policy_file(path: Path | None) -> str:
    """What it says, to be carried into the guest; nothing without a path.  Raises UserError."""
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--policy-file {path}: {error}") from None
