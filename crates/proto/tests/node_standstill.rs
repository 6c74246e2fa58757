//! A standstill of the processor breaks a promise if it is longer than the tightest bound of the channels
//! there, whichever channel has it and whether or not a message came.

use punctual_proto::api::WorkKind;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::WATCH_SLOT;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Open, World};

fn open(world: &mut World, deadline_ms: u64) -> Open {
    let rate = Rate::per_second(20).expect("a rate");
    let contract = Contract::new(200, rate, 1, Nanos::from_millis(deadline_ms)).expect("in range");
    world.open(0, 1, contract).expect("it fits")
}

#[test]
fn a_standstill_beyond_the_tightest_bound_counts() {
    for deadlines in [[20, 400, 100], [400, 20, 100], [100, 400, 20]] {
        let mut world = World::line(2, BitRate(40_000_000));
        world.run_for(Nanos::from_secs(1));
        let opened = deadlines.map(|deadline| open(&mut world, deadline));
        // The first stage of a route is its source's processor.
        let bounds = opened.map(|open| open.grant.stages[0].bound);
        let tightest = bounds.into_iter().min().expect("three");
        assert!(bounds.iter().any(|bound| *bound > tightest), "{bounds:?}");
        let late = |world: &World| {
            let late = world.nodes[0].status(world.now).late_service;
            (late.times, late.by_max)
        };
        let before = late(&world);
        world.nodes[0].record_standstill(tightest, world.now);
        assert_eq!(late(&world), before, "{tightest} is what was promised");
        world.nodes[0].record_standstill(tightest + Nanos(7), world.now);
        assert_eq!(late(&world), (before.0 + 1, before.1.max(Nanos(7))), "{bounds:?}");
    }
}

/// A message that is served late shows a late processor, unless its source may have waited for the adapter: the driver
/// had no room a short time before.
#[test]
fn a_source_that_is_served_late_counts_unless_its_driver_had_no_room() {
    let slot = WATCH_SLOT;
    for (full_before, counts) in [
        (None, 1),
        (Some(slot + Nanos(1)), 1),
        (Some(slot), 1),
        (Some(slot - Nanos(1)), 0),
        (Some(Nanos::ZERO), 0),
    ] {
        let mut world = World::line(2, BitRate(40_000_000));
        world.run_for(Nanos::from_secs(1));
        let open = open(&mut world, 100);
        world.run_for(Nanos::from_secs(1));
        let node = &mut world.nodes[0];
        let before = node.status(world.now).late_service.times;
        assert!(open.outbox.send(&[7; 200], world.now));
        node.handle_ring(open.source, world.now);
        // Later than any bound of the channel.
        let now = world.now + Nanos::from_millis(300);
        if let Some(before) = full_before {
            node.handle_full(LinkId(0), Instant(now.0 - before.0));
        }
        let work = node.begin_work(now).expect("a message waits");
        assert_eq!(work.kind, WorkKind::Send);
        node.finish_work(work, now);
        assert_eq!(node.status(now).late_service.times - before, counts, "{full_before:?}");
    }
}
