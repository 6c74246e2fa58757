//! The arithmetic of the end-to-end deadline: the time left for a hop, the division of the leftover, and what
//! would have been possible.
//!
//! sum over stages of (d(k) + p_max(k)) + rho * sum d(k) <= D holds from CREATE to the last refresh.

use alloc::vec::Vec;
use core::ops::Range;

use punctual_analysis::sharing::{ShareStage, Sharing};
use punctual_analysis::{Contract, Horizon, Nanos, Ppm, Rate, RefusalReason};

use super::resources::CommitTerms;
use crate::api::{RefuseCause, Role, StageGrant};
use crate::config::{LinkConfig, NodeConfig, link_model};

const PPM: u128 = 1_000_000;
/// More than all roundings of a longest route.
const ROUNDING: Nanos = Nanos(100);

/// rho: twice the tolerance of one clock.
pub fn drift(config: &NodeConfig) -> Ppm {
    Ppm(config.clock_tolerance.0.saturating_mul(2))
}

/// sum of (d + p_max) + rho * sum d over `stages`.
pub fn spent(stages: &[StageGrant], drift: Ppm) -> Nanos {
    let bounds: Nanos = stages.iter().map(|stage| stage.bound).sum();
    let propagation: Nanos = stages.iter().map(|stage| stage.propagation_max).sum();
    bounds + propagation + drift.of(bounds)
}

/// The most that bounds may sum up to where `time` is left for them and their drift.
fn without_drift(time: Nanos, drift: Ppm) -> Nanos {
    Nanos((u128::from(time.0) * PPM / (PPM + u128::from(drift.0))) as u64)
}

/// The most that the local stages may take together, `None` if nothing is left.
pub fn limit(
    contract: &Contract,
    before: &[StageGrant],
    propagation_max: Nanos,
    drift: Ppm,
) -> Option<Nanos> {
    let left = contract.deadline.checked_sub(spent(before, drift) + propagation_max)?;
    // One nanosecond less, because drift is rounded up over the whole sum.
    let limit = without_drift(left, drift) - Nanos(1);
    (limit > Nanos::ZERO).then_some(limit)
}

/// The contribution of a link to the fixed part of J. Slack is stamped with the *latest* departure: a full
/// window and all of the kernel's traffic ahead. Without them, a packet arrives that much earlier than its
/// predecessor.
pub fn arrival_error_of(link: &LinkConfig) -> Nanos {
    let window_bytes =
        u64::from(link.pipeline_depth) * u64::from(link.packet_bytes_max.saturating_add(link.overhead_bytes));
    let early = match link.follows() {
        // The share that the kernel will have is unknown when J is computed.
        true => {
            let share = link.kernel_share_max;
            link.paced_beside(share).time_of(window_bytes) + link.delay_beside(share)
        }
        false => link_model(link).departure_latest(window_bytes),
    };
    link.prediction_error + early + (link.propagation_max - link.propagation_min)
}

/// The terms on which the stages `own` become final: the stages behind them are final, those before them hold
/// their smallest bounds. The leftover of D is shared among `own` and those before ([`Sharing`]).
pub fn terms(
    contract: &Contract,
    stages: &[StageGrant],
    own: Range<usize>,
    role: Role,
    fixed: Nanos,
    drift: Ppm,
) -> CommitTerms {
    let behind: Nanos = stages.iter().skip(own.end).map(|stage| stage.bound).sum();
    let propagation: Nanos = stages.iter().skip(own.start).map(|stage| stage.propagation_max).sum();
    CommitTerms {
        bounds: shares(contract.deadline - spent(stages, drift), stages, own.clone(), drift),
        budget: contract.deadline - behind - propagation,
        upstream_min: stages.iter().take(own.start).map(|stage| stage.bound).sum(),
        horizon: contract.horizon,
        early: contract.early_service(),
        arrival_error_fixed: fixed,
        drift,
        role,
    }
}

fn shares(leftover: Nanos, stages: &[StageGrant], own: Range<usize>, drift: Ppm) -> Vec<Nanos> {
    let mut leftover = without_drift(leftover, drift) - Nanos(1);
    let known =
        |stage: &StageGrant| ShareStage { offered: stage.offered, cost: stage.cost, load: stage.utilisation };
    let known: Vec<_> = stages.iter().take(own.end).map(known).collect();
    let mut bounds: Vec<_> = own
        .rev()
        .filter_map(|index| stages.get(index).zip(known.get(..=index)))
        .map(|(stage, up_to)| {
            let share = Sharing::default().of_last(leftover, up_to);
            leftover = leftover - share;
            stage.bound + share
        })
        .collect();
    bounds.reverse();
    bounds
}

/// Messages that the receiver's ring must hold: ceil((d + h) / I') + ceil(J / I') at the sink, and the one
/// that the application reads. `before` is the bound of the stage before the sink's (for h = 0, where it is
/// what can lie ahead).
pub fn inbox_messages(contract: &Contract, terms: &CommitTerms, bounds: &[Nanos], before: Nanos) -> u32 {
    let period = contract.policed_interval();
    let held = match contract.horizon {
        Horizon::Cumulative => terms.horizon(0, bounds),
        Horizon::Regulated => before,
    };
    let span = match contract.delivery {
        punctual_analysis::Delivery::AtDeadline => terms.early + contract.deadline,
        punctual_analysis::Delivery::Asap => held + bounds.iter().copied().sum(),
    };
    let messages = span.div_ceil(period).saturating_add(terms.arrival_error(bounds).div_ceil(period));
    u32::try_from(messages.saturating_add(1)).unwrap_or(u32::MAX)
}

/// Messages that the source's ring must hold: B + ceil((a + d) / I'), a what a late timer may bring at once, d the bounds of the
/// source's own stages together (`first`).
pub fn outbox_messages(contract: &Contract, first: Nanos) -> u32 {
    let waiting = (contract.jitter_allowance() + first).div_ceil(contract.policed_interval());
    u32::try_from(waiting.saturating_add(u64::from(contract.burst_messages_max))).unwrap_or(u32::MAX)
}

/// Longest time that a message may be under way or held after its last packet has left the source. That
/// packet may leave as much ahead of its logical arrival as the contract allows.
pub fn transit_time_max(contract: &Contract) -> Nanos {
    contract.early_service() + contract.deadline
}

/// The longest that a closing source may need until its receiver has all that its ring may hold: it is sent at the
/// contract's rate, a soft channel's at its mean rate, and the last message arrives D after its logical arrival.
pub fn drain_max(contract: &Contract) -> Nanos {
    // d(1) is no longer than D.
    let waiting = u64::from(outbox_messages(contract, contract.deadline));
    let mean = contract.statistical.map_or(Nanos::ZERO, |statistical| statistical.mean_rate.interval());
    contract.interval().max(mean) * waiting + contract.deadline
}

/// The smallest bound that a route could promise: the sum of its stages' offers.
pub fn possible(stages: &[StageGrant], drift: Ppm) -> Nanos {
    let smallest: Vec<_> = stages.iter().map(|stage| StageGrant { bound: stage.offered, ..*stage }).collect();
    spent(&smallest, drift)
}

/// The deadline to request if the route could promise `possible`.
pub const fn deadline_of(possible: Nanos) -> Nanos {
    Nanos(possible.0.saturating_add(ROUNDING.0))
}

/// The nearest contract that would probably be accepted after a refusal here. `possible`: the smallest
/// end-to-end bound up to this node, with its outgoing link, if time was missing. Hops behind are unknown:
/// each is assumed to need the average of the hops up to here.
pub fn offer(
    contract: &Contract,
    cause: &RefuseCause,
    possible: Option<Nanos>,
    hops_done: u64,
    hops_left: u64,
) -> Option<Contract> {
    let offer = match (cause, possible) {
        (_, Some(possible)) => {
            let deadline = possible + Nanos(possible.div_ceil(Nanos(hops_done.max(1)))) * hops_left;
            Contract { deadline: deadline_of(deadline), ..*contract }
        }
        (RefuseCause::Stage { refusal, .. }, None) => {
            let period = refusal.period_possible?;
            // The policy computes with I' = I * (1 - 1/128).
            let interval = period + Nanos(period.div_ceil(Nanos(127)) + 1);
            Contract { rate_max: Rate::every(interval)?, ..*contract }
        }
        _ => return None,
    };
    (offer.validate().is_ok() && offer != *contract).then_some(offer)
}

/// Whether more time would have helped.
pub const fn wants_time(cause: &RefuseCause) -> bool {
    match cause {
        RefuseCause::Stage { refusal, .. } => matches!(refusal.reason, RefusalReason::Bound { .. }),
        RefuseCause::Deadline { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::{Ppb, Statistical};

    use super::super::random::SplitMix64;
    use super::*;
    use crate::api::StageKind;
    use crate::ids::NodeId;

    fn stage(bound: u64, propagation_max: u64, cost: u64) -> StageGrant {
        StageGrant {
            node: NodeId(1),
            kind: StageKind::Link,
            offered: Nanos(bound),
            bound: Nanos(bound),
            propagation_max: Nanos(propagation_max),
            cost: Nanos(cost),
            made_of: Default::default(),
            cold_start: Nanos::ZERO,
            cost_parts: Default::default(),
            costs_from: Default::default(),
            utilisation: Ppm(0),
            buffer_bytes: 0,
            degraded: None,
        }
    }

    fn contract(deadline: u64) -> Contract {
        Contract::new(1_000, Rate::per_second(100).expect("a rate"), 2, Nanos(deadline)).expect("valid")
    }

    #[test]
    fn a_full_ring_drains_at_the_mean_rate_of_a_soft_channel() {
        // B = 2, and the messages that may wait for d(1) = D and the jitter allowance of an interval, at 100
        // messages a second: 10.
        let hard = contract(80_000_000);
        assert_eq!(outbox_messages(&hard, hard.deadline), 2 + 10);
        let punctual = Contract { jitter: Some(Nanos::ZERO), ..hard };
        assert_eq!(outbox_messages(&punctual, hard.deadline), 2 + 9);
        assert_eq!(drain_max(&hard), Nanos::from_millis(12 * 10 + 80));
        let mean_rate = Rate::per_second(20).expect("a rate");
        let miss_ratio = Ppb::new(1_000_000).expect("a ratio");
        let statistical = Statistical { mean_rate, mean_over: Nanos::from_millis(200), miss_ratio };
        let soft = Contract { statistical: Some(statistical), ..hard };
        assert_eq!(drain_max(&soft), Nanos::from_millis(12 * 50 + 80));
    }

    #[test]
    fn j_covers_what_the_latest_departure_allows_for_and_may_not_come() {
        let link = LinkConfig {
            rate_error: Ppm(0),
            pipeline_depth: 2,
            pace: crate::config::Pacing::Completion,
            prediction_error: Nanos(7),
            propagation_min: Nanos(10),
            propagation_max: Nanos(30),
            packet_bytes_max: 900,
            overhead_bytes: 100,
            interference: crate::config::Interference { sigma: Nanos(500), rho: Ppm(0) },
            ..LinkConfig::new("x", NodeId(2), punctual_analysis::BitRate(8_000_000_000))
        };
        assert_eq!(arrival_error_of(&link), Nanos(7 + 2_000 + 500 + 20));
    }

    #[test]
    fn whatever_a_hop_takes_within_its_limit_the_sum_stays_within_the_deadline() {
        for seed in 0..2_000 {
            let mut random = SplitMix64::new(seed);
            let drift = Ppm(200);
            let contract = contract(1_000 + random.below(1_000_000_000));
            let mut stages = Vec::new();
            for _ in 0..1 + random.below(6) {
                let propagation = Nanos(random.below(200_000));
                let Some(limit) = limit(&contract, &stages, propagation, drift) else { break };
                let bound = if random.below(3) == 0 { limit.0 } else { 1 + random.below(limit.0) };
                stages.push(stage(bound, propagation.0, random.below(1_000)));
            }
            assert!(spent(&stages, drift) <= contract.deadline, "seed {seed}");
            for index in (0..stages.len()).rev() {
                let terms = terms(&contract, &stages, index..index + 1, Role::Forwarder, Nanos::ZERO, drift);
                assert!(terms.bounds[0] >= stages[index].bound, "seed {seed}");
                stages[index].bound = terms.bounds[0];
                assert!(spent(&stages, drift) <= contract.deadline, "seed {seed}");
                let ahead: Nanos = stages[..index].iter().map(|s| s.bound).sum();
                assert!(terms.upstream(0, &terms.bounds) >= ahead, "seed {seed}: h covers what is upstream");
            }
            let unused = contract.deadline - spent(&stages, drift);
            assert!(
                stages.is_empty() || unused <= Nanos(100 + contract.deadline.0 / 1_000_000),
                "seed {seed}: {unused}"
            );
        }
    }

    #[test]
    fn a_share_that_is_handed_on_goes_upstream() {
        let stages = [stage(100, 10, 1), stage(200, 0, 3)];
        let contract = contract(1_000_000);
        let last = terms(&contract, &stages, 1..2, Role::Sink, Nanos::ZERO, Ppm(0));
        assert!(
            last.bounds[0].0 > 740_000 && last.bounds[0].0 < 760_000,
            "three quarters: {:?}",
            last.bounds
        );
        // The source keeps none of the leftover.
        let first = terms(&contract, &stages, 0..1, Role::Source, Nanos::ZERO, Ppm(0));
        assert!(first.bounds[0].0 == 1_000_000 - 210 - 1, "{:?}", first.bounds);
    }

    #[test]
    fn offers_are_valid_and_different() {
        let refused = contract(1_000_000);
        let refusal = |reason, period_possible| RefuseCause::Stage {
            kind: StageKind::Link,
            refusal: punctual_analysis::Refusal { reason, bound_possible: None, period_possible },
        };
        let bound = refusal(RefusalReason::Bound { possible: Nanos(700_000), limit: Nanos(400_000) }, None);
        assert!(wants_time(&bound));
        let given = offer(&refused, &bound, Some(Nanos(1_300_000)), 1, 2).expect("an offer");
        assert_eq!(given.deadline, Nanos(3 * 1_300_000) + ROUNDING);
        let full = RefusalReason::Utilisation { wanted_ppm: 2, limit_ppm: 1 };
        let period = Nanos(20_000_000);
        let given = offer(&refused, &refusal(full, Some(period)), None, 1, 1).expect("an offer");
        assert!(given.policed_interval() >= period, "{given:?}");
        assert_eq!(offer(&refused, &RefuseCause::Exhausted, None, 1, 1), None);
        assert_eq!(offer(&refused, &bound, Some(Nanos::MAX), 1, 1), None, "nobody waits so long");
    }

    /// The limit of a hop: the rest of the deadline after the spent time, propagation and drift, less a
    /// nanosecond for rounding.
    #[test]
    fn a_hops_limit_is_what_the_deadline_leaves() {
        let before = [stage(100, 10, 1), stage(200, 20, 1)];
        let of = |deadline, propagation, drift| {
            limit(&contract(deadline), &before, Nanos(propagation), Ppm(drift)).map(|limit| limit.0)
        };
        assert_eq!(spent(&before, Ppm(0)), Nanos(330));
        // A tenth of the bounds, not of propagation.
        assert_eq!((spent(&before, Ppm(100_000)), possible(&before, Ppm(100_000))), (Nanos(360), Nanos(360)));
        assert_eq!(of(1_000, 50, 0), Some(1_000 - 330 - 50 - 1));
        assert_eq!(of(1_000, 70, 100_000), Some((1_000 - 360 - 70) * 10 / 11 - 1));
        assert_eq!([380, 381, 382, 383].map(|deadline| of(deadline, 50, 0)), [None, None, Some(1), Some(2)]);
        assert_eq!(of(379, 50, 0), None);
        assert_eq!(limit(&contract(9), &[], Nanos::ZERO, Ppm(0)), Some(Nanos(8)));
        let relaxed = StageGrant { bound: Nanos(5_000), ..before[0] };
        assert_eq!(possible(&[relaxed, before[1]], Ppm(0)), Nanos(330), "by what was offered");
        assert_eq!(deadline_of(Nanos(7)), Nanos(107));
        assert_eq!(deadline_of(Nanos::MAX), Nanos::MAX);
    }

    /// The final offer of a hop in the middle: its share of the leftover, the bounds behind it, and the
    /// smallest bounds before it.
    #[test]
    fn a_hops_terms_are_the_rest_of_the_deadline() {
        let stages = [stage(100, 10, 1), stage(200, 20, 1), stage(300, 30, 1), stage(400, 40, 1)];
        let contract = contract(100_000);
        let of = terms(&contract, &stages, 1..3, Role::Forwarder, Nanos(77), Ppm(0));
        assert_eq!((of.budget, of.upstream_min), (Nanos(100_000 - 400 - 90), Nanos(100)));
        assert_eq!((of.arrival_error_fixed, of.drift, of.role), (Nanos(77), Ppm(0), Role::Forwarder));
        assert_eq!(of.early, contract.early_service());
        // Equal stages: a third to the last of three, half of the rest to the one before.
        let left = 100_000 - 1_000 - 100 - 1;
        let last = left / 3;
        assert_eq!(of.bounds, [Nanos(200 + (left - last) / 2), Nanos(300 + last)]);
        // The upstream bound of each: the rest of the budget.
        let upstream = of.upstream(0, &of.bounds);
        assert_eq!(upstream + of.bounds[0] + of.bounds[1], of.budget);
        assert_eq!(of.upstream(1, &of.bounds), upstream + of.bounds[0]);
        assert_eq!((of.horizon(0, &of.bounds), of.horizon(1, &of.bounds)), {
            let early = contract.early_service();
            (early + upstream, early + upstream + of.bounds[0])
        });
        let regulated = Contract { horizon: Horizon::Regulated, ..contract };
        let held = terms(&regulated, &stages, 1..3, Role::Forwarder, Nanos(77), Ppm(100_000));
        assert_eq!((held.horizon(1, &held.bounds), held.early), (Nanos::ZERO, regulated.early_service()));
        let before = held.upstream(0, &held.bounds);
        assert_eq!(held.arrival_error(&held.bounds), Nanos(77) + Nanos(before.0.div_ceil(10)));
        // The source knows the bounds before its own stages exactly: none, then its own processor.
        let first = terms(&contract, &stages, 0..2, Role::Source, Nanos::ZERO, Ppm(0));
        assert_eq!(first.upstream(0, &first.bounds), Nanos::ZERO);
        assert_eq!(first.upstream(1, &first.bounds), first.bounds[0]);
    }

    /// Offers: a deadline that assumes the average need for the hops that were not asked; or a rate a little
    /// slower than the stage holds.
    #[test]
    fn offers_are_a_deadline_or_a_rate() {
        let refused = contract(1_000);
        let bound = RefuseCause::Deadline { possible: Nanos(1), wanted: Nanos(2) };
        let deadline = |possible, done, left| {
            offer(&refused, &bound, Some(Nanos(possible)), done, left).map(|offer| offer.deadline.0)
        };
        assert_eq!(deadline(1_001, 2, 3), Some(1_001 + 3 * 501 + 100));
        assert_eq!(deadline(1_000, 2, 3), Some(1_000 + 3 * 500 + 100));
        assert_eq!(deadline(5_000, 0, 1), Some(10_100), "nobody was asked: as much again");
        assert_eq!(deadline(5_000, 3, 0), Some(5_100));
        assert_eq!(deadline(900, 3, 0), None, "that was asked for");
        let held = |period_possible| {
            let reason = RefusalReason::Others;
            let refusal = punctual_analysis::Refusal { reason, bound_possible: None, period_possible };
            let cause = RefuseCause::Stage { kind: StageKind::Link, refusal };
            offer(&refused, &cause, None, 1, 1).map(|offer| offer.interval().0)
        };
        assert_eq!(held(Some(Nanos(12_700_000))), Some(12_700_000 + 100_000 + 1));
        assert_eq!(held(Some(Nanos(12_700_001))), Some(12_700_001 + 100_001 + 1));
        assert_eq!(held(None), None);
    }

    /// A receiver's ring: all messages that may wait in it, one that is being read, and those that arrive
    /// later or earlier than nominal.
    #[test]
    fn a_receivers_ring_holds_what_may_wait_in_it() {
        let asap = contract(80_000_000);
        let period = asap.policed_interval().0;
        let with = |contract: &Contract, fixed: u64, bounds: u64, before: u64| {
            let terms = CommitTerms {
                bounds: Vec::from([Nanos(bounds)]),
                budget: Nanos(10 * period + bounds),
                upstream_min: Nanos::ZERO,
                horizon: contract.horizon,
                early: Nanos::ZERO,
                arrival_error_fixed: Nanos(fixed),
                drift: Ppm(0),
                role: Role::Sink,
            };
            inbox_messages(contract, &terms, &[Nanos(bounds)], Nanos(before))
        };
        let regulated = Contract { horizon: Horizon::Regulated, ..asap };
        for (bounds, messages) in [(period, 12), (period + 1, 13), (2 * period, 13)] {
            assert_eq!(with(&asap, 0, bounds, 0), messages, "{bounds}");
            assert_eq!(with(&asap, 1, bounds, 0), messages + 1, "{bounds}: another for J");
            assert_eq!(with(&regulated, 0, bounds, 0), messages - 10, "{bounds}: early ones wait elsewhere");
            assert_eq!(with(&regulated, 0, bounds, period), messages - 9, "{bounds}");
        }
        let at_deadline = Contract { delivery: punctual_analysis::Delivery::AtDeadline, ..asap };
        let messages = asap.deadline.0.div_ceil(period) as u32 + 1;
        assert_eq!([0, 7 * period].map(|bounds| with(&at_deadline, 0, bounds, 0)), [messages; 2]);
        assert_eq!(transit_time_max(&asap), asap.early_service() + asap.deadline);
        assert_eq!(drift(&node_config(150)), Ppm(300));
    }

    fn node_config(tolerance: u32) -> NodeConfig {
        NodeConfig {
            id: NodeId(1),
            name: crate::ids::Name::new("h1").expect("a name"),
            epoch: crate::ids::Epoch(1),
            fragment_bytes: 1_400,
            fragment_low_latency_bytes: None,
            clock_tolerance: Ppm(tolerance),
            links: Vec::new(),
            cpu: Default::default(),
            directory: Vec::new(),
            routes: Vec::new(),
            signalling: Default::default(),
            buffer_bytes_max: 0,
            wakeup_margin: Nanos::ZERO,
        }
    }

    /// If the kernel's share follows admission, J allows for the largest share.
    #[test]
    fn j_allows_for_the_most_that_the_kernel_may_have() {
        let link = LinkConfig {
            rate_error: Ppm(0),
            prediction_error: Nanos(7),
            propagation_min: Nanos(10),
            propagation_max: Nanos(30),
            packet_bytes_max: 900,
            overhead_bytes: 100,
            interference: crate::config::Interference { sigma: Nanos(500), rho: Ppm(0) },
            kernel_share_max: Ppm(500_000),
            ..LinkConfig::new("x", NodeId(2), punctual_analysis::BitRate(8_000_000_000))
        };
        // Two packets at half the rate, and twice the burst.
        assert_eq!(arrival_error_of(&link), Nanos(7 + 4_000 + 1_000 + 20));
        assert_eq!(
            arrival_error_of(&LinkConfig { kernel_share_max: Ppm(0), ..link }),
            Nanos(7 + 2_000 + 500 + 20)
        );
    }
}
