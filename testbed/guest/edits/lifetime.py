"""Nothing of a guest outlives it, whenever it is killed."""

from testbed.guest.edits.edit import Edit

# A stub asks to die with the kernel's process.  When that was killed between making the stub and the stub's asking,
# nobody is left to die: the stub would wait for its kernel for ever (seen once in some thirty kills on a busy machine).
EDITS: tuple[Edit, ...] = (
    Edit(
        name="stub-parent-field",
        path="arch/um/include/shared/skas/stub-data.h",
        why="a stub has to know whose it is, so that it can tell that it came too late",
        pattern=r"struct stub_init_data \{\n",
        replacement="struct stub_init_data {\n\tint kernel_pid;\n",
    ),
    Edit(
        name="stub-parent-tramp",
        path="arch/um/os-Linux/skas/process.c",
        why="the kernel's process number, for the stub",
        pattern=r"\tstruct stub_init_data init_data = \{\n",
        replacement="\tstruct stub_init_data init_data = {\n\t\t.kernel_pid = tramp_data->kernel_pid,\n",
    ),
    Edit(
        name="stub-parent-data",
        path="arch/um/os-Linux/skas/process.c",
        why="it is read before the clone: the child's own parent may be gone already",
        pattern=r"\tstruct tramp_data tramp_data = \{\n",
        replacement="\tstruct tramp_data tramp_data = {\n\t\t.kernel_pid = getpid(),\n",
    ),
    Edit(
        name="stub-parent-tramp-field",
        path="arch/um/os-Linux/skas/process.c",
        why="carries it there",
        pattern=r"struct tramp_data \{\n",
        replacement="struct tramp_data {\n\tint kernel_pid;\n",
    ),
    Edit(
        name="stub-orphan",
        path="arch/um/kernel/skas/stub_exe.c",
        why="a stub whose kernel died before it could ask to die with it ends by itself",
        pattern=r"\tif \(res != sizeof\(init_data\)\)\n\t\tstub_syscall1\(__NR_exit, 10\);\n",
        replacement="\tif (res != sizeof(init_data) ||\n"
        "\t    stub_syscall0(__NR_getppid) != init_data.kernel_pid)\n"
        "\t\tstub_syscall1(__NR_exit, 10);\n",
    ),
)
