//! The details of a grant: the terms of each bound, and the reservations of the stages.

use punctual_proto::api::StageGrant;
use punctual_proto::config::{Admission, Degraded, RunPolicy};
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{World, line_config};

const RATE: BitRate = BitRate(40_000_000);

fn contract(bytes: u32, deadline_ms: u64) -> Contract {
    Contract::new(bytes, Rate::per_second(25).unwrap(), 1, Nanos::from_millis(deadline_ms)).unwrap()
}

fn parts(stage: &StageGrant) -> Nanos {
    let of = stage.made_of;
    of.release_latency + of.blocking + of.interference + of.own + of.others
}

/// A channel does not count as another one to itself, also if it has more than half of a stage and a second
/// one would not fit beside it.
#[test]
fn the_parts_of_a_bound_sum_up_to_what_was_offered() {
    let policies = [
        (RunPolicy::Edf, Admission::EDF),
        (RunPolicy::Edf, Admission::D_ORDER),
        (RunPolicy::Rmdp, Admission::RMDP),
    ];
    for (run, admission) in policies {
        let configs = (0..3).map(|index| {
            let mut config = line_config(index, 3, RATE);
            (config.cpu.run, config.cpu.admission) = (run, admission);
            let on_link = if admission == Admission::D_ORDER { admission } else { Admission::EDF };
            config.links.iter_mut().for_each(|link| link.admission = on_link);
            config
        });
        let mut world = World::of(configs.collect());
        let most = world.open(0, 2, contract(110_000, 200)).expect("22 of 40 Mbit/s");
        let more = world.open(0, 2, contract(20_000, 200)).expect("4 of the rest");
        for open in [&most, &more] {
            assert_eq!(open.grant.stages.len(), 5);
            for stage in &open.grant.stages {
                assert_eq!(parts(stage), stage.offered, "{admission:?} {stage:?}");
                assert_eq!(stage.made_of.own, stage.cost);
                assert!(stage.offered <= stage.bound && stage.cold_start <= stage.made_of.interference);
            }
            let held = world.nodes[0].channel(open.source).expect("open").stages;
            for (held, granted) in held.iter().zip(&open.grant.stages) {
                assert_eq!((held.kind, held.bound, held.cost), (granted.kind, granted.bound, granted.cost));
            }
        }
    }
}

/// Stages are decoded from the wire: a host that occurs twice among them, not in a row, is listed once.
#[test]
fn a_degraded_host_is_named_once() {
    let mut world = World::line(3, RATE);
    let mut grant = world.open(0, 2, contract(1_000, 100)).expect("room").grant;
    let nodes: Vec<_> = grant.stages.iter().map(|stage| stage.node).collect();
    for (stage, node) in grant.stages.iter_mut().zip([0, 2, 0, 2, 4].map(|index| nodes[index])) {
        (stage.node, stage.degraded) = (node, (stage.node != nodes[4]).then_some(Degraded::NoRealTime));
    }
    assert_eq!(grant.degraded_by(), ["h1", "h2"]);
}
