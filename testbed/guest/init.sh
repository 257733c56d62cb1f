#!/bin/sh
# The guest's first process: a root of its own (the machine's below, read only; memory above), the command, power off.
# The guest was started with the run folder as its working directory, which a hostfs path reaches as /proc/self/cwd:
# so no path is ever on the kernel's command line, and none of their characters can hurt.
# Only what Debian and Ubuntu call essential is used here; the guest kernel ends with reboot(2), through perl-base.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LIBMOUNT_FORCE_MOUNT2=always
run_dir=/proc/self/cwd/

mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
mkdir -p out
cat > /mnt/fstab <<-FSTAB
	proc    /mnt/root/proc     proc     defaults              0 0
	sysfs   /mnt/root/sys      sysfs    defaults              0 0
	tmpfs   /mnt/root/run      tmpfs    mode=755              0 0
	dev     /mnt/root/dev      devtmpfs defaults              0 0
	none    /mnt/root/out      hostfs   $run_dir              0 0
FSTAB
mount -a -T /mnt/fstab
mkdir -p dev/pts dev/shm run/root
cat > /mnt/fstab <<-FSTAB
	bpf     /mnt/root/sys/fs/bpf  bpf     defaults            0 0
	devpts  /mnt/root/dev/pts     devpts  ptmxmode=0666       0 0
	shm     /mnt/root/dev/shm     tmpfs   mode=1777           0 0
FSTAB
mount -a -T /mnt/fstab
ln -sf /proc/self/fd dev/fd
for place in out/.guest/places/*; do  # the project's folders, at paths that are the same everywhere (places.py)
    source=$(cat "$place" && echo .)
    bound=testbed/${place##*/}
    mkdir -p "$bound"
    mount --bind "/mnt/root${source%.}" "$bound"
done

# shellcheck disable=SC2016  # expanded by the inner shell
exec chroot . /bin/sh -c '
    ip link set lo up
    echo testbed > /proc/sys/kernel/hostname
    echo 127.0.0.1 localhost testbed > /etc/hosts
    code=0
    turns=
    if grep -q time-travel= /proc/cmdline; then  # who wakes first runs first, whatever ran before: see README.md
        echo -1 > /proc/sys/kernel/sched_rt_runtime_us
        turns="chrt -f 1"
    fi
    $turns /bin/sh /out/.guest/command || code=$?
    echo $code > /out/.guest/exit
    exec perl -e "syscall(169, 0xfee1dead, 672274793, 0x4321fedc)"  # reboot(2): power off'
