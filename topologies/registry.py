"""The fabrics by the name that commands, manifests and plots use.

`leaf_spine:leaves=2,rate=400G` names a generator and its parameters, `fabric.yaml:mtu=1500` a file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from topologies import dumbbell, fat_tree, leaf_spine, rail, ring, star, wan
from topologies.errors import UnknownName, UserError
from topologies.generator import Generator
from topologies.model import Topology

TOPOLOGIES: Mapping[str, Generator] = MappingProxyType(
    {module.GENERATOR.name: module.GENERATOR for module in (star, dumbbell, leaf_spine, fat_tree, rail, ring, wan)}
)
"""Name -> generator, in the order `./run list` shows them."""

_FILE = re.compile(r"(.+\.ya?ml)(?::(.*))?", re.IGNORECASE)


def parse_topology(spec: str) -> Topology:
    """The fabric that `NAME[:key=value,...]` or `FILE.yaml[:key=value,...]` asks for.

    Raises UserError naming what is wrong; UnknownName for a topology or parameter that does not exist.
    """
    file = _FILE.fullmatch(spec.strip())
    if file:
        from topologies.file import read_file  # pydantic and YAML, which Debian's Mininet does not have

        return read_file(Path(file[1]), parse_parameters(file[2] or "", where=file[1]))
    name, _, rest = spec.strip().partition(":")
    if name not in TOPOLOGIES:
        raise UnknownName("topology", name, [*TOPOLOGIES, "FILE.yaml"])
    return TOPOLOGIES[name].build(parse_parameters(rest, where=f"topology {name}"))


def parse_parameters(text: str, *, where: str) -> dict[str, str]:
    """`a=1,b=2` as a dictionary.  Raises UserError that begins with `where`."""
    given: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise UserError(f"{where}: '{part}' is not key=value")
        if key in given:
            raise UserError(f"{where}: {key} is given twice")
        given[key] = value
    return given
