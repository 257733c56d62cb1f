"""`--set key=value` is read once, with units, and every fault is told at once."""

import pytest
from pydantic import Field

from experiments.settings import Delay, Integers, Settings, Size, Sizes, describe_settings, parse_settings
from topologies.errors import UserError


class Example(Settings):
    sizes: Sizes = Field(default=(1_000_000,), description="bytes per operation")
    ranks: Integers = Field(default=(4, 8), description="how many ranks")
    gap: Delay = Field(default=5_000, description="pause between operations")
    bucket: Size = Field(default=25 * 2**20, ge=1, description="bytes per bucket")


def test_units_are_read_at_the_border() -> None:
    chosen = parse_settings(Example, {"sizes": "1M,16MiB", "ranks": "4,16", "gap": "1.5us", "bucket": "64KiB"})
    assert (chosen.sizes, chosen.ranks, chosen.gap, chosen.bucket) == ((10**6, 16 * 2**20), (4, 16), 1500, 65536)


def test_defaults_hold_where_nothing_is_set() -> None:
    assert parse_settings(Example, {}) == Example()


def test_all_faults_are_told_at_once_each_with_its_key() -> None:
    with pytest.raises(UserError) as caught:
        parse_settings(Example, {"sizes": "1 potato", "speed": "9", "bucket": "0"})
    message = str(caught.value)
    assert "--set sizes=1 potato: '1 potato' is not a size" in message
    assert "--set speed: no such key; known: sizes, ranks, gap, bucket" in message
    assert "--set bucket=0" in message


def test_a_prefix_is_part_of_the_key_that_the_user_typed() -> None:
    with pytest.raises(UserError, match=r"--set host\.speed: no such key; known: host\.sizes"):
        parse_settings(Example, {"speed": "9"}, prefix="host.")


def test_help_shows_every_key_with_default_and_meaning() -> None:
    assert ("sizes", "1000000", "bytes per operation") in describe_settings(Example)
