//! News for whom many wait: each packet for a program goes through all that wait at its end of the connection.

use std::os::fd::AsFd;
use std::time::Duration;

use punctual::{Contract, Nanos, Rate};
use punctual_ipc::api::{Answer, Request};

use crate::attacker::{Mechanism, begin};
use crate::common::raw::Raw;
use crate::field::{Field, SOURCE_SOCKET, listen};
use crate::judge::{Bounds, Losses, ROUNDS_MAX, alone};
use crate::objects::crowd_of;
use crate::world::{Setup, World};

/// Channels of the program; it gets a notice of the end of each.
const CHANNELS: usize = 200;
/// Threads with 20,000 entries each: what closes the connection takes far less than telling of each end.
const CROWD: usize = 25;
/// `grace` is 300 ms, news have 200, and a connection with a crowd is closed; 200 walks take some seconds.
const END_MAX: Duration = Duration::from_secs(1);
const SETUP: Setup = Setup { daemon: "request_share_per_user_max = \"100%\"", ..Setup::DEFAULT };

pub const MECHANISMS: &[Mechanism] = &[Mechanism {
    setup: SETUP,
    bounds: Bounds { losses: Losses::TwiceControl, grown_kib_max: 16 << 10, ..Bounds::DEFAULT },
    ..Mechanism::new(
        "crowd-at-news",
        "what takes long is sent once a turn, and the last news have their time",
        run,
    )
}];

/// The control opens as many channels, which makes a turn of the processor longer; its crowd is at a connection of its own.
fn run(field: &Field) {
    std::mem::forget(listen("news"));
    let raw = Raw::greeted(SOURCE_SOCKET.as_ref());
    let rate = Rate::per_second(1).expect("a rate");
    let contract = Contract::new(16, rate, 1, Nanos::from_secs(5)).expect("a contract");
    for _ in 0..CHANNELS {
        let to = "news@b".parse().expect("an address");
        let (answer, ring) = raw.ask(Request::Open { to, contract, token: None });
        assert!(matches!(answer, Ok(Answer::Opened { .. })), "{answer:?}");
        std::mem::forget(ring);
    }
    if field.own {
        crowd_of(field.connection().as_fd(), CROWD);
    } else {
        crowd_of(raw.as_fd(), CROWD);
    }
    std::mem::forget(raw);
}

/// How long a daemon takes to end when it is asked, beside the crowd.
fn end_beside_a_crowd() -> Duration {
    let mechanism = Mechanism::find("crowd-at-news");
    let world = World::start("news", mechanism.setup);
    let attacker = begin(&world, mechanism, false);
    let asked = world.end().asked;
    drop(attacker);
    eprintln!("it ended after {asked:?}");
    asked
}

/// Found with 250 channels and two million entries: 27 s.
#[test]
fn a_daemon_ends_in_time_whatever_a_crowd_at_its_connections_makes_of_the_last_news() {
    let _alone = alone();
    let in_time = |_| end_beside_a_crowd() < END_MAX;
    assert!((0..ROUNDS_MAX).any(in_time), "{ROUNDS_MAX} times later than {END_MAX:?}");
}
