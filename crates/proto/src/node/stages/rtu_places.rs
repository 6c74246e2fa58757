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
                return Err(Refusal { period_possible: period_possible(policy, self), ..refusal });
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
    /// Reserves a handler's places, all or none.
    pub(super) fn hold_rtu(
        &mut self,
        id: RtuId,
        requests: &RtuStageRequests,
    ) -> Result<RtuPlace, RtuRefusal> {
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
