"""One builder at a time: two terminals that both start the first `./run` share its work instead of spoiling it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.setup.progress import Progress


@contextmanager
def exclusive(file: Path, progress: Progress) -> Iterator[None]:
    """Hold `file`'s lock; it is released by whatever ends this process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another ./run is at it; waiting for it to finish")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
