"""Rewrites every golden file beside this one from its own `spec`.

    PYTHONPATH=. python tests/golden/topologies/regenerate.py       from the checkout's root; then read the difference

A new case is a new file with only a `spec` in it, and one run of this.
"""

import json
import sys
from pathlib import Path
from typing import Any

from topologies.json_form import to_json
from topologies.registry import parse_topology

HERE = Path(__file__).parent


def main() -> None:
    """Writes the files and says which."""
    for path in sorted(HERE.glob("*.json")):
        spec = json.loads(path.read_text(encoding="utf-8"))["spec"]
        path.write_text(lines_of({"spec": spec, **to_json(parse_topology(spec))}), encoding="utf-8")
        sys.stdout.write(f"{path.name}: {spec}\n")


def lines_of(data: dict[str, Any]) -> str:
    """JSON with one line per node and link, so that a difference shows what moved."""
    rows = []
    for key, value in data.items():
        if isinstance(value, list):
            items = ",\n  ".join(json.dumps(item) for item in value)
            rows.append(f'"{key}": [\n  {items}\n ]')
        else:
            rows.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(rows) + "\n}\n"


if __name__ == "__main__":
    main()
