//! Flows of the plan: taken over by one channel at a time, within what was planned.

use super::*;
use crate::config::path_costs;

fn planned_config(names: &[&str]) -> NodeConfig {
    let mut config = config();
    (config.cpu.run, config.cpu.admission) = (RunPolicy::Rmdp, Admission::RMDP);
    let flow = |name: &&str| PlannedFlow {
        name: FlowName::new(name).expect("a name"),
        period_ns: MS(20),
        packets: 2,
        cost_ns: Nanos::from_micros(400),
        unit_ns: Nanos::from_micros(400),
        deadline_ns: MS(15),
        rate_ns: MS(10),
        place: 3,
    };
    config.cpu.plan = names.iter().map(flow).collect();
    config
}

fn named(number: u64, role: Role, name: &str) -> Arc<LocalChannel> {
    let flow = Some(FlowName::new(name).expect("a name"));
    let contract =
        Contract { flow, activation: Activation::Periodic { period: MS(20), packets: 2 }, ..contract(1_000) };
    Arc::new(local_of(number, role, contract, 1_400))
}

/// A flow of the plan belongs to one channel at a time: the channel takes over the plan's reservation of the
/// processor, and leaves it in place.
#[test]
fn a_planned_flow_is_taken_over_by_one_channel_at_a_time() {
    let mut stages = stages_of(&planned_config(&["video", "audio"]));
    let before = given_away(&stages);
    let (one, other) = (named(1, Role::Source, "video"), named(2, Role::Source, "video"));
    let grants = hold(&mut stages, &one);
    assert_eq!(given_away(&stages)[0], before[0], "it was given away from the start on");
    let stage = stages.cpu_stage(&one).expect("held");
    assert_eq!((stage.bound, stage.work_bound()), (grants[0].bound, MS(15)));
    assert_eq!(grants[0].made_of.own, Nanos::from_micros(400));
    let parts = grants[0].made_of;
    assert_eq!(parts.release_latency + parts.own + parts.others, grants[0].bound);
    assert_eq!(stages.held(ChannelId(1)).and_then(Held::planned), Some(0));
    stages.ask(&other, MS(200), false);
    let refused = answered(&mut stages, 2).expect_err("it is taken").to_string();
    assert!(refused.contains("another channel has it"), "{refused}");
    let audio = named(3, Role::Source, "audio");
    hold(&mut stages, &audio);
    accounts_hold(&stages, &[1, 3]);
    stages.release(ChannelId(1));
    assert_eq!(given_away(&stages)[0], before[0], "the plan keeps it");
    hold(&mut stages, &other);
    accounts_hold(&stages, &[2, 3]);
    // A channel that is asked dry, or refused in the end, takes over no flow.
    stages.release(ChannelId(2));
    stages.ask(&one, MS(200), true);
    assert!(answered(&mut stages, 1).is_ok());
    stages.ask(&one, grants[0].bound, false);
    assert!(answered(&mut stages, 1).is_err(), "the link has nothing left of it");
    hold(&mut stages, &other);
    accounts_hold(&stages, &[2, 3]);
}

/// A plan limits its flows: a contract that costs more, or has a shorter deadline, is refused. Only a source
/// must have the flow in its plan.
#[test]
fn a_contract_must_fit_its_planned_flow() {
    let config = planned_config(&["video"]);
    let mut stages = stages_of(&config);
    let bound = hold(&mut stages, &named(1, Role::Sink, "video"))[0].bound;
    stages.release(ChannelId(1));
    stages.ask(&named(1, Role::Sink, "video"), bound - Nanos(1), false);
    let refused = answered(&mut stages, 1).expect_err("sooner than planned");
    let RefuseCause::Stage { kind: StageKind::SinkCpu, refusal } = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.bound_possible, Some(bound));
    assert_eq!(refusal.reason, RefusalReason::Bound { possible: bound, limit: bound - Nanos(1) });
    hold(&mut stages, &named(1, Role::Sink, "unheard"));
    stages.ask(&named(2, Role::Source, "unheard"), MS(200), false);
    let refused = answered(&mut stages, 2).expect_err("nobody planned it").to_string();
    assert!(refused.contains("no flow \"unheard\" in this host's plan"), "{refused}");
    let own = stages.offer_planned(&named(3, Role::Source, "video"), 0, MS(200)).expect("it fits").demand;
    // Its bound may be all that is left of the deadline.
    let channel = named(3, Role::Source, "video");
    let bound = stages.offer_planned(&channel, 0, MS(200)).expect("it fits").bound;
    let within = |limit| stages.offer_planned(&channel, 0, limit).is_ok();
    assert_eq!([bound - Nanos(1), bound, bound + Nanos(1)].map(within), [false, true, true]);
    // The contract costs at most what was planned.
    let costs = path_costs(&config.cpu.costs, Role::Source);
    let service = channel.contract.service(1_400).expect("a service");
    let cost = stages.cpu.model.demand_of(&channel.contract, &service, 1_400, &costs, Nanos::ZERO);
    assert!(cost.cost < own.cost);
    for (cost_ns, unit_ns, fits) in [
        (cost.cost, cost.unit_cost_max, true),
        (cost.cost - Nanos(1), cost.unit_cost_max, false),
        (cost.cost, cost.unit_cost_max - Nanos(1), false),
    ] {
        let mut config = config.clone();
        (config.cpu.plan[0].cost_ns, config.cpu.plan[0].unit_ns) = (cost_ns, unit_ns);
        let stages = stages_of(&config);
        assert_eq!(stages.offer_planned(&channel, 0, MS(200)).is_ok(), fits, "{cost_ns} {unit_ns}");
    }
}
