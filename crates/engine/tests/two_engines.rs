//! Two engines with a link between them carry a channel's messages end to end.

mod support;

use punctual_engine::{CallError, EngineGone};
use punctual_proto::api::{CloseReason, Event};
use punctual_proto::config::Pacing;
use punctual_proto::{Contract, Nanos, Rate};

use punctual_os::now;
use punctual_rig::Open;
use support::{Handle, PATIENCE, expect, open, over_memory, over_udp};

const MESSAGE_BYTES: u32 = 5_000;

fn contract() -> Contract {
    let rate = Rate::per_second(200).expect("a rate");
    Contract::new(MESSAGE_BYTES, rate, 8, Nanos::from_millis(50)).expect("a contract")
}

fn message(number: usize) -> Vec<u8> {
    let len = 1 + number * 977 % MESSAGE_BYTES as usize;
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

/// Opens a channel, sends 40 messages, checks each, stops both engines.
fn carries((a, b): (Handle, Handle)) {
    let (Open { source, sink, grant, outbox, inbox }, doorbell) = open(&a, &b, contract());
    assert!(grant.deadline <= Nanos::from_millis(50) && grant.stages.len() >= 3, "{grant:?}");
    for number in 0..40 {
        assert!(outbox.send(&message(number), now()), "the ring has room");
        doorbell.ring();
    }
    inbox.wait(40, PATIENCE);
    for number in 0..40 {
        inbox.recv(|bytes, info| {
            assert_eq!((info.number, info.demoted), (number as u64, false), "{info:?}");
            assert_eq!(bytes, message(number));
        });
    }
    let counters = a.call(move |node, _| node.channel(source)).expect("a runs").expect("open").counters;
    assert_eq!((counters.messages_in, counters.messages_out), (40, 40));
    assert_eq!(a.stop(), Ok(()));
    assert_eq!(a.stop(), Ok(()), "stopping twice is allowed");
    assert_eq!(a.call(|_, _| ()), Err(CallError::Gone(EngineGone)));
    let reason = expect(&b.events(), |event| match event {
        Event::Closed { channel, reason, .. } if channel == sink => Some(reason),
        _ => None,
    });
    assert_eq!(reason, CloseReason::PeerStopped);
    assert_eq!(b.stop(), Ok(()));
}

#[test]
fn over_memory_links() {
    carries(over_memory());
}

#[test]
fn over_udp_on_loopback() {
    carries(over_udp(31_000, Pacing::Clock));
}

#[test]
fn over_udp_paced_by_completions() {
    carries(over_udp(31_010, Pacing::Completion));
}
