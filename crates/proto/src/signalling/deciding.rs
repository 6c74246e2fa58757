//! Channels that wait for the decision of this host's own stages: it may take longer than a packet can wait, so the stages
//! answer later ([`Resources::poll_answer`]), and what was begun goes on then.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::contract::SPAN_MAX;
use punctual_analysis::{Instant, Nanos};

use super::decisions::NextStep;
use super::message::{Create, Message};
use super::resources::{Answer, LocalChannel, Resources};
use super::transitions::{CLOSED, InputDetails};
use super::{Channel, PendingDecision, Signalling, budget};
use crate::api::{ChannelRefusal, CloseReason, Event, RefuseCause, Role, StageGrant};
use crate::ids::{ChannelId, LinkId};

impl Signalling {
    /// Asks the local stages for what `create` wants of `local`, and goes on with `then` when they have answered.
    pub(super) fn ask_stages(
        &mut self,
        local: LocalChannel,
        create: Create,
        then: NextStep,
        resources: &mut dyn Resources,
    ) {
        let local = Arc::new(local);
        let deciding = PendingDecision { local, create, refused: None, closed: None, then };
        let PendingDecision { local, create, .. } = &deciding;
        let propagation_max = self.propagation_max(local.link_out);
        let limit = budget::limit(&local.contract, &create.stages, propagation_max, create.drift);
        match limit {
            Some(limit) => {
                resources.ask(local, limit, create.probe);
                self.deciding.insert(deciding);
            }
            None => {
                let (possible, wanted) = (self.spent_with(create, local, &[]), local.contract.deadline);
                self.ask_how_much(deciding, RefuseCause::Deadline { possible, wanted }, resources);
            }
        }
    }

    /// Time is what lacks: the stages say how much they would need.
    fn ask_how_much(&mut self, deciding: PendingDecision, cause: RefuseCause, resources: &mut dyn Resources) {
        resources.ask(&deciding.local, SPAN_MAX, true);
        self.deciding.insert(PendingDecision { refused: Some(cause), ..deciding });
    }

    /// Notes the time that a decision took, for charging its user.
    pub fn note_decision(&mut self, channel: ChannelId, took: Nanos) {
        self.announcements.events.push_back(Event::Decided { channel, took });
    }

    /// Goes on with what the stages have answered.
    pub fn settle(&mut self, now: Instant, resources: &mut dyn Resources) {
        while let Some(answer) = resources.poll_answer() {
            match answer {
                Answer::Held(id, answer) => self.answered(id, answer, now, resources),
                Answer::Final(id) => self.finalised(id, now, resources),
                Answer::Tried(id, answer) => self.probe_tested(id, answer, now, resources),
            }
        }
    }

    fn answered(
        &mut self,
        id: ChannelId,
        answer: Result<Vec<StageGrant>, RefuseCause>,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(mut deciding) = self.deciding.remove(id) else {
            // Nobody wants it any more.
            return resources.release(id);
        };
        if let Some(reason) = deciding.closed {
            resources.release(id);
            return self.announcements.events.push_back(Event::Closed { channel: id, reason, receipt: None });
        }
        let refused = deciding.refused.take();
        let PendingDecision { local, create, .. } = &deciding;
        if let Some(cause) = refused {
            let possible = answer.ok().map(|stages| self.spent_with(create, local, &stages));
            let refusal = self.refusal_of(cause, possible, create);
            return self.stages_refused(deciding, refusal, now, resources);
        }
        let kept = answer.and_then(|stages| self.within_deadline(local, create, stages));
        match kept.and_then(|stages| self.still_wanted(local, create).map(|()| stages)) {
            Ok(stages) => self.stages_held(deciding, stages, now, resources),
            Err(cause) => {
                resources.release(id);
                if budget::wants_time(&cause) {
                    self.ask_how_much(deciding, cause, resources);
                    return self.settle(now, resources);
                }
                let refusal = self.refusal_of(cause, None, create);
                self.stages_refused(deciding, refusal, now, resources);
            }
        }
    }

    /// All stages together keep what the stages before have left of D.
    fn within_deadline(
        &self,
        local: &LocalChannel,
        create: &Create,
        stages: Vec<StageGrant>,
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        let propagation_max = self.propagation_max(local.link_out);
        let limit = budget::limit(&local.contract, &create.stages, propagation_max, create.drift);
        if limit.is_some_and(|limit| stages.iter().map(|stage| stage.bound).sum::<Nanos>() <= limit) {
            return Ok(stages);
        }
        let (possible, wanted) = (self.spent_with(create, local, &stages), local.contract.deadline);
        Err(RefuseCause::Deadline { possible, wanted })
    }

    /// The host has begun to stop, or lost the next hop, since the stages were asked.
    fn still_wanted(&self, local: &LocalChannel, create: &Create) -> Result<(), RefuseCause> {
        if self.leaving {
            return Err(RefuseCause::Exhausted);
        }
        match create.route.next().filter(|_| local.role != Role::Sink) {
            Some(next) if self.link_to(next).is_none() => Err(self.unreachable(next)),
            _ => Ok(()),
        }
    }

    fn stages_held(
        &mut self,
        deciding: PendingDecision,
        stages: Vec<StageGrant>,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let PendingDecision { local, create, then, .. } = deciding;
        let channel = Box::new(self.channel_of(local, &create, stages));
        match then {
            NextStep::Try { attempt, .. } => self.tried(channel, attempt, create, now),
            NextStep::Offer { attempt, offering, .. } => {
                self.offer_asked(channel, attempt, *offering, create, now)
            }
            NextStep::PassOn(link) => self.entered(link, channel, create, now, resources),
            NextStep::AskReceiver(..) | NextStep::Test => {}
        }
    }

    fn stages_refused(
        &mut self,
        deciding: PendingDecision,
        refusal: ChannelRefusal,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let id = deciding.local.channel;
        match deciding.then {
            NextStep::Try { request, mut attempt, via } => {
                attempt.note(refusal, via);
                self.try_routes(id, &request, attempt, now, resources);
            }
            NextStep::Offer { request, attempt, offering } => {
                self.offer_refused(id, &request, attempt, *offering, refusal, now, resources);
            }
            NextStep::PassOn(link) | NextStep::AskReceiver(link, ..) => {
                self.answer_refused(link, &deciding.create, refusal);
            }
            NextStep::Test => {}
        }
    }

    /// A CREATE that this host refuses.
    pub(super) fn answer_refused(&mut self, link: LinkId, create: &Create, refusal: ChannelRefusal) {
        if create.probe {
            self.answer_probe(create, Err(refusal));
        } else {
            let answer = Message::Refuse { path: create.path, refusal };
            self.answer(Some(link), create.source(), &answer);
        }
    }

    /// The stages of a channel that ends here are to be final before its receiver is asked.
    pub(super) fn await_final(
        &mut self,
        link: LinkId,
        create: Create,
        channel: Box<Channel>,
        stages: Vec<StageGrant>,
    ) {
        let local = channel.local.clone();
        let then = NextStep::AskReceiver(link, channel, stages);
        self.deciding.insert(PendingDecision { local, create, refused: None, closed: None, then });
    }

    /// The stages of a channel are final: what waited for that goes on.
    fn finalised(&mut self, id: ChannelId, now: Instant, resources: &mut dyn Resources) {
        if let Some((create, link, channel, stages)) = self.deciding.take_final(id) {
            return match self.leaving {
                true => {
                    resources.release(id);
                    let refusal = self.refusal_of(RefuseCause::Exhausted, None, &create);
                    self.answer_refused(link, &create, refusal);
                }
                false => self.ask_receiver(link, channel, stages, &create, now, resources),
            };
        }
        let Some(mut channel) = self.channels.take(id) else { return resources.release(id) };
        let accepted = channel.setup.as_mut().and_then(|setup| setup.accepted.take());
        match accepted {
            Some(stages) => self.commit(channel, InputDetails::stages(stages), now, resources),
            None => self.channels.insert(channel),
        }
    }

    /// A channel that came over a link gives way to another while its stages are asked.
    pub(super) fn give_way_deciding(&mut self, id: ChannelId) {
        let deciding = self.deciding.remove(id);
        let from = deciding.and_then(|deciding| Some((deciding.local.link_in?, deciding.create)));
        let Some((link, create)) = from else { return };
        let refusal = self.refusal(RefuseCause::Crowded);
        self.answer_refused(link, &create, refusal);
    }

    /// An application closes what waits here, which ends when the stages have answered; `false` if nothing does.
    pub(super) fn close_deciding(&mut self, id: ChannelId, reason: CloseReason) -> bool {
        let Some((closed, attempt)) = self.deciding.begun_here(id) else { return false };
        if closed.is_some() {
            return false;
        }
        *closed = Some(reason);
        if let Some(asked) = attempt.asked.take() {
            self.answer_no(&asked, self.refusal(RefuseCause::Receiver(CLOSED.into())));
        }
        true
    }
}
