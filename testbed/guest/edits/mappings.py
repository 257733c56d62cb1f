"""A process may be larger than the machine's limit on mappings (vm.max_map_count) would have it.

Every page of a guest's process is a mapping of the machine; only neighbours in both memories share one.  A process
that fills fresh memory from its end towards its start (as a large memcpy does at some addresses) has no neighbours, and
after 65,530 pages, 256 MB, mapping fails.  That error was not noticed: the process faulted on the same page for ever.
"""

from testbed.guest.edits.edit import Edit

# C code keeps the kernel's own indentation.
EDITS: tuple[Edit, ...] = (
    Edit(
        name="mappings-start-anew",
        path="arch/um/os-Linux/skas/process.c",
        why="a process whose mappings met the limit gives all back and goes on: each page comes again when it is used",
        pattern=r"\t\tcurrent_mm_sync\(\);\n",
        replacement="""		current_mm_sync();
		if (mm_id->syscall_data_len == -ENOMEM) {
			mm_id->syscall_data_len = 0;
			mm_id->syscall_fd_num = 0;
			unmap(mm_id, 0, STUB_START);
		}
""",
    ),
    Edit(
        name="mappings-limit-noticed",
        path="arch/um/os-Linux/skas/process.c",
        why="as above; the stub tells of an error by SIGSYS, which was taken for a system call",
        pattern=r"\t\t\tif \(sig == SIGTRAP && proc_data->err != 0\) \{\n",
        replacement="""			if (proc_data->err == -ENOMEM) {	/* nothing of the process itself has run */
				proc_data->err = 0;
				mm_id->syscall_data_len = -ENOMEM;
				exit_turnstile(mm_id);
				continue;
			}
			if (proc_data->err != 0) {
""",
    ),
    Edit(
        name="mappings-come-again",
        path="arch/um/kernel/trap.c",
        why="as above; a page that is there for us may not be there for the machine",
        pattern=r"\t\} while \(!pte_present\(\*pte\)\);\n\terr = 0;\n",
        replacement="""	} while (!pte_present(*pte));
	err = 0;
	if (!pte_needsync(*pte)) {
		*pte = pte_mkneedsync(*pte);
		um_tlb_mark_sync(mm, address & PAGE_MASK, (address & PAGE_MASK) + PAGE_SIZE);
	}
""",
    ),
)
