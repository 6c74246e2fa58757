//! Channels that wait for the decision of this host's own stages. A decision may take longer than a packet
//! can wait, so the stages reply later ([`Resources::poll_answer`]), and the operation continues then.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::contract::SPAN_MAX;
use punctual_analysis::{Instant, Nanos};

use super::message::{Create, Message};
use super::pending_decisions::NextStep;
use super::resources::{Answer, LocalChannel, Resources};
use super::transitions::{CLOSED, InputDetails};
use super::{Channel, PendingDecision, Signalling, budget};
use crate::api::{ChannelRefusal, CloseReason, Event, RefuseCause, Role, StageGrant};
use crate::ids::{ChannelId, LinkId};

impl Signalling {
    /// Asks the local stages for what `create` requests of `local`, and continues with `then` when they have
    /// replied.
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

    /// The stages refused for lack of time: asks them how much time they would need.
    fn ask_how_much(&mut self, deciding: PendingDecision, cause: RefuseCause, resources: &mut dyn Resources) {
        resources.ask(&deciding.local, SPAN_MAX, true);
        self.deciding.insert(PendingDecision { refused: Some(cause), ..deciding });
    }

    /// Notes the time that a decision took, for charging its user.
    pub fn note_decision(&mut self, channel: ChannelId, took: Nanos) {
        self.announcements.events.push_back(Event::Decided { channel, took });
    }

    /// Continues the operations whose stages have replied.
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
            // The channel was given up meanwhile.
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
        match kept.and_then(|stages| self.check_not_stopped_or_lost(local, create).map(|()| stages)) {
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

    /// Checks that all stages together need no more than the stages before have left of D.
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

    /// Refuses if the host has begun to stop, or has lost the next hop, since the stages were asked.
    fn check_not_stopped_or_lost(&self, local: &LocalChannel, create: &Create) -> Result<(), RefuseCause> {
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

    /// Sends the refusal of a CREATE by this host.
    pub(super) fn answer_refused(&mut self, link: LinkId, create: &Create, refusal: ChannelRefusal) {
        if create.probe {
            self.answer_probe(create, Err(refusal));
        } else {
            let answer = Message::Refuse { path: create.path, refusal };
            self.answer(Some(link), create.source(), &answer);
        }
    }

    /// Makes the stages of a channel that ends here final before its receiver is asked.
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

    /// The stages of a channel are final: continues the operation that waited for that.
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

    /// Ends a channel that came over a link while its stages are asked, to give its place to another.
    pub(super) fn evict_deciding(&mut self, id: ChannelId) {
        let deciding = self.deciding.remove(id);
        let from = deciding.and_then(|deciding| Some((deciding.local.link_in?, deciding.create)));
        let Some((link, create)) = from else { return };
        let refusal = self.refusal(RefuseCause::Crowded);
        self.answer_refused(link, &create, refusal);
    }

    /// Marks a channel that waits here as closed by its application; it ends when the stages have replied.
    /// Returns `false` if it does not wait here.
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
