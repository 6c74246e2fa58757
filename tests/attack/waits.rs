//! How long others wait for the service, and for the processor, beside one user's programs.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, Call, FromDaemon, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::socket::Packet;
use punctual_ipc::wake::wait_readable;
use punctual_proto::api::UserId;
use rustix::process::Signal;

use crate::attacker::{Mechanism, NOBODY, begin};
use crate::common::raw::Raw;
use crate::measured::{Measured, intruder, world};
use crate::world::{SOURCE, Setup, World};

pub const ROWS: &[Measured] = &[
    Measured {
        name: "never-reads",
        without: "sends-without-waiting",
        what: "ms that root waited for an answer, 3,000 at most",
        most: 300.0,
        measure: never_read,
    },
    Measured {
        name: "sockets-that-linger",
        without: "pass-rights",
        what: "ms that root waited for an answer, 3,000 at most",
        most: 300.0,
        measure: send_lingering,
    },
    Measured {
        name: "asks-and-hangs-up",
        without: "service-turns",
        what: "requests served before root's",
        most: 64.0,
        measure: hang_up,
    },
    Measured {
        name: "many-ends-at-once",
        without: "sliced-ends",
        what: "of 400 flows ended between two requests of root",
        most: 64.0,
        measure: end_at_once,
    },
    Measured {
        name: "rings-without-end",
        without: "service-charge",
        what: "% of a CPU taken by the service",
        most: 12.0,
        measure: make_rings,
    },
    Measured {
        name: "channels-without-end",
        without: "request-share",
        what: "% of a CPU taken by the processor",
        most: 6.0,
        measure: |without| ask_without_end("channels-without-end", without),
    },
    Measured {
        name: "attached-without-end",
        without: "request-share",
        what: "% of a CPU taken by the processor",
        most: 6.0,
        measure: |without| ask_without_end("attached-without-end", without),
    },
];

const LONGEST: Duration = Duration::from_secs(3);
const UNSHARED: &str = "request_share_per_user_max = \"100%\"\nchannels_per_user_max = 1000\n\
                        descriptors_per_user_max = 8000";

fn packet(request: Request) -> Packet {
    Packet::new(&Call { id: 7, request }, Vec::new()).expect("short")
}

/// How long root waits for the status.
fn root_waits(root: &Raw) -> Duration {
    let begun = Instant::now();
    root.send(&packet(Request::Status).bytes);
    if wait_readable(root.as_fd(), Some(begun + LONGEST)).expect("a look") {
        root.receive().expect("an answer");
    }
    begun.elapsed()
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Asks until its socket is full, and reads nothing.
fn never_read(without: &'static str) -> f64 {
    let world = world("never-reads", without, UNSHARED);
    let (root, raw) = (Raw::greeted(&world.daemons[SOURCE].socket), intruder(&world, SOURCE));
    let status = packet(Request::Status);
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        if !raw.try_send(&status) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let waited = root_waits(&root);
    // The service goes on then.
    drop(raw);
    world.end();
    ms(waited)
}

/// A connection whose last close waits for so long for a reader that never reads.
fn lingering(to: &TcpListener) -> (OwnedFd, TcpStream) {
    let socket = TcpStream::connect(to.local_addr().expect("an address")).expect("connected");
    let far = to.accept().expect("a connection").0;
    let linger = libc::linger { l_onoff: 1, l_linger: 3 };
    // SAFETY: the kernel reads a structure of that size.
    let done = unsafe {
        let bytes = size_of::<libc::linger>() as libc::socklen_t;
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            bytes,
        )
    };
    assert_eq!(done, 0, "lingering");
    socket.set_nonblocking(true).expect("for these writes");
    while std::io::Write::write(&mut &socket, &[0; 65_536]).is_ok() {}
    socket.set_nonblocking(false).expect("blocking");
    (socket.into(), far)
}

/// Sends such a connection along with a request, behind many others, and keeps no copy: the daemon closes it.
fn send_lingering(without: &'static str) -> f64 {
    let world = world("lingering", without, UNSHARED);
    let root = Raw::greeted(&world.daemons[SOURCE].socket);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let (mut longest, mut kept) = (Duration::ZERO, Vec::new());
    let status = packet(Request::Status);
    for _ in 0..5 {
        let raw = intruder(&world, SOURCE);
        let (socket, far) = lingering(&listener);
        kept.push(far);
        // Stopped, so that the copy here is gone first.
        world.daemons[SOURCE].freeze();
        let sent = raw.send_with(&status.bytes, vec![socket]);
        world.daemons[SOURCE].signal(Signal::CONT);
        assert!(sent.is_ok() != without.is_empty(), "the kernel lets none through, or this one");
        longest = longest.max(root_waits(&root));
        if longest >= Duration::from_secs(1) {
            break;
        }
    }
    drop(kept);
    world.end();
    ms(longest)
}

/// No neighbour counts as failed while a daemon is stopped for a moment.
fn patient(name: &str, without: &'static str) -> World {
    World::start(name, Setup { without, daemon: UNSHARED, hello: "5s", ..Setup::DEFAULT })
}

fn status(raw: &Raw) -> punctual_ipc::api::HostStatus {
    match raw.receive() {
        Some((FromDaemon::Answer { result: Ok(Answer::Status(status)), .. }, _)) => *status,
        other => panic!("{other:?}"),
    }
}

/// Connections that ask all that fits, and end; all of it is there in one turn of the service.
fn hang_up(without: &'static str) -> f64 {
    let world = patient("hangs-up", without);
    let root = Raw::greeted(&world.daemons[SOURCE].socket);
    let crowd: Vec<Raw> = (0..40).map(|_| intruder(&world, SOURCE)).collect();
    let ask = packet(Request::Status);
    root.send(&ask.bytes);
    let before = status(&root).api.requests;
    world.daemons[SOURCE].freeze();
    let asked: usize = crowd.iter().map(|raw| (0..30).take_while(|_| raw.try_send(&ask)).count()).sum();
    drop(crowd);
    root.send(&ask.bytes);
    world.daemons[SOURCE].signal(Signal::CONT);
    let served = status(&root).api.requests - before;
    assert!(asked > 600, "{asked} requests");
    world.end();
    served as f64
}

/// A program with many flows ends; root's request is there at that moment.
fn end_at_once(without: &'static str) -> f64 {
    const FLOWS: u64 = 400;
    const QUEUED: usize = 100;
    let world = patient("ends", without);
    let (root, raw) = (Raw::greeted(&world.daemons[SOURCE].socket), intruder(&world, SOURCE));
    let ring = RingShape::new(1, 1).expect("a shape");
    for _ in 0..FLOWS {
        let to = "nobody@b".parse().expect("an address");
        raw.ask(Request::OpenBestEffort { to, ring }).0.expect("a flow");
    }
    let ask = packet(Request::Status);
    world.daemons[SOURCE].freeze();
    drop(raw);
    // More than are served in one turn.
    (0..QUEUED).for_each(|_| root.send(&ask.bytes));
    world.daemons[SOURCE].signal(Signal::CONT);
    let left = || {
        let users = status(&root).users;
        users.iter().find(|held| held.user == UserId(NOBODY)).map_or(0, |held| held.channels)
    };
    let left: Vec<u64> = std::iter::once(FLOWS).chain((0..QUEUED).map(|_| left())).collect();
    let most = left.windows(2).map(|pair| pair[0] - pair[1]).max().expect("some");
    world.end();
    most as f64
}

/// CPU time of a daemon's first thread, in hundredths of a second.
fn service_ticks(world: &World) -> u64 {
    let pid = world.daemons[SOURCE].pid().as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).expect("/proc");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    [11, 12].map(|field| fields[field].parse::<u64>().expect("a number")).into_iter().sum()
}

/// The largest ring, again and again; from when the first seconds, which anybody may have, are over.
fn make_rings(without: &'static str) -> f64 {
    const SPAN: Duration = Duration::from_secs(2);
    let world = world("makes-rings", without, "request_share_per_user_max = \"0.01%\"");
    let raw = intruder(&world, SOURCE);
    let ring = RingShape::new(32, 1 << 20).expect("a shape");
    let flow = || packet(Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring });
    let run_until = |until: Instant| {
        raw.try_send(&flow());
        while wait_readable(raw.as_fd(), Some(until)).expect("a look") {
            let (answer, descriptors) = raw.receive().expect("an answer");
            drop(descriptors);
            let next = match answer {
                FromDaemon::Answer { result: Ok(Answer::Ring { channel, .. }), .. } => {
                    packet(Request::Close { channel })
                }
                // Closed, or the ring before is still there.
                _ => flow(),
            };
            raw.try_send(&next);
            if Instant::now() >= until {
                return;
            }
        }
    };
    run_until(Instant::now() + Duration::from_secs(5));
    let before = service_ticks(&world);
    run_until(Instant::now() + SPAN);
    let ticks = service_ticks(&world) - before;
    drop(raw);
    world.end();
    ticks as f64 / SPAN.as_secs_f64()
}

/// From when the 100 ms that anybody may have at once are over.
fn ask_without_end(mechanism: &str, without: &'static str) -> f64 {
    let mut world = world("asks-for-all", without, "");
    let attacker = begin(&world, Mechanism::find(mechanism), false);
    std::thread::sleep(Duration::from_secs(3));
    let before = world.memory();
    let harm = world.observe(Duration::from_secs(1), &before);
    drop(attacker);
    world.end();
    harm.processor_share * 100.0
}
