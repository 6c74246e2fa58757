//! Channels through two daemons over their real sockets.

mod common;

use std::io::IoSlice;
use std::time::Duration;

use common::{PATIENCE, Pair, contract, eventually};
use punctual::{ChannelEvent, CloseReason, Consent, Error, OpenError, RecvError, RefuseCause, SendError};

#[test]
fn messages_arrive_whole_and_in_order() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |request| {
        assert_eq!((request.from.as_str(), request.contract.message_bytes_max), ("a", 5_000));
        Consent::Accept
    });
    let listener = listener.expect("a listener");
    let mut channel = a.open("cam@b", contract(5_000, 200, 80)).expect("a channel");
    let grant = channel.grant().expect("a promise").clone();
    assert!(grant.deadline.as_u64() <= 80_000_000 && !grant.stages.is_empty());
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    receiver.set_recv_timeout(Some(PATIENCE));
    channel.set_send_timeout(Some(PATIENCE));

    let mut buffer = vec![0; 5_000];
    for number in 0..20_u8 {
        let message = vec![number; 100 + usize::from(number) * 250];
        match number % 4 {
            0 => channel.send(&message).expect("sent"),
            1 => channel.send_sync(&message).expect("sent"),
            2 => {
                let (head, tail) = message.split_at(40);
                channel.send_vectored(&[IoSlice::new(head), IoSlice::new(tail)]).expect("sent");
            }
            _ => channel
                .send_in_place(|slot| {
                    slot[..message.len()].copy_from_slice(&message);
                    message.len()
                })
                .expect("sent"),
        }
        if number % 2 == 0 {
            let info = receiver.recv(&mut buffer).expect("received");
            assert_eq!((info.number, info.len as usize), (u64::from(number), message.len()));
            assert_eq!(buffer[..message.len()], message);
        } else {
            let (got, info) =
                receiver.recv_in_place(|bytes, info| (bytes.to_vec(), *info)).expect("received");
            assert_eq!((got, info.number), (message, u64::from(number)));
        }
    }
    assert!(channel.flush(PATIENCE).expect("open"));
    let state = receiver.state().expect("a state");
    assert_eq!((state.status.counters.messages_out, state.promised.as_u64()), (20, 80_000_000));
    assert!(matches!(receiver.try_recv(&mut buffer), Err(RecvError::WouldBlock)));

    channel.close().expect("closed");
    let ended = receiver.recv(&mut buffer);
    assert!(matches!(ended, Err(RecvError::Closed(Some(CloseReason::Peer)))), "{ended:?}");
    assert_eq!(receiver.events(), [ChannelEvent::PeerGone]);
    drop(receiver);
    eventually("nothing is left", || a.status().expect("status").node.channels == 0);
    eventually("quotas are given back", || {
        b.status().expect("status").users.iter().all(|user| user.buffer_bytes == 0)
    });
}

#[test]
fn a_sender_gets_the_reason_of_a_receivers_refusal() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("door", |_| Consent::refuse("not today")).expect("a listener");
    match a.open("door@b", contract(100, 10, 100)) {
        Err(OpenError::Refused { refusal, .. }) => {
            assert_eq!(refusal.cause, RefuseCause::Receiver("not today".into()))
        }
        other => panic!("{:?}", other.err()),
    }
    drop(listener);
    eventually("quotas are given back", || {
        a.status().expect("status").users.iter().all(|user| user.channels == 0)
    });
}

#[test]
fn what_cannot_be_is_refused_with_one_line() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let _listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let refused = |peer: &str, contract| a.open(peer, contract).err().expect("no channel").to_string();
    let ok = contract(1_000, 10, 100);

    assert!(refused("cam@mars", ok).contains("\"mars\" is not in the directory"));
    assert!(refused("nobody@b", ok).contains("no program listens on \"nobody\""));
    assert!(refused("no address", ok).contains("is no name"));
    let zero = punctual::Contract { message_bytes_max: 0, ..ok };
    assert!(refused("cam@b", zero).contains("message size 0 B"));
    let huge = punctual::Contract { message_bytes_max: 60 << 20, ..contract(1_000, 1_000, 100) };
    let line = refused("cam@b", huge);
    assert!(line.starts_with("refused by host a"), "{line}");
    let taken = b.listen("cam", |_| Consent::Accept).err().expect("taken").to_string();
    assert!(taken.contains("\"cam\" already has a listener"), "{taken}");
    for line in [refused("cam@mars", ok), taken] {
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn a_probe_reserves_nothing_and_needs_no_consent() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let _listener = b.listen("cam", |_| panic!("the agent is not asked")).expect("a listener");
    let grant = a.probe("cam@b", contract(10_000, 25, 80)).expect("a grant");
    assert!(!grant.stages.is_empty());
    assert!(matches!(a.probe("cam@b", contract(1 << 20, 1_000, 80)), Err(OpenError::Refused { .. })));
    eventually("nothing is held", || a.status().expect("status").node.channels == 0);
}

#[test]
fn a_listener_closes_and_its_channels_stay() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    assert!(listener.try_accept().expect("no error").is_none());
    let mut opening = a.open_nonblocking("cam@b", contract(100, 10, 100)).expect("asked");
    let mut channel = None;
    eventually("it opens", || {
        a.status().expect("the daemon serves others meanwhile");
        channel = opening.try_finish();
        channel.is_some()
    });
    let mut channel = channel.expect("an outcome").expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    listener.close().expect("closed");
    channel.send(b"still here").expect("sent");
    let mut buffer = [0; 100];
    let info = receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
    assert_eq!(&buffer[..info.len as usize], b"still here");
    assert!(a.open("cam@b", contract(100, 10, 100)).is_err());
}

#[test]
fn an_opening_that_is_dropped_leaves_nothing() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    for _ in 0..8 {
        drop(a.open_nonblocking("cam@b", contract(100, 10, 100)).expect("asked"));
    }
    // The channels that were established end by themselves; a later one is not disturbed.
    let channel = a.open("cam@b", contract(100, 10, 100)).expect("a channel");
    eventually("only the last is left", || a.status().expect("status").node.channels == 1);
    drop((channel, listener));
    eventually("nothing is left", || {
        let users = a.status().expect("status").users;
        users.iter().all(|user| user.channels == 0 && user.buffer_bytes == 0)
    });
}

#[test]
fn a_receiver_requests_a_channel() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = a.listen("film", |_| Consent::refuse("this one only sends")).expect("a listener");
    let wanted = contract(2_000, 25, 100);
    match b.request("film@a", wanted) {
        Err(OpenError::Refused { refusal, .. }) => assert!(matches!(refusal.cause, RefuseCause::Receiver(_))),
        other => panic!("{:?}", other.err()),
    }
    listener.on_request(move |request| {
        if request.contract == wanted { Consent::Accept } else { Consent::refuse("too much") }
    });
    let mut receiver = b.request("film@a", wanted).expect("a channel");
    let (mut channel, request) = listener.accept_source().expect("opened");
    assert_eq!((request.to.host.as_str(), request.contract), ("b", wanted));
    channel.send(b"frame").expect("sent");
    let mut buffer = [0; 2_000];
    assert_eq!(receiver.recv_timeout(&mut buffer, PATIENCE).expect("received").len, 5);
    let refused = b.request("film@a", contract(3_000, 25, 100));
    assert!(refused.err().expect("no channel").to_string().contains("too much"));
}

#[test]
fn best_effort_flows_without_promise() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let mut receiver = b.bind_best_effort("bulk", 9_000).expect("bound");
    assert!(matches!(b.bind_best_effort("bulk", 9_000), Err(Error::Request(_))));
    let mut flow = a.best_effort("bulk@b", 9_000).expect("a flow");
    assert!(flow.grant().is_none());
    for number in 0..10_u8 {
        flow.send(&vec![number; 9_000]).expect("sent");
        let got = receiver.recv_in_place(|bytes, _| (bytes.len(), bytes[8_999])).expect("received");
        assert_eq!(got, (9_000, number));
    }
    assert!(matches!(flow.send(&[0; 9_001]), Err(SendError::TooLong { bytes: 9_001, bytes_max: 9_000 })));
    drop((flow, receiver));
    eventually("quotas are given back", || {
        b.status().expect("status").users.iter().all(|user| user.channels == 0 && user.buffer_bytes == 0)
    });
}

#[test]
fn a_small_buffer_keeps_the_message() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("cam@b", contract(100, 10, 100)).expect("a channel");
    let mut receiver = listener.accept().expect("a channel");
    channel.send(&[7; 100]).expect("sent");
    let small = receiver.recv_timeout(&mut [0; 10], PATIENCE);
    assert!(matches!(small, Err(RecvError::BufferTooSmall { bytes: 100, buffer_bytes: 10 })), "{small:?}");
    assert_eq!(receiver.try_recv(&mut [0; 100]).expect("still there").len, 100);
    let late = receiver.recv_timeout(&mut [0; 100], Duration::from_millis(1));
    assert!(matches!(late, Err(RecvError::TimedOut)));
}
