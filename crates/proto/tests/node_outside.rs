//! What the rest of a host tells its node beside requests: another ring for a channel, a program that was woken, and which
//! channels the node still has.

use punctual_proto::api::{
    Event, OpenRequest, Port, RefuseCause, RequestError, RtuClass, RtuCost, RtuId, RtuTerms, UpcallDone,
    UserId, WorkKind,
};
use punctual_proto::config::{Admission, CpuConfig};
use punctual_proto::ids::{Address, ChannelId, ChannelNumber, Epoch, LinkId, NodeId, PathId};
use punctual_proto::limits::{BEST_EFFORT_PAUSE, REASON_BYTES_MAX};
use punctual_proto::wire::VERSION;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::handlers::{Bench, cpu};
use punctual_rig::{Open, TestOutbox, World, name};

fn contract() -> Contract {
    let rate = Rate::per_second(100).expect("a rate");
    Contract::new(1_000, rate, 4, Nanos::from_millis(100)).expect("in range")
}

fn with_channel() -> (World, Open) {
    let mut world = World::line(3, BitRate(40_000_000));
    world.run_for(Nanos::from_secs(1));
    let open = world.open(0, 2, contract()).expect("it fits");
    (world, open)
}

/// A channel continues from its new ring without a doorbell. What the old one held is not sent; what was taken from it is.
#[test]
fn a_ring_that_replaces_another_is_served_at_once() {
    let (mut world, open) = with_channel();
    assert!(open.outbox.send(&[1; 1_000], world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.settle();
    assert!(open.outbox.send(&[2; 1_000], world.now));
    let ring = TestOutbox::new(4, 1_000);
    assert!(ring.send(&[3; 1_000], world.now) && ring.send(&[4; 1_000], world.now));
    world.nodes[0].replace_outbox(open.source, ring.clone(), world.now).expect("it has a ring");
    world.run_for(Nanos::from_millis(300));
    let received: Vec<u8> = open.inbox.take_all().iter().map(|message| message[0]).collect();
    assert_eq!(received, [1, 3, 4]);
    assert!(ring.shown().times > 0, "its program sees the counters");
    for (node, channel) in [(0, ChannelId(u64::MAX)), (2, open.sink), (1, open.source)] {
        let refused = world.nodes[node].replace_outbox(channel, ring.clone(), world.now);
        assert_eq!(refused, Err(RequestError::Unknown), "no ring of host {node} is replaced");
    }
}

/// Whoever takes a channel over reads in the new ring what the channel has counted, before anything is sent through that ring.
#[test]
fn a_new_ring_shows_at_once_what_its_channel_has_counted() {
    let (mut world, open) = with_channel();
    assert!(open.outbox.send(&[1; 1_000], world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(300));
    let counted = open.outbox.shown().counters;
    assert_eq!((counted.messages_in, counted.messages_out), (1, 1));
    let ring = TestOutbox::new(4, 1_000);
    world.nodes[0].replace_outbox(open.source, ring.clone(), world.now).expect("it has a ring");
    world.nodes[0].show_counters();
    assert_eq!(ring.shown().counters, counted);
}

/// Every host on the route has the channel until it has ended, and no other.
#[test]
fn a_node_holds_its_channels_until_they_end() {
    let (mut world, open) = with_channel();
    let path = world.nodes[0].channels()[0].path;
    let of = |world: &World, path: PathId| [0, 1, 2].map(|node: usize| world.nodes[node].holds(path));
    assert_eq!(of(&world, path), [true; 3]);
    let others = [
        PathId { node: NodeId(path.node.0 + 1), ..path },
        PathId { channel: ChannelNumber(path.channel.0 + 1), ..path },
        PathId { epoch: Epoch(path.epoch.0 + 1), ..path },
    ];
    for other in others {
        assert_eq!(of(&world, other), [false; 3], "{other:?}");
    }
    world.nodes[0].close(open.source, world.now).expect("it is open");
    world.run_for(Nanos::from_secs(60));
    assert_eq!(of(&world, path), [false; 3]);
}

/// The time at which best effort that is ready at one millisecond is called, after the program of `woken` was woken.
fn best_effort_begins(woken: impl Fn(RtuId, RtuId) -> RtuId) -> Nanos {
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(20) };
    let terms = |class| RtuTerms { class, deadline: None, quantum: 1, cost };
    let mut bench = Bench::new(cpu(Admission::EDF));
    let promised = bench.register(terms(RtuClass::periodic(Nanos::from_millis(10), 1))).expect("granted");
    let best_effort = bench.register(terms(RtuClass::BestEffort)).expect("granted");
    let begun = Instant(1_000_000);
    bench.run_until(begun);
    bench.node.gave_program(woken(promised, best_effort), begun);
    bench.arrive(best_effort, begun, 1);
    bench.run_until(begun + Nanos::from_millis(1));
    assert_eq!((bench.calls.len(), bench.calls[0].id), (1, best_effort));
    bench.calls[0].begun.since(begun)
}

/// A program that a handler with a promise has woken precedes best effort for a while; others do not.
#[test]
fn a_woken_program_of_a_promised_handler_precedes_best_effort() {
    assert_eq!(best_effort_begins(|promised, _| promised), BEST_EFFORT_PAUSE);
    assert_eq!(best_effort_begins(|_, best_effort| best_effort), Nanos::ZERO);
    assert_eq!(best_effort_begins(|_, _| RtuId(u32::MAX.into())), Nanos::ZERO, "unknown");
}

/// What cannot be read is counted on whichever port it comes.
#[test]
fn what_cannot_be_read_is_counted_on_both_ports() {
    let (mut world, _) = with_channel();
    let malformed = |world: &World| world.nodes[1].status(world.now).drops.malformed;
    let before = malformed(&world);
    for (port, packets) in [(Port::Data, 2), (Port::Signalling, 3)] {
        let counted = malformed(&world);
        for _ in 0..packets {
            let (frame, now) = (world.pool.frame(&[VERSION, 2, 3]), world.now);
            world.nodes[1].handle_frame(LinkId(0), port, now, frame, now);
        }
        world.run_for(Nanos::from_millis(50));
        assert_eq!(malformed(&world) - counted, packets, "{port:?}");
    }
    assert_eq!(malformed(&world) - before, 5);
}

/// A receiver's reason is quoted as far as it fits into a message, whatever its characters take.
#[test]
fn a_reason_is_quoted_up_to_its_longest() {
    let most = REASON_BYTES_MAX / 4;
    for chars in [0, 1, most - 1, most, most + 1, 4 * most, 4 * most + 1] {
        let mut world = World::line(2, BitRate(40_000_000));
        world.run_for(Nanos::from_millis(100));
        world.nodes[1].listen(name("port")).expect("free");
        let to = Address { port: name("port"), host: name("h2") };
        let request = OpenRequest { to, contract: contract(), user: UserId(7), probe: false, token: None };
        world.nodes[0].open(request, world.now).expect("it can be tried");
        world.run_for(Nanos::from_millis(100));
        let asked = world.events[1].iter().find_map(|event| match event {
            Event::Incoming(incoming) => Some(incoming.channel),
            _ => None,
        });
        let reason = "x".repeat(chars);
        world.nodes[1].refuse(asked.expect("it is asked"), &reason, world.now).expect("it waits");
        world.run_for(Nanos::from_secs(1));
        let quoted = world.events[0].iter().find_map(|event| match event {
            Event::Refused { refusal, .. } => Some(refusal.cause.clone()),
            _ => None,
        });
        assert_eq!(quoted, Some(RefuseCause::Receiver(reason[..chars.min(most)].into())), "{chars}");
    }
}

/// Number of best-effort units that begin at one moment, if of each unit's declared time `took` is used as it is recorded
/// for `kind`.
fn units_at_once(kind: Option<WorkKind>, took: impl Fn(Nanos) -> Nanos) -> usize {
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(20) };
    let terms = RtuTerms { class: RtuClass::BestEffort, deadline: None, quantum: 1, cost };
    let capped = CpuConfig { best_effort_cpu_cap: Ppm(10_000), ..cpu(Admission::EDF) };
    let costs = capped.costs;
    let mut bench = Bench::new(capped);
    let id = bench.register(terms).expect("best effort");
    let now = Instant(1_000_000_000);
    bench.run_until(now);
    bench.node.make_ready(id, now);
    let one_unit = || {
        let work = bench.node.begin_work(now)?;
        bench.node.upcall(&work).expect("the handler");
        let (handler, declared) = (work.handler, work.declared_cost(&costs));
        let done = UpcallDone { units: 1, more: true, took: Nanos::ZERO };
        bench.node.finish_upcall(&work, done, now);
        if let Some(kind) = kind {
            bench.node.record_unit(handler, kind, took(declared), declared, now);
        }
        Some(())
    };
    std::iter::repeat_with(one_unit).take(10_000).take_while(Option::is_some).count()
}

/// Time that a unit did not take does not count against the caps; signalling has no declared time that could be saved.
#[test]
fn time_that_was_not_taken_is_returned() {
    let charged = units_at_once(None, |declared| declared);
    assert!((1..1_000).contains(&charged), "{charged}");
    assert_eq!(units_at_once(Some(WorkKind::Upcall), |declared| declared), charged);
    let half = units_at_once(Some(WorkKind::Upcall), |declared| declared / 2);
    assert!(half.abs_diff(2 * charged) <= 2, "{half} for {charged}");
    assert_eq!(units_at_once(Some(WorkKind::Upcall), |_| Nanos::ZERO), 10_000);
    assert_eq!(units_at_once(Some(WorkKind::Signalling), |_| Nanos::ZERO), charged);
}
