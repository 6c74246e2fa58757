//! Load by new connections: programs that connect without end, opens from other hosts without a consent, and
//! more users than fit into one answer.

mod common;

use std::path::Path;

use common::eventually;
use common::hosts::{Hosts, Wanted};
use common::program::folder;
use common::raw::Raw;
use common::{contract, users::as_user};
use punctual::{Endsystem, Nanos};
use punctual_ipc::api::{Answer, ApiError, Call, FromDaemon, Push, Request, Resource, UserStatus, VERSION};
use punctual_ipc::ring::RingShape;
use punctual_ipc::socket::Packet;
use punctual_proto::api::{ChannelRefusal, RefuseCause, UserId};
use punctual_proto::ids::{ChannelId, Name};
use rustix::process::Signal;

/// Belongs to no account of this system.
const ANN: u32 = 3_000_001;
const BOB: u32 = ANN + 1;

fn status_packet() -> Packet {
    Packet::new(&Call { id: 7, request: Request::Status }, Vec::new()).expect("short")
}

/// Only one connection a turn was accepted, however many waited.
#[test]
fn many_connections_are_taken_in_a_turn() {
    const WAITING: u32 = 40;
    let folder = folder("doors-batch");
    let hosts = Hosts::start(&folder, 0, &Wanted::default(), str::to_owned);
    let root = Raw::greeted(&hosts.a.socket);
    let clients = || hosts.connections[0].status().expect("status").api.clients;
    let taken_in_a_turn = || {
        let before = clients();
        // Stopped, so that all of it is there in one turn.
        hosts.a.freeze();
        let crowd: Vec<Raw> = (0..WAITING).map(|_| Raw::connect(&hosts.a.socket)).collect();
        root.send(&status_packet().bytes);
        hosts.a.signal(Signal::CONT);
        let Some((FromDaemon::Answer { result: Ok(Answer::Status(status)), .. }, _)) = root.receive() else {
            panic!("a status");
        };
        drop(crowd);
        eventually("they are gone", || clients() == before);
        status.api.clients - before
    };
    // As many as 1 ms permits: if the machine takes that time away, in the next round.
    let (mut seen, mut rounds) = (0, 0);
    while seen < 8 && rounds < 50 {
        seen = seen.max(taken_in_a_turn());
        rounds += 1;
    }
    println!("{seen} of {WAITING} in a turn, after {rounds} rounds");
    assert!((8..=WAITING).contains(&seen), "{seen}");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Whether a new connection is served; else it is at its end without a word.
fn is_served(path: &Path) -> bool {
    let raw = Raw::connect(path);
    let hello = Request::Hello { version: VERSION, program: "raw".into() };
    let hello = Packet::new(&Call { id: 1, request: hello }, Vec::new()).expect("short");
    raw.try_send(&hello) && matches!(raw.receive_once(), Ok(Some(_)))
}

/// Found with 6,000 threads that connect and close: another user waited 411 ms for each connection, and no
/// user was charged.
#[test]
fn a_user_that_connects_without_end_is_charged_and_refused() {
    /// Many times what its account allows at once.
    const STORM: usize = 60_000;
    let folder = folder("doors-storm");
    // A small share of the processor's time: the test checks the charge for connections.
    let wanted = Wanted { daemon: "request_share_per_user_max = \"0.01%\"", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 1, &wanted, str::to_owned);
    let path = hosts.a.socket.clone();
    let turned_away = || hosts.connections[0].status().expect("status").api.turned_away;
    assert_eq!(turned_away(), 0);
    let storm = as_user(ANN, || {
        let connect = |count: &usize| {
            drop(Raw::connect(&path));
            !count.is_multiple_of(100) || turned_away() == 0
        };
        (1..=STORM).take_while(connect).count()
    });
    let Some(taken) = storm else { return };
    println!("{taken} connections until it was sent away");
    assert!((100..STORM).contains(&taken), "{taken}");
    assert_eq!(as_user(ANN, || is_served(&path)), Some(false), "without a word");
    assert_eq!(as_user(BOB, || is_served(&path)), Some(true), "another user");
    assert!(is_served(&path), "root");
    eventually("it is served again when it has paid", || as_user(ANN, || is_served(&path)) == Some(true));
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

fn open(to: &str, token: u64) -> Packet {
    let to = to.parse().expect("an address");
    let open = Request::Open { to, contract: contract(8, 1, 1_500), token: None };
    Packet::new(&Call { id: token, request: open }, Vec::new()).expect("short")
}

/// The next channel that waits for consent, and its user.
fn incoming(raw: &Raw) -> (ChannelId, UserId) {
    loop {
        if let FromDaemon::Push(Push::Incoming { channel, user, .. }) = raw.receive().expect("news").0 {
            return (channel, user);
        }
    }
}

fn flow() -> Request {
    let ring = RingShape::new(1, 1).expect("a shape");
    Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring }
}

/// Why the open of that number was refused.
fn refusal(raw: &Raw, call: u64) -> RefuseCause {
    loop {
        match raw.receive().expect("an answer").0 {
            FromDaemon::Answer { id, result: Err(ApiError::Refused(ChannelRefusal { cause, .. })) }
                if id == call =>
            {
                return cause;
            }
            FromDaemon::Push(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn listener(path: &Path) -> Raw {
    let raw = Raw::greeted(path);
    let port = Name::new("slow").expect("a name");
    raw.ask(Request::Listen { port, handler_time: Nanos::ZERO }).0.expect("a listener");
    raw
}

fn held(host: &Endsystem, user: u32) -> UserStatus {
    let status = host.status().expect("status");
    status.users.into_iter().find(|held| held.user == UserId(user)).unwrap_or_default()
}

/// Opens of a remote user took all channels of a user who had not consented to them yet.
#[test]
fn opens_of_other_users_take_nothing_of_the_listeners_quota_before_consent() {
    const QUOTA: u64 = 4;
    let folder = folder("doors-strangers");
    let wanted = Wanted { daemon: "channels_per_user_max = 4", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 2, &wanted, str::to_owned);
    let paths = [hosts.a.socket.clone(), hosts.socket_of_b().to_owned()];
    let Some(slow) = as_user(ANN, || listener(&paths[0])) else { return };
    let Some(other_user) = as_user(BOB, || Raw::greeted(&paths[1])) else { return };
    let opens = QUOTA + 2;
    for number in 0..opens {
        assert!(other_user.try_send(&open("slow@a", 100 + number)));
    }
    let waiting: Vec<ChannelId> = (0..opens).map(|_| incoming(&slow).0).collect();
    let of_ann = || held(&hosts.connections[0], ANN).channels;
    assert_eq!(of_ann(), 0, "nothing before consent");
    for _ in 0..QUOTA {
        assert!(slow.ask(flow()).0.is_ok(), "its own requests have all of its quota");
    }
    // Both sides receive the quota error when the quota is used up.
    let consent = Request::Consent { channel: waiting[0], stall: None };
    let limit = QUOTA;
    assert_eq!(
        slow.ask(consent).0,
        Err(ApiError::Quota { what: Resource::Channels, used: QUOTA, limit }),
        "the receiver"
    );
    assert_eq!(refusal(&other_user, 100), RefuseCause::Receiver("over its quota of 4 channels".into()));
    assert_eq!(of_ann(), QUOTA);
    let audit = hosts.connections[0].status().expect("status").audit.expect("few channels are here");
    assert_eq!(audit.wrong, [], "every end is counted somewhere");
    hosts.are_undisturbed();
    drop((slow, other_user));
    eventually("all is given back", || {
        let status = hosts.connections[0].status().expect("status");
        held(&hosts.connections[0], ANN) == UserStatus::default()
            && status.audit.is_some_and(|audit| audit.wrong.is_empty())
    });
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Users that one packet has no room for.
#[test]
fn status_lists_all_users_however_many_there_are() {
    const USERS: u32 = 600;
    let folder = folder("doors-users");
    let daemon = "users_max = 1000\nconnections_per_user_max = 4";
    let hosts = Hosts::start(&folder, 3, &Wanted { daemon, ..Wanted::default() }, str::to_owned);
    let path = hosts.a.socket.clone();
    let connect = |user| as_user(user, || Raw::connect(&path));
    let crowd: Option<Vec<Raw>> = (ANN..ANN + USERS).map(connect).collect();
    let Some(crowd) = crowd else { return };
    let users = || hosts.connections[0].status().expect("status").users;
    eventually("all are there", || users().len() as u32 > USERS);
    let users = users();
    let others: Vec<u32> = users.iter().map(|held| held.user.0).filter(|user| *user != 0).collect();
    assert_eq!(others, (ANN..ANN + USERS).collect::<Vec<_>>(), "each once, in order");
    assert!(users.iter().filter(|held| held.user.0 != 0).all(|held| held.clients == 1));
    drop(crowd);
    std::fs::remove_dir_all(folder).expect("removed");
}
