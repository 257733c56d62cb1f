"""Code of our own that is built into the guest kernel: what is copied where, and how the kernel's build learns of it.

Only the standard library: this runs before there is a virtual environment.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Addition:
    """The C files of one folder of ours, compiled within one folder of the kernel's tree."""

    folder: Path
    """Ours; its *.c and *.h are copied."""
    into: str
    """The kernel's, with a Makefile and a Kconfig of its own."""
    option: str
    """Without CONFIG_."""
    object_file: str
    kconfig: str
    """The option's definition."""
    before: str
    """The line of the Kconfig before which that goes: it has to stand inside the right menu."""

    def files(self) -> list[Path]:
        """What is copied, in a fixed order."""
        return sorted([*self.folder.glob("*.c"), *self.folder.glob("*.h")])

    def apply(self, tree: Path) -> None:
        """Put it into the kernel's source.  Raises ValueError when the Kconfig lacks the line to go before."""
        target = tree / self.into
        for file in self.files():
            shutil.copy(file, target)
        with (target / "Makefile").open("a", encoding="utf-8") as makefile:
            makefile.write(f"obj-$(CONFIG_{self.option}) += {self.object_file}\n")
        kconfig = target / "Kconfig"
        text = kconfig.read_text(encoding="utf-8")
        if text.count(f"\n{self.before}\n") != 1:
            raise ValueError(f"{self.into}/Kconfig of this kernel has not exactly one line '{self.before}'")
        kconfig.write_text(text.replace(f"\n{self.before}\n", f"\n{self.kconfig}\n{self.before}\n"), encoding="utf-8")


ADDITIONS: tuple[Addition, ...] = (
    Addition(
        folder=CHECKOUT / "testbed" / "port" / "qdisc",
        into="net/sched",
        option="NET_SCH_FABRIC",
        object_file="sch_fabric.o",
        kconfig='config NET_SCH_FABRIC\n\ttristate "A port of a data-centre switch (fabric)"\n',
        before="config NET_SCH_HTB",
    ),
)


def digest(additions: Sequence[Addition] = ADDITIONS) -> str:
    """The additions' contribution to the key of a kernel build."""
    state = hashlib.sha256()
    for addition in additions:
        state.update(repr((addition.into, addition.option, addition.object_file, addition.kconfig)).encode())
        for file in addition.files():
            state.update(f"{file.name}\n".encode() + file.read_bytes())
    return state.hexdigest()
