"""What an export made, and what it could not."""

from dataclasses import dataclass, field
from pathlib import Path

from experiments.run_folder import RunFolder


@dataclass(kw_only=True)
class Written:
    """Files in the folder's `export`."""

    folder: Path
    paths: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """File -> why the run has nothing for it, or what it lacks."""

    @classmethod
    def into(cls, run: RunFolder) -> "Written":
        """Makes the folder."""
        folder = run.path / "export"
        folder.mkdir(exist_ok=True)
        return cls(folder=folder)

    def add(self, name: str, text: str) -> None:
        """One more file."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        self.paths.append(path)
