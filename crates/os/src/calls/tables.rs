//! The lists. The reason of a call names the limit on its arguments. If two lists of a thread have the same
//! call, it must satisfy either limit.
//!
//! The C library chooses the call for some operations: `epoll_wait` or `epoll_pwait`, `poll` or `ppoll`. All
//! calls that it may choose on either architecture are listed.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};

use super::ThreadKind;

/// A system call that a kind of thread may make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Name of the call, as the manual spells it.
    pub name: &'static str,
    /// Reason for the call, and the limits within which it may be made.
    pub why: &'static str,
    pub(super) number: i64,
    /// Any of these, each with all of its conditions; none: whatever the arguments.
    pub(super) only: &'static [&'static [Argument]],
}

/// A condition on one argument: the bits in `mask` are those of `value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    index: u8,
    /// The kernel uses 64 bits of it, not 32.
    long: bool,
    mask: u64,
    value: u64,
}

impl Argument {
    pub fn condition(&self) -> Result<SeccompCondition, BackendError> {
        let length = if self.long { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
        SeccompCondition::new(self.index, length, SeccompCmpOp::MaskedEq(self.mask), self.value)
    }
}

/// Argument number `index`, a C `int`, is `value`.
const fn is(index: u8, value: libc::c_int) -> Argument {
    Argument { index, long: false, mask: u32::MAX as u64, value: value as u32 as u64 }
}

/// Argument number `index`, a length or a pointer, is `value`.
const fn is_long(index: u8, value: u64) -> Argument {
    Argument { index, long: true, mask: u64::MAX, value }
}

/// A length is less than this power of two.
const fn below(index: u8, power: u64) -> Argument {
    assert!(power.is_power_of_two());
    Argument { index, long: true, mask: !(power - 1), value: 0 }
}

/// All of these bits of argument number `index`, an `int`, are set.
const fn has(index: u8, bits: libc::c_int) -> Argument {
    Argument { index, long: false, mask: bits as u32 as u64, value: bits as u32 as u64 }
}

/// None of these bits of argument number `index`, an `int`, is set.
const fn lacks(index: u8, bits: libc::c_int) -> Argument {
    Argument { index, long: false, mask: bits as u32 as u64, value: 0 }
}

/// A call by the constant of its number, the limit on its arguments (none if omitted), and the reason.
macro_rules! call {
    ($number:ident, $why:literal $(,)?) => {
        call!($number, &[], $why)
    };
    ($number:ident, $only:expr, $why:literal $(,)?) => {
        Call {
            name: stringify!($number).split_at("SYS_".len()).1,
            why: $why,
            number: libc::$number,
            only: $only,
        }
    };
}

/// The calls of a kind of thread.
pub fn calls(kind: ThreadKind) -> impl Iterator<Item = &'static Call> {
    let lists: &[&[Call]] = match kind {
        ThreadKind::Processor => &[EVERY_THREAD, THREAD_END, PROCESSOR],
        ThreadKind::ProcessorOnSharedHeap => &[EVERY_THREAD, MEMORY, PROCESSOR],
        ThreadKind::Service => &[EVERY_THREAD, MEMORY, RINGER, SERVICE],
        ThreadKind::Ringer => &[EVERY_THREAD, MEMORY, RINGER],
        ThreadKind::Admission => &[EVERY_THREAD, MEMORY, ADMISSION],
        ThreadKind::Heap => &[EVERY_THREAD, MEMORY, KEEPER],
        ThreadKind::Links => &[EVERY_THREAD, MEMORY, DEVICES, LINKS],
        ThreadKind::Devices => &[EVERY_THREAD, MEMORY, DEVICES],
        ThreadKind::Tcp => &[EVERY_THREAD, MEMORY, TCP],
    };
    lists.iter().copied().flatten()
}

const EVENTFD_BYTES: u64 = 8;

/// The longest signal stack of a thread, in bytes: a power of two.
const SIGNAL_STACK_BYTES_MAX: u64 = 1 << 17;

/// Length of a part of the C library's heap, in bytes (`HEAP_MAX_SIZE` of glibc on 64-bit systems). A thread that ends frees the pieces
/// that it had kept since before it had a heap of its own; the part that is empty then is unmapped.
const HEAP_PART_BYTES: u64 = 64 << 20;

/// The calls that the C library's heap makes.
const MEMORY: &[Call] = &[
    call!(
        SYS_mmap,
        &[&[has(3, libc::MAP_ANONYMOUS), lacks(2, libc::PROT_EXEC)]],
        "memory of the allocator: no file, nothing executable",
    ),
    call!(SYS_mprotect, &[&[lacks(2, libc::PROT_EXEC)]], "as mmap: a heap that grows"),
    call!(SYS_mremap, "as mmap: a large piece that grows"),
    call!(SYS_munmap, "memory that is given back, the signal stack of a thread that ends"),
    call!(SYS_madvise, "the same"),
    call!(SYS_brk, "as mmap, where a heap of its own cannot be had"),
];

/// The calls at the end of a thread that has its own heap; those at the end of other threads are in
/// [`MEMORY`].
const THREAD_END: &[Call] = &[
    call!(
        SYS_munmap,
        &[&[below(1, SIGNAL_STACK_BYTES_MAX)], &[is_long(1, HEAP_PART_BYTES)]],
        "the thread ends and frees its signal stack (less than 128 KiB), and a part of the C library's heap (64 MiB) whose last pieces \
         it had kept",
    ),
    call!(
        SYS_madvise,
        &[&[is(2, libc::MADV_DONTNEED)]],
        "MADV_DONTNEED: the thread ends and gives its stack back"
    ),
];

/// Locks, time, and a thread's end.
const EVERY_THREAD: &[Call] = &[
    call!(SYS_futex, "locks and channels between threads of the daemon"),
    call!(SYS_sched_yield, "waits briefly for a thread that is about to release a lock or channel"),
    call!(SYS_clock_gettime, "the time, where the vDSO does not give it; CPU time of the thread"),
    call!(SYS_getcpu, "on which CPU the thread runs, where the vDSO does not provide it"),
    call!(SYS_prctl, &[&[is(0, PR_GET_AUXV)]], "PR_GET_AUXV: finds the vDSO in memory, once per process"),
    call!(SYS_getrandom, "keys of hash tables, once per thread"),
    call!(SYS_write, &[&[is(0, libc::STDERR_FILENO)]], "to standard error: the log"),
    call!(
        SYS_writev,
        &[&[is(0, libc::STDERR_FILENO)]],
        "to standard error: the C library prints why it ends the process",
    ),
    call!(SYS_restart_syscall, "continues a wait after the process was stopped"),
    call!(SYS_rt_sigprocmask, "the thread ends"),
    call!(SYS_sigaltstack, "the thread ends"),
    call!(SYS_exit, "the thread ends"),
    call!(SYS_rt_sigreturn, "returns from the handler that refuses a call"),
    call!(
        SYS_rt_sigaction,
        &[&[is(0, libc::SIGSEGV)], &[is(0, libc::SIGBUS)], &[is(0, libc::SIGABRT)]],
        "SIGSEGV, SIGBUS, SIGABRT: a fault of the daemon itself ends the process",
    ),
    call!(SYS_tgkill, &[&[is(2, libc::SIGABRT)]], "SIGABRT: a fault of the daemon itself ends the process"),
    call!(SYS_getpid, "a fault of the daemon itself ends the process"),
    call!(SYS_gettid, "a fault of the daemon itself ends the process"),
];

/// `PR_GET_AUXV` of `prctl.h`.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;
const AF_XDP_STATISTICS: [Argument; 2] = [is(1, libc::SOL_XDP), is(2, libc::XDP_STATISTICS)];
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_LINK_DETACH: libc::c_int = 34;

const PROCESSOR: &[Call] = &[
    call!(SYS_epoll_pwait2, "waits for links, doorbells and commands"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_epoll_wait, "waits for links, doorbells and commands before Linux 5.11"),
    call!(SYS_epoll_pwait, "waits for links, doorbells and commands before Linux 5.11"),
    call!(SYS_timerfd_settime, "sets the end of a wait before Linux 5.11"),
    call!(
        SYS_write,
        &[&[is_long(2, EVENTFD_BYTES)]],
        "8 bytes: wakes a thread of the daemon; rings a bell of root or of the daemon's own user",
    ),
    call!(
        SYS_read,
        &[&[is_long(2, EVENTFD_BYTES)]],
        "8 bytes: resets an eventfd of the daemon's own after it was rung"
    ),
    call!(
        SYS_epoll_ctl,
        "adds and removes doorbells, mutes those that ring too often; adds a device that comes back"
    ),
    call!(SYS_recvmmsg, "udp: receives packets"),
    call!(SYS_sendmmsg, "udp: sends packets"),
    call!(
        SYS_ioctl,
        &[&[is(1, libc::TIOCOUTQ as libc::c_int)]],
        "SIOCOUTQ; udp: how many bytes have not left yet"
    ),
    call!(
        SYS_sendto,
        &[&[is_long(1, 0), is_long(2, 0)]],
        "no bytes; xdp: asks the kernel to read the ring of packets to send",
    ),
    call!(
        SYS_recvfrom,
        &[&[is_long(1, 0), is_long(2, 0)]],
        "no bytes; xdp: asks the kernel to read the ring of frames to fill",
    ),
    call!(SYS_getsockopt, &[&AF_XDP_STATISTICS], "XDP_STATISTICS; xdp: what the kernel dropped"),
    call!(
        SYS_bpf,
        &[&[is(0, BPF_MAP_LOOKUP_ELEM)], &[is(0, BPF_MAP_UPDATE_ELEM)], &[is(0, BPF_MAP_DELETE_ELEM)]],
        "look up, update, delete; xdp: filters of channels, and what they counted",
    ),
    call!(
        SYS_sched_setattr,
        &[&[is(0, 0)]],
        "its own attributes; class deadline: the runtime follows admission"
    ),
];

const ADMISSION: &[Call] = &[
    call!(SYS_write, &[&[is_long(2, EVENTFD_BYTES)]], "8 bytes: the processor is woken"),
    call!(SYS_close, "what remains of an engine that has ended meanwhile"),
    call!(SYS_fcntl, &[&[is(1, libc::F_GETFD)]], "F_GETFD: the same, in debug builds"),
];

const KEEPER: &[Call] = &[call!(SYS_sched_setattr, &[&[is(0, 0)]], "of itself: its class")];

const RINGER: &[Call] = &[
    call!(SYS_write, &[&[is_long(2, EVENTFD_BYTES)]], "8 bytes: a bell; memory was given back"),
    call!(SYS_read, &[&[is_long(2, EVENTFD_BYTES)]], "8 bytes: it was woken"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_poll, "waits to be woken"),
    call!(SYS_ppoll, "the same"),
    call!(SYS_clock_nanosleep, "rests between bells that take long"),
    call!(SYS_close, "what remains of a ring"),
    call!(SYS_fcntl, &[&[is(1, libc::F_GETFD)]], "F_GETFD: the same, in debug builds"),
    call!(SYS_sched_setattr, &[&[is(0, 0)]], "of itself: its class"),
    call!(SYS_sched_setaffinity, &[&[is(0, 0)]], "of itself: its CPU"),
    call!(SYS_sched_getaffinity, "the same"),
];

const UNIX: Argument = is(0, libc::AF_UNIX);

const SERVICE: &[Call] = &[
    call!(SYS_write, "standard output and error; eventfds"),
    call!(SYS_read, "eventfds; which users are subordinates of whom"),
    call!(SYS_mmap, &[&[lacks(2, libc::PROT_EXEC)]], "rings; stacks of ringers; nothing executable"),
    call!(SYS_accept4, "programs"),
    call!(SYS_recvmsg, "their requests"),
    call!(SYS_sendmsg, "answers, with descriptors"),
    call!(
        SYS_ioctl,
        &[&[is(1, libc::TIOCOUTQ as libc::c_int)]],
        "SIOCOUTQ; whether a program has read its answers",
    ),
    call!(SYS_sendto, "a signal tells this thread to stop"),
    call!(SYS_recvfrom, "the same"),
    call!(SYS_shutdown, "a program gets the reason why it is disconnected; the daemon's end of a doorbell"),
    call!(SYS_getsockopt, "who a program is"),
    call!(SYS_setsockopt, "what the kernel holds for a program that does not read"),
    call!(SYS_socketpair, &[&[UNIX]], "doorbells"),
    call!(SYS_eventfd2, "bells"),
    call!(SYS_memfd_create, "rings; what a program does not read"),
    call!(SYS_fallocate, "the same"),
    call!(SYS_ftruncate, "the same"),
    call!(SYS_inotify_add_watch, "whether anybody holds a ring's file"),
    call!(SYS_inotify_rm_watch, "the same"),
    call!(SYS_pread64, "what a program does not read"),
    call!(SYS_pwrite64, "the same"),
    call!(SYS_pipe2, "holds a page of each part of a ring"),
    call!(SYS_vmsplice, "the same"),
    call!(SYS_fcntl, "seals; length of a pipe; copies of descriptors"),
    call!(SYS_fstat, "length of a ring's file"),
    call!(SYS_newfstatat, "the same; threads of a program"),
    call!(SYS_statx, "the same; whether /etc/subuid has changed"),
    call!(SYS_openat, "the same; a descriptor in reserve"),
    call!(SYS_lseek, "the same"),
    call!(SYS_kill, &[&[is(1, 0)]], "signal 0: whether a program lives"),
    call!(SYS_geteuid, "its own user"),
    call!(SYS_sched_getattr, "class of a co-scheduled thread"),
    call!(SYS_sched_setattr, "the same"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_unlink, "its socket, at the end"),
    call!(SYS_unlinkat, "the same"),
    call!(SYS_bpf, &[&[is(0, BPF_LINK_DETACH)]], "link detach: the classifier leaves its device, at the end"),
    call!(SYS_exit_group, "the end"),
    call!(SYS_clone3, "starts ringers"),
    call!(SYS_clone, "the same, where clone3 is not there"),
    call!(SYS_set_robust_list, "a ringer begins"),
    call!(SYS_rseq, "the same"),
    call!(SYS_prctl, &[&[is(0, libc::PR_SET_NAME)], &[is(0, libc::PR_SET_NO_NEW_PRIVS)]], "the same"),
    call!(SYS_seccomp, "the same: lays its own filter upon itself"),
    call!(SYS_prlimit64, "length of its stack"),
];

/// Calls of the threads that make what TCP connections need, and drop it again.
const TCP: &[Call] = &[
    call!(
        SYS_socket,
        &[&[INET], &[INET6], &[NETLINK, is(2, libc::NETLINK_ROUTE)]],
        "holds a local port; netlink: the device that has an address",
    ),
    call!(SYS_bind, "the same"),
    call!(SYS_getsockname, "the same"),
    call!(SYS_connect, &[&[is(2, NETLINK_ADDRESS_BYTES)]], "netlink alone: addresses of IP are longer"),
    call!(SYS_setsockopt, &[&[is(1, libc::SOL_NETLINK)]], "netlink"),
    call!(SYS_sendto, &[&[is(5, 0)]], "netlink: to the kernel, which it is connected to"),
    call!(SYS_recvfrom, "netlink"),
    call!(SYS_close, "gives a port back; rings"),
    call!(SYS_clock_nanosleep, "waits for the kernel's route"),
    call!(SYS_write, &[&[is_long(2, EVENTFD_BYTES)]], "8 bytes: wakes a thread of the daemon"),
    call!(SYS_mmap, &[&[lacks(2, libc::PROT_EXEC)]], "rings of segments; nothing executable"),
    call!(SYS_memfd_create, "the same"),
    call!(SYS_fallocate, "the same"),
    call!(SYS_ftruncate, "the same"),
    call!(SYS_fstat, "the same"),
    call!(SYS_newfstatat, "the same"),
    call!(SYS_statx, "the same"),
    call!(SYS_fcntl, "the same: seals; copies of descriptors"),
    call!(SYS_pipe2, "the same: holds a page of each part"),
    call!(SYS_vmsplice, "the same"),
    call!(SYS_lseek, "the same"),
    call!(SYS_eventfd2, "the same: bells"),
    call!(SYS_socketpair, &[&[UNIX]], "the same: doorbells"),
    call!(SYS_shutdown, "the same"),
];

const NETLINK: Argument = is(0, libc::AF_NETLINK);
/// `struct sockaddr_nl`.
const NETLINK_ADDRESS_BYTES: libc::c_int = 12;
const INET: Argument = is(0, libc::AF_INET);
const INET6: Argument = is(0, libc::AF_INET6);

/// Calls of a thread that sets devices up, watches them and puts them back.
const DEVICES: &[Call] = &[
    call!(SYS_socket, &[&[NETLINK], &[UNIX]], "netlink: devices, qdiscs, NAPI; number of the namespace"),
    call!(SYS_bind, "the same"),
    call!(SYS_connect, "the same"),
    call!(SYS_getsockname, "the same"),
    call!(SYS_setsockopt, "the same"),
    call!(SYS_getsockopt, "the same"),
    call!(SYS_sendto, "the same"),
    call!(SYS_sendmsg, "the same"),
    call!(SYS_recvfrom, "the same"),
    call!(SYS_recvmsg, "the same"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_poll, "waits for them, and to be woken"),
    call!(SYS_ppoll, "the same"),
    call!(SYS_clock_nanosleep, "tries again"),
    call!(SYS_openat, "the record of what was changed; what /sys shows of a device"),
    call!(SYS_read, "the same"),
    call!(SYS_write, "the same"),
    call!(SYS_close, "the same"),
    call!(SYS_lseek, "the same"),
    call!(SYS_ftruncate, "the same"),
    call!(SYS_flock, "the same"),
    call!(SYS_fcntl, "the same"),
    call!(SYS_statx, "the same"),
    call!(SYS_newfstatat, "the same"),
    call!(SYS_fstat, "the same"),
    call!(SYS_getdents64, "the same"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_unlink, "the same"),
    call!(SYS_unlinkat, "the same"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_mkdir, "the same"),
    call!(SYS_mkdirat, "the same"),
    call!(SYS_readlinkat, "the same"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_readlink, "the same"),
    call!(SYS_sched_getscheduler, "class of a NAPI thread"),
    call!(SYS_sched_getparam, "the same"),
    call!(SYS_sched_setscheduler, "the same"),
];

/// Further calls of a thread that also opens links over AF_XDP.
const LINKS: &[Call] = &[
    call!(
        SYS_socket,
        &[&[is(0, libc::AF_XDP)], &[INET], &[INET6]],
        "AF_XDP; UDP, so that the kernel resolves a neighbour",
    ),
    call!(SYS_bpf, "loads and attaches the classifier"),
    call!(SYS_mmap, &[&[lacks(2, libc::PROT_EXEC)]], "rings of AF_XDP, accounts of the classifier"),
    call!(SYS_uname, "what the kernel can do"),
    call!(SYS_capget, "the same"),
];
