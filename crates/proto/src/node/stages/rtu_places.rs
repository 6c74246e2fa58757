//! Demands of programs' handlers for the admission policies, and the places that the policies grant (ADR 0051).

use punctual_analysis::contract::SPAN_MAX;
use punctual_analysis::{AdmissionPolicy, Demand, Nanos, Refusal, StageKey, Urgency};

use super::Policies;
use crate::api::{RtuId, RtuRefusal};
use crate::ids::LinkId;

/// Keys of programs' handlers begin here: channels never have such large numbers, and signalling and the plan
/// have keys from the other end.
const KEYS: u64 = 1 << 62;

/// The place of a program's handler in the processor's admission.
pub(super) const fn rtu_key(id: RtuId) -> StageKey {
    StageKey(KEYS + id.0)
}

/// The demand of a program's handler for the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RtuStageRequest {
    pub demand: Demand,
    /// Longest bound.
    pub limit: Nanos,
    /// True if the smallest possible bound is requested; false if any bound up to the limit will do.
    pub smallest: bool,
    /// True if the limit is the period.
    pub follows: bool,
}

impl RtuStageRequest {
    /// The same demand with another period.
    fn every(&self, period: Nanos) -> Self {
        let mut request = *self;
        request.demand.period = period;
        if self.demand.urgency.rate == self.demand.period {
            request.demand.urgency.rate = period;
        }
        if self.follows {
            request.limit = period;
        }
        request
    }

    /// Takes a place with the smallest bound, or with the longest that is within the limit.
    fn hold(&self, policy: &mut dyn AdmissionPolicy, key: StageKey) -> Result<Nanos, Refusal> {
        let least = match policy.offer(&self.demand, self.limit) {
            Ok(offer) => offer.bound,
            Err(refusal) => {
                // A deadline is at most the period.
                let bound_possible = refusal.bound_possible.filter(|bound| *bound <= self.demand.period);
                let period_possible = period_possible(policy, self);
                return Err(Refusal { bound_possible, period_possible, ..refusal });
            }
        };
        if !self.smallest && policy.hold(key, &self.demand, self.limit).is_ok() {
            return Ok(self.limit);
        }
        policy.hold(key, &self.demand, least).map(|()| least)
    }
}

/// Demand of a program's handler for a link: `packets` in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RtuLinkStageRequest {
    pub link: LinkId,
    pub packets: u32,
    pub request: RtuStageRequest,
}

/// Demands of a program's handler for the stages of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RtuStageRequests {
    pub cpu: RtuStageRequest,
    pub link: Option<RtuLinkStageRequest>,
}

impl RtuStageRequests {
    /// The same demands with another period.
    fn every(&self, period: Nanos) -> Self {
        let link = self.link.map(|link| RtuLinkStageRequest { request: link.request.every(period), ..link });
        Self { cpu: self.cpu.every(period), link }
    }
}

/// The place of a program's handler on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct RtuPlace {
    /// Longest time from the release of a PDU to the end of its processing.
    pub bound: Nanos,
    /// Fixed-priority level, 0 the most urgent; 0 under other orders.
    pub rank: u8,
    /// Place in the run order of the processor.
    pub urgency: Urgency,
    /// Place on the link that the handler sends on, if it sends.
    pub link: Option<RtuLinkPlace>,
}

/// The place of a program's handler on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct RtuLinkPlace {
    pub link: LinkId,
    /// Packets of its budget in a period.
    pub packets: u32,
    /// Demand for the link.
    pub demand: Demand,
    /// Longest time from the end of the processor's work to the departure.
    pub bound: Nanos,
}

impl Policies {
    /// Reserves a handler's places, all or none. A refusal names a period that would be granted on all stages.
    pub(super) fn hold_rtu(
        &mut self,
        id: RtuId,
        requests: &RtuStageRequests,
    ) -> Result<RtuPlace, RtuRefusal> {
        self.hold_each(id, requests).map_err(|mut refusal| {
            if let Some(possible) = period_of(&mut refusal) {
                *possible = possible.and_then(|period| self.period_for_all(id, requests, period));
            }
            refusal
        })
    }

    /// A period that all stages would grant, if one would grant `period`.
    fn period_for_all(&mut self, id: RtuId, requests: &RtuStageRequests, period: Nanos) -> Option<Nanos> {
        let mut period = period;
        for _ in 0..STAGE_ROUNDS {
            match self.hold_each(id, &requests.every(period)) {
                Ok(place) => {
                    self.release_rtu(id, place.link.map(|place| place.link));
                    return Some(period);
                }
                Err(mut refusal) => {
                    period = period_of(&mut refusal)?.filter(|longer| *longer > period)?;
                }
            }
        }
        None
    }

    /// Reserves a handler's places, all or none. A refusal names a period that the stage which refuses would grant.
    fn hold_each(&mut self, id: RtuId, requests: &RtuStageRequests) -> Result<RtuPlace, RtuRefusal> {
        let (key, request) = (rtu_key(id), &requests.cpu);
        let bound = request.hold(self.cpu.as_mut(), key).map_err(RtuRefusal::Processor)?;
        let link = requests.link.map(|RtuLinkStageRequest { link, packets, request }| {
            let limit = if request.follows { request.limit } else { request.limit - bound };
            // Packets that are made early may also be sent early.
            let request =
                RtuStageRequest { limit, demand: Demand { early: bound, ..request.demand }, ..request };
            let bound = request.hold(self.link(link), key)?;
            Ok(RtuLinkPlace { link, packets, demand: request.demand, bound })
        });
        let link = link.transpose().map_err(|refusal| {
            self.cpu.release(key);
            RtuRefusal::Link(refusal)
        })?;
        let rank = self.cpu.rank(key).map_or(0, |rank| rank.min(usize::from(u8::MAX)) as u8);
        Ok(RtuPlace { bound, rank, urgency: request.demand.urgency, link })
    }

    /// Releases the places.
    pub(super) fn release_rtu(&mut self, id: RtuId, link: Option<LinkId>) {
        self.cpu.release(rtu_key(id));
        if let Some(link) = link {
            self.link(link).release(rtu_key(id));
        }
    }
}

/// The period that a refusal by admission names.
const fn period_of(refusal: &mut RtuRefusal) -> Option<&mut Option<Nanos>> {
    match refusal {
        RtuRefusal::Processor(refusal) | RtuRefusal::Link(refusal) => Some(&mut refusal.period_possible),
        _ => None,
    }
}

/// Stages that may refuse the period which another one would grant, one after the other.
const STAGE_ROUNDS: u32 = 8;
/// Rounds of the search for a period: doubled until one is feasible, then halved between.
const ROUNDS: u32 = 48;

/// A period, at most a 64th longer than the shortest, that would be granted in place of a request that was refused.
fn period_possible(policy: &mut dyn AdmissionPolicy, request: &RtuStageRequest) -> Option<Nanos> {
    let mut feasible = |period| {
        let request = request.every(period);
        policy.offer(&request.demand, request.limit).is_ok()
    };
    let mut short = request.demand.period;
    let mut long = Nanos(short.0.saturating_mul(2).min(SPAN_MAX.0));
    for _ in 0..ROUNDS {
        if long <= short || feasible(long) {
            break;
        }
        (short, long) = (long, Nanos(long.0.saturating_mul(2).min(SPAN_MAX.0)));
    }
    if !feasible(long) {
        return None;
    }
    while (long - short).0 > long.0 / 64 {
        let middle = Nanos(short.0 / 2 + long.0 / 2);
        if feasible(middle) { long = middle } else { short = middle }
    }
    Some(long)
}

#[cfg(test)]
mod tests {
    use punctual_analysis::{Class, RefusalReason};

    use super::super::tests::{config, stages_of};
    use super::*;
    use crate::signalling::SplitMix64;

    fn request(cost: u64, period: u64, follows: bool) -> RtuStageRequest {
        let (cost, period) = (Nanos(cost), Nanos(period));
        let demand = Demand {
            cost,
            unit_cost_max: cost.min(Nanos::from_micros(10)),
            period,
            release_latency: Nanos::ZERO,
            early: Nanos::ZERO,
            urgency: Urgency::of_period(Class::Guaranteed, period),
            soft: None,
        };
        RtuStageRequest { demand, limit: period, smallest: false, follows }
    }

    /// The period that the search ends with if periods from `least` on are feasible: the first is doubled
    /// until it is one of these, then the distance to one that is none is halved until it is a 64th.
    fn searched(first: u64, least: u64) -> u64 {
        let (mut none, mut one) = (first, (first * 2).min(SPAN_MAX.0));
        while one < least {
            (none, one) = (one, (one * 2).min(SPAN_MAX.0));
        }
        while one - none > one / 64 {
            let middle = none / 2 + one / 2;
            if middle >= least { one = middle } else { none = middle }
        }
        one
    }

    /// The period that is proposed would be granted, and is at most a 64th longer than the shortest that
    /// would be.
    #[test]
    fn the_proposed_period_is_at_most_a_64th_longer_than_the_shortest() {
        let mut stages = stages_of(&config());
        let policies = stages.asking.policies.as_mut().expect("here");
        let mut random = SplitMix64::new(3);
        for case in 0..300 {
            // Half of the first periods are powers of two, so that halves and 64ths are whole numbers.
            let first = if case % 2 == 0 { 1 << 20 } else { 1_000_000 + random.below(9_000_000) };
            let request = request(first + random.below(first * 4), first, true);
            let mut feasible = |period: u64| {
                let request = request.every(Nanos(period));
                assert_eq!((request.demand.period, request.limit), (Nanos(period), Nanos(period)));
                assert_eq!(request.demand.urgency.rate, Nanos(period));
                policies.cpu.offer(&request.demand, request.limit).is_ok()
            };
            let (mut none, mut least) = (first, first * 8);
            assert!(feasible(least) && !feasible(none), "{case}");
            while least - none > 1 {
                let middle = (none + least) / 2;
                if feasible(middle) { least = middle } else { none = middle }
            }
            let refusal = request.hold(policies.cpu.as_mut(), StageKey(7)).expect_err("it does not fit");
            let proposed = refusal.period_possible.expect("a longer period would do").0;
            assert!(proposed >= least && proposed - least <= proposed / 64, "{case}: {proposed} {least}");
            assert_eq!(proposed, searched(first, least), "{case}");
            assert!(policies.cpu.bound(StageKey(7)).is_none(), "nothing is held");
        }
    }

    /// The period that a refused sender is offered would be granted on the processor and on its link, whichever has refused.
    #[test]
    fn what_is_proposed_to_a_sender_is_granted_on_all_stages() {
        let mut stages = stages_of(&config());
        let policies = stages.asking.policies.as_mut().expect("here");
        let mut random = SplitMix64::new(9);
        let (mut processor, mut link, mut longer) = (0, 0, 0);
        for case in 0..400 {
            let period = 1_000_000 + random.below(9_000_000);
            let [cpu, on_link] = [0, 1].map(|_| request(period / 8 + random.below(period * 2), period, true));
            let at_link = RtuLinkStageRequest { link: LinkId(1), packets: 4, request: on_link };
            let requests = RtuStageRequests { cpu, link: Some(at_link) };
            let id = RtuId(case);
            let Err(mut refusal) = policies.hold_rtu(id, &requests) else {
                policies.release_rtu(id, Some(LinkId(1)));
                continue;
            };
            match &refusal {
                RtuRefusal::Processor(_) => processor += 1,
                RtuRefusal::Link(_) => link += 1,
                other => panic!("{other}"),
            }
            let proposed = period_of(&mut refusal).and_then(|period| *period).expect("a longer one would do");
            let alone = period_possible(policies.cpu.as_mut(), &cpu);
            longer += u32::from(alone.is_some_and(|alone| alone < proposed));
            let place = policies.hold_rtu(id, &requests.every(proposed)).expect("it was proposed");
            policies.release_rtu(id, place.link.map(|place| place.link));
            assert!(
                policies.cpu.bound(rtu_key(id)).is_none()
                    && policies.link(LinkId(1)).bound(rtu_key(id)).is_none()
            );
        }
        assert!(processor > 50 && link > 50 && longer > 50, "{processor} {link} {longer}");
    }

    /// No period is proposed where none would do: the bound is too short, or the longest period is not long
    /// enough.
    #[test]
    fn no_period_is_proposed_where_none_would_do() {
        let mut stages = stages_of(&config());
        let policies = stages.asking.policies.as_mut().expect("here");
        // Its limit stays while its period grows.
        let fixed = request(20_000_000, 10_000_000, false);
        assert_eq!(fixed.every(Nanos(70_000_000)).limit, Nanos(10_000_000));
        let longest = request(SPAN_MAX.0, SPAN_MAX.0, true);
        let most = request(SPAN_MAX.0 / 4 * 3, SPAN_MAX.0 / 8 * 5, true);
        for (request, possible) in [(fixed, None), (longest, None), (most, Some(SPAN_MAX))] {
            let refusal = request.hold(policies.cpu.as_mut(), StageKey(7)).expect_err("it does not fit");
            assert!(!matches!(refusal.reason, RefusalReason::Buffers { .. }));
            match possible {
                None => assert_eq!(refusal.period_possible, None),
                Some(most) => assert!(refusal.period_possible.is_some_and(|period| period <= most)),
            }
        }
        // An urgency of its own does not follow the period.
        let mut urgent = request(1_000, 10_000_000, true);
        urgent.demand.urgency.rate = Nanos(5);
        assert_eq!(urgent.every(Nanos(70_000_000)).demand.urgency.rate, Nanos(5));
    }

    /// A place has the smallest bound if that is requested, and the limit otherwise.
    #[test]
    fn a_place_has_the_smallest_bound_or_all_of_its_limit() {
        for smallest in [false, true] {
            let mut stages = stages_of(&config());
            let policies = stages.asking.policies.as_mut().expect("here");
            let request = RtuStageRequest { smallest, ..request(100_000, 10_000_000, true) };
            let offer = policies.cpu.offer(&request.demand, request.limit).expect("it fits").bound;
            let bound = request.hold(policies.cpu.as_mut(), StageKey(7)).expect("it fits");
            assert!(offer < request.limit, "{offer}");
            assert_eq!(bound, if smallest { offer } else { request.limit });
            assert_eq!(policies.cpu.bound(StageKey(7)), Some(bound));
        }
    }
}
