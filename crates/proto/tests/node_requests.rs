//! Requests of applications to a node besides open channels: refusals, receivers' requests, best effort by
//! name, the end.

use punctual_proto::api::{CloseReason, Event, OpenRequest, RefuseCause, RequestError, UserId};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::{Address, ChannelId, Epoch};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{TestInbox, TestOutbox, World, line_config, name};

const RATE: BitRate = BitRate(40_000_000);
const USER: UserId = UserId(7);

fn contract() -> Contract {
    Contract::new(1_000, Rate::per_second(50).unwrap(), 1, Nanos::from_millis(40)).unwrap()
}

fn address(port: &str, host: &str) -> Address {
    Address { port: name(port), host: name(host) }
}

/// Hosts that have met.
fn world(hosts: usize) -> World {
    let mut world = World::line(hosts, RATE);
    world.run_for(Nanos::from_millis(100));
    world
}

fn open(world: &mut World, from: usize, to: Address, token: Option<u64>) -> ChannelId {
    let request = OpenRequest { to, contract: contract(), user: USER, probe: false, token };
    world.nodes[from].open(request, world.now).expect("the request can be tried")
}

/// The first event of a host that `wanted` selects, within a second.
fn event<T>(world: &mut World, host: usize, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    for _ in 0..1_000 {
        while let Some(event) = world.events[host].pop_front() {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        world.run_for(Nanos::from_millis(1));
    }
    panic!("host {host} is told nothing within a second");
}

fn incoming(world: &mut World, host: usize) -> ChannelId {
    event(world, host, |event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    })
}

fn refused(world: &mut World, host: usize, asked: ChannelId) -> RefuseCause {
    event(world, host, |event| match event {
        Event::Refused { channel, refusal } if channel == asked => Some(refusal.cause),
        _ => None,
    })
}

#[test]
fn a_receiver_that_refuses_is_quoted_and_nothing_is_left() {
    let mut world = world(3);
    world.nodes[2].listen(name("port")).unwrap();
    let channel = open(&mut world, 0, address("port", "h3"), None);
    let waiting = incoming(&mut world, 2);
    world.nodes[2].refuse(waiting, "not today", world.now).unwrap();
    assert_eq!(refused(&mut world, 0, channel), RefuseCause::Receiver("not today".into()));
    assert_eq!(world.nodes[2].refuse(waiting, "again", world.now), Err(RequestError::Unknown));
    world.run_for(Nanos::from_secs(1));
    assert!(world.nodes.iter().all(|node| node.is_quiet()));
}

/// Messages that an application has put into its ring before it is attached are sent without a doorbell; both
/// ends see all counters from the beginning.
#[test]
fn a_ring_that_holds_something_when_it_is_given_is_sent() {
    for messages in [0, 3] {
        let mut world = world(2);
        world.nodes[1].listen(name("port")).unwrap();
        let channel = open(&mut world, 0, address("port", "h2"), None);
        let sink = incoming(&mut world, 1);
        let (outbox, inbox) = (TestOutbox::new(4, 1_000), TestInbox::new(8, 1_000));
        world.nodes[1].consent(sink, inbox.clone(), world.now).unwrap();
        let is_open = |event: Event| matches!(event, Event::Opened { .. }).then_some(());
        event(&mut world, 0, is_open);
        assert!((0..messages).all(|number| outbox.send(&[number; 1_000], world.now)));
        world.nodes[0].attach_outbox(channel, outbox.clone(), world.now).unwrap();
        let again = world.nodes[0].attach_outbox(channel, TestOutbox::new(4, 1_000), world.now);
        assert_eq!(again, Err(RequestError::Unknown), "it has one");
        world.run_for(Nanos::from_millis(1));
        assert!(outbox.shown().times > 0 && inbox.shown().times > 0);
        world.run_for(Nanos::from_millis(200));
        for number in 0..messages {
            assert!(inbox.recv(|message, _| assert_eq!(message, [number; 1_000])));
        }
        assert!(!inbox.recv(|_, _| ()));
        let sent = outbox.shown().counters.messages_out;
        assert_eq!(sent, u64::from(messages));
    }
}

#[test]
fn closing_a_listener_refuses_waiting_channels() {
    let mut world = world(2);
    let listener = world.nodes[1].listen(name("port")).unwrap();
    assert_eq!(world.nodes[1].listen(name("port")), Err(RequestError::NameTaken(name("port"))));
    let channel = open(&mut world, 0, address("port", "h2"), None);
    let waiting = incoming(&mut world, 1);
    world.nodes[1].unlisten(listener, world.now).unwrap();
    assert_eq!(refused(&mut world, 0, channel), RefuseCause::NoListener(name("port")));
    let reason = event(&mut world, 1, |event| match event {
        Event::Closed { channel, reason, .. } if channel == waiting => Some(reason),
        _ => None,
    });
    assert_eq!(reason, CloseReason::Local);
    assert_eq!(world.nodes[1].unlisten(listener, world.now), Err(RequestError::Unknown));
}

/// The receiver on the last host requests a channel from the film server on the first one.
fn ask(world: &mut World) -> u64 {
    let last = world.nodes.len() - 1;
    world.nodes[last].listen(name("screen")).unwrap();
    let server = address("films", "h1");
    world.nodes[last].request(&server, name("screen"), contract(), USER, world.now).unwrap()
}

fn asked(world: &mut World) -> (Address, u64) {
    event(world, 0, |event| match event {
        Event::Requested { to, token, contract: wanted, user, .. } => {
            assert_eq!((wanted, user), (contract(), USER));
            Some((to, token))
        }
        _ => None,
    })
}

#[test]
fn a_receivers_request_becomes_a_channel_to_it() {
    let mut world = world(3);
    world.nodes[0].listen(name("films")).unwrap();
    ask(&mut world);
    let (to, token) = asked(&mut world);
    assert_eq!(to, address("screen", "h3"));
    let channel = open(&mut world, 0, to, Some(token));
    let sink = incoming(&mut world, 2);
    world.nodes[2].consent(sink, TestInbox::new(8, 1_000), world.now).unwrap();
    let opened = event(&mut world, 0, |event| match event {
        Event::Opened { channel, .. } => Some(channel),
        _ => None,
    });
    assert_eq!(opened, channel);
    assert!(world.nodes[2].inbox_mut(sink).is_some() && world.nodes[0].inbox_mut(channel).is_none());
}

#[test]
fn a_refused_request_fails_with_the_reason() {
    let mut world = world(3);
    world.nodes[0].listen(name("films")).unwrap();
    let request = ask(&mut world);
    let (_, token) = asked(&mut world);
    world.nodes[0].refuse_request(token, "sold out", world.now).unwrap();
    let (failed, cause) = event(&mut world, 2, |event| match event {
        Event::RequestFailed { token, refusal } => Some((token, refusal.cause)),
        _ => None,
    });
    assert_eq!((failed, cause), (request, RefuseCause::Receiver("sold out".into())));
    assert_eq!(world.nodes[0].refuse_request(token, "twice", world.now), Err(RequestError::Unknown));
}

/// Tokens begin again with each epoch of a host: replies to requests of the former epoch do not match those
/// of this one.
#[test]
fn a_no_to_a_former_life_is_no_answer_to_this_one() {
    let mut world = world(3);
    world.nodes[0].listen(name("films")).unwrap();
    let before = ask(&mut world);
    let (_, asked_before) = asked(&mut world);
    let config = line_config(2, 3, RATE);
    let config = NodeConfig { epoch: Epoch(config.epoch.0 + 1), ..config };
    world.restart(2, Node::new(config, 77, world.now).unwrap());
    world.events[2].clear();
    world.run_for(Nanos::from_secs(1));
    let again = ask(&mut world);
    assert_eq!(again, before, "else this tells nothing");
    let (_, asked_again) = asked(&mut world);
    let failed = |world: &World| {
        world.events[2]
            .iter()
            .any(|event| matches!(event, Event::RequestFailed { token, .. } if *token == again))
    };
    // The former epoch's request may be removed there already; then nothing is sent.
    let _ = world.nodes[0].refuse_request(asked_before, "sold out", world.now);
    world.run_for(Nanos::from_secs(1));
    assert!(!failed(&world), "nobody has refused what this life asks for");
    world.nodes[0].refuse_request(asked_again, "sold out", world.now).unwrap();
    world.run_for(Nanos::from_secs(1));
    assert!(failed(&world));
}

#[test]
fn best_effort_is_bound_by_name_once_and_closed_by_its_handle() {
    let mut world = world(2);
    let inbox = TestInbox::new(4, 1_000);
    let bound = world.nodes[1].bind_best_effort(name("log"), 1_000, inbox.clone()).unwrap();
    let again = world.nodes[1].bind_best_effort(name("log"), 1_000, TestInbox::new(1, 1));
    assert_eq!(again, Err(RequestError::NameTaken(name("log"))));
    let nowhere = address("log", "h9");
    let unknown = world.nodes[0].open_best_effort(nowhere, 1_000, TestOutbox::new(1, 1_000), world.now);
    assert_eq!(unknown, Err(RequestError::UnknownHost(name("h9"))));
    let itself = address("log", "h1");
    let routeless = world.nodes[0].open_best_effort(itself, 1_000, TestOutbox::new(1, 1_000), world.now);
    assert_eq!(routeless, Err(RequestError::Itself(name("h1"))));

    let outbox = TestOutbox::new(4, 1_000);
    let to = address("log", "h2");
    let flow = world.nodes[0].open_best_effort(to, 1_000, outbox.clone(), world.now).unwrap();
    let send = |world: &mut World| {
        assert!(outbox.send(b"line", world.now));
        world.nodes[0].handle_ring(flow, world.now);
        world.run_for(Nanos::from_millis(10));
        let mut got = 0;
        while inbox.recv(|bytes, _| assert_eq!(bytes, b"line")) {
            got += 1;
        }
        got
    };
    assert_eq!(send(&mut world), 1);
    world.nodes[1].close(bound, world.now).unwrap();
    assert_eq!(send(&mut world), 0);
    world.nodes[0].close(flow, world.now).unwrap();
    assert_eq!(world.nodes[0].close(flow, world.now), Err(RequestError::Unknown));
    assert!(world.nodes[0].is_quiet());
}

#[test]
fn a_node_that_shuts_down_leaves_nothing_anywhere() {
    let mut world = world(3);
    let held = world.open(0, 2, contract()).unwrap();
    world.nodes[2].bind_best_effort(name("log"), 1_000, TestInbox::new(4, 1_000)).unwrap();
    let to = address("log", "h3");
    world.nodes[0].open_best_effort(to, 1_000, TestOutbox::new(4, 1_000), world.now).unwrap();
    assert!(!world.nodes[0].is_quiet() && !world.nodes[1].is_quiet());
    world.nodes[0].shutdown(world.now);
    let reason = event(&mut world, 2, |event| match event {
        Event::Closed { channel, reason, .. } if channel == held.sink => Some(reason),
        _ => None,
    });
    assert_eq!(reason, CloseReason::PeerStopped);
    world.run_for(Nanos::from_secs(2));
    assert!(world.nodes.iter().all(|node| node.is_quiet()));
}

/// Nothing more is received at any port, and its name is free.
#[test]
fn a_node_that_shuts_down_receives_at_no_port() {
    let mut world = world(2);
    let ports = ["log", "films"];
    let inboxes = ports.map(|port| {
        let inbox = TestInbox::new(4, 1_000);
        world.nodes[1].bind_best_effort(name(port), 1_000, inbox.clone()).unwrap();
        inbox
    });
    let flows = ports.map(|port| {
        let (to, outbox) = (address(port, "h2"), TestOutbox::new(4, 1_000));
        (world.nodes[0].open_best_effort(to, 1_000, outbox.clone(), world.now).unwrap(), outbox)
    });
    let received = |world: &mut World| {
        for (flow, outbox) in &flows {
            assert!(outbox.send(b"line", world.now));
            world.nodes[0].handle_ring(*flow, world.now);
        }
        world.run_for(Nanos::from_millis(10));
        [0, 1].map(|port: usize| inboxes[port].take_all().len())
    };
    assert_eq!(received(&mut world), [1, 1]);
    world.nodes[1].shutdown(world.now);
    assert_eq!(received(&mut world), [0, 0]);
    for port in ports {
        let again = world.nodes[1].bind_best_effort(name(port), 1_000, TestInbox::new(4, 1_000));
        assert!(again.is_ok(), "{port}: {again:?}");
    }
}

/// Pages of any length contain the same channels as the complete list, each after a visit of at most the
/// allowed number of handles.
#[test]
fn pages_of_channels_are_all_of_them_in_order() {
    let mut world = world(2);
    let channels: Vec<_> =
        (0..12).map(|_| world.open(0, 1, contract()).unwrap_or_else(|event| panic!("{event:?}"))).collect();
    // These wait only for the sink's report, for a moment.
    for closing in channels.iter().step_by(3) {
        world.nodes[0].close(closing.source, world.now).unwrap();
    }
    for _ in 0..200 {
        let node = &world.nodes[0];
        let all = node.channels();
        for checked_max in [1, 2, 5, 100] {
            let (mut seen, mut paged) = (None, Vec::new());
            loop {
                let page = node.channels_after(seen, checked_max);
                assert!(page.channels.len() <= checked_max);
                paged.extend(page.channels);
                if !page.more {
                    break;
                }
                assert!(page.seen > seen, "each page goes on");
                seen = page.seen;
            }
            assert_eq!(paged, all, "pages of {checked_max}");
        }
        world.run_for(Nanos::from_millis(1));
    }
    assert_eq!(world.nodes[0].channels().len(), 8);
}
