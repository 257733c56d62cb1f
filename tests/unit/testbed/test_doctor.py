"""Verdicts about a machine that is only described."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from testbed.doctor import PROBES, Check, Clock, inspect, missing_for


@dataclass(frozen=True, kw_only=True)
class Described:
    """A machine where everything works but what is listed."""

    is_root: bool = True
    absent: tuple[str, ...] = ()
    guest: bool = True

    def has_command(self, name: str) -> bool:
        return name not in self.absent

    def try_in_namespace(self, script: str) -> bool:
        return self.is_root and not any(word in script for word in self.absent)

    def boots_guest(self) -> bool:
        return self.guest


def names(checks: list[Check]) -> list[str]:
    return [check.name for check in checks]


def test_a_complete_machine_lacks_nothing_for_either_clock() -> None:
    assert missing_for("real", Described()) == missing_for("virtual", Described()) == []
    assert "--clock real: works" in str(inspect(Described()))


@pytest.mark.parametrize(
    ("machine", "clock", "expected"),
    [
        (Described(absent=("netem",)), "real", ["queueing discipline netem"]),
        (Described(absent=("add-dp",)), "real", ["Open vSwitch datapath"]),
        (Described(absent=("tshark",)), "virtual", ["command tshark"]),
        (Described(guest=False), "virtual", ["a guest boots"]),
        (Described(guest=False), "real", []),
        (Described(absent=("dctcp",)), "real", []),
    ],
)
def test_what_is_absent_is_named_for_the_clock_that_needs_it(
    machine: Described, clock: Clock, expected: list[str]
) -> None:
    assert names(missing_for(clock, machine)) == expected
    assert inspect(machine).ready(clock) is not bool(expected)


def test_an_ordinary_user_is_told_to_be_root_and_the_virtual_clock_does_not_mind() -> None:
    user = Described(is_root=False)
    assert names(missing_for("real", user))[0] == "root"
    assert missing_for("virtual", user) == []


def test_the_page_shows_every_check_and_each_remedy_once() -> None:
    page = str(inspect(Described(absent=("ovs-vswitchd", "ovsdb-server", "dctcp"))))
    assert all(probe.name in page for probe in PROBES)
    assert page.count("install the package openvswitch-switch") == 2  # once a clock
    assert "no       some settings  congestion control dctcp" in page


def test_only_what_a_clock_needs_is_tried() -> None:
    class NoGuest(Described):
        def boots_guest(self) -> bool:
            raise AssertionError("the real clock needs no guest")

    assert missing_for("real", NoGuest()) == []


@pytest.mark.parametrize("attribute", ["name", "remedy"])
def test_every_probe_says_what_it_is_and_what_to_do(attribute: str) -> None:
    read: Callable[[object], str] = lambda probe: getattr(probe, attribute)  # noqa: E731
    assert all(read(probe) for probe in PROBES)
    assert len({probe.name for probe in PROBES}) == len(PROBES)
