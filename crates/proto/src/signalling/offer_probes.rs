//! Verified offers: before a refusal's offer is reported, a probe tests it.
//!
//! The hop that refuses has no information about the hops behind it and estimates. The source probes that
//! estimate along the same route. A positive reply gives the bound that the whole route could promise, which
//! becomes the offer; a negative reply gives another estimate. A bounded number is probed, for
//! [`ASKING_TIME_MAX`] in all. Only a contract with a positive reply is offered.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::channel::Timer;
use super::message::Create;
use super::offer_search::{Offering, relaxed};
use super::pending_decisions::NextStep;
use super::resources::Resources;
use super::states::State;
use super::transitions::InputDetails;
use super::{Attempt, Channel, Signalling, budget};
use crate::api::{ChannelRefusal, Event, OpenRequest, RefuseCause};
use crate::ids::ChannelId;

/// Longest time that a refusal waits for replies to offers. The best positive reply until then is reported.
const ASKING_TIME_MAX: Nanos = Nanos::from_secs(2);

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
        let probe_request = OpenRequest { contract: offering.asked(), probe: true, ..request.clone() };
        let create = self.first_create(&probe_request, &attempt, offering.via().to_vec());
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
        channel.deadline = Timer::due(offering.until());
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
        if offering.next(Err(Some(refusal))).is_none() || offering.until() <= now {
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
        if offering.next(answer).is_none() || offering.until() <= now {
            return self.report_refused(id, &attempt, offering.into_refusal());
        }
        let (contract, to) = (offering.asked(), channel.route.to.clone());
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
