"""Boot a guest that says who it is; the file it writes says who it is to the machine.  usage: whoami.py RUN_DIR"""

import sys
from pathlib import Path

from testbed.guest.machine import Boot, boot

run_dir = Path(sys.argv[1])
lines: list[str] = []
code = boot(
    Boot(command=("sh", "-c", "id -u; touch /out/file; ip link add va type veth peer name vb"), run_dir=run_dir),
    lines.append,
)
sys.stdout.write(f"guest root {lines[0]}, host user {(run_dir / 'file').stat().st_uid}\n")
sys.exit(code)
