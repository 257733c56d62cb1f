"""The machine's own package sources, in both of the formats that apt reads (sources.list(5)).

They say which mirror to use and which keys to trust, so that nothing of either is named here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Source:
    """One binary package source: where, which releases, and under which conditions it is trusted."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    """Deb822 field name -> value for everything else: Signed-By (a path, or a key over several lines), Trusted, ..."""

    def offers(self, suite: str) -> bool:
        """Whether this is the archive's entry for `suite` with the free components in it."""
        return suite in self.suites and "main" in self.components

    def with_suites(self, suites: tuple[str, ...]) -> "Source":
        """The same mirror and keys for other suites, free packages only."""
        return Source(uris=self.uris, suites=suites, components=("main",), options=self.options)

    def stanza(self) -> str:
        """In the deb822 format, which can carry a key inside."""
        lines = [
            "Types: deb",
            f"URIs: {' '.join(self.uris)}",
            f"Suites: {' '.join(self.suites)}",
            f"Components: {' '.join(self.components)}",
            *(f"{name}: {value}" for name, value in self.options.items()),
        ]
        return "\n".join(lines) + "\n"


_ONE_LINE = re.compile(r"^\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)$")
_OPTION_NAMES = {
    "arch": "Architectures",
    "signed-by": "Signed-By",
    "trusted": "Trusted",
    "check-valid-until": "Check-Valid-Until",
}
_KEPT = tuple(_OPTION_NAMES.values())


def parse_one_line(text: str) -> Iterator[Source]:
    """The sources of a `*.list` file; source packages (`deb-src`) and comments are passed over."""
    for line in text.splitlines():
        match = _ONE_LINE.match(line.split("#", 1)[0])
        if match is None:
            continue
        options = {}
        for option in (match["options"] or "").split():
            name, _, value = option.partition("=")
            if known := _OPTION_NAMES.get(name.lower()):
                options[known] = value.replace(",", " ")
        yield Source(
            uris=(match["uri"],),
            suites=(match["suite"],),
            components=tuple(match["components"].split()),
            options=options,
        )


def parse_deb822(text: str) -> Iterator[Source]:
    """The sources of a `*.sources` file; disabled stanzas and those of source packages only are passed over."""
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        yield Source(
            uris=tuple(fields.get("uris", "").split()),
            suites=tuple(fields.get("suites", "").split()),
            components=tuple(fields.get("components", "").split()),
            options={name: fields[name.lower()] for name in _KEPT if name.lower() in fields},
        )


def _fields(stanza: str) -> dict[str, str]:
    """Field name in lower case -> value, continuation lines kept as they are; comments may stand between them."""
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and name:
            fields[name] += f"\n{line}"
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def machine_sources(etc_apt: Path = Path("/etc/apt")) -> list[Source]:
    """All sources that apt on this machine uses."""
    found: list[Source] = []
    parts = etc_apt / "sources.list.d"
    for file in [etc_apt / "sources.list", *sorted(parts.glob("*.list"))]:
        if file.is_file():
            found += parse_one_line(file.read_text(encoding="utf-8", errors="replace"))
    for file in sorted(parts.glob("*.sources")):
        found += parse_deb822(file.read_text(encoding="utf-8", errors="replace"))
    return found
