"""Jobs of real forked ranks on the loopback: results, line-ups, and every way in which a rank can fail."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.workers.job import Job
from testbed.workers.rank import Rank
from testbed.workers.seat import Seat
from topologies.errors import RunFailed, UserError

STUCK_AFTER_S = 0.5


def seats(number: int) -> tuple[Seat, ...]:
    return tuple(
        Seat(host=f"h{i + 1}", namespace_path=None, addresses=("127.0.0.1",), interfaces=("lo",)) for i in range(number)
    )


def job(program: Any, *arguments: Any, ranks: int = 3, log_directory: Path, **options: Any) -> Job:
    options = {"process_group": False, "stuck_after_s": STUCK_AFTER_S, **options}
    return Job(seats=seats(ranks), program=program, arguments=arguments, log_directory=log_directory, **options)


def children() -> set[int]:
    """Processes whose parent we are, zombies included."""
    found = set()
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(directory.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Any:
    """No rank and no descriptor may outlive a job."""
    before, open_before = children(), len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert children() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def square(rank: Rank, offset: int) -> int:
    return rank.rank**2 + offset


def test_results_come_in_rank_order(tmp_path: Path) -> None:
    assert job(square, 7, ranks=5, log_directory=tmp_path).run() == [7, 8, 11, 16, 23]


def test_results_larger_than_a_socket_buffer_arrive_whole(tmp_path: Path) -> None:
    assert job(lambda rank: bytes([rank.rank]) * 3_000_000, log_directory=tmp_path).run() == [
        bytes([rank]) * 3_000_000 for rank in range(3)
    ]


def test_what_a_rank_prints_goes_to_its_own_log(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        print(f"I am {rank.rank} on {rank.host}")  # noqa: T201 - what a user's program does
        os.write(2, b"from below Python\n")

    job(program, log_directory=tmp_path).run()
    assert (tmp_path / "rank-002.log").read_text() == "I am 2 on h3\nfrom below Python\n"


def test_all_ranks_leave_a_line_up_at_the_same_instant(tmp_path: Path) -> None:
    def program(rank: Rank) -> tuple[int, int]:
        time.sleep(0.02 * rank.rank)
        arrived_ns = time.monotonic_ns()
        rank.line_up("start")
        return arrived_ns, time.monotonic_ns()

    times = job(program, log_directory=tmp_path).run()
    arrived, left = zip(*times, strict=True)
    assert max(arrived) < min(left)


def test_observer_sees_every_line_up_once_with_its_label(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        for label in ("before", "after"):
            rank.line_up(label)

    seen: list[str] = []
    job(program, log_directory=tmp_path, observe=seen.append).run()
    assert seen == ["before", "after"]


def test_a_rank_that_raises_is_named_with_host_operation_error_and_log(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        with rank.operation("all_reduce", 4096):
            if rank.rank == 1:
                raise ValueError("the cable is cut")
            time.sleep(60)

    with pytest.raises(RunFailed) as failure:
        job(program, log_directory=tmp_path, stuck_after_s=5).run()
    message = str(failure.value)
    assert "rank 1 on host h2, in all_reduce of 4096 bytes: ValueError: the cable is cut" in message
    assert "Traceback" in message


def test_a_rank_that_is_killed_ends_the_job_at_once(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        with rank.operation("reduce"):
            if rank.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    began = time.monotonic()
    with pytest.raises(RunFailed, match=r"rank 2 on host h3, in reduce: killed by SIGKILL"):
        job(program, log_directory=tmp_path, stuck_after_s=5).run()
    assert time.monotonic() - began < 2


def test_the_rank_that_died_is_named_not_those_that_felt_it(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        if rank.rank == 2:
            time.sleep(0.01)
            os._exit(3)
        raise ConnectionResetError("connection closed by peer")

    with pytest.raises(RunFailed, match=r"rank 2 on host h3.*exited with code 3 before its program returned"):
        job(program, log_directory=tmp_path).run()


def test_a_stopped_rank_is_named(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        with rank.operation("broadcast"):
            if rank.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)

    began = time.monotonic()
    with pytest.raises(RunFailed, match=r"job waits for:\nrank 1 on host h2, in broadcast: is stopped"):
        job(program, log_directory=tmp_path).run()
    assert time.monotonic() - began < STUCK_AFTER_S + 1


def test_a_rank_that_never_comes_is_named_and_its_stack_shown(tmp_path: Path) -> None:
    def asleep() -> None:
        time.sleep(60)

    def program(rank: Rank) -> None:
        if rank.rank == 0:
            asleep()
        rank.line_up("start")

    with pytest.raises(RunFailed) as failure:
        job(program, log_directory=tmp_path).run()
    assert "rank 0 on host h1, before its first operation: is stuck" in str(failure.value)
    assert "in asleep" in str(failure.value)
    assert "rank 1" not in str(failure.value)


def test_slow_ranks_that_do_make_progress_are_left_alone(tmp_path: Path) -> None:
    def program(rank: Rank) -> int:
        for _ in range(6):
            with rank.operation("compute"):
                time.sleep(STUCK_AFTER_S / 3)
        return 1

    assert job(program, log_directory=tmp_path).run() == [1, 1, 1]


def test_line_ups_must_agree_in_number(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        if rank.rank != 1:
            rank.line_up("start")

    with pytest.raises(RunFailed, match=r"rank 1 on host h2.*every rank must line up equally often"):
        job(program, log_directory=tmp_path).run()


def test_line_ups_must_agree_in_place(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        rank.line_up("left" if rank.rank == 1 else "right")

    with pytest.raises(RunFailed, match=r"rank 1 on host h2.*different places: left, right"):
        job(program, log_directory=tmp_path).run()


def test_a_result_that_cannot_be_pickled_is_the_ranks_error(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"rank \d on host h\d.*pickle"):
        job(lambda rank: lambda: None, log_directory=tmp_path).run()


def test_what_a_rank_started_dies_with_the_job(tmp_path: Path) -> None:
    def program(rank: Rank) -> None:
        if os.fork() == 0:
            (tmp_path / f"grandchild-{rank.rank}").write_text(str(os.getpid()))
            time.sleep(60)
        while not (tmp_path / f"grandchild-{rank.rank}").exists():
            time.sleep(0.001)
        rank.line_up("start")
        raise RuntimeError("over")

    with pytest.raises(RunFailed, match="over"):
        job(program, log_directory=tmp_path).run()
    for rank in range(3):
        pid = int((tmp_path / f"grandchild-{rank}").read_text())
        deadline = time.monotonic() + 2
        while is_alive(pid):  # it is no child of ours: nothing tells when the kill has taken effect
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_an_error_of_the_observer_ends_the_ranks_too(tmp_path: Path) -> None:
    def observe(label: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(lambda rank: rank.line_up(), log_directory=tmp_path, observe=observe).run()


def test_nonsense_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="connections=0"):
        job(square, 1, log_directory=tmp_path, connections=0)
    with pytest.raises(UserError, match="at least one host"):
        job(square, 1, ranks=0, log_directory=tmp_path)


def test_a_seat_names_every_nic_once_per_connection() -> None:
    seat = Seat(host="h1", namespace_path=None, addresses=("10.0.1.1", "10.0.2.1"), interfaces=("h1-eth0", "h1-eth1"))
    assert seat.gloo_interfaces(2) == "h1-eth0,h1-eth1,h1-eth0,h1-eth1"
    with pytest.raises(UserError, match="h1: 1 NICs and 0 addresses"):
        Seat(host="h1", namespace_path=None, addresses=(), interfaces=("h1-eth0",))
