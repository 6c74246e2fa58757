//! A program that closes, takes and ends what is another's.

use std::time::Duration;

use punctual::Consent;
use punctual_ipc::api::{Answer, Call, FromDaemon, Push, Request};
use punctual_ipc::socket::Packet;
use punctual_proto::ids::{ChannelId, ListenerId, Name};

use crate::common::contract;
use crate::common::raw::Raw;
use crate::measured::{Measured, intruder, world, yes};
use crate::world::{SINK, SOURCE};

/// Handles of channels and listeners begin with the smallest numbers.
const HANDLES: u64 = 200;

pub const ROWS: &[Measured] = &[
    Measured {
        name: "closes-what-is-anothers",
        without: "owners",
        what: "of 30 messages of another user lost",
        most: 2.0,
        measure: close,
    },
    Measured {
        name: "ends-others-listeners",
        without: "owners",
        what: "opens to another's listener refused",
        most: 0.0,
        measure: unlisten,
    },
    Measured {
        name: "consents-for-others",
        without: "owners",
        what: "rings of another's channel taken",
        most: 0.0,
        measure: consent,
    },
];

/// All channels of the host, as anybody may see them, and then the numbers that others begin with.
fn handles(raw: &Raw) -> Vec<ChannelId> {
    let Ok(Answer::Channels { channels, .. }) = raw.ask(Request::Channels { after: None }).0 else {
        panic!("a list")
    };
    channels.iter().map(|channel| channel.channel).chain((0..HANDLES).map(ChannelId)).collect()
}

fn close(without: &'static str) -> f64 {
    let mut world = world("closes", without, "");
    let raw = intruder(&world, SOURCE);
    for channel in handles(&raw) {
        // Reported as done, also those of others.
        assert!(raw.ask(Request::Close { channel }).0.is_ok());
    }
    let before = world.memory();
    let harm = world.observe(Duration::from_millis(300), &before);
    drop(raw);
    world.end();
    harm.lost as f64
}

fn unlisten(without: &'static str) -> f64 {
    let world = world("unlistens", without, "");
    let listener = world.watch[SINK].listen("victim", |_| Consent::Accept).expect("a listener");
    let raw = intruder(&world, SINK);
    for listener in (0..HANDLES).map(ListenerId) {
        // Without an owner, or refused.
        let _ = raw.ask(Request::Unlisten { listener });
    }
    let refused = world.watch[SOURCE].open("victim@b", contract(10, 1, 2_000)).is_err();
    drop((raw, listener));
    world.end();
    yes(refused)
}

/// A channel comes, its listener has not decided yet, and another program consents: that program gets the data.
fn consent(without: &'static str) -> f64 {
    let world = world("consents", without, "");
    let victim = Raw::greeted(&world.daemons[SINK].socket);
    let port = Name::new("victim").expect("a name");
    victim.ask(Request::Listen { port, handler_time: punctual::Nanos::ZERO }).0.expect("a listener");
    let opener = Raw::greeted(&world.daemons[SOURCE].socket);
    let to = "victim@b".parse().expect("an address");
    let open = Request::Open { to, contract: contract(10, 1, 2_000), token: None };
    opener.send(&Packet::new(&Call { id: 7, request: open }, Vec::new()).expect("short").bytes);
    let asked = victim.receive().expect("news").0;
    assert!(matches!(asked, FromDaemon::Push(Push::Incoming { .. })), "{asked:?}");
    let raw = intruder(&world, SINK);
    let take =
        |channel| matches!(raw.ask(Request::Consent { channel, stall: None }).0, Ok(Answer::Ring { .. }));
    let taken = handles(&raw).into_iter().filter(|channel| take(*channel)).count();
    drop((raw, opener, victim));
    world.end();
    taken as f64
}
