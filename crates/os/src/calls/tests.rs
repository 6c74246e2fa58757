use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::*;
use crate::heap::{Allocator, Lease, Sizes};
use crate::realtime::SchedulingClass;

/// The allocator of a daemon.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Lock of the tests that count, because the counts are the whole process's.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `work` on a thread of `kind`, with the heap where a processor has one. Returns its result and the
/// number of calls that were refused meanwhile.
fn on<R: Send + 'static>(kind: ThreadKind, work: impl FnOnce() -> R + Send + 'static) -> (R, u64) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = refused();
    let thread = std::thread::spawn(move || {
        let sizes = Sizes { small: 1 << 20, large: 1 << 20 };
        let lease = (kind == ThreadKind::Processor).then(|| {
            let class = SchedulingClass::BestEffortHost;
            let mut lease = Lease::claim(class, Forbidden::Refuse).expect("the heap");
            lease.begin(sizes).expect("memory");
            lease
        });
        confine(kind, Forbidden::Refuse).expect("this kernel has filters");
        (work(), lease)
    });
    let (result, lease) = thread.join().expect("no panic");
    drop(lease);
    (result, refused() - before)
}

/// No list has it.
fn forbidden() -> rustix::io::Result<()> {
    rustix::process::chdir("/")
}

#[test]
fn what_no_list_has_is_refused_to_every_thread_and_counted() {
    for kind in ThreadKind::ALL {
        let twice = on(kind, || [forbidden(), forbidden()]);
        assert_eq!(twice, ([Err(Errno::PERM); 2], 2), "{kind}");
    }
}

#[test]
fn every_thread_allocates_locks_unwinds_and_ends() {
    prepare().expect("a thread");
    for kind in ThreadKind::ALL {
        let (bytes, refused) = on(kind, || {
            // Allocate by mmap, by a heap that grows, and give it back.
            let large = vec![1_u8; 40 << 20];
            let pieces: Vec<Vec<u8>> = (0..64).map(|n| vec![n; 60_000]).collect();
            let (sender, receiver) = std::sync::mpsc::channel();
            sender.send(pieces.len()).expect("the test receives it");
            let panicked = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(())));
            assert!(panicked.is_err());
            let table: std::collections::HashMap<usize, usize> = [(1, 2)].into();
            large.len() + receiver.recv().expect("sent") + table[&1]
        });
        assert_eq!((bytes, refused), ((40 << 20) + 66, 0), "{kind}");
    }
}

#[test]
fn a_processor_makes_its_calls_within_their_limits_only() {
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd");
    let (read_end, write_end) = rustix::pipe::pipe().expect("a pipe");
    let (answers, refused) = on(ThreadKind::Processor, move || {
        let map = || {
            // SAFETY: a new mapping that no other code uses.
            unsafe { mmap_anonymous(std::ptr::null_mut(), 4_096, ProtFlags::READ, MapFlags::PRIVATE) }
        };
        // SAFETY: nothing is mapped there.
        let unmap = |bytes| unsafe { munmap(std::ptr::without_provenance_mut(4_096), bytes) };
        let answers = [
            rustix::io::write(&bell, &1_u64.to_ne_bytes()).map(drop),
            rustix::io::read(&bell, &mut [0; 8]).map(drop),
            // A signal stack, and a part of the C library's heap, at the end.
            unmap(12_288),
            unmap(64 << 20),
            // The call is forbidden from here on.
            rustix::io::write(&write_end, b"9 bytes..").map(drop),
            rustix::io::read(&read_end, &mut [0; 9]).map(drop),
            map().map(drop),
            unmap(1 << 17),
            unmap((64 << 20) + 4_096),
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)
                .map(drop),
            rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).map(drop),
        ];
        // The filter permits no close, so leak the descriptors.
        std::mem::forget((bell, read_end, write_end));
        answers
    });
    let made = |answer: &rustix::io::Result<()>| *answer != Err(Errno::PERM);
    assert_eq!(
        answers.map(|answer| made(&answer)),
        [true, true, true, true, false, false, false, false, false, false, false]
    );
    assert_eq!(refused, 7);
}

#[test]
fn a_processor_closes_nothing() {
    let (read_end, _write_end) = rustix::pipe::pipe().expect("a pipe");
    let number = std::os::fd::AsRawFd::as_raw_fd(&read_end);
    // Debug builds first check whether it is open.
    let (_, refused) = on(ThreadKind::Processor, move || drop::<OwnedFd>(read_end));
    assert!(refused >= 1);
    // SAFETY: it was not closed, and no other value owns it.
    let read_end = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
    assert!(rustix::io::fcntl_getfd(read_end.as_fd()).is_ok());
}

#[test]
fn threads_that_a_service_starts_are_confined_like_it_and_more() {
    let (answers, refused) = on(ThreadKind::Service, || {
        let ringer = std::thread::spawn(|| {
            confine(ThreadKind::Ringer, Forbidden::Refuse).map_err(|error| error.kind())?;
            // The service's, and not the ringer's.
            let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty());
            Ok::<_, io::ErrorKind>(eventfd.map(drop))
        });
        let own = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).map(drop);
        (own, ringer.join().expect("no panic"))
    });
    assert_eq!(answers, (Ok(()), Ok(Err(Errno::PERM))));
    assert_eq!(refused, 1);
}

/// It holds ports of IP, and asks the kernel by netlink; it connects to no host, and sends nothing to one.
#[test]
fn a_thread_for_tcp_reaches_no_other_host() {
    use rustix::net::{AddressFamily, SendFlags, SocketType, connect, sendto, socket};
    let (answers, refused) = on(ThreadKind::Tcp, || {
        let peer = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 9);
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).expect("to hold a port");
        let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, None);
        let raw = socket(AddressFamily::PACKET, SocketType::RAW, None);
        let sent = sendto(&own, b"x", SendFlags::empty(), &peer).map(drop);
        (netlink.map(drop), [raw.map(drop), connect(&own, &peer), sent])
    });
    assert_eq!(answers, (Ok(()), [Err(Errno::PERM); 3]));
    assert_eq!(refused, 3);
}

#[test]
fn no_filter_is_set_unless_requested() {
    let done = std::thread::spawn(|| {
        confine(ThreadKind::Processor, Forbidden::Allow).expect("nothing to do");
        (forbidden(), rustix::thread::no_new_privs())
    });
    assert_eq!(done.join().expect("no panic"), (Ok(()), Ok(false)));
}

/// Environment variable that makes this program a process in which a thread makes a forbidden call.
const ENDS: &str = "PUNCTUAL_TEST_FORBIDDEN_CALL";

#[test]
fn one_that_is_to_end_is_ended_by_the_kernel() {
    if std::env::var_os(ENDS).is_some() {
        confine(ThreadKind::Processor, Forbidden::End).expect("this kernel has filters");
        let _ = forbidden();
        return;
    }
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args(["--exact", "calls::tests::one_that_is_to_end_is_ended_by_the_kernel"]).env(ENDS, "1");
    let status = command.output().expect("it runs").status;
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
}

#[test]
fn each_call_has_a_reason_and_is_in_one_list_once() {
    for kind in ThreadKind::ALL {
        let all: Vec<_> = calls(kind).map(|call| (call.name, call.why)).collect();
        assert!(all.iter().all(|(name, why)| !name.is_empty() && !why.is_empty()), "{all:?}");
        let mut once = all.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all.len(), "{kind}");
    }
    let own = |name| calls(ThreadKind::Processor).any(|call| call.name == name);
    assert_eq!(["close", "mmap", "mprotect", "mremap", "brk"].map(own), [false; 5]);
}
