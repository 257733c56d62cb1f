"""Lost packets: the lots, and the program itself where the kernel lets us load it."""

import os
from fractions import Fraction
from itertools import islice

import pytest

from testbed.packet_loss import lost_packets, lots, threshold


def test_the_share_is_met_within_three_standard_deviations() -> None:
    share, packets = Fraction(1, 100), 100_000
    deviation = (packets * float(share) * (1 - float(share))) ** 0.5
    for seed in (1, 2**63, 987_654_321):
        assert abs(lost_packets(seed, share, packets) - packets * share) < 3 * deviation


def test_the_ends_of_the_scale() -> None:
    assert (threshold(Fraction(0)), threshold(Fraction(1))) == (0, 2**32)
    assert lost_packets(1, Fraction(0), 1000) == 0
    assert lost_packets(1, Fraction(1), 1000) == 1000


def test_lots_are_the_seeds_and_fill_their_range() -> None:
    assert list(islice(lots(5), 10)) == list(islice(lots(5), 10)) != list(islice(lots(6), 10))
    assert all(0 <= lot < 2**32 for lot in islice(lots(5), 1000))


@pytest.mark.skipif(os.geteuid() != 0, reason="loading a BPF program needs root")
def test_the_kernel_takes_the_program() -> None:
    from testbed.bpf import Cell, load_classifier
    from testbed.packet_loss import _program

    cell = Cell(bytes(40))
    os.close(load_classifier(_program(cell.fd)))
    cell.close()
