//! Users whose asks leave no place, and no turn, to another's; recordings that stand for a neighbour that is gone.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual::{Consent, Endsystem, Nanos};
use punctual_ipc::api::{Answer, Call, Request};
use punctual_ipc::socket::Packet;
use punctual_ipc::wake::wait_readable;
use punctual_proto::ids::Name;
use rustix::process::Signal;

use crate::attacker::{Mechanism, NOBODY, begin};
use crate::common::contract;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::crowds::{Greedy, SETUP};
use crate::measured::{Measured, intruder, yes};
use crate::world::{BYSTANDER, RELAY, SINK, SOURCE, Setup, World};

pub const ROWS: &[Measured] = &[
    Measured {
        name: "crowd-that-asks",
        without: "signalling-turns",
        what: "ms that another user's open took, 10,000 where it was refused",
        most: 700.0,
        measure: open_beside_a_crowd,
    },
    Measured {
        name: "half-open-channels",
        without: "giving-way",
        what: "opens of another user refused",
        most: 0.0,
        measure: open_half,
    },
    Measured {
        name: "asks-of-silent-sources",
        without: "giving-way",
        what: "asks of another user refused",
        most: 0.0,
        measure: ask_the_silent,
    },
    Measured {
        name: "hellos-for-the-dead",
        without: "replay-window",
        what: "ms that a dead neighbour passed for alive, 5,000 at most",
        most: 1_500.0,
        measure: occupy_for_ended,
    },
];

const OPENS: usize = 3;
const REFUSED: Duration = Duration::from_secs(10);
/// Places for half-open channels of a neighbour, and for requests of receivers.
const PLACES: usize = 1_024;
/// All places are taken within a second or two.
const ROOMY: Setup = Setup {
    daemon: "request_share_per_user_max = \"100%\"\nchannels_per_user_max = 2000\n\
             descriptors_per_user_max = 20000",
    signalling: "packets_per_second = 2000",
    link: "frames = 32768",
    ..Setup::DEFAULT
};

/// In the middle of some.
fn open_beside_a_crowd(without: &'static str) -> f64 {
    let world = World::start("asks", Setup { without, ..SETUP });
    let listener = world.watch[SINK].listen("measured", |_| Consent::Accept).expect("a listener");
    let source = as_user(BYSTANDER, || world.daemons[SOURCE].connect()).expect("it is root's test");
    let crowd: Vec<_> = Greedy::crowd(&world);
    std::thread::sleep(Duration::from_secs(3));
    let open = |_| {
        let begun = Instant::now();
        let opened = source.open("measured@b", contract(10, 1, 2_000));
        // If the crowd has every place, it comes to nothing, which is the longest.
        if opened.is_ok() { begun.elapsed() } else { REFUSED }
    };
    let mut took: Vec<Duration> = (0..OPENS).map(open).collect();
    took.sort_unstable();
    drop((crowd, source, listener));
    world.end();
    took[OPENS / 2].as_secs_f64() * 1e3
}

/// Sends a request so often, without reading answers; a thread of its own reads them.
fn ask_often(raw: &Arc<Raw>, what: Request, times: usize) {
    let hears = Arc::clone(raw);
    std::thread::spawn(move || while hears.receive_once().is_ok_and(|packet| packet.is_some()) {});
    let call = Packet::new(&Call { id: 7, request: what }, Vec::new()).expect("short");
    for _ in 0..times {
        while !raw.try_send(&call) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A listener that never decides has all places.
fn open_half(without: &'static str) -> f64 {
    let world = World::start("half-open", Setup { without, ..ROOMY });
    let silent = intruder(&world, SINK);
    let port = |name: &str| Name::new(name).expect("a name");
    silent.ask(Request::Listen { port: port("silent"), handler_time: Nanos::ZERO }).0.expect("a listener");
    let listener = world.watch[SINK].listen("measured", |_| Consent::Accept).expect("a listener");
    let raw = Arc::new(intruder(&world, SOURCE));
    let to = "silent@b".parse().expect("an address");
    let open = Request::Open { to, contract: contract(1, 1, 500), token: None };
    ask_often(&raw, open, PLACES + 100);
    std::thread::sleep(Duration::from_secs(4));
    let source: Endsystem =
        as_user(BYSTANDER, || world.daemons[SOURCE].connect()).expect("it is root's test");
    let open = world.watch[SINK].status().expect("status").node.channels;
    eprintln!("{open} channels");
    let opened = source.open("measured@b", contract(10, 1, 2_000));
    if let Err(error) = &opened {
        eprintln!("half-open: {error}");
    }
    let refused = opened.is_err();
    drop((opened, raw, silent, listener, source));
    world.end();
    yes(refused)
}

/// Requests of receivers to a program that never answers.
fn ask_the_silent(without: &'static str) -> f64 {
    let world = World::start("silent", Setup { without, ..ROOMY });
    let silent = intruder(&world, SINK);
    let port = |name: &str| Name::new(name).expect("a name");
    silent.ask(Request::Listen { port: port("silent"), handler_time: Nanos::ZERO }).0.expect("a listener");
    let ask = |reply_to: &str| Request::Ask {
        source: "silent@b".parse().expect("an address"),
        reply_to: port(reply_to),
        contract: contract(10, 1, 2_000),
    };
    let receiver = |user, name| {
        let path = world.daemons[SOURCE].socket.clone();
        let raw = as_user(user, || Raw::greeted(&path)).expect("it is root's test");
        raw.ask(Request::Listen { port: port(name), handler_time: Nanos::ZERO }).0.expect("a listener");
        raw
    };
    let raw = receiver(NOBODY, "hers");
    let asked = (0..PLACES).take_while(|_| raw.ask(ask("hers")).0.is_ok()).count();
    let other = receiver(BYSTANDER, "his");
    let answer = other.ask(ask("his")).0;
    eprintln!("{asked} asks, then {answer:?}");
    assert!(asked > PLACES / 2);
    let refused = !matches!(answer, Ok(Answer::Asked { .. }));
    drop((raw, other, silent));
    world.end();
    yes(refused)
}

/// An attacker on the cable repeats what a neighbour sent before it failed.
fn occupy_for_ended(without: &'static str) -> f64 {
    const LONGEST: Duration = Duration::from_secs(5);
    let mechanism = Mechanism::find("hellos-again");
    let world = World::start("dead", Setup { without, ..mechanism.setup });
    let watch = Raw::greeted(&world.daemons[SINK].socket);
    let attacker = begin(&world, mechanism, false);
    std::thread::sleep(Duration::from_millis(300));
    world.daemons[RELAY].signal(Signal::KILL);
    let begun = Instant::now();
    let is_alive = || match watch.ask(Request::Status).0 {
        Ok(Answer::Status(status)) => status.node.links.iter().any(|link| link.alive),
        other => panic!("{other:?}"),
    };
    while is_alive() && begun.elapsed() < LONGEST {
        assert!(
            !wait_readable(watch.as_fd(), Some(Instant::now() + Duration::from_millis(10))).expect("a look")
        );
    }
    let passed = begun.elapsed();
    drop((attacker, watch));
    world.end_without(RELAY);
    passed.as_secs_f64() * 1e3
}
