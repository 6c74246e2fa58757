//! Each fault affects only its own user: one clear error, a counter, and no effect on others.

mod common;

use std::os::fd::OwnedFd;

use common::raw::Raw;
use common::{Daemon, PATIENCE, Pair, config, contract, eventually};
use punctual::{
    ChannelEvent, CloseReason, Consent, Endsystem, Error, Name, OpenError, RecvError, RefuseCause, SendError,
};
use punctual_ipc::api::{Answer, ApiError, FromDaemon, PACKET_BYTES_MAX, Push, Request, VERSION};
use punctual_ipc::ring::RingShape;
use punctual_ipc::shm::Region;
use punctual_ipc::wake::Doorbell;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

fn error_of(answer: Option<(FromDaemon, Vec<OwnedFd>)>) -> ApiError {
    match answer {
        Some((FromDaemon::Answer { id: 0, result: Err(error) }, _)) => error,
        other => panic!("{other:?}"),
    }
}

/// A channel from `a` to `b` that others must not disturb.
fn bystander(a: &Endsystem, b: &Endsystem) -> (punctual::Channel, punctual::Receiver) {
    let listener = b.listen("bystander", |_| Consent::Accept).expect("a listener");
    let channel = a.open("bystander@b", contract(200, 50, 200)).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    (channel, receiver)
}

fn still_works((channel, receiver): &mut (punctual::Channel, punctual::Receiver)) {
    channel.send(b"undisturbed").expect("sent");
    let mut buffer = [0; 200];
    let info = receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
    assert_eq!(&buffer[..info.len as usize], b"undisturbed");
}

#[test]
fn malformed_requests_end_their_connection_only() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let mut others = bystander(&a, &b);
    let mut count = 0;
    let texts: [&[u8]; 6] = [
        b"\0\0\0\0",
        b"{}",
        b"{\"id\":1,\"request\":\"no-such-thing\"}",
        b"{\"id\":1,\"request\":\"status\",\"extra\":1}",
        b"{\"id\":-1,\"request\":\"status\"}",
        &[b'['; 4_096],
    ];
    for bytes in texts {
        let raw = Raw::connect(&pair.a.socket);
        raw.send(bytes);
        assert!(matches!(error_of(raw.receive()), ApiError::Malformed(_)));
        assert!(raw.receive().is_none(), "the connection is closed");
        count += 1;
    }
    // A packet longer than the API allows, and a request before the greeting.
    let raw = Raw::connect(&pair.a.socket);
    raw.send(&vec![b' '; PACKET_BYTES_MAX + 1]);
    assert!(matches!(error_of(raw.receive()), ApiError::Malformed(_)));
    let raw = Raw::connect(&pair.a.socket);
    raw.send(b"{\"id\":1,\"request\":\"status\"}");
    assert!(error_of(raw.receive()).to_string().contains("hello"));
    count += 2;
    assert_eq!(a.status().expect("status").api.malformed, count);
    still_works(&mut others);
}

#[test]
fn a_client_of_another_version_gets_that_error() {
    let pair = Pair::start();
    let raw = Raw::connect(&pair.a.socket);
    let error =
        raw.ask(Request::Hello { version: 99, program: String::new() }).0.expect_err("another version");
    assert_eq!(error, ApiError::Version { ours: VERSION, theirs: 99 });
    assert!(raw.receive().is_none());
}

#[test]
fn no_client_can_use_objects_of_another() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let mut others = bystander(&a, &b);
    let listener = a.listen("mine", |_| Consent::Accept).expect("a listener");
    let raw = Raw::greeted(&pair.a.socket);
    assert_eq!(
        raw.ask(Request::Close { channel: others.0.id() }).0,
        Ok(Answer::Done),
        "done, but not to that one"
    );
    for listener in 0..64 {
        let unlisten = Request::Unlisten { listener: punctual_proto::ids::ListenerId(listener) };
        assert!(raw.ask(unlisten).0.is_err());
    }
    assert!(raw.ask(Request::Consent { channel: others.0.id(), stall: None }).0.is_err());
    assert!(raw.ask(Request::RefuseAsk { token: 1, why: String::new() }).0.is_err());
    still_works(&mut others);
    assert!(a.listen("mine", |_| Consent::Accept).is_err(), "still taken");
    drop(listener);
}

#[test]
fn a_hostile_ring_index_closes_its_channel_only() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let mut others = bystander(&a, &b);
    let listener = b.listen("victim", |_| Consent::Accept).expect("a listener");
    let raw = Raw::greeted(&pair.a.socket);
    let open = Request::Open {
        to: "victim@b".parse().expect("an address"),
        contract: contract(100, 20, 200),
        token: None,
    };
    let (answer, mut descriptors) = raw.ask(open);
    let Ok(Answer::Opened { channel, ring, .. }) = answer else { panic!("{answer:?}") };
    let region = Region::take(&descriptors[1], ring.file_bytes()).expect("a mapping");
    assert_eq!(raw.ask(Request::Attached { channel }).0, Ok(Answer::Done));
    // The producer's position (the first word), far beyond the ring, and a ring of the doorbell.
    region.word(0).store(u64::MAX / 3, std::sync::atomic::Ordering::SeqCst);
    Doorbell::new(descriptors.remove(3)).ring();
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    let ended = receiver.recv_timeout(&mut [0; 100], PATIENCE);
    assert!(matches!(ended, Err(RecvError::Closed(Some(CloseReason::PeerVanished)))), "{ended:?}");
    assert_eq!(a.status().expect("status").api.broken_rings, 1);

    let ring = RingShape::new(4, 100).expect("a shape");
    let flow = Request::OpenBestEffort { to: "bulk@b".parse().expect("an address"), ring };
    let (answer, mut descriptors) = raw.ask(flow);
    let Ok(Answer::Ring { channel, .. }) = answer else { panic!("{answer:?}") };
    let region = Region::take(&descriptors[1], ring.file_bytes()).expect("a mapping");
    assert_eq!(raw.ask(Request::Attached { channel }).0, Ok(Answer::Done));
    region.word(0).store(5, std::sync::atomic::Ordering::SeqCst);
    Doorbell::new(descriptors.remove(3)).ring();
    eventually("the flow is closed", || a.status().expect("status").api.broken_rings == 2);
    still_works(&mut others);
}

#[test]
fn quotas_bind_each_user_and_are_given_back() {
    let pair = Pair::start_with(
        "channels_per_user_max = 2\nlisteners_per_user_max = 1\nconnections_per_user_max = 3",
    );
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let over = |error: &ApiError| matches!(error, ApiError::Quota { .. });
    assert!(matches!(b.listen("two", |_| Consent::Accept), Err(Error::Daemon(error)) if over(&error)));
    let first = a.open("cam@b", contract(100, 10, 200)).expect("a channel");
    let second = a.open("cam@b", contract(100, 10, 200)).expect("a channel");
    let third = a.open("cam@b", contract(100, 10, 200));
    assert!(matches!(third, Err(OpenError::Failed(Error::Daemon(ref error))) if over(error)));
    drop(first);
    eventually("room for another", || a.open("cam@b", contract(100, 10, 200)).is_ok());
    drop((second, listener));

    eventually("the first connections of the test are gone", || {
        a.status().expect("status").users.iter().all(|user| user.clients == 1)
    });
    let _more = [pair.a.connect(), pair.a.connect()];
    let raw = Raw::connect(&pair.a.socket);
    assert!(over(&error_of(raw.receive())));
    assert!(a.status().expect("status").api.over_quota >= 2);
}

#[test]
fn rings_beyond_the_quota_are_refused_at_either_end() {
    let pair = Pair::start_with("buffers_per_user_max = \"100KiB\"");
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let _listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let large = a.open("cam@b", contract(200_000, 10, 500)).err().expect("no channel");
    assert!(large.to_string().contains("bytes of buffers"), "{large}");
    assert_eq!(large.to_string().lines().count(), 1);
    eventually("nothing is left", || {
        [&a, &b].iter().all(|host| {
            let status = host.status().expect("status");
            status.node.channels == 0
                && status.users.iter().all(|user| user.buffer_bytes == 0 && user.channels == 0)
        })
    });
}

#[test]
fn a_receiver_that_is_killed_ends_its_channels() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let mut others = bystander(&a, &b);
    let dying = Raw::greeted(&pair.b.socket);
    let Ok(Answer::Listening { .. }) = dying
        .ask(Request::Listen {
            port: Name::new("mortal").expect("a name"),
            handler_time: punctual::Nanos::ZERO,
        })
        .0
    else {
        panic!("no listener")
    };
    let opening = a.open_nonblocking("mortal@b", contract(100, 50, 200)).expect("asked");
    let channel = loop {
        if let Some((FromDaemon::Push(Push::Incoming { channel, .. }), _)) = dying.receive() {
            break channel;
        }
    };
    let (consented, _ring) = dying.ask(Request::Consent { channel, stall: None });
    assert!(matches!(consented, Ok(Answer::Ring { .. })));
    let mut channel = opening.finish().expect("a channel");
    channel.set_send_timeout(Some(PATIENCE));
    channel.send(b"last words").expect("sent");
    // The connection ends without a request, as when its process is killed.
    drop(dying);
    let ended = loop {
        if let Err(error) = channel.send(b"anybody?") {
            break error;
        }
    };
    assert!(matches!(ended, SendError::Closed(Some(CloseReason::PeerVanished))), "{ended:?}");
    assert_eq!(channel.events().last(), Some(&ChannelEvent::PeerGone));
    assert!(b.listen("mortal", |_| Consent::Accept).is_ok(), "the name is free again");
    still_works(&mut others);
}

#[test]
fn a_daemon_stops_while_messages_flow() {
    let mut pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("cam@b", contract(1_000, 500, 200)).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    channel.set_send_timeout(Some(PATIENCE));
    receiver.set_recv_timeout(Some(PATIENCE));
    let sending = std::thread::spawn(move || {
        loop {
            if let Err(error) = channel.send(&[3; 1_000]) {
                return (error, channel.events());
            }
        }
    });
    for _ in 0..20 {
        receiver.recv_in_place(|bytes, _| assert_eq!(bytes, [3; 1_000])).expect("received");
    }
    pair.a.stop().expect("a graceful stop");
    assert!(!pair.a.socket.exists(), "the socket is removed");
    let (error, events) = sending.join().expect("no panic");
    assert!(matches!(error, SendError::Closed(_)), "{error:?}");
    assert!(!events.is_empty());
    let ended = loop {
        match receiver.recv_in_place(|bytes, _| bytes.len()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, RecvError::Closed(Some(CloseReason::PeerStopped))), "{ended:?}");
    assert_eq!(receiver.events().last(), Some(&ChannelEvent::PeerGone));
    assert!(matches!(a.status(), Err(Error::Disconnected)));
    assert_eq!(b.status().expect("the other host serves on").node.channels, 0);
}

#[test]
fn a_full_inbox_loses_only_its_own() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let mut others = bystander(&a, &b);
    let listener = b.listen("slow", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("slow@b", contract(100, 500, 100)).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    eventually("the receiver's ring overruns", || {
        channel.send(&[1; 100]).expect("the sender goes on");
        receiver.state().expect("a state").status.counters.overruns > 0
    });
    eventually("it is reported", || receiver.events().contains(&ChannelEvent::Overrun));
    still_works(&mut others);
    assert!(receiver.recv_timeout(&mut [0; 100], PATIENCE).is_ok());
}

#[test]
fn a_second_daemon_and_a_stale_socket() {
    let pair = Pair::start();
    let (to_b, _to_a) = common::memory_links();
    let second = config("a", &pair.a.socket, "");
    let stop = punctual_ipc::wake::Alarm::new().expect("an eventfd");
    let error =
        punctual_daemon::run_with(&second, to_b, std::os::fd::AsFd::as_fd(&stop), || ()).expect_err("taken");
    assert!(error.to_string().contains("another daemon serves"), "{error}");
    assert!(pair.a.connect().status().is_ok(), "the first serves on");

    // A daemon that was killed leaves its file behind.
    let stale = pair.directory.join("stale.sock");
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    rustix::net::bind(socket.as_ref().expect("a socket"), &SocketAddrUnix::new(&stale).expect("a path"))
        .expect("bound");
    drop(socket);
    let (to_b, _to_a) = common::memory_links();
    let daemon = Daemon::start(config("a", &stale, ""), to_b);
    assert_eq!(daemon.connect().host(), "a");
}

#[test]
fn a_refused_consent_does_not_reach_the_application() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let listener = b.listen("cam", |request| match request.contract.message_bytes_max {
        0..=100 => Consent::Accept,
        _ => Consent::refuse("too long"),
    });
    let listener = listener.expect("a listener");
    let refused = a.open("cam@b", contract(101, 10, 200)).err().expect("refused");
    assert!(
        matches!(refused, OpenError::Refused { ref refusal, .. } if refusal.cause == RefuseCause::Receiver("too long".into()))
    );
    let _channel = a.open("cam@b", contract(100, 10, 200)).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    assert_eq!(receiver.request().expect("a request").contract.message_bytes_max, 100);
    assert!(listener.try_accept().expect("no error").is_none());
}
