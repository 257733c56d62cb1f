"""The clock on releases before 6.16, whose vDSO and stubs are other code: exact too, but reading it is a system call.

A machine without newer source (Ubuntu 24.04, say) has the virtual clock with these, at half the speed or less.
"""

from testbed.guest.edits import clock
from testbed.guest.edits.edit import Edit

_SAME_CODE = ("tick-1ms", "clock-resolution-1ns", "timer-least-delay-1ns", "restlessness-of-a-task")

EDITS: tuple[Edit, ...] = (
    *(edit for edit in clock.EDITS if edit.name in _SAME_CODE),
    Edit(
        name="clock-for-system-calls",
        path="arch/um/kernel/time.c",
        why="the system call path below has to see the clock",
        pattern=r"static unsigned long long time_travel_time;\n",
        replacement="unsigned long long time_travel_time;\n",
    ),
    Edit(
        name="clock-reads-free-but-loops",
        path="arch/um/kernel/time.c",
        why="a clock read cost 256 ns of everybody's time; now a task's 1,024 at one instant, which are a loop, pay",
        pattern=r"!time_travel_ext_waiting\)\s*time_travel_update_time_rel\(TIMER_MULTIPLIER\);\n",
        replacement="""!time_travel_ext_waiting) {
		struct thread_struct *task = &current->thread;

		if (task->restless_at != time_travel_time) {
			task->restless_at = time_travel_time;
			task->restless = 0;
		}
		if ((task->restless += 4) > 4096) {
			task->restless = 0;
			time_travel_update_time_rel(1000);
		}
	}
""",
    ),
    Edit(
        name="failures-free-but-loops",
        path="arch/um/kernel/skas/syscall.c",
        why="a failing system call cost 1 us, EAGAIN on a socket included; now only restarts and loops of failures pay",
        pattern=r"um_udelay\(1\);\n",
        replacement="""extern unsigned long long time_travel_time;
			struct thread_struct *task = &current->thread;
			int restarts = ret == -ERESTARTSYS || ret == -ERESTARTNOINTR;

			restarts |= ret == -ERESTARTNOHAND || ret == -ERESTART_RESTARTBLOCK;
			if (task->restless_at != time_travel_time) {
				task->restless_at = time_travel_time;
				task->restless = 0;
			}
			if (restarts || ++task->restless > 4096) {
				task->restless = 0;
				um_udelay(1);
			}
""",
    ),
)
