//! Evidence of a broken stage: signalling and this host's own clock; never data packets, which any attacker
//! on the wire can forge. In a line h1 - h2 - h3 an attacker on the wire repeats the data of a channel, with
//! its right cookie, 30 ms late; or all packets are late, HELLOs too.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use punctual_proto::api::{Cause, Event, LateStage, Notice, Port, RefuseCause, SeenIn, StageKind};
use punctual_proto::config::WhileBroken;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::memory::Timeliness;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Open, World, line_config, pattern};

const RATE: BitRate = BitRate(40_000_000);
const LATE: Nanos = Nanos::from_millis(30);
const BYTES: u32 = 200;

fn contract() -> Contract {
    Contract::new(BYTES, Rate::per_second(200).unwrap(), 1, Nanos::from_millis(20)).unwrap()
}

/// h1 sends for `span`, a message every 5 ms.
fn stream(world: &mut World, open: &Open, span: Nanos, between: impl FnMut(&mut World)) {
    stream_from(0, world, open, span, between);
}

/// The same from another host.
fn stream_from(
    host: usize,
    world: &mut World,
    open: &Open,
    span: Nanos,
    mut between: impl FnMut(&mut World),
) {
    let until = world.now + span;
    let mut number = 0;
    while world.now < until {
        open.outbox.send(&pattern(1, number, BYTES as usize), world.now);
        world.nodes[host].handle_ring(open.source, world.now);
        world.run_for(Nanos::from_millis(5));
        while open.inbox.recv(|_, _| {}) {}
        between(world);
        number += 1;
    }
}

fn reported_stages(world: &World) -> usize {
    world.events.iter().flatten().filter(|event| matches!(event, Event::Stage { .. })).count()
}

/// Reports to a host for itself: stage, number of channels that pass it, whether it has healed.
fn for_the_host(world: &World, node: usize) -> Vec<(String, Option<u32>, bool)> {
    let reported = world.events[node].iter().filter_map(|event| match event {
        Event::Stage { channel: None, stage, healed } => Some((stage.name(), stage.channels, *healed)),
        _ => None,
    });
    let mut reported: Vec<_> = reported.collect();
    // Another cause is reported again.
    reported.dedup();
    reported
}

/// Frames that a host has sent, and on which port.
type Sent = Rc<RefCell<VecDeque<(Port, Vec<u8>)>>>;
/// Frames that are to come in later: when, and on which port.
type Delayed = VecDeque<(Instant, Port, Vec<u8>)>;
type Kept = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// Keeps a copy of what h1 sends on the data port.
fn record(world: &mut World) -> Kept {
    let kept = Kept::default();
    let copies = kept.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 && port == Port::Data {
            copies.borrow_mut().push_back(bytes.clone());
        }
        true
    }));
    kept
}

#[test]
fn data_that_is_late_is_counted_and_decides_nothing_about_others() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    let kept = record(&mut world);
    let mut repeated: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    stream(&mut world, &open, Nanos::from_secs(3), |world| {
        let copies = kept.borrow_mut().drain(..).map(|bytes| (world.now + LATE, bytes)).collect::<Vec<_>>();
        repeated.extend(copies);
        while repeated.front().is_some_and(|(at, _)| *at <= world.now) {
            let (_, bytes) = repeated.pop_front().unwrap();
            assert!(Header::parse(&bytes).is_ok() && bytes.len() > HEADER_BYTES);
            world.inject(1, LinkId(0), Port::Data, &bytes);
        }
    });
    let status = world.nodes[1].status(world.now);
    let link = &status.links[0];
    assert!(link.late_packets.times > 300 && link.late_packets.by_max >= Nanos::from_millis(25), "{link:?}");
    assert_eq!((link.late_signals.times, reported_stages(&world)), (0, 0));
    assert!(world.nodes.iter().all(|node| node.status(world.now).broken.is_empty()));
    // Only the channel that was forged is shown to suffer.
    let other = world.open(0, 2, contract()).expect("others are admitted");
    assert!(other.grant.degraded_by().is_empty());
    assert!(
        world.nodes[1].channel(open_at_forwarder(&world)).is_some_and(|c| c.counters.late_arrivals > 300)
    );
}

/// The forwarder's handle of the first channel.
fn open_at_forwarder(world: &World) -> punctual_proto::ids::ChannelId {
    world.nodes[1].channels()[0].channel
}

/// From now on all packets of h1 arrive [`LATE`] later: the stream continues for `span` like that. Returns
/// what is under way at the end.
fn stream_delayed(world: &mut World, open: &Open, span: Nanos) -> Delayed {
    let queue = Sent::default();
    let delayed = queue.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 {
            queue.borrow_mut().push_back((port, bytes.clone()));
        }
        node != 0
    }));
    let mut waiting = Delayed::new();
    stream(world, open, span, |world| {
        let at = world.now + LATE;
        waiting.extend(delayed.borrow_mut().drain(..).map(|(port, bytes)| (at, port, bytes)));
        while waiting.front().is_some_and(|(at, ..)| *at <= world.now) {
            let (_, port, bytes) = waiting.pop_front().unwrap();
            world.inject(1, LinkId(0), port, &bytes);
        }
    });
    waiting
}

#[test]
fn a_link_that_delays_everything_is_named_at_both_ends_and_heals_after_a_lease() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    assert_eq!(reported_stages(&world), 0);
    assert!(world.nodes.iter().all(|node| !node.is_looking()), "there is nothing to look for");

    let waiting = stream_delayed(&mut world, &open, Nanos::from_secs(3));
    assert!(world.nodes[..2].iter().all(|node| node.is_looking()), "whose link it is, and who sees it");
    for end in [0, 2] {
        let named = world.events[end].iter().find_map(|event| match event {
            Event::Stage { channel: Some(_), stage, healed: false } => Some(stage.name()),
            _ => None,
        });
        assert_eq!(named.as_deref(), Some("link h1-h2"), "h{}", end + 1);
    }
    let reported = world.nodes[0].channel(open.source).expect("open");
    assert!(!reported.broken.is_empty());
    let places: Vec<_> = reported.degraded.iter().map(|it| it.place.as_str()).collect();
    assert_eq!(places, ["link h1-h2"], "{:?}", reported.degraded);
    assert_eq!(reported.degraded[0].cause_kind, reported.broken[0].cause.name());
    // Each host reports it once for its log, a forwarder too, with the number of channels concerned.
    for node in 0..3 {
        assert_eq!(for_the_host(&world, node), [("link h1-h2".to_owned(), Some(1), false)], "h{}", node + 1);
    }
    let misses = world.nodes[2].channel(open.sink).expect("open").counters.misses;
    assert!(misses > 400, "{misses} of 600");

    world.tap = None;
    for (_, port, bytes) in waiting {
        world.inject(1, LinkId(0), port, &bytes);
    }
    stream(&mut world, &open, Nanos::from_secs(22), |_| {});
    for end in [0, 2] {
        assert!(world.events[end].iter().any(|event| matches!(event, Event::Stage { healed: true, .. })));
    }
    for node in 0..3 {
        let healed = for_the_host(&world, node).last().map(|(_, _, healed)| *healed);
        assert_eq!(healed, Some(true), "h{}", node + 1);
    }
    assert!(world.nodes.iter().all(|node| node.status(world.now).broken.is_empty()));
    assert!(world.open(0, 2, contract()).expect("it fits").grant.degraded_by().is_empty());
}

/// Other traffic on the device is the cause of what arrives late, if the host of the link reports it.
#[test]
fn foreign_traffic_that_the_host_measures_is_named_as_the_cause() {
    for foreign in [None, Some(BitRate(RATE.0 / 2))] {
        let mut world = World::line(2, RATE);
        let open = world.open(0, 1, contract()).expect("it fits");
        stream(&mut world, &open, Nanos::from_secs(2), |_| {});
        let given = foreign.into_iter();
        given.for_each(|rate| world.nodes[0].handle_foreign_traffic(LinkId(0), rate));
        stream_delayed(&mut world, &open, Nanos::from_secs(3));
        let broken = world.nodes[0].status(world.now).broken;
        let causes: Vec<_> = broken.iter().map(|stage| stage.cause).collect();
        let is_foreign = |cause: &Cause| matches!(cause, Cause::ForeignTraffic { .. });
        assert!(!causes.is_empty(), "the link is broken");
        assert_eq!(causes.iter().any(is_foreign), foreign.is_some(), "{causes:?}");
    }
}

#[test]
fn a_broken_link_refuses_new_channels_where_the_operator_wants_that() {
    let configs = (0..3).map(|index| {
        let mut config = line_config(index, 3, RATE);
        config.signalling.while_broken = WhileBroken::Refuse;
        config
    });
    let mut world = World::of(configs.collect());
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    let waiting = stream_delayed(&mut world, &open, Nanos::from_secs(3));
    world.tap = None;
    for (_, port, bytes) in waiting {
        world.inject(1, LinkId(0), port, &bytes);
    }
    let Err(Event::Refused { refusal, .. }) = world.open(0, 2, contract()) else {
        panic!("the link is broken");
    };
    assert!(matches!(refusal.cause, RefuseCause::Broken { kind: StageKind::Link, .. }), "{refusal:?}");
    stream(&mut world, &open, Nanos::from_secs(22), |_| {});
    world.open(0, 2, contract()).expect("it has healed");
}

#[test]
fn a_host_that_is_gone_leaves_no_broken_stage_behind() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    stream_delayed(&mut world, &open, Nanos::from_secs(3));
    assert!(!world.nodes[2].status(world.now).broken.is_empty());
    // The report of h1 is not withdrawn: no further packet of it arrives.
    world.tap = Some(Box::new(|node, _, _| node != 0));
    world.run_for(Nanos::from_secs(45));
    for node in [1, 2] {
        let broken = world.nodes[node].status(world.now).broken;
        assert!(broken.is_empty(), "h{}: {broken:?}", node + 1);
    }
}

/// Notices to an end of a channel, besides stages.
fn notices(world: &World, node: usize) -> Vec<Notice> {
    let reported = world.events[node].iter().filter_map(|event| match event {
        Event::Notice { notice, .. } => Some(*notice),
        _ => None,
    });
    reported.collect()
}

#[test]
fn late_and_overflowing_receivers_alone_are_notified_once() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(1), |_| {});
    assert_eq!((notices(&world, 0), notices(&world, 2)), (Vec::new(), Vec::new()));
    stream_delayed(&mut world, &open, Nanos::from_secs(1));
    assert_eq!((notices(&world, 0), notices(&world, 2)), (Vec::new(), vec![Notice::Late]));

    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    for number in 0..200 {
        open.outbox.send(&pattern(1, number, BYTES as usize), world.now);
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(Nanos::from_millis(5));
    }
    let counters = world.nodes[2].channel(open.sink).expect("open").counters;
    assert!(counters.overruns > 100 && counters.misses == 0, "{counters:?}");
    assert_eq!((notices(&world, 0), notices(&world, 2)), (Vec::new(), vec![Notice::Overrun]));
}

/// The host did not serve the ring, or the link took no packets: stages serve the message from a later time
/// on, and it is late.
#[test]
fn lateness_counts_from_when_the_application_sent() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    let sent = world.now;
    assert!(open.outbox.send(&pattern(1, 400, BYTES as usize), sent));
    world.run_for(LATE);
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(LATE);
    let mut reported = None;
    while open.inbox.recv(|_, info| reported = Some(info)) {}
    let info = reported.expect("it came");
    let since_sent = info.delivered.since(info.logical_arrival);
    let error = info.clock_error.expect("clocks are known");
    assert!(since_sent + error >= LATE, "{since_sent} {error}");
    assert_eq!(info.timeliness, Timeliness::Late);
}

/// The processor of h1 runs `late` after a timer was due, each `every` for a second, while h1 sends.
fn stop_host(world: &mut World, open: &Open, late: Nanos, every: Nanos) {
    let mut due = world.now + every;
    stream(world, open, Nanos::from_secs(1), |world| {
        if due <= world.now {
            due = world.now + every;
            world.nodes[0].record_wake(late, world.now);
        }
    });
}

fn named(world: &World, end: usize) -> Vec<String> {
    let reported = world.events[end].iter().filter_map(|event| match event {
        Event::Stage { channel: Some(_), stage, healed: false } => Some(stage.to_string()),
        _ => None,
    });
    reported.collect()
}

#[test]
fn a_source_whose_processor_stops_repeatedly_is_named_by_its_own_timers() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(1), |_| {});
    let bound = world.nodes[0].channel(open.source).expect("open").stages[0].bound;
    let status = |world: &World| world.nodes[0].status(world.now);
    assert!(bound > Nanos::from_millis(1) && world.nodes[0].has_sources() && !world.nodes[1].has_sources());

    // Late, and within what was promised: a wake-up that is counted.
    stop_host(&mut world, &open, bound, Nanos::from_millis(50));
    assert_eq!((status(&world).late_service.times, reported_stages(&world)), (0, 0));
    assert!(status(&world).wakes.late >= 19);
    // Twice in a second counts as an accident, three times do not.
    let beyond = Nanos::from_millis(6);
    stop_host(&mut world, &open, bound + beyond, Nanos::from_millis(490));
    let late = status(&world).late_service;
    assert_eq!((late.times, late.by_max, reported_stages(&world)), (2, beyond, 0));
    stop_host(&mut world, &open, bound + beyond, Nanos::from_millis(50));
    for end in [0, 2] {
        let reported = named(&world, end);
        assert!(
            reported.len() == 1 && reported[0].starts_with("processor of h1 serves later than its bounds"),
            "{reported:?}"
        );
    }
    let other = world.open(0, 2, contract()).expect("others are admitted");
    assert_eq!(other.grant.degraded_by().len(), 1, "and told");
    stream(&mut world, &open, Nanos::from_secs(22), |_| {});
    assert!(status(&world).broken.is_empty());
}

/// A sender that reports old send times affects only its own channel.
#[test]
fn a_send_time_that_an_application_claims_blames_no_processor() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    world.run_for(Nanos::from_secs(1));
    for number in 0..200 {
        let claimed = world.now - Nanos::from_millis(50);
        open.outbox.send(&pattern(1, number, BYTES as usize), claimed);
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(Nanos::from_millis(5));
        while open.inbox.recv(|_, _| {}) {}
    }
    let misses = world.nodes[1].channel(open.sink).expect("open").counters.misses;
    let late = world.nodes[0].status(world.now).late_service.times;
    assert!(misses > 150 && late == 0 && reported_stages(&world) == 0, "{misses} {late}");
}

#[test]
fn a_host_without_channels_has_promised_nothing() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    world.nodes[0].close(open.source, world.now).expect("open");
    world.run_for(Nanos::from_secs(1));
    assert!(!world.nodes[0].has_sources());
    for _ in 0..20 {
        world.nodes[0].record_wake(Nanos::from_secs(1), world.now);
        world.run_for(Nanos::from_millis(100));
    }
    assert_eq!(world.nodes[0].status(world.now).late_service.times, 0);
}

fn reported_late(world: &World, host: usize) -> Vec<LateStage> {
    let reported = world.events[host].iter().filter_map(|event| match event {
        Event::Late(stage) => Some(stage.clone()),
        _ => None,
    });
    reported.collect()
}

#[test]
fn one_stop_is_reported_at_once_and_breaks_nothing() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(1), |_| {});
    assert_eq!(reported_late(&world, 1), []);
    world.still = Some((1, world.now + Nanos::from_millis(150)));
    stream(&mut world, &open, Nanos::from_millis(150), |_| {});
    let over = world.now;
    while reported_late(&world, 1).is_empty() {
        assert!(world.now.since(over) < Nanos::from_millis(250), "too late");
        stream(&mut world, &open, Nanos::from_millis(5), |_| {});
    }
    let reported = reported_late(&world, 1);
    let [LateStage { host, towards: None, late, seen_in: SeenIn::OwnClock }] = reported.as_slice() else {
        panic!("{reported:?}")
    };
    assert_eq!(host, "h2");
    assert!(late.times > 1 && late.by_max > Nanos::from_millis(100), "{late:?}");
    assert!((Nanos::from_millis(100)..Nanos::from_millis(150)).contains(&late.by_max));
    let shown = |world: &World| world.nodes[1].status(world.now).late;
    assert_eq!(shown(&world), reported);
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    assert_eq!((reported_stages(&world), shown(&world).len()), (0, 1));
    world.run_for(Nanos::from_secs(60));
    assert_eq!((reported_stages(&world), shown(&world).len(), reported_late(&world, 1).len()), (0, 0, 1));
    assert!(reported_late(&world, 0).is_empty() && reported_late(&world, 2).is_empty());
}

/// A single data packet that arrives late is reported at the host that saw it, although no other packet of the channel follows it.
#[test]
fn one_late_data_packet_is_reported_though_nothing_follows_it() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    let kept = record(&mut world);
    stream(&mut world, &open, Nanos::from_secs(1), |_| {});
    world.run_for(LATE);
    let last = kept.borrow_mut().pop_back().expect("a packet");
    assert_eq!(reported_late(&world, 1), []);
    world.inject(1, LinkId(0), Port::Data, &last);
    world.run_for(Nanos::from_secs(5));
    let reported = reported_late(&world, 1);
    let [LateStage { host, towards, late, .. }] = reported.as_slice() else { panic!("{reported:?}") };
    assert_eq!((host.as_str(), towards.as_deref(), late.times), ("h1", Some("h2"), 1));
    assert!((Nanos::from_millis(25)..Nanos::from_millis(40)).contains(&late.by_max), "{late:?}");
    assert_eq!(reported_stages(&world), 0, "it breaks nothing");
}

/// One standstill per second is no breach (two slots of ten): it is reported at once and then each minute,
/// with its number.
#[test]
fn lateness_in_each_second_is_reported_each_minute() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    for _ in 0..130 {
        stop_host(&mut world, &open, Nanos::from_millis(50), Nanos::from_millis(900));
    }
    let reported = reported_late(&world, 0);
    assert_eq!((reported.len(), reported_stages(&world)), (3, 0));
    assert!(reported[0].late.times == 1 && reported[2].late.times > 50, "{reported:?}");
}

/// Each host counts the late service of its own processor, and no other host does.
#[test]
fn each_host_counts_its_own_late_service() {
    for host in 0..3 {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract()).expect("it fits");
        stream(&mut world, &open, Nanos::from_secs(1), |_| {});
        let late = |world: &World, node: usize| world.nodes[node].status(world.now).late_service;
        assert!((0..3).all(|node| late(&world, node).times == 0));
        world.still = Some((host, world.now + Nanos::from_millis(120)));
        stream(&mut world, &open, Nanos::from_secs(1), |_| {});
        for node in 0..3 {
            let late = late(&world, node);
            assert_eq!(late.times > 0, node == host, "h{} stood still, h{}: {late:?}", host + 1, node + 1);
            assert!(late.by_max <= Nanos::from_millis(121), "{late:?}");
        }
    }
}

/// If a channel is opened across a broken stage, both ends are notified, and while the stage is broken all
/// hosts keep its report.
#[test]
fn a_channel_across_a_broken_link_is_notified_and_stays_known() {
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    let waiting = stream_delayed(&mut world, &open, Nanos::from_secs(3));
    world.tap = None;
    for (_, port, bytes) in waiting {
        world.inject(1, LinkId(0), port, &bytes);
    }
    world.events.iter_mut().for_each(|events| events.clear());
    let second = world.open(0, 2, contract()).expect("degraded, as the operator chose");
    world.run_for(Nanos::from_millis(200));
    let is_reported = |node: usize, of| {
        let is = |event: &Event| match event {
            Event::Stage { channel: Some(channel), stage, healed: false } => {
                *channel == of && stage.name() == "link h1-h2"
            }
            _ => false,
        };
        world.events[node].iter().filter(|event| is(event)).count()
    };
    assert_eq!(is_reported(0, second.source), 1);
    // Late for a lease and more: hosts that do not own the stage would have dropped the report by then.
    for _ in 0..4 {
        let waiting = stream_delayed(&mut world, &open, Nanos::from_secs(10));
        for node in 0..3 {
            let broken = world.nodes[node].status(world.now).broken;
            assert_eq!(broken.len(), 1, "h{}: {broken:?}", node + 1);
        }
        for (_, port, bytes) in waiting {
            world.inject(1, LinkId(0), port, &bytes);
        }
    }
}

/// A host whose own stage is broken tells the ends of a channel that is opened across it at once, also where it only forwards: ends that
/// know no other channel there would take the promise for good until the report is repeated.
#[test]
fn a_forwarder_tells_the_ends_of_a_new_channel_of_its_broken_stage_at_once() {
    let mut world = World::line(3, RATE);
    let own = world.open(1, 2, contract()).expect("it fits");
    for _ in 0..30 {
        stream_from(1, &mut world, &own, Nanos::from_millis(100), |_| {});
        world.nodes[1].record_wake(LATE, world.now);
    }
    assert_eq!(world.nodes[1].status(world.now).broken.len(), 1, "its processor");
    assert!(named(&world, 0).is_empty() && world.nodes[0].status(world.now).broken.is_empty());
    let across = world.open(0, 2, contract()).expect("degraded, as the operator chose");
    world.run_for(Nanos::from_millis(200));
    for (node, channel) in [(0, across.source), (2, across.sink)] {
        let broken = world.nodes[node].channel(channel).expect("open").broken;
        let named: Vec<_> = broken.iter().map(|stage| stage.name()).collect();
        assert_eq!(named, ["processor of h2"], "h{}", node + 1);
    }
}

/// A channel that does not cross the link gets no notice of it, also at the host that gets the report.
#[test]
fn channels_elsewhere_are_not_notified_of_a_broken_link() {
    let mut world = World::line(3, RATE);
    let across = world.open(0, 1, contract()).expect("it fits");
    let elsewhere = world.open(1, 2, contract()).expect("it fits");
    stream(&mut world, &across, Nanos::from_secs(2), |_| {});
    stream_delayed(&mut world, &across, Nanos::from_secs(3));
    let reported = |node: usize, of| {
        let is =
            |event: &&Event| matches!(event, Event::Stage { channel: Some(channel), .. } if *channel == of);
        world.events[node].iter().filter(is).count()
    };
    assert!(reported(0, across.source) > 0 && reported(1, across.sink) > 0, "both ends of it are told");
    assert_eq!((reported(1, elsewhere.source), reported(2, elsewhere.sink)), (0, 0));
    assert!(world.nodes[1].channel(elsewhere.source).expect("open").broken.is_empty());
    assert!(world.nodes[2].status(world.now).broken.is_empty(), "h3 has nothing to do with it");
}

/// Hosts beyond a link that delays all packets are notified by the host at its end: its owner's report comes
/// over the same link, as late as the rest.
#[test]
fn a_host_beyond_a_slow_link_does_not_wait_for_its_owners_report() {
    const LATER: Nanos = Nanos::from_millis(400);
    let mut world = World::line(3, RATE);
    let open = world.open(0, 2, contract()).expect("it fits");
    stream(&mut world, &open, Nanos::from_secs(2), |_| {});
    let queue = Sent::default();
    let delayed = queue.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 {
            queue.borrow_mut().push_back((port, bytes.clone()));
        }
        node != 0
    }));
    let (mut waiting, mut reported) = (Delayed::new(), [None; 3]);
    stream(&mut world, &open, Nanos::from_secs(4), |world| {
        let at = world.now + LATER;
        waiting.extend(delayed.borrow_mut().drain(..).map(|(port, bytes)| (at, port, bytes)));
        while waiting.front().is_some_and(|(at, ..)| *at <= world.now) {
            let (_, port, bytes) = waiting.pop_front().unwrap();
            world.inject(1, LinkId(0), port, &bytes);
        }
        for (node, reported) in reported.iter_mut().enumerate() {
            if reported.is_none() && !for_the_host(world, node).is_empty() {
                *reported = Some(world.now);
            }
        }
    });
    let [Some(owner), Some(forwarder), Some(beyond)] = reported else { panic!("{reported:?}") };
    assert_eq!(for_the_host(&world, 2)[0], ("link h1-h2".to_owned(), Some(1), false));
    let soon = owner + Nanos::from_millis(200);
    assert!(
        forwarder <= soon && beyond <= soon,
        "owner {owner:?}, forwarder {forwarder:?}, beyond {beyond:?}"
    );
}
