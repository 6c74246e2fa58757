//! Engines inside this process, no daemon: the same API over the same rings.

mod support;

use punctual::{Consent, Contract, Nanos, Rate, RecvError, SendError};
use rustix::event::{PollFd, PollFlags, poll};
use support::{PATIENCE, pair};

fn contract() -> Contract {
    let rate = Rate::per_second(200).expect("a rate");
    Contract::new(3_000, rate, 4, Nanos::from_millis(100)).expect("a contract")
}

#[test]
fn two_engines_in_one_process_carry_messages() {
    let (a, b) = pair();
    assert_eq!((a.host(), b.host()), ("a", "b"));
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("cam@b", contract()).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    let sending = std::thread::spawn(move || {
        for number in 0..100_u8 {
            channel.send(&vec![number; 3_000]).expect("sent");
        }
        assert!(channel.flush(PATIENCE).expect("open"));
        channel
    });
    receiver.set_recv_timeout(Some(PATIENCE));
    for number in 0..100_u8 {
        receiver
            .recv_in_place(|bytes, info| {
                assert_eq!((bytes.len(), info.number), (3_000, u64::from(number)));
                assert!(bytes.iter().all(|byte| *byte == number) && !info.demoted);
            })
            .expect("received");
    }
    let channel = sending.join().expect("no panic");
    assert_eq!(channel.state().expect("a state").status.counters.messages_in, 100);
}

#[test]
fn states_are_read_without_asking_the_engine() {
    let (a, b) = pair();
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("cam@b", contract()).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    channel.state().expect("what is no counter is asked for once");
    let requests = || a.status().expect("status").api.requests;
    let before = requests();
    for number in 1..=20 {
        channel.send(&[7; 3_000]).expect("sent");
        receiver.recv_timeout(&mut [0; 3_000], PATIENCE).expect("received");
        assert!(channel.flush(PATIENCE).expect("open"));
        let counters = channel.state().expect("a state").status.counters;
        assert_eq!((counters.messages_in, counters.messages_out), (number, number));
    }
    assert_eq!(requests(), before + 1, "this question itself");
    let state = receiver.state().expect("a state");
    let observed = state.status.observed.expect("a sink's");
    assert_eq!((state.status.counters.messages_out, observed.messages), (20, 20));
    assert_eq!((state.observed_max, state.misses), (state.status.counters.latency_max, 0));
}

#[test]
fn descriptors_can_be_polled() {
    let (a, b) = pair();
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("cam@b", contract()).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    let mut buffer = vec![0; 3_000];
    assert!(matches!(receiver.try_recv(&mut buffer), Err(RecvError::WouldBlock)));
    let (mut sent, mut received) = (0_u32, 0_u32);
    while received < 50 {
        let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut set = vec![PollFd::new(&receiver, PollFlags::IN)];
        if sent < 50 {
            set.push(PollFd::new(&channel, PollFlags::IN));
        }
        assert!(poll(&mut set, Some(&patience)).expect("poll") > 0, "asleep after {sent} and {received}");
        let ready: Vec<bool> = set.iter().map(|entry| entry.revents().contains(PollFlags::IN)).collect();
        drop(set);
        if ready[0] {
            match receiver.try_recv(&mut buffer) {
                Ok(info) => {
                    assert_eq!(buffer[..info.len as usize], received.to_le_bytes());
                    received += 1;
                }
                Err(RecvError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if ready.get(1) == Some(&true) {
            match channel.try_send(&sent.to_le_bytes()) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn an_engine_ends_with_its_last_handle() {
    let (a, b) = pair();
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let channel = a.open("cam@b", contract()).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    drop(a);
    assert!(channel.state().is_ok(), "the channel keeps the engine");
    drop(channel);
    let ended = receiver.recv_timeout(&mut [0; 3_000], PATIENCE);
    assert!(matches!(ended, Err(RecvError::Closed(Some(_)))), "{ended:?}");
}

/// Sends a number of messages at 1 kHz, and takes none before all have left; returns how many can be read
/// then.
fn read_after_a_stall(consent: Consent, messages: impl FnOnce(u32) -> u32) -> (u32, u32) {
    let (a, b) = pair();
    let listener = b.listen("cam", move |_| consent.clone()).expect("a listener");
    let rate = Rate::per_second(1_000).expect("a rate");
    let contract = Contract::new(64, rate, 1, Nanos::from_millis(100)).expect("a contract");
    let mut channel = a.open("cam@b", contract).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    let held = receiver.messages_held_max();
    let sent = messages(held);
    for number in 0..sent {
        channel.send(&number.to_le_bytes()).expect("sent");
    }
    assert!(channel.flush(PATIENCE).expect("open"));
    let ended = channel.finish(PATIENCE).expect("the sink answers").expect("it has ended");
    let mut read = 0;
    while receiver.recv_timeout(&mut [0; 64], PATIENCE).is_ok() {
        read += 1;
    }
    assert_eq!(ended.receipt.expect("a receipt").delivered, u64::from(read));
    (held, read)
}

#[test]
fn a_receiver_that_stalls_as_long_as_it_has_stated_loses_nothing() {
    // The test does not depend on a clock: it sends a fixed number of messages while the receiver takes none.
    let (unasked, read) = read_after_a_stall(Consent::Accept, |held| held + 50);
    assert_eq!(read, unasked, "what comes beyond the room that is there unasked is lost");
    let stall = Consent::AcceptWithStall(Nanos::from_millis(500));
    let (held, read) = read_after_a_stall(stall, |held| held);
    assert_eq!(read, held, "nothing is lost");
    // 500 ms at 1 kHz in place of the 50 ms for accepting (I' = I - 1/128).
    assert_eq!(held - unasked, 504 - 51);
}
