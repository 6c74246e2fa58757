//! The stage that a host reports for lateness or excessive costs: its processor, its link, or no channel with
//! a promise.

use punctual_analysis::{Ppb, Statistical};
use punctual_proto::api::{Event, Port, WorkKind};
use punctual_proto::config::Admission;
use punctual_proto::ids::LinkId;
use punctual_proto::memory::Timeliness;
use punctual_proto::wire::{ClockError, Header};
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Open, TestOutbox, World, line_config};

const RATE: BitRate = BitRate(40_000_000);
const LINK: LinkId = LinkId(0);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn contract() -> Contract {
    let rate = Rate::per_second(10).expect("a rate");
    Contract::new(1_000, rate, 1, MS(50)).expect("in range")
}

/// A message waits at its source for longer than its deadline; the link's driver has reported that it was
/// full, or not. Returns the stages that the host reports as late, by the neighbour of the link, and how
/// often its processor was late.
fn late_stages(is_full: bool) -> (Vec<Option<String>>, u64) {
    late_stages_of(World::line(2, RATE), contract(), is_full)
}

fn late_stages_of(mut world: World, contract: Contract, is_full: bool) -> (Vec<Option<String>>, u64) {
    let open = world.open(0, 1, contract).expect("it fits");
    assert!(open.outbox.send(&[7; 1_000], world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.still = Some((0, world.now + MS(90)));
    if is_full {
        world.nodes[0].handle_full(LINK, world.now);
    }
    world.run_for(MS(95));
    assert!(open.inbox.recv(|bytes, _| assert!(bytes.iter().all(|byte| *byte == 7))));
    let status = world.nodes[0].status(world.now);
    (status.late.into_iter().map(|stage| stage.towards).collect(), status.late_service.times)
}

/// A source waits for its driver, too: a message that its processor makes late while the driver was full shows a slow adapter,
/// and no slow processor.
#[test]
fn a_source_that_waited_for_its_driver_does_not_blame_its_processor() {
    let (stages, times) = late_stages(false);
    assert!(stages == [None] && times > 0, "the processor: {stages:?}, {times}");
    let (stages, times) = late_stages(true);
    assert!(stages == [Some("h2".into())] && times == 0, "the link: {stages:?}, {times}");
}

/// A soft channel may be served late on stages that admit it as soft, and then by the others, too. On stages that admit
/// it by its peak it may not.
#[test]
fn a_message_of_a_soft_channel_that_is_served_late_blames_no_stage() {
    for (is_soft_there, is_soft_on_link) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = |index| {
            let mut config = line_config(index, 2, RATE);
            if is_soft_there {
                config.cpu.admission = Admission::STATISTICAL;
            }
            if is_soft_on_link {
                config.links.iter_mut().for_each(|link| link.admission = Admission::STATISTICAL);
            }
            config
        };
        let (mean_rate, miss_ratio) =
            (Rate::per_second(5).expect("a rate"), Ppb::new(10_000_000).expect("some"));
        let statistical = Some(Statistical { mean_rate, mean_over: MS(1_000), miss_ratio });
        let world = World::of((0..2).map(config).collect());
        let (stages, times) = late_stages_of(world, Contract { statistical, ..contract() }, false);
        println!("{is_soft_there} {is_soft_on_link}: {stages:?}, {times}");
        let is_blamed = !is_soft_there && !is_soft_on_link;
        assert_eq!((stages.len(), times > 0), (usize::from(is_blamed), is_blamed), "{stages:?}, {times}");
    }
}

/// A message that its host sees long after it was sent is late, and the links that carry it at once are not to blame.
#[test]
fn a_message_that_its_host_sees_late_blames_no_link() {
    let mut world = World::line(3, RATE);
    world.run_for(MS(5_000));
    let open = world.open(0, 2, contract()).expect("it fits");
    let mut late = 0;
    for _ in 0..20 {
        assert!(open.outbox.send(&[7; 1_000], world.now));
        world.run_for(MS(80));
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(MS(120));
        assert!(open.inbox.recv(|_, info| late += u32::from(info.timeliness == Timeliness::Late)));
    }
    assert_eq!(late, 20, "by the time at which its sender has sent it");
    for node in &world.nodes {
        let status = node.status(world.now);
        let blamed: Vec<_> = status.links.iter().map(|link| (&link.name, link.late_packets.times)).collect();
        assert!(blamed.iter().all(|(_, times)| *times == 0) && status.late.is_empty(), "{blamed:?}");
        assert!(node.channels().iter().all(|channel| channel.counters.late_arrivals == 0));
    }
}

/// Units of best effort that take too long are reported for the host, and for no channel: no guarantee is
/// affected.
#[test]
fn best_effort_that_costs_too_much_puts_no_channel_at_risk() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    let outbox = TestOutbox::new(4, 500);
    let to = "bulk@h2".parse().expect("an address");
    let flow = world.nodes[0].open_best_effort(to, 500, outbox.clone(), world.now).expect("a route");
    let mut units = 0;
    for _ in 0..150 {
        world.nodes[0].record_idle(MS(10));
        assert!(outbox.send(&[1; 500], world.now));
        world.nodes[0].handle_ring(flow, world.now);
        while let Some(work) = world.nodes[0].begin_work(world.now) {
            let (kind, handler, declared) = (work.kind, work.handler, Nanos::from_micros(8));
            world.nodes[0].finish_work(work, world.now);
            let allowed = world.nodes[0].status(world.now).busy.allowed;
            if kind == WorkKind::BestEffort {
                units += 1;
                world.nodes[0].record_unit(handler, kind, declared + allowed + Nanos(1), declared, world.now);
            }
        }
        world.run_for(MS(10));
    }
    let status = world.nodes[0].status(world.now);
    let path = status.work.iter().find(|path| path.kind == WorkKind::BestEffort).expect("it has a record");
    assert_eq!((path.units, path.overruns, path.at_risk), (units, units, true));
    let is_of_channel =
        |event: &Event| matches!(event, Event::Notice { channel, .. } if *channel == open.source);
    assert!(units >= 150 && !world.events[0].iter().any(is_of_channel));
}

/// One message each 200 ms that its source sends 90 ms late, `times`; the driver is full meanwhile, or not.
fn late_again(world: &mut World, open: &Open, is_full: bool, times: u32) {
    for _ in 0..times {
        assert!(open.outbox.send(&[7; 1_000], world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        world.still = Some((0, world.now + MS(90)));
        if is_full {
            world.nodes[0].handle_full(LINK, world.now);
        }
        world.run_for(MS(200));
        while open.inbox.recv(|_, _| ()) {}
    }
}

/// A processor that was late a moment ago queues packets late: a full driver is no excuse then.
#[test]
fn a_full_driver_does_not_excuse_a_processor_that_is_late_anyway() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    late_again(&mut world, &open, false, 1);
    let times = |world: &World| world.nodes[0].status(world.now).late_service.times;
    let before = times(&world);
    assert!(before > 0);
    late_again(&mut world, &open, true, 1);
    let late = world.nodes[0].status(world.now).late;
    assert!(late.iter().all(|stage| stage.towards.is_none()) && times(&world) > before, "{late:?}");
}

#[test]
fn a_driver_that_is_full_again_and_again_breaks_the_promise_of_its_link() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    late_again(&mut world, &open, true, 30);
    let broken = world.nodes[0].status(world.now).broken;
    assert_eq!(broken.iter().map(|stage| stage.name()).collect::<Vec<_>>(), ["link h1-h2"]);
}

/// The host that sent does not know its clock's error: nothing is said about the time that the message took.
#[test]
fn a_message_of_a_clock_of_unknown_error_is_not_measured() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).expect("it fits");
    world.tap = Some(Box::new(|_, port, packet| {
        if let (Port::Data, Ok((header, _))) = (port, Header::parse(&packet.clone())) {
            Header { clock_error: ClockError::UNKNOWN, ..header }.write(packet);
        }
        true
    }));
    assert!(open.outbox.send(&[7; 1_000], world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(MS(100));
    let mut reported = None;
    assert!(open.inbox.recv(|_, info| reported = Some(info)));
    let reported = reported.expect("it came");
    assert_eq!((reported.clock_error, reported.timeliness), (None, Timeliness::Unmeasured));
    let counters = world.nodes[1].channel(open.sink).expect("open").counters;
    assert_eq!((counters.unmeasured, counters.misses, counters.latency_max), (1, 0, Nanos::ZERO));
}
