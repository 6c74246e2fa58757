//! What one user takes of what there is for all: descriptors, names, memory, places of other users.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use punctual::{Channel, Consent, Contract, Endsystem, Nanos, Rate, Receiver};
use punctual_ipc::api::{Call, Request, VERSION};
use punctual_ipc::ring::RingShape;
use punctual_ipc::socket::Packet;
use punctual_ipc::wake::wait_readable;
use punctual_proto::ids::Name;
use rustix::process::{Resource, Rlimit, prlimit};

use crate::attacker::NOBODY;
use crate::common::PATIENCE;
use crate::common::census::{descriptors, memory_kib, unread_files_bytes};
use crate::common::hosts::{Hosts, Wanted};
use crate::common::program::folder;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::measured::{Measured, intruder, world, yes};
use crate::world::{BYSTANDER, SINK, SOURCE};

pub const ROWS: &[Measured] = &[
    Measured {
        name: "takes-every-descriptor",
        without: "descriptor-quota",
        what: "descriptors beside a quota of 300",
        most: 300.0,
        measure: take_descriptors,
    },
    Measured {
        name: "takes-the-last-descriptor",
        without: "spare-descriptor",
        what: "times root was not let in",
        most: 0.0,
        measure: take_last_descriptor,
    },
    Measured {
        name: "listens-on-every-name",
        without: "places-for-root",
        what: "listeners of root refused",
        most: 0.0,
        measure: take_names,
    },
    Measured {
        name: "users-of-a-namespace",
        without: "subordinates",
        what: "connections of one account beside a quota of 2",
        most: 2.0,
        measure: multiply,
    },
    Measured {
        name: "answers-unread",
        without: "bounded-unread",
        what: "KiB of unread answers beside a quota of 256",
        most: 512.0,
        measure: leave_unread,
    },
    Measured {
        name: "great-bursts",
        without: "burst-room",
        what: "MiB more resident than the quota of 128",
        most: 16.0,
        measure: open_bursts,
    },
];

/// Requests take no share: what is attacked is another bound.
const UNSHARED: &str = "request_share_per_user_max = \"100%\"\nchannels_per_user_max = 1000\n\
                        descriptors_per_user_max = 300";

fn take_descriptors(without: &'static str) -> f64 {
    let world = world("descriptors", without, UNSHARED);
    let raw = intruder(&world, SOURCE);
    let pid = world.daemons[SOURCE].pid();
    let before = descriptors(pid);
    let ring = RingShape::new(1, 1).expect("a shape");
    let flow = || Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring };
    let flows = (0..600).take_while(|_| raw.ask(flow()).0.is_ok()).count();
    let grown = descriptors(pid) - before;
    assert!(flows > 10, "{flows} flows");
    drop(raw);
    world.end();
    grown as f64
}

fn hello() -> Packet {
    let hello = Request::Hello { version: VERSION, program: "raw".into() };
    Packet::new(&Call { id: 7, request: hello }, Vec::new()).expect("short")
}

/// As many connections as there are descriptors; then root comes.
fn take_last_descriptor(without: &'static str) -> f64 {
    let world = world("last", without, "");
    let daemon = &world.daemons[SOURCE];
    let most = Some(descriptors(daemon.pid()) as u64 + 16);
    prlimit(Some(daemon.pid()), Resource::Nofile, Rlimit { current: most, maximum: most }).expect("a limit");
    let path = daemon.socket.clone();
    let crowd = as_user(NOBODY, || (0..40).map(|_| Raw::connect(&path)).collect::<Vec<_>>());
    let root = Raw::connect(&path);
    root.try_send(&hello());
    let until = Instant::now() + Duration::from_secs(2);
    let served = wait_readable(root.as_fd(), Some(until)).expect("a look");
    drop((crowd, root));
    world.end();
    yes(!served)
}

fn take_names(without: &'static str) -> f64 {
    const DAEMON: &str = "listeners_per_user_max = 5000\nrequest_share_per_user_max = \"100%\"";
    let world = world("names", without, DAEMON);
    let raw = intruder(&world, SINK);
    let name = |number| Name::new(&format!("n{number}")).expect("a name");
    let listen = |number| Request::Listen { port: name(number), handler_time: Nanos::ZERO };
    let taken = (0..5_000).take_while(|number| raw.ask(listen(*number)).0.is_ok()).count();
    assert!(taken > 4_000, "{taken} names");
    let refused = world.watch[SINK].listen("roots", |_| Consent::Accept).is_err();
    drop(raw);
    world.end();
    yes(refused)
}

/// An account with a range of further users, as whom its programs come.
fn multiply(without: &'static str) -> f64 {
    const ACCOUNT: u32 = 3_000_002;
    const FIRST: u32 = 3_100_000;
    let folder = folder("multiply");
    let ranges = folder.join("subuid");
    std::fs::write(&ranges, format!("{ACCOUNT}:{FIRST}:1000\n")).expect("written");
    let wanted = Wanted { daemon: "connections_per_user_max = 2", ..Wanted::default() };
    let without = if without.is_empty() { String::new() } else { format!("env PUNCTUAL_WITHOUT={without} ") };
    let beside = |line: &str| {
        let mount = format!("mount --bind {} /etc/subuid", ranges.display());
        format!("unshare -m sh -c '{mount} && exec {without}{line}'")
    };
    let hosts = Hosts::start(&folder, 0, &wanted, beside);
    let path = hosts.a.socket.clone();
    let connect = |user| as_user(user, || Endsystem::connect_to(&path).ok()).flatten();
    let let_in: Vec<Endsystem> = (FIRST..FIRST + 12).filter_map(connect).collect();
    let count = let_in.len();
    drop((let_in, hosts));
    std::fs::remove_dir_all(folder).expect("removed");
    count as f64
}

fn leave_unread(without: &'static str) -> f64 {
    const DAEMON: &str = "unread_per_user_max = \"256KiB\"\nrequest_share_per_user_max = \"100%\"";
    let world = world("unread", without, DAEMON);
    let crowd: Vec<Raw> = (0..30).map(|_| intruder(&world, SOURCE)).collect();
    let status = Packet::new(&Call { id: 7, request: Request::Status }, Vec::new()).expect("short");
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        if !crowd.iter().any(|raw| raw.try_send(&status)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let held = unread_files_bytes(world.daemons[SOURCE].pid());
    drop(crowd);
    world.end();
    held as f64 / 1_024.0
}

/// Channels of the greatest burst, as many as the quota allows.
fn open_bursts(without: &'static str) -> f64 {
    const QUOTA_MIB: u64 = 128;
    /// Who receive, so that their own quotas do not end it first.
    const RECEIVERS: u32 = 3;
    const DAEMON: &str = "buffers_per_user_max = \"128MiB\"";
    let world = world("burst-room", without, DAEMON);
    let connect = |host: usize, user| {
        let path = world.daemons[host].socket.clone();
        as_user(user, || Endsystem::connect_to(&path).expect("a connection")).expect("it is root's test")
    };
    let source = connect(SOURCE, NOBODY);
    let receivers: Vec<_> = (0..RECEIVERS)
        .map(|number| {
            let host = connect(SINK, BYSTANDER + 1 + number);
            let listener = host.listen(&format!("bursts{number}"), |_| Consent::Accept).expect("a listener");
            (host, listener)
        })
        .collect();
    let contract = Contract::new(8, Rate::per_second(10).expect("a rate"), 65_536, Nanos::from_millis(900));
    let contract = contract.expect("a contract");
    let memory = || memory_kib(world.daemons[SOURCE].pid());
    let before = memory();
    let mut channels: Vec<(Channel, Receiver)> = Vec::new();
    for number in 0..30 {
        let to = number % receivers.len();
        let Ok(channel) = source.open(&format!("bursts{to}@b"), contract) else { break };
        let receiver = receivers[to].1.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        channels.push((channel, receiver));
    }
    let grown_mib = (memory() - before) / 1_024;
    eprintln!("{} channels, {grown_mib} MiB more are resident", channels.len());
    drop((channels, receivers, source));
    world.end();
    grown_mib.saturating_sub(QUOTA_MIB) as f64
}
