//! Final bounds, trials of them, and the limits of early work.

use punctual_analysis::{Blocking, Interference, StageModel, Urgency};

use super::*;
use crate::signalling::SplitMix64;

/// Final bounds: they move to the wanted values, of which seven leading bits count, and not below the offer.
#[test]
fn bounds_are_relaxed_to_what_is_wanted_and_are_held_then() {
    let mut stages = stages_of(&config());
    let channel = local(1, Role::Forwarder);
    let offered: Vec<_> = hold(&mut stages, &channel).iter().map(|grant| grant.bound).collect();
    stages.ask_final(&channel, &[MS(50), MS(80)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    accounts_hold(&stages, &[1]);
    let relaxed = stages.take_relaxed(ChannelId(1)).expect("it was said");
    assert!(stages.take_relaxed(ChannelId(1)).is_none(), "once");
    assert_eq!(relaxed.offered, offered);
    assert_eq!(relaxed.bounds, [MS(50), MS(80)].map(rounded_down));
    let held = stages.held(ChannelId(1)).expect("held");
    assert_eq!((held.cpu(), held.link()), (relaxed.bounds[0], Some((RIGHT, relaxed.bounds[1]))));
    let holding: Vec<_> = stages.holding(&channel).iter().map(|grant| grant.bound).collect();
    assert_eq!(holding, relaxed.bounds);
    // A value below what is held changes nothing.
    stages.ask_final(&channel, &[Nanos(1), Nanos(1)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    assert_eq!(stages.take_relaxed(ChannelId(1)).expect("it was said").bounds, relaxed.bounds);
    stages.ask_final(&channel, &[MS(60)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    stages.release(ChannelId(1));
    assert!(stages.take_relaxed(ChannelId(1)).is_none(), "it was released since");
    stages.ask_final(&channel, &[MS(60)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), None, "nothing is held");
    accounts_hold(&stages, &[]);
}

/// Down to seven leading bits, written another way.
fn rounded_down(bound: Nanos) -> Nanos {
    let mut step = 1;
    while bound.0 / step >= 128 {
        step *= 2;
    }
    Nanos(bound.0 / step * step)
}

/// Bounds have seven leading bits: at most a 64th is lost, and no bound grows.
#[test]
fn relaxed_bounds_keep_seven_leading_bits() {
    for (bound, kept) in
        [(0, 0), (1, 1), (127, 127), (128, 128), (129, 128), (255, 254), (256, 256), (259, 256)]
    {
        assert_eq!(policies::rounded(Nanos(bound)), Nanos(kept), "{bound}");
    }
    for bound in (0..40).flat_map(|shift| (0..50).map(move |part| (1_u64 << shift) + part * 977)) {
        let kept = policies::rounded(Nanos(bound));
        assert_eq!(kept, rounded_down(Nanos(bound)), "{bound}");
        assert!(kept.0 <= bound && (bound - kept.0) * 64 <= bound, "{bound}");
    }
    assert_eq!(policies::rounded(Nanos::MAX), Nanos(127 << 57));
}

/// A stage that has its bound already is not asked again: no channel changes its place in a fixed order, though another place has
/// become possible since some channel was released.
#[test]
fn a_bound_that_stays_moves_no_channel_in_a_fixed_order() {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos(1_000) },
        interference: Interference::default(),
        utilisation_limit: Ppm(950_000),
    };
    let mut random = SplitMix64::new(5);
    for set in 0..400 {
        let mut policy = (Admission::D_ORDER.build)(model);
        let mut held = Vec::new();
        for key in (0..8).map(StageKey) {
            let period = Nanos(10_000 + random.below(200_000));
            let cost = Nanos(1_000 + random.below(20_000));
            let urgency = Urgency::of_period(Class::Guaranteed, period);
            let (early, release_latency) = (Nanos::ZERO, Nanos::ZERO);
            let demand = Demand {
                cost,
                unit_cost_max: Nanos(1_000),
                period,
                release_latency,
                early,
                urgency,
                soft: None,
            };
            let bound = policies::rounded(Nanos(20_000 + random.below(100_000)));
            if policy.hold(key, &demand, bound).is_ok() {
                held.push((key, HeldStage::new(demand, bound)));
            }
        }
        let gone = held.remove(random.below(held.len() as u64) as usize);
        policy.release(gone.0);
        let before: Vec<_> = held.iter().map(|(key, _)| policy.rank(*key)).collect();
        for (key, stage) in held.clone() {
            let mut moved = stage;
            policies::relax_stage(policy.as_mut(), key, &mut moved, stage.bound);
            assert_eq!(moved, stage);
        }
        let after: Vec<_> = held.iter().map(|(key, _)| policy.rank(*key)).collect();
        assert_eq!(after, before, "set {set}");
    }
}

/// A trial of a channel that holds nothing returns the final reservation that the channel would get, and
/// holds nothing after.
#[test]
fn a_trial_returns_the_reservation_and_reserves_nothing() {
    let mut stages = stages_of(&config());
    let before = given_away(&stages);
    let channel = local(1, Role::Forwarder);
    for wanted in [None, Some(vec![MS(40), MS(70)])] {
        stages.try_final(&channel, wanted.clone(), &terms(Role::Forwarder), MS(200));
        assert_eq!(stages.poll_answer(), Some(Answer::Tried(ChannelId(1), Ok(Vec::new()))));
        let (of, relaxed, on) = stages.take_tried(ChannelId(1)).expect("it was tried");
        assert_eq!((of.channel, on), (ChannelId(1), terms(Role::Forwarder)));
        assert!(stages.take_tried(ChannelId(1)).is_none(), "once");
        assert!(stages.held(ChannelId(1)).is_none() && given_away(&stages) == before);
        let reported = stages.would_hold(&channel, &relaxed, 77);
        let offered: Vec<_> = hold(&mut stages, &channel).iter().map(|grant| grant.bound).collect();
        assert_eq!(relaxed.offered, offered);
        if let Some(wanted) = wanted {
            stages.ask_final(&channel, &wanted, &terms(Role::Forwarder));
            assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
            assert_eq!(stages.take_relaxed(ChannelId(1)).expect("said").bounds, relaxed.bounds);
        }
        let reserved = Reserved { bytes: 77, ..Reserved::default() };
        assert_eq!(stages.reserve_buffers(ChannelId(1), reserved), Ok(()));
        let bounds =
            |grants: &[StageGrant]| grants.iter().map(|grant| (grant.bound, grant.buffer_bytes)).collect();
        let (reported, has): (Vec<_>, Vec<_>) = (bounds(&reported), bounds(&stages.holding(&channel)));
        assert_eq!((&reported, reported[1].1), (&has, 77), "the last stage has the buffers");
        stages.release(ChannelId(1));
        accounts_hold(&stages, &[]);
    }
    stages.try_final(&channel, None, &terms(Role::Forwarder), Nanos(5));
    let refused = stages.poll_answer();
    assert!(matches!(refused, Some(Answer::Tried(_, Err(RefuseCause::Stage { .. })))), "{refused:?}");
    let zero = Arc::new(local_of(1, Role::Forwarder, contract(100), 0));
    stages.try_final(&zero, None, &terms(Role::Forwarder), MS(200));
    let refused = stages.poll_answer();
    assert!(matches!(refused, Some(Answer::Tried(_, Err(RefuseCause::Unsuitable(_))))), "{refused:?}");
    assert_eq!(given_away(&stages), before);
}

/// Under an order in which early work is jitter, a channel may be early only by what was admitted. Under EDF
/// it may be early by what its buffers allow.
#[test]
fn how_early_work_may_be_is_what_was_admitted_where_that_counts() {
    for (run, admission, counts) in
        [(RunPolicy::Edf, Admission::EDF, false), (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY, true)]
    {
        let mut config = config();
        (config.cpu.run, config.cpu.admission) = (run, admission);
        let mut stages = stages_of(&config);
        let channel = local(1, Role::Forwarder);
        assert_eq!(stages.cpu_early(&channel, MS(9)), MS(9), "nothing is held");
        hold(&mut stages, &channel);
        let most = |stages: &Stages| stages.cpu_early(&channel, MS(9));
        assert_eq!(most(&stages), if counts { Nanos::ZERO } else { MS(9) }, "{admission:?}");
        let terms = CommitTerms { horizon: Horizon::Cumulative, ..terms(Role::Forwarder) };
        stages.ask_final(&channel, &[MS(50), MS(80)], &terms);
        assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
        let relaxed = stages.take_relaxed(ChannelId(1)).expect("said");
        let admitted = terms.horizon(0, &relaxed.bounds) - contract(1_000).early_service();
        let expected = if counts { MS(60).min(admitted) } else { MS(60) };
        assert_eq!(stages.cpu_early(&channel, MS(60)), expected, "{admission:?}");
        assert_eq!(stages.cpu_early(&channel, Nanos(5)), Nanos(5), "{admission:?}");
        assert_eq!(stages.link_early(&channel, MS(60)), MS(60), "links go by deadline");
    }
}

/// In an order in which early work is jitter, a channel is not early where that would break another one's bound: it keeps
/// what the stage has admitted, and the stage still holds that.
#[test]
fn earliness_that_would_break_a_bound_is_not_taken() {
    let model = StageModel {
        blocking: Blocking::LargestUnit { best_effort: Nanos(1_000) },
        interference: Interference::default(),
        utilisation_limit: Ppm(950_000),
    };
    let demand = |cost, period| Demand {
        cost: Nanos(cost),
        unit_cost_max: Nanos(1_000),
        period: Nanos(period),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, Nanos(period)),
        soft: None,
    };
    for admission in [Admission::FIXED_PRIORITY, Admission::RMDP] {
        let mut policy = (admission.build)(model);
        // There is time for one message of the channel ahead, and not for two.
        let (ahead, behind) = (demand(20_000, 200_000), demand(20_000, 400_000));
        let mut stage = HeldStage::new(ahead, Nanos(50_000));
        policy.hold(StageKey(1), &behind, Nanos(55_000)).expect("it fits");
        policy.hold(StageKey(2), &ahead, stage.bound).expect("it fits");
        for (wanted, admitted) in [(100_000, 100_000), (300_000, 100_000), (5_000, 5_000), (190_000, 5_000)] {
            policies::rehold(policy.as_mut(), StageKey(2), &mut stage, Nanos(wanted));
            assert_eq!(stage.demand.early, Nanos(admitted), "{admission:?} {wanted}");
            assert_eq!(policy.bound(StageKey(2)), Some(stage.bound));
        }
    }
}

/// A channel that a timer serves waits for the timer in a part of its bound: its processor promises the work within the
/// rest, also after the bound has been relaxed.
#[test]
fn the_work_behind_a_timer_is_held_without_the_wait_for_it() {
    let activation = Activation::Periodic { period: MS(5), packets: 2 };
    let contract = Contract { activation, ..contract(1_000) };
    let wait = contract.service(1_400).expect("it carries the contract").wait;
    assert!(wait > MS(4), "{wait}");
    for wanted in [MS(6), MS(8), MS(50)] {
        let mut stages = stages_of(&config());
        let channel = Arc::new(local_of(1, Role::Sink, contract, 1_400));
        let held = |stages: &Stages| {
            let policies = stages.asking.policies.as_ref().expect("here");
            policies.cpu.bound(StageKey(1)).expect("held")
        };
        assert_eq!(hold(&mut stages, &channel)[0].bound, wait + held(&stages), "as offered");
        stages.ask_final(&channel, &[wanted], &terms(Role::Sink));
        assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
        let relaxed = stages.take_relaxed(ChannelId(1)).expect("said");
        assert!(relaxed.bounds[0] > relaxed.offered[0], "{wanted}");
        assert_eq!(relaxed.bounds[0], wait + held(&stages), "{wanted}");
        assert!(
            held(&stages) <= contract.service(1_400).expect("the same").period,
            "done before the next expiry"
        );
    }
}

/// The same for a link: it may be early by the horizon that was admitted there, but for what a channel is
/// early without asking.
#[test]
fn a_link_in_a_fixed_order_is_early_by_what_was_admitted() {
    for jitter in [None, Some(MS(2))] {
        let mut config = config();
        config.links[1].admission = Admission::FIXED_PRIORITY;
        let mut stages = stages_of(&config);
        let contract = Contract { horizon: Horizon::Cumulative, jitter, ..contract(1_000) };
        let channel = Arc::new(local_of(1, Role::Forwarder, contract, 1_400));
        assert_eq!(stages.link_early(&channel, MS(9)), MS(9), "nothing is held");
        hold(&mut stages, &channel);
        let terms = CommitTerms { horizon: Horizon::Cumulative, ..terms(Role::Forwarder) };
        stages.ask_final(&channel, &[MS(50), MS(80)], &terms);
        assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
        let relaxed = stages.take_relaxed(ChannelId(1)).expect("said");
        let unasked = if jitter.is_none() { contract.early_service() } else { Nanos::ZERO };
        assert_eq!(unasked > Nanos::ZERO, jitter.is_none());
        let admitted = terms.horizon(1, &relaxed.bounds) - unasked;
        assert_eq!(stages.link_early(&channel, MS(900)), admitted, "{jitter:?}");
        assert_eq!(stages.link_early(&channel, Nanos(5)), Nanos(5), "{jitter:?}");
        assert_eq!(stages.cpu_early(&channel, MS(900)), MS(900), "the processor goes by deadline");
    }
}
