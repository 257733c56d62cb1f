"""What makes the guest fast and changes no result: how the kernel copies and keeps memory."""

from testbed.guest.edits.edit import Edit

# C code keeps the kernel's own indentation.
EDITS: tuple[Edit, ...] = (
    Edit(
        name="copy-by-string-move",
        path="arch/x86/lib/memcpy_64.S",
        why="User-Mode Linux never patches its code for the CPU, so that every payload was copied by 8-byte moves",
        pattern=r'\tALTERNATIVE(_2)? "jmp memcpy_orig"[^\n]*(\n\t\t[^\n]*)?\n(?=\n\tmovq)',
        replacement="\tcmpq $512, %rdx\n\tjb memcpy_orig\n",
    ),
    Edit(
        name="fill-by-string-store",
        path="arch/x86/lib/memset_64.S",
        why="as above, for the zeroing of pages",
        pattern=r'\tALTERNATIVE(_2)? "jmp memset_orig"[^\n]*(\n\t\t[^\n]*)?\n(?=\n\tmovq)',
        replacement="\tcmpq $512, %rdx\n\tjb memset_orig\n",
    ),
)
