"""What a user may ask of the hosts, and what is then asked of the kernel."""

import pytest
from pydantic import ValidationError

from testbed.host_settings import HostSettings, quiet_sysctls


def test_the_defaults_leave_nothing_to_the_machine() -> None:
    sysctls = HostSettings().sysctls()
    assert sysctls["net/ipv4/tcp_congestion_control"] == "cubic"
    assert sysctls["net/ipv4/tcp_ecn"] == "0"
    assert sysctls["net/ipv4/tcp_no_metrics_save"] == "1"
    assert sysctls["net/ipv4/tcp_rmem"] == "4096 131072 67108864"


@pytest.mark.parametrize(("asked", "value"), [("off", "0"), ("on", "1"), ("passive", "2")])
def test_ecn_is_what_the_kernel_calls_it(asked: str, value: str) -> None:
    assert HostSettings.model_validate({"ecn": asked}).sysctls()["net/ipv4/tcp_ecn"] == value


def test_units_are_read_once() -> None:
    settings = HostSettings(rto_min="5ms", moderation="8us", socket_buffer="1MiB")
    assert settings.rto_min_us == 5000
    assert settings.moderation_ns == 8000
    assert settings.socket_buffer_bytes == 2**20
    assert HostSettings(moderation="off").moderation_ns == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rto_min", "soon"),
        ("rto_min", "1500ns"),
        ("rto_min", "10"),
        ("moderation", "0us"),
        ("moderation", "2s"),
        ("socket_buffer", "1k"),
        ("socket_buffer", "3GiB"),
        ("ecn", "maybe"),
        ("initial_window", "0"),
        ("colour", "red"),
    ],
)
def test_nonsense_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ValidationError) as refused:
        HostSettings.model_validate({key: value})
    assert refused.value.errors()[0]["loc"] == (key,)


def test_a_small_socket_buffer_bounds_the_default_too() -> None:
    assert HostSettings(socket_buffer="8192").sysctls()["net/ipv4/tcp_wmem"] == "4096 8192 8192"


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError):
        HostSettings().cc = "bbr"  # type: ignore[misc]


def test_every_field_explains_itself() -> None:
    assert [name for name, field in HostSettings.model_fields.items() if not field.description] == []


def test_ipv6_is_off_for_interfaces_that_do_not_exist_yet() -> None:
    assert quiet_sysctls()["net/ipv6/conf/default/disable_ipv6"] == "1"
