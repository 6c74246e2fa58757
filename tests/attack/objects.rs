//! Bells, doorbells and connections: objects that both sides hold an end of, and all that a holder can do to them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use punctual_ipc::api::Request;
use punctual_ipc::ring::RingShape;
use punctual_ipc::wake::{Doorbell, timespec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Resource, getrlimit};

use crate::attacker::Mechanism;
use crate::common::raw::Raw;
use crate::field::{Field, Page, SOURCE_SOCKET, channel, child, flow, kept, repeat, ring, threads};
use crate::judge::{Bounds, Losses};
use crate::world::PERIOD;

/// Of one program that holds what it holds more than once.
const COPIES: usize = 200;
/// Processes that are sent a signal at once.
const GROUP: usize = 600;

const RINGER: &str = "bells are rung by the user's ringer";
const OWN_END: &str = "the daemon's end of a doorbell is its own, shut for reading";
const SERVICE: &str = "connections are the service's, not the processor's";
const TWICE: Bounds = Bounds { losses: Losses::TwiceControl, ..Bounds::DEFAULT };

/// Uses a bell, a doorbell and a connection, and nothing else. What the kernel keeps of ended processes it frees in the middle of
/// system calls of the processor's, too (docs/SECURITY.md, "not defended"): each message that the attack sends by its bell's flow
/// is a call that this may happen to.
static HOLDER: Mechanism = Mechanism::new("holder", OWN_END, |field| {
    let _kept = field.shared().map(kept);
});

pub const MECHANISMS: &[Mechanism] = &[
    Mechanism::new("crowd-at-bell", RINGER, |field| crowd(field.bell().as_fd())),
    Mechanism { bounds: TWICE, ..Mechanism::new("crowd-and-flood-at-doorbells", OWN_END, besiege_doorbells) },
    Mechanism {
        bounds: TWICE,
        ..Mechanism::new("crowd-at-connection", SERVICE, |field| crowd(field.connection().as_fd()))
    },
    Mechanism { page: Some(Page::Hollow), ..Mechanism::new("bell-into-hollow", RINGER, read_bell) },
    Mechanism { page: Some(Page::Served), ..Mechanism::new("bell-into-served", RINGER, read_bell) },
    Mechanism { page: Some(Page::Handled), ..Mechanism::new("bell-into-handled", RINGER, read_bell) },
    Mechanism { page: Some(Page::Served), ..Mechanism::new("doorbell-into-served", OWN_END, read_doorbell) },
    Mechanism {
        page: Some(Page::Handled),
        ..Mechanism::new("doorbell-into-handled", OWN_END, read_doorbell)
    },
    Mechanism {
        page: Some(Page::Served),
        ..Mechanism::new("connection-into-served", SERVICE, read_connection)
    },
    Mechanism {
        page: Some(Page::Handled),
        ..Mechanism::new("connection-into-handled", SERVICE, read_connection)
    },
    Mechanism::new("full-bell", RINGER, fill_bell),
    Mechanism {
        bounds: TWICE,
        ..Mechanism::new("nests-of-epolls", "the processor waits where nobody else can", nest)
    },
    Mechanism {
        bounds: TWICE,
        ..Mechanism::new("signals-at-every-change", "signals are sent by the ringer and the service", signals)
    },
    Mechanism::new(
        "options-of-sockets",
        "the daemon sends without waiting, to bounded buffers of its own",
        options,
    ),
    Mechanism::new("crowd-of-peekers", SERVICE, peek),
    Mechanism {
        bounds: TWICE,
        ..Mechanism::new("in-flight-in-cycles", "descriptors go one way: to programs", in_flight)
    },
    Mechanism {
        bounds: TWICE,
        beside_control: Some(&HOLDER),
        ..Mechanism::new("storm-of-forks", "nothing counts who holds an object", fork_storm)
    },
    Mechanism::new("stopped-holders", "nothing waits for who holds an object", stopped_holders),
    Mechanism {
        bounds: TWICE,
        ..Mechanism::new("stuffed-doorbells", "what rings too often is muted", stuff_doorbells)
    },
    Mechanism {
        bounds: Bounds { grown_kib_max: 16 << 10, processor_share_max: Some(0.08), ..TWICE },
        ..Mechanism::new("doorbells-of-flows", "users have one allowance of doorbells each", ring_flows)
    },
];

/// A million entries in the list of those who wait for `descriptor`, for an event that never comes.
fn crowd(descriptor: BorrowedFd<'_>) {
    crowd_of(descriptor, 50);
}

/// So many times 20,000.
pub fn crowd_of(descriptor: BorrowedFd<'_>, threads: usize) {
    crowd_for(descriptor, threads, None);
    // Each is in its system call after some milliseconds.
    std::thread::sleep(Duration::from_secs(1));
}

/// Threads with 20,000 entries each, for so long or for ever.
fn crowd_for(descriptor: BorrowedFd<'_>, threads: usize, span: Option<Duration>) {
    let entries = getrlimit(Resource::Nofile).current.unwrap_or(20_000).min(20_000) as usize;
    let end = span.map(|span| Instant::now() + span);
    for _ in 0..threads {
        let copy = descriptor.try_clone_to_owned().expect("a descriptor");
        std::thread::spawn(move || {
            let mut set: Vec<_> = (0..entries).map(|_| PollFd::new(&copy, PollFlags::PRI)).collect();
            while end.is_none_or(|end| Instant::now() < end) {
                let left = end.map(|end| timespec(end.saturating_duration_since(Instant::now())));
                // An event that cannot be left out, a hang-up, would come at once again.
                let _ = poll(&mut set, left.as_ref());
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }
}

/// One doorbell after the other, each of a flow that is closed meanwhile.
fn besiege_doorbells(field: &Field) {
    let own = field.own;
    threads(1, move |_| {
        if own {
            // Of the same kind: what such a crowd costs a CPU anybody can do to it.
            let (_ours, theirs) = Doorbell::pair().expect("sockets");
            return besiege(&theirs);
        }
        let raw = Raw::greeted(SOURCE_SOCKET.as_ref());
        let (channel, _, mut descriptors) = flow(&raw, RingShape::new(4, 100).expect("a shape"));
        besiege(&descriptors.remove(3));
        // Now it is taken off the list of what is watched, and closed.
        raw.ask(Request::Close { channel }).0.expect("closed");
    });
}

/// Doorbells of as many best-effort flows as one user may have, one after the other without end.
fn ring_flows(field: &Field) {
    const FLOWS: usize = 250;
    let doorbells: Vec<OwnedFd> = if field.own {
        let pair = || {
            let (ours, theirs) = Doorbell::pair().expect("sockets");
            std::mem::forget(ours);
            theirs
        };
        (0..FLOWS).map(|_| pair()).collect()
    } else {
        let raw = Raw::greeted(SOURCE_SOCKET.as_ref());
        let shape = RingShape::new(1, 1).expect("a shape");
        let doorbells = (0..FLOWS).map(|_| flow(&raw, shape).2.remove(3)).collect();
        std::mem::forget(raw);
        doorbells
    };
    threads(1, move |_| doorbells.iter().for_each(ring));
}

/// Floods first, so that it is muted and heard again all the time; then a crowd comes, while the flood goes on.
fn besiege(doorbell: &OwnedFd) {
    for _ in 0..2 {
        let doorbell = doorbell.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_millis(350);
            while Instant::now() < end {
                ring(&doorbell);
            }
        });
    }
    std::thread::sleep(Duration::from_millis(50));
    crowd_for(doorbell.as_fd(), 10, Some(Duration::from_millis(300)));
    std::thread::sleep(Duration::from_millis(200));
}

/// Four threads that read an object into pages that are not there.
fn read_into(field: &Field, descriptor: OwnedFd, read: fn(RawFd, *mut libc::c_void)) {
    let memory = field.page.expect("laid ready");
    let descriptor = kept(descriptor);
    for number in 0..4_usize {
        std::thread::spawn(move || {
            for turn in 0.. {
                let mut wait = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry.
                unsafe { libc::poll(&raw mut wait, 1, -1) };
                read(descriptor, memory.page(number + 4 * turn));
            }
        });
    }
}

fn read_bell(field: &Field) {
    read_into(field, field.bell(), |bell, page| {
        // SAFETY: eight bytes of memory that is mapped for ever, and that no code reads.
        unsafe { libc::read(bell, page, 8) };
    });
}

fn read_connection(field: &Field) {
    read_into(field, field.connection(), |line, page| {
        // SAFETY: as above.
        unsafe { libc::recv(line, page, 4_096, 0) };
    });
}

/// Nothing ever comes there; what it sends comes out of such a page.
fn read_doorbell(field: &Field) {
    let doorbell = field.doorbell();
    let ringing = doorbell.try_clone().expect("a descriptor");
    repeat(PERIOD, move || ring(&ringing));
    read_into(field, doorbell, |doorbell, page| {
        // SAFETY: as above.
        unsafe {
            libc::send(doorbell, page, 4_096, libc::MSG_NOSIGNAL);
            libc::recv(doorbell, page, 4_096, libc::MSG_DONTWAIT);
            libc::ioctl(doorbell, libc::FIONREAD, page);
        }
        std::thread::sleep(Duration::from_millis(1));
    });
}

fn fill_bell(field: &Field) {
    let bell = field.bell();
    // All copies are of one file: each write to it waits from now on.
    fill(&bell);
    // Taken out every 10 ms, with the message; full again before the next one comes.
    repeat(Duration::from_micros(50), move || fill(&bell));
}

/// The bell's counter takes not one ring more.
fn fill(bell: &OwnedFd) {
    let mut set = [PollFd::new(bell, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    for count in [u64::MAX - 1, 1 << 62, 1 << 61, 1 << 40, 1 << 20, 1 << 10, 1] {
        // Only the daemon writes there, whose ring counts one.
        if poll(&mut set, Some(&now)).is_ok_and(|ready| ready > 0) {
            fcntl_setfl(bell, OFlags::NONBLOCK).expect("for this write");
            while rustix::io::write(bell, &count.to_ne_bytes()).is_ok() {}
            fcntl_setfl(bell, OFlags::empty()).expect("blocking");
        }
    }
}

/// Trees of epoll instances, one in another: each change of an object goes through all of them, in the middle of whoever
/// causes it.
fn nest(field: &Field) {
    const TREES: usize = 400;
    const DEPTH: usize = 4;
    for descriptor in field.shared().map(kept) {
        for _ in 0..TREES {
            let mut inner = descriptor;
            for _ in 0..DEPTH {
                // SAFETY: a fresh descriptor, kept for ever, and an event of this function's.
                unsafe {
                    let outer = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                    assert!(outer >= 0, "an epoll instance");
                    let events = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP) as u32;
                    let mut event = libc::epoll_event { events, u64: 0 };
                    // The kernel bounds how many trees of which depth one object has.
                    if libc::epoll_ctl(outer, libc::EPOLL_CTL_ADD, inner, &raw mut event) != 0 {
                        libc::close(outer);
                        break;
                    }
                    inner = outer;
                }
            }
        }
    }
    let doorbell = field.doorbell();
    threads(1, move |_| ring(&doorbell));
}

/// Each change of an object sends a real-time signal to a group of processes, which grows full.
fn signals(field: &Field) {
    let descriptors = field.shared().map(kept);
    // SAFETY: of this process and its children only.
    unsafe {
        libc::setpgid(0, 0);
        libc::signal(libc::SIGRTMIN(), libc::SIG_IGN);
        let group = -libc::getpgrp();
        for _ in 0..GROUP {
            child(|| {
                libc::pause();
            });
        }
        for descriptor in descriptors {
            libc::fcntl(descriptor, libc::F_SETOWN, group);
            libc::fcntl(descriptor, 10 /* F_SETSIG */, libc::SIGRTMIN());
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_ASYNC);
            // Refused for what is no folder and not the user's own file.
            libc::fcntl(descriptor, 1026 /* F_NOTIFY */, 0x8000_003f_u32);
            libc::fcntl(descriptor, 1024 /* F_SETLEASE */, libc::F_WRLCK);
        }
    }
    let [bell, doorbell, _] = descriptors;
    // Some objects tell of a change only who has seen the one before.
    threads(1, move |_| {
        // SAFETY: eight bytes of this function's.
        unsafe { libc::read(bell, [0_u8; 8].as_mut_ptr().cast(), 8) };
        std::thread::sleep(PERIOD / 4);
    });
    threads(1, move |_| {
        // SAFETY: kept for ever.
        ring(unsafe { BorrowedFd::borrow_raw(doorbell) });
    });
}

/// Every option of its ends, to its extremes, again and again.
fn options(field: &Field) {
    let [_, doorbell, line] = field.shared().map(kept);
    let names = [
        libc::SO_RCVLOWAT,
        libc::SO_PEEK_OFF,
        libc::SO_RCVBUF,
        libc::SO_SNDBUF,
        libc::SO_PASSCRED,
        libc::SO_TIMESTAMP,
        libc::SO_BUSY_POLL,
        libc::SO_PRIORITY,
        libc::SO_LINGER,
    ];
    threads(2, move |number| {
        let values = [0, 1, -1, i32::MAX, i32::MIN];
        for (name, value) in names.iter().flat_map(|name| values.map(|value| (*name, value))) {
            for socket in [doorbell, line] {
                let value = [value, value];
                let bytes = if name == libc::SO_LINGER { 8 } else { 4 };
                // SAFETY: a value of at least so many bytes.
                unsafe {
                    libc::setsockopt(socket, libc::SOL_SOCKET, name, value.as_ptr().cast(), bytes);
                    libc::recv(line, [0_u8; 64].as_mut_ptr().cast(), 64, libc::MSG_DONTWAIT);
                }
            }
        }
        if number == 0 {
            // SAFETY: kept for ever.
            ring(unsafe { BorrowedFd::borrow_raw(doorbell) });
        }
    });
}

/// Many look at the same answer, again and again, and one takes it.
fn peek(field: &Field) {
    let line = kept(field.connection());
    threads(50, move |number| {
        let mut buffer = [0_u8; 4_096];
        let flags = if number == 0 { 0 } else { libc::MSG_PEEK };
        // SAFETY: a buffer of this function's.
        unsafe { libc::recv(line, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    });
}

/// Ends of everything travel in sockets that travel in one another: only the kernel's collector finds them.
fn in_flight(field: &Field) {
    let descriptors = field.shared().map(kept);
    threads(1, move |_| {
        let mut pair = [0; 2];
        // SAFETY: two fresh descriptors, closed below.
        unsafe {
            if libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, pair.as_mut_ptr()) != 0 {
                return;
            }
        }
        let mut bag: Vec<RawFd> = pair.to_vec();
        for _ in 0..30 {
            bag.extend(descriptors);
        }
        for socket in pair {
            hand(socket, &bag);
        }
        // SAFETY: no other code has these numbers.
        unsafe {
            for socket in pair {
                libc::close(socket);
            }
        }
    });
}

/// Sends descriptors to the reader at the other end.
fn hand(socket: RawFd, descriptors: &[RawFd]) {
    let bytes = size_of_val(descriptors) as u32;
    // SAFETY: a message of one byte, with room for as many descriptors as are copied in.
    unsafe {
        let mut control = vec![0_u64; libc::CMSG_SPACE(bytes).div_ceil(8) as usize];
        let mut byte = 0_u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        let data = libc::CMSG_DATA(header);
        std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), data, bytes as usize);
        libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}

/// Processes that have everything come and go.
fn fork_storm(field: &Field) {
    for descriptor in field.shared().map(kept) {
        for _ in 0..COPIES {
            // SAFETY: a copy that is kept for ever.
            unsafe { libc::dup(descriptor) };
        }
    }
    threads(2, |_| {
        let children = [0; 8].map(|_| child(|| ()));
        for child in children {
            // SAFETY: a child of this process.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
    });
}

/// The process that holds everything is stopped or traced, with its queues full, and others that have the same go on.
fn stopped_holders(field: &Field) {
    let [bell, doorbell, line] = field.shared().map(kept);
    for _ in 0..20 {
        let holder = child(move || {
            let mut set =
                [bell, doorbell, line].map(|fd| libc::pollfd { fd, events: libc::POLLPRI, revents: 0 });
            // By itself: one that was stopped before it was set to end with the attacker would stay for ever.
            // SAFETY: this process; three entries.
            unsafe {
                libc::kill(libc::getpid(), libc::SIGSTOP);
                libc::poll(set.as_mut_ptr(), 3, -1);
            }
        });
        // SAFETY: a child of this process.
        unsafe { libc::ptrace(libc::PTRACE_SEIZE, holder, 0, 0) };
    }
    // And one is stopped that has a channel, while messages are sent to it.
    if !field.own {
        let (mut channel, receiver) = channel();
        std::mem::forget(receiver);
        repeat(PERIOD, move || {
            let _ = channel.try_send(&[0; 100]);
        });
    }
}

/// Rings without end, with bytes and descriptors into it, in the order that is least expected.
fn stuff_doorbells(field: &Field) {
    for _ in 0..4 {
        let doorbell = field.doorbell();
        let number = kept(doorbell.try_clone().expect("a descriptor"));
        threads(1, move |_| {
            ring(&doorbell);
            hand(number, &[number, number]);
            // SAFETY: a byte of this function's; a number that is kept for ever.
            unsafe {
                libc::send(
                    number,
                    [0_u8].as_ptr().cast(),
                    1,
                    libc::MSG_OOB | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                );
                libc::shutdown(number, libc::SHUT_RDWR);
            }
        });
    }
}
