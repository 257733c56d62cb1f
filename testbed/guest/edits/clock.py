"""The virtual clock: a resolution of 1 ns, timers on time, and no charge for what costs no time."""

from testbed.guest.edits.edit import Edit

# C code keeps the kernel's own indentation.
# ruff: noqa: E101
EDITS: tuple[Edit, ...] = (
    Edit(
        name="tick-1ms",
        path="arch/um/Kconfig",
        why="TCP counts its delayed ACKs and retransmissions in ticks: 10 ms is far too coarse for a data centre",
        pattern=r"config HZ\n\tint\n\tdefault 100\n",
        replacement="config HZ\n\tint\n\tdefault 1000\n",
    ),
    Edit(
        name="clock-resolution-1ns",
        path="arch/um/include/linux/time-internal.h",
        why="the clock's own resolution becomes 1 ns instead of 256 ns",
        pattern=r"#define TIMER_MULTIPLIER 256\n",
        replacement="#define TIMER_MULTIPLIER 1\n",
    ),
    Edit(
        name="timer-least-delay-1ns",
        path="arch/um/include/linux/time-internal.h",
        why="timers could not be nearer than 500 ns, which is 6 KB of line time at 100 Gb/s",
        pattern=r"#define TIMER_MIN_DELTA  500\n",
        replacement="#define TIMER_MIN_DELTA  1\n",
    ),
    Edit(
        name="timer-on-time",
        path="arch/um/kernel/time.c",
        why="every timer fired 1 ns after the moment that it was set for",
        pattern=r"\tdelta \+= 1;\n\n",
        replacement="",
    ),
    Edit(
        name="clock-page",
        path="arch/um/include/shared/timetravel.h",
        why="the kernel and the vDSO share the clock, and a count of what the task did since it last moved",
        pattern=r"#if IS_ENABLED\(CONFIG_UML_TIME_TRAVEL_SUPPORT\)\nextern enum",
        replacement="""/* Mapped into every process, just below the vDSO, which reads the clock here. */
struct um_clock_page {
	unsigned long long now;		/* ns since boot, the virtual clock itself */
	unsigned long long monotonic;	/* add to now */
	unsigned long long realtime;	/* add to now */
	unsigned int usable;		/* whether that is right: the offsets are set and the clock is virtual */
	unsigned int restless;		/* see time_travel_restless() */
};

/* so much restlessness of one task at one instant is a loop that waits for time to pass */
#define UM_RESTLESS_LIMIT 262144
#define UM_RESTLESS_CLOCK 256	/* reading the clock or yielding: 1,024 in a row */
#define UM_RESTLESS_FAILURE 64	/* a system call that failed, a poll that found nothing: 4,096 */
#define UM_RESTLESS_CALL 1	/* any other */

void um_clock_page_at(struct um_clock_page *page);
struct thread_struct;
void time_travel_switch(struct thread_struct *from, struct thread_struct *to);

#if IS_ENABLED(CONFIG_UML_TIME_TRAVEL_SUPPORT)
extern enum""",
    ),
    Edit(
        name="clock-page-filled",
        path="arch/um/kernel/time.c",
        why="the page follows the clock, and restlessness is measured from each instant anew",
        pattern=r"\ttime_travel_time = ns;\n\}\n",
        replacement="""	if (time_travel_time != ns)
		um_clock_page->restless = 0;
	time_travel_time = ns;
	um_clock_page->now = ns;
}

static int um_clock_follow(struct notifier_block *nb, unsigned long was_set, void *data)
{
	struct timekeeper *tk = data;

	/* reading without multiplying is right while one count of the clock is one nanosecond exactly */
	um_clock_page->usable = time_travel_mode == TT_MODE_INFCPU && TIMER_MULTIPLIER == 1 &&
				tk->tkr_mono.clock == &timer_clocksource &&
				tk->tkr_mono.mult == 1U << tk->tkr_mono.shift;
	um_clock_page->monotonic = ktime_to_ns(tk->tkr_mono.base) +
				   (tk->tkr_mono.xtime_nsec >> tk->tkr_mono.shift) - tk->tkr_mono.cycle_last;
	um_clock_page->realtime = um_clock_page->monotonic + ktime_to_ns(tk->offs_real);
	return NOTIFY_OK;
}

static struct notifier_block um_clock_follower = {
	.notifier_call = um_clock_follow,
};

void __init um_clock_page_at(struct um_clock_page *page)
{
	*page = *um_clock_page;
	um_clock_page = page;
	pvclock_gtod_register_notifier(&um_clock_follower);
}

/*
 * The page counts what the running task does.  If it counted for all, one more call anywhere would move the moment at
 * which a storm of processes that start together is charged, and with it every packet that they ever send.
 */
void time_travel_switch(struct thread_struct *from, struct thread_struct *to)
{
	from->restless = um_clock_page->restless;
	from->restless_at = time_travel_time;
	um_clock_page->restless = to->restless_at == time_travel_time ? to->restless : 0;
}

/*
 * With an infinitely fast CPU a loop that polls would never end.  Real ones cost time; here reading the clock and
 * failing are free (they are part of every network program), and only one who does nothing else is charged.
 */
void time_travel_restless(unsigned int weight)
{
	um_clock_page->restless += weight;
	if (um_clock_page->restless > UM_RESTLESS_LIMIT) {
		um_clock_page->restless = 0;
		usleep_range_state(1, 1, TASK_UNINTERRUPTIBLE);	/* not a delay: all others, the kernel's too, run meanwhile */
	}
}
""",
    ),
    Edit(
        name="clock-page-declared",
        path="arch/um/kernel/time.c",
        why="as above",
        pattern=r"enum time_travel_mode time_travel_mode;\n",
        replacement="""#include <linux/delay.h>
#include <linux/pvclock_gtod.h>
#include <linux/timekeeper_internal.h>

static struct clocksource timer_clocksource;
static struct um_clock_page um_early_clock_page;	/* until there is memory for the real one */
static struct um_clock_page *um_clock_page = &um_early_clock_page;

enum time_travel_mode time_travel_mode;
""",
    ),
    Edit(
        name="clock-page-mapped",
        path="arch/x86/um/vdso/vma.c",
        why="in every process, in the page below the vDSO that nothing else uses; shared, so that all see one clock",
        pattern=r"\tvma = _install_special_mapping\(mm, um_vdso_addr, PAGE_SIZE,\n",
        replacement="""	vma = _install_special_mapping(mm, um_vdso_addr - PAGE_SIZE, PAGE_SIZE,
		VM_READ|VM_WRITE|VM_SHARED|
		VM_MAYREAD|VM_MAYWRITE|VM_MAYSHARE,
		&clock_mapping);
	if (IS_ERR(vma)) {
		mmap_write_unlock(mm);
		return PTR_ERR(vma);
	}
	vma = _install_special_mapping(mm, um_vdso_addr, PAGE_SIZE,
""",
    ),
    Edit(
        name="clock-page-mapping",
        path="arch/x86/um/vdso/vma.c",
        why="as above",
        pattern=r"\tstatic struct vm_special_mapping vdso_mapping = \{\n",
        replacement="""	static struct vm_special_mapping clock_mapping = {
		.name = "[vvar]",
		.pages = um_clock_pages,
	};
	static struct vm_special_mapping vdso_mapping = {
""",
    ),
    Edit(
        name="clock-page-allocated",
        path="arch/x86/um/vdso/vma.c",
        why="as above",
        pattern=r"\tum_vdso = alloc_page\(GFP_KERNEL\);\n",
        replacement="""	um_clock_pages[0] = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!um_clock_pages[0])
		panic("Cannot allocate the page of the clock");
	um_clock_page_at(page_address(um_clock_pages[0]));

	um_vdso = alloc_page(GFP_KERNEL);
""",
    ),
    Edit(
        name="clock-page-pointer",
        path="arch/x86/um/vdso/vma.c",
        why="as above",
        pattern=r"static struct page \*um_vdso;\n",
        replacement="""#include <shared/timetravel.h>

static struct page *um_vdso;
static struct page *um_clock_pages[2];	/* the second ends the list */
""",
    ),
    Edit(
        name="clock-page-address",
        path="arch/x86/um/vdso/vdso-layout.lds.S",
        why="where the vDSO's code finds it",
        pattern=r"\t\. = VDSO_PRELINK \+ SIZEOF_HEADERS;\n",
        replacement="""	um_clock_page = VDSO_PRELINK - 4096;
	. = VDSO_PRELINK + SIZEOF_HEADERS;
""",
    ),
    Edit(
        name="clock-from-page",
        path="arch/x86/um/vdso/um_vdso.c",
        why="a clock read is a system call of 5 us or more, and network programs make one per packet",
        pattern=r"int __vdso_clock_gettime\(clockid_t clock, struct __kernel_timespec \*ts\)\n\{\n\tlong ret;\n",
        replacement="""#include <shared/timetravel.h>

extern volatile struct um_clock_page um_clock_page __attribute__((visibility("hidden")));

/* 0 when the kernel has to be asked: another clock, a clock that is not virtual, or a loop that it has to charge for */
static inline int from_page(clockid_t clock, unsigned long long *ns)
{
	/* write first: one page fault instead of two */
	if ((um_clock_page.restless += UM_RESTLESS_CLOCK) > UM_RESTLESS_LIMIT || !um_clock_page.usable)
		return 0;
	if (clock == CLOCK_MONOTONIC)
		*ns = um_clock_page.now + um_clock_page.monotonic;
	else if (clock == CLOCK_REALTIME)
		*ns = um_clock_page.now + um_clock_page.realtime;
	else
		return 0;
	return 1;
}

int __vdso_clock_gettime(clockid_t clock, struct __kernel_timespec *ts)
{
	unsigned long long ns;
	long ret;

	if (from_page(clock, &ns)) {
		ts->tv_sec = ns / NSEC_PER_SEC;
		ts->tv_nsec = ns % NSEC_PER_SEC;
		return 0;
	}
""",
    ),
    Edit(
        name="time-of-day-from-page",
        path="arch/x86/um/vdso/um_vdso.c",
        why="as above",
        pattern=r"(?<=struct timezone \*tz\)\n)\{\n\tlong ret;\n",
        replacement="""{
	unsigned long long ns;
	long ret;

	if (tv && !tz && from_page(CLOCK_REALTIME, &ns)) {
		tv->tv_sec = ns / NSEC_PER_SEC;
		tv->tv_usec = ns % NSEC_PER_SEC / NSEC_PER_USEC;
		return 0;
	}
""",
    ),
    Edit(
        name="clock-reads-free",
        path="arch/um/kernel/time.c",
        why="a clock read, the kernel's own too, cost 256 ns of everybody's time",
        pattern=r"\t\t/\*\n\t\t \* We make reading the timer cost a bit.*?"
        r"!time_travel_ext_waiting\)\s*time_travel_update_time_rel\(TIMER_MULTIPLIER\);\n",
        replacement="",
    ),
    Edit(
        name="failures-free",
        path="arch/um/kernel/skas/syscall.c",
        why="a failing system call cost 1 us, EAGAIN on a socket included; now only a loop that does nothing else pays",
        pattern=r"\t\t/\*\n\t\t \* An error value here can be some form of -ERESTARTSYS.*?"
        r"\t\t\tschedule\(\);\n\t\t\}\n",
        replacement="""		if (time_travel_mode == TT_MODE_INFCPU) {
			/* programs look in many places for their files and ask of each whether it is a terminal */
			int sought = ret == -ENOENT || ret == -ENOTDIR || ret == -ENOTTY;
			int polls = syscall == __NR_poll || syscall == __NR_ppoll || syscall == __NR_select ||
				    syscall == __NR_pselect6 || syscall == __NR_epoll_wait ||
				    syscall == __NR_epoll_pwait || syscall == __NR_epoll_pwait2;

			if ((IS_ERR_VALUE(ret) && !sought) || (!ret && polls))
				time_travel_restless(UM_RESTLESS_FAILURE);
			else if (syscall == __NR_clock_gettime || syscall == __NR_gettimeofday ||
				 syscall == __NR_time || syscall == __NR_sched_yield)
				time_travel_restless(UM_RESTLESS_CLOCK);
			else
				time_travel_restless(UM_RESTLESS_CALL);
		}
""",
    ),
    Edit(
        name="restlessness-of-a-task",
        path="arch/um/include/asm/processor-generic.h",
        why="as above, for tasks that are not running",
        pattern=r"\tstruct task_struct \*prev_sched;\n",
        replacement="""	struct task_struct *prev_sched;
	unsigned long long restless_at;
	unsigned int restless;
""",
    ),
    Edit(
        name="restlessness-switched",
        path="arch/um/kernel/process.c",
        why="as above",
        pattern=r"\tto->thread\.prev_sched = from;\n",
        replacement="""	to->thread.prev_sched = from;
	time_travel_switch(&from->thread, &to->thread);
""",
    ),
    Edit(
        name="restlessness-declared",
        path="arch/um/include/linux/time-internal.h",
        why="as above",
        pattern=r"void time_travel_ndelay\(unsigned long nsec\);\n",
        replacement="void time_travel_ndelay(unsigned long nsec);\nvoid time_travel_restless(unsigned int weight);\n",
    ),
)
