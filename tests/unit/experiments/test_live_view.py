"""How far a run is: what a line-up tells, and what a terminal shows of it; elsewhere lines are plain."""

from pathlib import Path

import pytest

from experiments.balance import Reading
from experiments.console import MARK, Console
from experiments.live_view import LiveView, sparkline
from experiments.progress import Progress, parse, progress
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=3,rate=100G")


def reading(at_ns: int, label: str, **sent: int) -> Reading:
    names = {name.replace("_", "-"): value for name, value in sent.items()}
    return Reading(at_ns=at_ns, label=label, sent_bytes=names, down=frozenset())


READINGS = [
    reading(5_000, "first", s1_eth1=0, s1_eth2=0),
    reading(15_000, "second", s1_eth1=31_250, s1_eth2=62_500),
]


def test_a_line_up_tells_the_busiest_link_since_the_one_before() -> None:
    found = progress(STAR, READINGS, start_ns=5_000, events=2)
    assert found == Progress(virtual_ns=10_000, line_ups=2, label="second", events=2, link="s1 > h2", share=0.5)
    assert parse(found.line()) == found


def test_the_first_line_up_and_one_at_the_same_instant_tell_of_no_link() -> None:
    assert progress(STAR, READINGS[:1], start_ns=0, events=0).link == ""
    assert progress(STAR, [READINGS[1], READINGS[1]], start_ns=0, events=0).link == ""


def test_other_marks_are_not_progress() -> None:
    assert parse("begin") is None


def test_the_view_tells_stage_then_both_clocks_and_their_ratio() -> None:
    wall = [3.0]
    view = LiveView(elapsed_s=lambda: wall[0], stage="fabric: 4 switches")
    assert view.text() == "wall 3 s   fabric: 4 switches"
    view.take(progress(STAR, READINGS[:1], start_ns=5_000, events=0))
    wall[0] = 8.0
    view.take(Progress(virtual_ns=2_500_000, line_ups=7, label="x", events=1, link="s1 > h2", share=0.5))
    assert view.text() == (
        "virtual 2.500 ms   wall 8 s   1 s takes 2,000 s   line-ups 7 (x)   events 1\nbusiest s1 > h2 50%   ▅"
    )


def test_the_longest_queue_is_told_with_those_before_it() -> None:
    view = LiveView(elapsed_s=lambda: 1.0)
    for number, size in enumerate((50_000, 100_000, 25_000)):
        view.take(progress(STAR, READINGS, start_ns=0, events=number, longest_queue=("s1-eth1", size)))
    assert view.text().splitlines()[-1] == "longest queue s1 > h1 25 kB   ▅█▃"


def test_a_sparkline_goes_from_nothing_to_all() -> None:
    assert sparkline([0.0, 0.5, 1.0, 1.2]) == "▁▅██"


def test_without_a_terminal_lines_are_plain_and_progress_is_neither_line_nor_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Console(tmp_path / "log.txt") as console, console.live():
        console.progress("fabric: 1 switches")
        console.progress(MARK + progress(STAR, READINGS, start_ns=0, events=0).line())
        console.progress(f"{MARK}begin")
        assert list(console.marks) == ["begin"]
    shown = capsys.readouterr().out
    assert shown.endswith("s] fabric: 1 switches\n")
    assert shown.count("\n") == 1


def test_on_a_terminal_the_view_is_drawn_and_taken_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Console() as console:
        with console.live():
            console.progress(MARK + progress(STAR, READINGS, start_ns=5_000, events=0).line())
        console.say("done")
    shown = capsys.readouterr().out
    assert "line-ups 2 (second)" in shown
    assert shown.rstrip().endswith("done")
