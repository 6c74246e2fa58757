//! A sender that rings without end at a doorbell at which a crowd of its own waits: the processor's turns stay short.

mod common;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use common::attack::{World, begun, crowd, orders};
use common::raw::Raw;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::wake::Doorbell;
use rustix::net::Shutdown;

const SPAN: Duration = Duration::from_secs(4);

/// Not a test by itself: what the hostile program does.
#[test]
fn attacker() {
    let Some((attack, sockets)) = orders() else { return };
    match attack.as_str() {
        "crowd-and-flood-at-the-doorbell" => {
            let raw = Raw::greeted(&sockets[0]);
            let doorbell = doorbell(&raw);
            crowd(doorbell.as_fd());
            begun();
            flood(doorbell.as_fd());
        }
        "crowd-and-flood-at-its-own" => {
            // Of the same kind: what such a crowd costs a CPU anybody can do to it.
            let (_ours, theirs) = Doorbell::pair().expect("sockets");
            crowd(theirs.as_fd());
            begun();
            flood(theirs.as_fd());
        }
        other => panic!("{other}"),
    }
}

/// Of a flow of the attacker's own.
fn doorbell(raw: &Raw) -> OwnedFd {
    let ring = RingShape::new(4, 100).expect("a shape");
    let flow = Request::OpenBestEffort { to: "bulk@b".parse().expect("an address"), ring };
    let (answer, mut descriptors) = raw.ask(flow);
    assert!(matches!(answer, Ok(Answer::Ring { .. })), "{answer:?}");
    descriptors.remove(3)
}

/// Rings however it can be rung, without end.
fn flood(doorbell: BorrowedFd<'_>) {
    loop {
        let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
        let _ = rustix::net::shutdown(doorbell, Shutdown::Write);
    }
}

#[test]
fn a_crowd_and_a_flood_at_a_doorbell_make_no_turn_longer() {
    // A hole of the platform may lie in a turn: then once more.
    for round in 0..3 {
        let both = [("crowd-and-flood-at-its-own", 90), ("crowd-and-flood-at-the-doorbell", 91)];
        let [control, attack] = both.map(|(what, number)| {
            let mut world = World::start(what, number + 2 * round);
            let attacker = world.attack(what);
            let harm = world.observe(SPAN);
            eprintln!("{what}: {harm:?}");
            let [gently, killed] = world.end();
            assert!(gently < Duration::from_secs(5), "it ended after {gently:?}");
            assert!(killed < Duration::from_secs(2), "it was killed after {killed:?}");
            drop(attacker);
            harm
        });
        let is_calm = attack.longest_turn <= control.longest_turn + Duration::from_micros(200);
        let keeps = attack.lost <= 2 * control.lost + attack.sent / 20
            && attack.late <= 2 * control.late + attack.sent / 20;
        if is_calm && keeps {
            return;
        }
    }
    panic!("three times worse than the control");
}
