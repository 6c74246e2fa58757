//! Handlers on the engine's own thread: no wake-up, no copy, no allocation; overruns are counted and lead to
//! demotion.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use punctual::{Channel, Consent, Contract, Endsystem, Error, Nanos, OpenError, Rate, RecvError, SendError};
use support::{PATIENCE, pair};

const HANDLER_TIME: Nanos = Nanos::from_micros(100);

fn contract() -> Contract {
    let rate = Rate::per_second(200).expect("a rate");
    Contract::new(64, rate, 8, Nanos::from_secs(1)).expect("a contract")
}

/// A channel from `from` to a direct listener at `to`, and its receiver.
fn open(from: &Endsystem, to: &Endsystem, name: &str, handler_time: Nanos) -> (Channel, punctual::Receiver) {
    let listener = to.listen_direct(name, handler_time, |_| Consent::Accept).expect("a listener");
    let channel = from.open(&format!("{name}@{}", to.host()), contract()).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    (channel, receiver)
}

#[test]
fn a_handler_answers_in_place() {
    let (a, b) = pair();
    let (mut there, at_b) = open(&a, &b, "ping", HANDLER_TIME);
    let (mut back, at_a) = open(&b, &a, "pong", HANDLER_TIME);
    let echo = at_b
        .on_message(move |message, _, reply| reply.send(&mut back, message).expect("room"))
        .expect("a handler");
    let (delivered, deliveries) = mpsc::sync_channel(100);
    let end = at_a
        .on_message(move |message, info, _| {
            delivered.send((message.to_vec(), info.number, info.demoted)).expect("the test receives it");
        })
        .expect("a handler");
    for number in 0..50_u64 {
        there.send(&number.to_le_bytes()).expect("sent");
        let (message, count, demoted) = deliveries.recv_timeout(PATIENCE).expect("an answer");
        assert_eq!((message, count, demoted), (number.to_le_bytes().to_vec(), number, false));
    }
    assert_eq!((echo.calls(), end.calls()), (50, 50));
    assert_eq!(echo.state().expect("a state").status.counters.messages_out, 50);
    echo.close().expect("closed");
}

#[test]
fn the_declared_time_is_part_of_what_is_admitted() {
    let (a, b) = pair();
    let (plain, _) = open(&a, &b, "plain", Nanos(1));
    let (slow, _) = open(&a, &b, "slow", Nanos::from_micros(300));
    let cost = |channel: &Channel| channel.grant().expect("a grant").stages.last().expect("a sink").cost;
    assert_eq!(cost(&slow) - cost(&plain), Nanos::from_micros(300) - Nanos(1));
    let hopeless =
        b.listen_direct("hopeless", Nanos::from_millis(6), |_| Consent::Accept).expect("a listener");
    let refused = a.open("hopeless@b", contract()).err().expect("refused").to_string();
    assert!(refused.contains("sink CPU"), "{refused}");
    drop(hopeless);
}

#[test]
fn without_a_declared_time_nothing_runs_on_the_engine() {
    let (a, b) = pair();
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let _channel = a.open("cam@b", contract()).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    assert!(matches!(receiver.on_message(|_, _, _| {}), Err(Error::HandlerTime)));
}

#[test]
fn one_that_overruns_is_demoted_to_a_thread_of_its_own_and_loses_nothing() {
    let (a, b) = pair();
    let (mut channel, receiver) = open(&a, &b, "slow", Nanos(1));
    let (delivered, deliveries) = mpsc::sync_channel(100);
    let handler = receiver
        .on_message(move |message, _, _| {
            let name = std::thread::current().name().map(str::to_owned);
            delivered.send((message.to_vec(), name)).expect("the test receives it");
        })
        .expect("a handler");
    let mut names = Vec::new();
    for number in 0..20_u8 {
        channel.send(&[number]).expect("sent");
        let (message, name) = deliveries.recv_timeout(PATIENCE).expect("a message");
        assert_eq!(message, [number]);
        names.push(name.expect("a name"));
    }
    assert_eq!((names[0].as_str(), names[19].as_str()), ("punctual-cpu", "punctual-handler"), "{names:?}");
    assert_eq!((handler.is_direct(), handler.overruns()), (false, 4));
}

#[test]
fn one_that_panics_ends_its_channel_and_nothing_else() {
    let (a, b) = pair();
    let (mut bad, receiver) = open(&a, &b, "bad", HANDLER_TIME);
    let (mut good, other) = open(&a, &b, "good", HANDLER_TIME);
    let _bad = receiver.on_message(|_, _, _| panic!("a handler's own fault")).expect("a handler");
    let delivered = Arc::new(AtomicU64::new(0));
    let (count, notices) = (Arc::clone(&delivered), mpsc::sync_channel(8));
    let (notifier, notices) = notices;
    let _good = other
        .on_message(move |_, _, _| {
            count.fetch_add(1, Ordering::Relaxed);
            notifier.send(()).expect("the test receives it");
        })
        .expect("a handler");
    for _ in 0..2 {
        bad.send(b"x").expect("sent");
        good.send(b"y").expect("sent");
        notices.recv_timeout(PATIENCE).expect("the other one works on");
    }
    let until = std::time::Instant::now() + PATIENCE;
    while !bad.is_closed() && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(bad.is_closed() && !good.is_closed());
    assert_eq!(delivered.load(Ordering::Relaxed), 2);
}

#[test]
fn a_handler_may_be_the_last_to_hold_its_engine() {
    let (a, b) = pair();
    let (mut there, at_b) = open(&a, &b, "ping", HANDLER_TIME);
    let (back, _at_a) = open(&b, &a, "pong", HANDLER_TIME);
    // The handler owns a channel of its own engine; the engine must not wait for itself.
    let (gone, wait) = mpsc::sync_channel::<()>(1);
    let handler = at_b
        .on_message(move |_, _, _| {
            let _ = (&back, &gone);
        })
        .expect("a handler");
    there.send(b"x").expect("sent");
    drop((b, handler));
    assert_eq!(wait.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected), "it was dropped");
}

#[test]
fn a_thread_that_leads_takes_its_messages_on_the_engines_thread() {
    let (a, b) = pair();
    let (mut there, at_b) = open(&a, &b, "ping", HANDLER_TIME);
    let (mut back, mut at_a) = open(&b, &a, "pong", Nanos::from_millis(3));
    let echo = at_b
        .on_message(move |message, _, reply| reply.send(&mut back, message).expect("room"))
        .expect("a handler");
    at_a.set_recv_timeout(Some(PATIENCE));
    let mut lead = at_a.lead().expect("it leads");
    for number in 0..50_u64 {
        lead.send(&mut there, &number.to_le_bytes()).expect("sent");
        let answer = lead.recv_in_place(|message, info| (message.to_vec(), info.number)).expect("an answer");
        assert_eq!(answer, (number.to_le_bytes().to_vec(), number));
    }
    assert!(lead.is_leading(), "{} overruns", lead.overruns());
    // Its engine would have to answer, and that is itself.
    assert!(matches!(there.state(), Err(Error::OnProcessor)));
    let mut at_a = lead.end();
    there.send(b"alone").expect("sent");
    assert_eq!(at_a.recv_in_place(|message, _| message.to_vec()).expect("an answer"), b"alone");
    assert_eq!((echo.calls(), there.state().expect("a state").status.counters.messages_out), (51, 51));
}

/// Every call that waits for an engine fails at once on a thread that does an engine's work.
#[test]
fn a_thread_that_leads_does_not_wait_for_itself() {
    let (a, b) = pair();
    let (mut there, at_b) = open(&a, &b, "there", HANDLER_TIME);
    let (_back, at_a) = open(&b, &a, "back", Nanos::from_millis(3));
    let (_other, mut other_at_a) = open(&b, &a, "other", HANDLER_TIME);
    let listener = a.listen("spare", |_| Consent::Accept).expect("a listener");
    let lead = at_a.lead().expect("it leads");
    for host in [&a, &b] {
        assert!(matches!(host.open("cam@b", contract()), Err(OpenError::Failed(Error::OnProcessor))));
        assert!(matches!(host.best_effort("cam@b", 64), Err(OpenError::Failed(Error::OnProcessor))));
        assert!(matches!(host.listen("cam", |_| Consent::Accept), Err(Error::OnProcessor)));
        let direct = host.listen_direct("cam", HANDLER_TIME, |_| Consent::Accept);
        assert!(matches!(direct, Err(Error::OnProcessor)));
        assert!(matches!(host.bind_best_effort("cam", 64), Err(Error::OnProcessor)));
        assert!(matches!(host.status(), Err(Error::OnProcessor)));
    }
    let opening = a.open_nonblocking("cam@b", contract()).expect("it can be asked");
    assert!(matches!(opening.finish(), Err(OpenError::Failed(Error::OnProcessor))));
    assert!(matches!(listener.accept(), Err(Error::OnProcessor)));
    assert!(matches!(listener.accept_timeout(PATIENCE), Err(Error::OnProcessor)));
    assert!(matches!(listener.try_accept(), Ok(None)));
    let nothing = other_at_a.recv_in_place(|_, _| ());
    assert!(matches!(nothing, Err(RecvError::OnProcessor)), "{nothing:?}");
    assert!(matches!(other_at_a.on_message(|_, _, _| {}), Err(Error::OnProcessor)));
    // The engine that would make room is led by this thread, which is away from it.
    let full = (0..=64).map(|_| there.send(b"x")).find_map(Result::err);
    assert!(matches!(full, Some(SendError::OnProcessor)), "{full:?}");
    let unsent = there.flush(PATIENCE);
    assert!(matches!(unsent, Err(SendError::OnProcessor)), "{unsent:?}");
    let _at_a = lead.end();
    assert!(there.flush(PATIENCE).expect("open still"));
    assert!(a.listen("cam", |_| Consent::Accept).is_ok(), "nothing was asked for");
    drop(at_b);
}

#[test]
fn a_handler_does_not_wait_for_its_own_thread() {
    let (a, b) = pair();
    let (mut channel, at_b) = open(&a, &b, "ping", Nanos::from_millis(3));
    let (delivered, deliveries) = mpsc::sync_channel(1);
    let host = b.clone();
    let _handler = at_b
        .on_message(move |_, _, _| {
            let asked = host.open("cam@a", contract()).err();
            delivered.send(asked.map(|error| error.to_string())).expect("the test receives it");
        })
        .expect("a handler");
    channel.send(b"x").expect("sent");
    let notices = deliveries.recv_timeout(PATIENCE).expect("an answer").expect("an error");
    assert!(notices.contains("this thread does an engine's work"), "{notices}");
}

#[test]
fn a_thread_that_stays_away_leads_no_more_and_loses_nothing() {
    let (a, b) = pair();
    let (mut channel, mut receiver) = open(&a, &b, "slow", Nanos(1));
    receiver.set_recv_timeout(Some(PATIENCE));
    let mut lead = receiver.lead().expect("it leads");
    for number in 0..20_u8 {
        channel.send(&[number]).expect("sent");
        assert_eq!(lead.recv_in_place(|message, _| message.to_vec()).expect("a message"), [number]);
    }
    assert_eq!((lead.is_leading(), lead.overruns()), (false, 4));
}

#[test]
fn only_a_declared_time_may_lead() {
    let (a, b) = pair();
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let _channel = a.open("cam@b", contract()).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    assert!(matches!(receiver.lead(), Err(Error::HandlerTime)));
}
