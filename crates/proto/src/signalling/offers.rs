//! Verified offers: before a refusal's offer is reported, a probe tests it.
//!
//! The hop that refuses has no information about the hops behind it and estimates. The source probes that
//! estimate along the same route. A positive reply gives the bound that the whole route could promise, which
//! becomes the offer; a negative reply gives another estimate. At most [`OFFERS_MAX`] are probed, for
//! [`ASKING_TIME_MAX`] in all. Only a contract with a positive reply is offered.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_analysis::{Contract, Instant, Nanos};

use super::channel::Timer;
use super::decisions::NextStep;
use super::message::Create;
use super::resources::Resources;
use super::states::State;
use super::transitions::InputDetails;
use super::{Attempt, Channel, Signalling, budget};
use crate::api::{ChannelRefusal, Event, OpenRequest, RefuseCause, StageGrant};
use crate::ids::{ChannelId, NodeId};

/// Most offers of one refusal that are probed.
const OFFERS_MAX: u8 = 8;
/// Longest time that a refusal waits for replies to offers. The best positive reply until then is reported.
const ASKING_TIME_MAX: Nanos = Nanos::from_secs(2);

/// A refusal on its way to the application, and the search for a contract to offer.
#[derive(Debug)]
pub struct Offering {
    refusal: ChannelRefusal,
    /// The route that is probed, without this node.
    via: Vec<NodeId>,
    wanted: Contract,
    /// Contract that is probed now.
    asked: Contract,
    /// The best contract with a positive reply, and its stages.
    found: Option<(Contract, Vec<StageGrant>)>,
    left: u8,
    /// Time at which the application is notified at the latest.
    until: Instant,
}

impl Offering {
    /// The search that begins with a probe of `asked`.
    const fn new(
        refusal: ChannelRefusal,
        via: Vec<NodeId>,
        wanted: Contract,
        asked: Contract,
        until: Instant,
    ) -> Self {
        Self { refusal, via, wanted, asked, found: None, left: OFFERS_MAX - 1, until }
    }

    /// The contract to probe after a reply to `asked`.
    fn next(&mut self, answer: Result<(Nanos, Vec<StageGrant>), Option<ChannelRefusal>>) -> Option<Contract> {
        let next = match answer {
            Ok((possible, stages)) => {
                let deadline = budget::deadline_of(possible).max(self.wanted.deadline);
                let tighter = Contract { deadline, ..self.asked };
                self.found = Some((self.asked, stages));
                (deadline < self.asked.deadline).then_some(tighter)
            }
            Err(refusal) => {
                let offer = refusal.and_then(|no| no.offer).filter(|_| self.found.is_none());
                offer.map(|offer| relaxed(&self.wanted, &offer))
            }
        };
        let next = next.filter(|next| self.left > 0 && next.validate().is_ok())?;
        self.left -= 1;
        self.asked = next;
        Some(next)
    }

    fn into_refusal(self) -> ChannelRefusal {
        let (offer, stages) = self.found.map_or((None, Vec::new()), |(offer, by)| (Some(offer), by));
        ChannelRefusal { offer, stages, ..self.refusal }
    }
}

/// The requested contract with the deadline and the rate of a hop's offer. Everything else is kept, whatever
/// the hop offers.
const fn relaxed(wanted: &Contract, offer: &Contract) -> Contract {
    Contract { deadline: offer.deadline, rate_max: offer.rate_max, ..*wanted }
}

impl Signalling {
    /// Handles the refusal of every route: reports the best refusal, once its offer is verified.
    pub(super) fn refused(
        &mut self,
        id: ChannelId,
        request: &OpenRequest,
        mut attempt: Attempt,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let nothing = || (self.refusal(RefuseCause::Timeout), Vec::new());
        let (refusal, via) = attempt.best.take().unwrap_or_else(nothing);
        let wanted = request.contract;
        let offer =
            refusal.offer.map(|offer| relaxed(&wanted, &offer)).filter(|offer| offer.validate().is_ok());
        let Some(asked) = offer else {
            return self.report_refused(id, &attempt, ChannelRefusal { offer: None, ..refusal });
        };
        let until = now + self.answer_time().min(ASKING_TIME_MAX);
        let offering = Offering::new(refusal, via, wanted, asked, until);
        self.ask_offer(id, request, attempt, offering, now, resources);
    }

    fn ask_offer(
        &mut self,
        id: ChannelId,
        request: &OpenRequest,
        attempt: Attempt,
        offering: Offering,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let probe_request = OpenRequest { contract: offering.asked, probe: true, ..request.clone() };
        let create = self.first_create(&probe_request, &attempt, offering.via.clone());
        match self.local_channel(id, None, &create) {
            Ok(local) => {
                let request = Box::new(request.clone());
                let then = NextStep::Offer { request, attempt, offering: Box::new(offering) };
                self.ask_stages(local, create, then, resources);
                self.settle(now, resources);
            }
            // Not for want of time or of a lower rate: nothing else can be offered.
            Err(_) => self.report_refused(id, &attempt, offering.into_refusal()),
        }
    }

    /// The stages here could keep the offer: sends the probe along the route.
    pub(super) fn offer_asked(
        &mut self,
        mut channel: Box<Channel>,
        mut attempt: Attempt,
        offering: Offering,
        create: Create,
        now: Instant,
    ) {
        channel.state = State::Offering;
        channel.deadline = Timer::due(offering.until);
        attempt.offering = Some(offering);
        self.start(channel, attempt, create, now);
    }

    /// Continues when the stages cannot keep the offer: probes the next one, or reports to the application.
    #[allow(clippy::too_many_arguments, reason = "what was begun, the answer, and the two that all have")]
    pub(super) fn offer_refused(
        &mut self,
        id: ChannelId,
        request: &OpenRequest,
        attempt: Attempt,
        mut offering: Offering,
        refusal: ChannelRefusal,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if offering.next(Err(Some(refusal))).is_none() || offering.until <= now {
            return self.report_refused(id, &attempt, offering.into_refusal());
        }
        self.ask_offer(id, request, attempt, offering, now, resources);
    }

    /// Handles the reply of the probed route.
    pub(super) fn offer_answered(
        &mut self,
        channel: &Channel,
        attempt: Attempt,
        mut offering: Offering,
        what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let id = channel.local.channel;
        let answer = if what.stages.is_empty() {
            Err(what.refusal)
        } else {
            Ok((budget::possible(&what.stages, channel.drift.max(what.drift)), what.stages))
        };
        if offering.next(answer).is_none() || offering.until <= now {
            return self.report_refused(id, &attempt, offering.into_refusal());
        }
        let (contract, to) = (offering.asked, channel.route.to.clone());
        let request = OpenRequest { to, contract, user: attempt.user, probe: true, token: None };
        self.ask_offer(id, &request, attempt, offering, now, resources);
    }

    fn report_refused(&mut self, id: ChannelId, attempt: &Attempt, refusal: ChannelRefusal) {
        if let Some(asked) = &attempt.asked {
            let on_wire = ChannelRefusal { stages: Vec::new(), ..refusal.clone() };
            self.answer_no(asked, on_wire);
        }
        let refusal = self.named(refusal);
        self.announcements.events.push_back(match attempt.probe {
            true => Event::Probed { channel: id, answer: Err(refusal) },
            false => Event::Refused { channel: id, refusal },
        });
    }

    /// The refusal with the names of the hosts that it mentions.
    pub(super) fn named(&self, refusal: ChannelRefusal) -> ChannelRefusal {
        let is_named = match refusal.cause {
            RefuseCause::Unreachable(node) | RefuseCause::Version { node, .. } | RefuseCause::Busy(node) => {
                Some(node)
            }
            _ => None,
        };
        let stages = refusal.stages.iter().map(|stage| stage.node);
        let nodes: Vec<_> = [refusal.node].into_iter().chain(is_named).chain(stages).collect();
        ChannelRefusal { hosts: self.config.names_of(&nodes), ..refusal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::{Policing, Rate};

    fn contract(bytes: u32, deadline_ms: u64) -> Contract {
        let rate = Rate::per_second(50).expect("a rate");
        Contract::new(bytes, rate, 3, Nanos::from_millis(deadline_ms)).expect("valid")
    }

    fn no(offer: Contract) -> ChannelRefusal {
        let (stages, hosts) = (Vec::new(), Vec::new());
        ChannelRefusal { node: NodeId(2), cause: RefuseCause::Exhausted, offer: Some(offer), stages, hosts }
    }

    /// If a hop offers another size, burst and policing, only its deadline and rate are probed.
    #[test]
    fn a_hop_can_offer_another_deadline_and_rate_and_nothing_else() {
        let wanted = contract(1_000, 5);
        let rate_max = Rate::per_second(20).expect("a rate");
        let mut offering = Offering::new(no(wanted), Vec::new(), wanted, wanted, Instant(0));
        let other = Contract { policing: Policing::Demote, burst_messages_max: 90, ..contract(7, 40) };
        let asked = offering.next(Err(Some(no(Contract { rate_max, ..other }))));
        assert_eq!(asked, Some(Contract { deadline: Nanos::from_millis(40), rate_max, ..wanted }));
        // The offer is exactly the contract with the positive reply, and nothing else is reported.
        assert_eq!(offering.next(Ok((Nanos::from_secs(1), Vec::new()))), None);
        assert_eq!(offering.into_refusal().offer, asked);
    }

    /// Whatever a hop replies, the number of probes is bounded.
    #[test]
    fn a_hop_that_changes_its_offer_is_asked_a_bounded_number_of_times() {
        let wanted = contract(1_000, 5);
        let mut offering = Offering::new(no(wanted), Vec::new(), wanted, wanted, Instant(0));
        let more = (6..200).take_while(|ms| offering.next(Err(Some(no(contract(1_000, *ms))))).is_some());
        assert_eq!(1 + more.count(), usize::from(OFFERS_MAX), "the first was asked for without a question");
        assert_eq!(offering.into_refusal().offer, None, "nobody said yes");
    }
}
