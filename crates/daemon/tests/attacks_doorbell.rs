//! A sender that rings without end at a doorbell at which a crowd of its own waits: the processor's turns stay short.

mod common;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use common::attack::{Losses, assert_no_worse, begun, crowd_for, orders};
use common::raw::Raw;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::wake::Doorbell;
use punctual_proto::ids::ChannelId;
use rustix::net::Shutdown;

const SPAN: Duration = Duration::from_secs(4);

/// Not a test by itself: what the hostile program does.
#[test]
fn attacker() {
    let Some((attack, sockets)) = orders() else { return };
    match attack.as_str() {
        "crowd-and-flood-at-doorbells" => {
            let raw = Raw::greeted(&sockets[0]);
            begun();
            loop {
                let (channel, doorbell) = doorbell(&raw);
                besiege(&doorbell);
                // Now it is taken off the list of what is watched, and closed.
                assert_eq!(raw.ask(Request::Close { channel }).0, Ok(Answer::Done));
            }
        }
        "crowd-and-flood-at-its-own" => {
            begun();
            loop {
                // Of the same kind: what such a crowd costs a CPU anybody can do to it.
                let (_ours, theirs) = Doorbell::pair().expect("sockets");
                besiege(&theirs);
            }
        }
        other => panic!("{other}"),
    }
}

/// A flow of the attacker's own, and its doorbell.
fn doorbell(raw: &Raw) -> (ChannelId, OwnedFd) {
    let ring = RingShape::new(4, 100).expect("a shape");
    let flow = Request::OpenBestEffort { to: "bulk@b".parse().expect("an address"), ring };
    let (answer, mut descriptors) = raw.ask(flow);
    let Ok(Answer::Ring { channel, .. }) = answer else { panic!("{answer:?}") };
    (channel, descriptors.remove(3))
}

/// Floods first, so that it is muted and heard again all the time; then a crowd comes, while the flood goes on. Both last
/// for a moment longer.
fn besiege(doorbell: &OwnedFd) {
    for _ in 0..2 {
        let doorbell = doorbell.try_clone().expect("a descriptor");
        std::thread::spawn(move || flood(doorbell.as_fd(), Duration::from_millis(700)));
    }
    std::thread::sleep(Duration::from_millis(50));
    crowd_for(doorbell.as_fd(), 10, Some(Duration::from_millis(600)));
    std::thread::sleep(Duration::from_millis(400));
}

/// Rings however it can be rung.
fn flood(doorbell: BorrowedFd<'_>, span: Duration) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
        let _ = rustix::net::shutdown(doorbell, Shutdown::Write);
    }
}

#[test]
fn a_crowd_and_a_flood_at_a_doorbell_make_no_turn_longer() {
    let [control, attack] = ["crowd-and-flood-at-its-own", "crowd-and-flood-at-doorbells"];
    assert_no_worse(control, attack, 90, SPAN, Losses::TwiceControl);
}
