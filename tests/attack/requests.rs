//! What can be asked of a daemon, and how: without end, without reading, too long, too often, and by who dies meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use punctual::{Contract, Nanos, Policing, Rate};
use punctual_ipc::api::{Answer, FromDaemon, PACKET_BYTES_MAX, Request, TEXT_BYTES_MAX};
use punctual_ipc::ring::RingShape;
use punctual_proto::ids::{Address, ChannelId, Name};

use crate::attacker::Mechanism;
use crate::common::contract;
use crate::common::raw::Raw;
use crate::field::{
    Field, SOURCE_SOCKET, ask, channel, channel_of, child, exchange, flow, hello, map_and_seal, request,
    send, threads,
};
use crate::judge::Bounds;
use crate::world::Setup;

/// Of one user, as many as the quota allows.
const CONNECTIONS: usize = 60;

const SHARE: &str = "a user's requests take a share of the processor's time, behind messages";
const DECIDED: &str = "admission is decided beside the processor, and what that takes is charged to the user";
const UNREAD: &str = "what waits for a user is bounded in bytes";
const PLACES: &str = "quotas, and 16 requests of a user a turn";
const CHECKED: &str = "requests are checked at the edge";
const FREED: &str = "the ringer frees what ends, and quotas bound what is open";
const OPENS_RINGS: Bounds = Bounds { grown_kib_max: 72 << 10, ..Bounds::DEFAULT };
const CO_SCHEDULES: Setup = Setup { processor: "co_schedule = true", ..Setup::DEFAULT };

pub const MECHANISMS: &[Mechanism] = &[
    Mechanism::new("answers-unread", UNREAD, leave_unread),
    Mechanism::new("channels-without-end", SHARE, ask_for_all),
    Mechanism::new("status-without-end", SHARE, |field| ask_forever(field, &Request::Status)),
    Mechanism::new("names-without-end", SHARE, |field| {
        ask_forever(field, &Request::Resolve { host: longest_name(0) });
    }),
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("attached-without-end", SHARE, attach_forever) },
    Mechanism {
        bounds: OPENS_RINGS,
        ..Mechanism::new("probes-without-end", DECIDED, |field| {
            ask_forever(field, &Request::Probe { to: address("attacker"), contract: worst(3) });
        })
    },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("opens-and-closes", DECIDED, open_and_close) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("never-consents", SHARE, never_consent) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("asks-of-sources", SHARE, ask_sources) },
    Mechanism::new("storm-of-connections", PLACES, storm_of_connections),
    Mechanism::new("never-greets", PLACES, never_greet),
    Mechanism::new("longest-nonsense", CHECKED, longest_nonsense),
    Mechanism::new("empty-packets", CHECKED, empty_packets),
    Mechanism::new("longest-names", PLACES, longest_names),
    Mechanism::new("descriptors-sent", "the kernel lets no descriptor through", send_descriptors),
    Mechanism::new("asks-and-hangs-up", PLACES, ask_and_hang_up),
    Mechanism {
        bounds: OPENS_RINGS,
        ..Mechanism::new("takes-every-descriptor", "descriptors are within quotas", take_every_descriptor)
    },
    Mechanism {
        bounds: OPENS_RINGS,
        ..Mechanism::new("many-ends-at-once", "what is gone is ended in slices", end_many_at_once)
    },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("rings-come-and-go", FREED, rings_come_and_go) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("killed-in-a-storm", FREED, killed_in_a_storm) },
    Mechanism {
        bounds: OPENS_RINGS,
        ..Mechanism::new("greedy-senders", "a ring is drained within its contract's budget", greedy)
    },
    Mechanism {
        bounds: OPENS_RINGS,
        setup: CO_SCHEDULES,
        ..Mechanism::new(
            "threads-of-all-priorities",
            "threads of programs run below the processor",
            co_schedule,
        )
    },
];

fn address(port: &str) -> Address {
    format!("{port}@b").parse().expect("an address")
}

fn longest_name(number: usize) -> Name {
    Name::new(&format!("{number:x>63}")).expect("a name")
}

/// Contracts of a few bytes, as often as can be: those that fill the longest list of steps.
pub fn worst(number: u64) -> Contract {
    let rate = Rate::per_second(25_000 + 700 * (number % 20)).expect("a rate");
    Contract::new(1 + number as u32 % 8, rate, 1 + number as u32 % 3, Nanos::from_millis(5 + number % 50))
        .expect("a contract")
}

/// All greeted before the first of them asks: then the user's share is spent, and greetings wait.
fn crowd(field: &Field) -> Vec<OwnedFd> {
    (0..CONNECTIONS).map(|_| field.greeted()).collect()
}

/// Page after page, and then from the beginning.
fn ask_for_all(field: &Field) {
    for line in crowd(field) {
        std::thread::spawn(move || {
            let mut buffer = vec![0; PACKET_BYTES_MAX];
            let mut after = None;
            while let Some(read) = ask(&line, &request(Request::Channels { after }), &mut buffer) {
                after = next_page(&buffer[..read]);
            }
        });
    }
}

/// Where the next page begins, if there is one.
fn next_page(answer: &[u8]) -> Option<ChannelId> {
    match serde_json::from_slice(answer).ok()? {
        FromDaemon::Answer { result: Ok(Answer::Channels { seen, more: true, .. }), .. } => seen,
        _ => None,
    }
}

fn ask_forever(field: &Field, what: &Request) {
    let bytes = request(what.clone());
    for line in crowd(field) {
        let bytes = bytes.clone();
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        std::thread::spawn(move || while ask(&line, &bytes, &mut buffer).is_some() {});
    }
}

/// That it has attached the same ring, again and again: each time the processor checks it.
fn attach_forever(field: &Field) {
    let lines = (0..CONNECTIONS / 4).map(|_| {
        if field.own {
            return (field.greeted(), request(Request::Status));
        }
        let raw = Raw::greeted(SOURCE_SOCKET.as_ref());
        let (channel, shape, files) = flow(&raw, RingShape::new(4, 100).expect("a shape"));
        map_and_seal(&files[1], shape.file_bytes() as usize);
        let attached = Request::Attached { channel };
        raw.ask(attached.clone()).0.expect("attached");
        std::mem::forget(files);
        (raw.as_fd().try_clone_to_owned().expect("a copy"), request(attached))
    });
    let lines: Vec<_> = lines.collect();
    for (line, bytes) in lines {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        std::thread::spawn(move || while ask(&line, &bytes, &mut buffer).is_some() {});
    }
}

fn leave_unread(field: &Field) {
    let bytes = request(Request::Status);
    for line in crowd(field) {
        let bytes = bytes.clone();
        std::thread::spawn(move || while send(&line, &bytes).is_ok() {});
    }
}

/// One after the other, as fast as they are answered.
fn open_and_close(field: &Field) {
    let line = field.greeted();
    let sink = (!field.own).then(|| crate::field::listen("worst"));
    std::thread::spawn(move || {
        let _sink = sink;
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        for number in 0.. {
            let open = Request::Open { to: address("worst"), contract: worst(number), token: None };
            let Some(read) = ask(&line, &request(open), &mut buffer) else { return };
            if let Some(channel) = crate::field::opened(&buffer[..read]) {
                ask(&line, &request(Request::Close { channel }), &mut buffer);
            }
        }
    });
}

/// A listener that gets requests without end and never answers.
fn never_consent(field: &Field) {
    let silent = field.greeted_at_sink();
    let listen = Request::Listen { port: Name::new("silent").expect("a name"), handler_time: Nanos::ZERO };
    send(&silent, &request(listen)).expect("sent");
    for _ in 0..10 {
        let line = field.greeted();
        std::thread::spawn(move || {
            let mut buffer = vec![0; PACKET_BYTES_MAX];
            let open = Request::Open { to: address("silent"), contract: contract(100, 10, 200), token: None };
            while ask(&line, &request(open.clone()), &mut buffer).is_some() {}
        });
    }
    std::mem::forget(silent);
}

/// Asks sources that are not there, and one that never answers, for channels.
fn ask_sources(field: &Field) {
    let line = field.greeted();
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let port: Name = Name::new("back").expect("a name");
    ask(&line, &request(Request::Listen { port: port.clone(), handler_time: Nanos::ZERO }), &mut buffer);
    std::thread::spawn(move || {
        for number in 0.. {
            let source = address(if number % 2 == 0 { "nobody" } else { "bystander" });
            let what = Request::Ask { source, reply_to: port.clone(), contract: worst(number) };
            if ask(&line, &request(what), &mut buffer).is_none() {
                return;
            }
        }
    });
}

fn storm_of_connections(field: &Field) {
    let own = field.own;
    threads(4, move |number| {
        let field = Field { own, page: None };
        let Ok(line) = field.connect() else { return };
        // Some greet, some ask, and none waits for an answer.
        if number % 2 == 0 {
            let _ = send(&line, &hello());
            let _ = send(&line, &request(Request::Status));
        }
    });
}

/// Every place that a user has, and every place in the queue of those who have none yet.
fn never_greet(field: &Field) {
    let own = field.own;
    threads(2, move |_| {
        let field = Field { own, page: None };
        let lines: Vec<OwnedFd> = (0..200).map_while(|_| field.connect().ok()).collect();
        std::thread::sleep(Duration::from_millis(50));
        drop(lines);
    });
}

/// Packets of the greatest length, nested as deep as they go, or one name for as long as they go.
fn longest_nonsense(field: &Field) {
    let own = field.own;
    let nested = vec![b'['; PACKET_BYTES_MAX];
    let mut named = br#"{"id":1,"request":{"hello":{"version":5,"program":""#.to_vec();
    named.resize(PACKET_BYTES_MAX - 4, b'x');
    named.extend(b"\"}}}");
    let texts = [
        nested,
        named,
        vec![b' '; PACKET_BYTES_MAX],
        vec![b'9'; PACKET_BYTES_MAX],
        vec![0; 2 * PACKET_BYTES_MAX],
    ];
    threads(4, move |number| {
        let field = Field { own, page: None };
        for text in texts.iter().cycle().skip(number).take(texts.len()) {
            let Ok(line) = field.connect() else { continue };
            if number % 2 == 0 {
                let _ = send(&line, &hello());
            }
            let _ = send(&line, text);
        }
    });
}

/// Packets of no byte, of half a request, out of band.
fn empty_packets(field: &Field) {
    let own = field.own;
    threads(2, move |_| {
        let field = Field { own, page: None };
        let Ok(line) = field.connect() else { return };
        let _ = send(&line, &hello());
        let _ = send(&line, &[]);
        let status = request(Request::Status);
        for byte in &status {
            // SAFETY: a byte of this function's.
            unsafe {
                let number = std::os::fd::AsRawFd::as_raw_fd(&line);
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                libc::send(number, std::ptr::from_ref(byte).cast(), 1, flags | libc::MSG_MORE);
                libc::send(number, std::ptr::from_ref(byte).cast(), 1, flags | libc::MSG_OOB);
            }
        }
    });
}

fn longest_names(field: &Field) {
    let line = field.greeted();
    std::thread::spawn(move || {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        for number in 0.. {
            let listen = Request::Listen { port: longest_name(number), handler_time: Nanos::ZERO };
            let why = "\u{10ffff}".repeat(TEXT_BYTES_MAX / 4);
            let requests = [
                listen,
                Request::RefuseAsk { token: number as u64, why },
                Request::Unlisten { listener: punctual_proto::ids::ListenerId(number as u64) },
            ];
            for what in requests {
                if ask(&line, &request(what), &mut buffer).is_none() {
                    return;
                }
            }
        }
    });
}

fn send_descriptors(field: &Field) {
    let line = field.greeted();
    let status = request(Request::Status);
    threads(1, move |_| {
        let Ok((reading, writing)) = std::io::pipe() else { return };
        let packet = punctual_ipc::socket::Packet {
            bytes: status.clone(),
            descriptors: vec![reading.into(), writing.into()],
        };
        let _ = punctual_ipc::socket::send(&line, &packet, rustix::net::SendFlags::NOSIGNAL);
    });
}

/// As many requests as fit into a connection, and its end, on all connections.
fn ask_and_hang_up(field: &Field) {
    let own = field.own;
    let status = request(Request::Status);
    threads(2, move |_| {
        let field = Field { own, page: None };
        let lines: Vec<OwnedFd> = (0..CONNECTIONS / 2).filter_map(|_| field.try_greeted()).collect();
        for line in &lines {
            while rustix::net::send(line, &status, rustix::net::SendFlags::DONTWAIT).is_ok() {}
        }
    });
}

/// Asks `line` for flows until it has as many, or is refused; how many it got.
fn take_flows(line: &OwnedFd, most: usize) -> usize {
    let mut buffer = [0; 4_096];
    let ring = RingShape::new(1, 1).expect("a shape");
    let what = request(Request::OpenBestEffort { to: address("bulk"), ring });
    let taken = |_: &usize| {
        let read = ask(line, &what, &mut buffer);
        read.is_some_and(|read| crate::field::opened(&buffer[..read]).is_some())
    };
    (0..most).take_while(taken).count()
}

/// As many connections and flows as the daemon gives, and on and on.
fn take_every_descriptor(field: &Field) {
    let own = field.own;
    let lines = crowd(field);
    threads(1, move |_| {
        for line in &lines {
            take_flows(line, if own { 10 } else { 1_000 });
        }
    });
}

/// Programs that have all that they may have end at once, again and again.
fn end_many_at_once(field: &Field) {
    let own = field.own;
    threads(1, move |_| {
        let field = Field { own, page: None };
        let Some(line) = field.try_greeted() else { return };
        take_flows(&line, 250);
    });
}

/// Of all sizes, attached or not.
fn rings_come_and_go(field: &Field) {
    let own = field.own;
    threads(1, move |_| {
        if own {
            drop(Field { own, page: None }.files());
            return;
        }
        let raw = crate::common::raw::Raw::greeted(SOURCE_SOCKET.as_ref());
        for slots in [1, 16, 256] {
            let shape = RingShape::new(slots, 16_000).expect("a shape");
            let (channel, ..) = flow(&raw, shape);
            let (other, ..) = flow(&raw, shape);
            raw.ask(Request::Close { channel }).0.expect("closed");
            // The other one ends with the connection.
            let _ = other;
        }
    });
}

/// Processes with channels end at any moment.
fn killed_in_a_storm(field: &Field) {
    let own = field.own;
    threads(2, move |number| {
        let victim = child(move || {
            let field = Field { own, page: None };
            let Some(line) = field.try_greeted() else { return };
            let mut buffer = [0; 4_096];
            let ring = RingShape::new(16, 1_000).expect("a shape");
            let what = request(Request::OpenBestEffort { to: address("bulk"), ring });
            while ask(&line, &what, &mut buffer).is_some() {}
        });
        std::thread::sleep(Duration::from_millis(2 + 3 * number as u64));
        // SAFETY: a child of this process.
        unsafe {
            libc::kill(victim, libc::SIGKILL);
            libc::waitpid(victim, std::ptr::null_mut(), 0);
        }
    });
}

/// Fills a channel and a flow as fast as they take it; no program reads from the channel.
fn greedy(field: &Field) {
    if field.own {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().expect("sockets");
        threads(2, move |number| {
            let _ = if number == 0 { ours.send(&[0; 100]) } else { theirs.recv(&mut [0; 100]) };
        });
        return;
    }
    // What is beyond the contract waits in its ring, or is dropped, so that there is always room.
    for (name, policing) in [("delayed", Policing::Delay), ("dropped", Policing::Drop)] {
        let (mut sender, receiver) = channel_of(name, Contract { policing, ..contract(100, 100, 200) });
        std::mem::forget(receiver);
        std::thread::spawn(move || {
            loop {
                let _ = sender.try_send(&[0; 100]);
            }
        });
    }
}

/// Threads of the highest priority that a program may have, which never rest.
fn co_schedule(field: &Field) {
    let own = field.own;
    std::thread::spawn(move || {
        if own {
            loop {
                std::hint::spin_loop();
            }
        }
        let mut own = channel();
        own.1.co_schedule().expect("it is allowed");
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while std::time::Instant::now() < until {
            exchange(&mut own);
        }
    });
}
