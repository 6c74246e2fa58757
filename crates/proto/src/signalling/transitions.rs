//! The meaning of the rows of [`super::states::TABLE`]: derives inputs from messages, and performs actions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Ppm};

use super::channel::Timer;
use super::message::Message;
use super::resources::{CommitTerms, Resources};
use super::source_turns::Source;
use super::states::{Action, Input, Row, State, transition};
use super::{Channel, Signalling, budget};
use crate::api::{
    ChannelRefusal, CloseReason, Event, OpenRequest, Passed, Receipt, RefuseCause, Role, StageGrant, Tally,
    UserId,
};
use crate::ids::{ChannelId, LinkId, PathId};
use crate::limits::SHAPER_PATIENCE;

/// The reason that the other end of a half-open channel receives when one end closes it.
pub const CLOSED: &str = "closed";

/// Details that come with an input.
#[derive(Debug, PartialEq, Eq)]
pub struct InputDetails {
    /// Grants of all stages of the route.
    pub stages: Vec<StageGrant>,
    /// rho, as the hop behind knows it.
    pub drift: Ppm,
    pub refusal: Option<ChannelRefusal>,
    /// Why the channel ends, as reported to this end's application.
    pub reason: CloseReason,
    /// The sink's counts, if known.
    pub receipt: Option<Receipt>,
    /// Counts of what has passed this host.
    pub passed: Passed,
    /// Everything that the source has sent, if it has reported that.
    pub sent: Option<Tally>,
}

impl Default for InputDetails {
    fn default() -> Self {
        Self::reason(CloseReason::PathLost)
    }
}
impl InputDetails {
    pub fn reason(reason: CloseReason) -> Self {
        Self {
            stages: Vec::new(),
            drift: Ppm(0),
            refusal: None,
            reason,
            receipt: None,
            passed: Passed::default(),
            sent: None,
        }
    }
    pub fn stages(stages: Vec<StageGrant>) -> Self {
        Self { stages, ..Self::default() }
    }
    pub fn refusal(refusal: ChannelRefusal) -> Self {
        Self { refusal: Some(refusal), ..Self::default() }
    }
}

/// The terms of the local stages, computed from the route's `stages`.
fn terms(channel: &Channel, stages: &[StageGrant]) -> Result<CommitTerms, RefuseCause> {
    let garbled = || RefuseCause::Unsuitable("ACCEPT does not fit what was held".into());
    let Channel { local, drift, setup, .. } = channel;
    let setup = setup.as_ref().ok_or_else(garbled)?;
    let mine = stages.get(setup.own.clone()).ok_or_else(garbled)?;
    if mine != &*setup.stages || budget::spent(stages, *drift) > local.contract.deadline {
        return Err(garbled());
    }
    let (own, fixed) = (setup.own.clone(), setup.arrival_error_fixed);
    Ok(budget::terms(&local.contract, stages, own, local.role, fixed, *drift))
}

/// Requests the final bounds of the local stages.
pub fn ask_final(
    channel: &Channel,
    stages: &[StageGrant],
    resources: &mut dyn Resources,
) -> Result<(), RefuseCause> {
    resources.ask_final(&channel.local, &terms(channel, stages)?);
    Ok(())
}

/// Makes a channel final whose stages have replied, and stores their bounds in the route's.
pub fn commit(
    channel: &mut Channel,
    stages: &mut [StageGrant],
    resources: &mut dyn Resources,
) -> Result<CommitTerms, RefuseCause> {
    let terms = terms(channel, stages)?;
    let mut grants = resources.commit(&channel.local, &terms)?;
    let setup = channel.setup_mut();
    let own = setup.own.clone();
    let within = grants.iter().zip(&terms.bounds).all(|(grant, most)| grant.bound <= *most);
    if grants.len() != own.len() || !within {
        return Err(RefuseCause::Unsuitable("stages took more than their share".into()));
    }
    // The details of the offer stay: a stage that holds the channel reports only the rest.
    for (grant, offer) in grants.iter_mut().zip(&setup.stages) {
        let StageGrant { offered, made_of, cold_start, .. } = *offer;
        *grant = StageGrant { offered, made_of, cold_start, ..*grant };
    }
    stages[own].copy_from_slice(&grants);
    setup.stages = grants;
    Ok(terms)
}

/// The user who requested a channel that is being set up.
fn source_of(channel: &Channel) -> Source {
    channel.source().unwrap_or(Source { node: channel.local.path.node, user: UserId::default() })
}

impl Signalling {
    /// Applies an input to one channel by the table. An unexpected input has no effect.
    pub(super) fn apply(
        &mut self,
        id: ChannelId,
        input: Input,
        what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(mut channel) = self.channels.take(id) else { return };
        let Some(row) = transition(channel.local.role, channel.state, input) else {
            self.counters.unexpected += 1;
            self.channels.insert(channel);
            return;
        };
        channel.drift = channel.drift.max(what.drift);
        if row.actions.contains(&Action::Commit) {
            return self.begin_commit(channel, what, now, resources);
        }
        self.carry_out(channel, row, what, now, resources);
    }

    /// Requests the final bounds of the local stages; [`Self::commit`] follows.
    fn begin_commit(
        &mut self,
        mut channel: Box<Channel>,
        mut what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let is_asked = channel.setup.as_ref().is_some_and(|setup| setup.accepted.is_some());
        if is_asked {
            self.counters.unexpected += 1;
            return self.channels.insert(channel);
        }
        match ask_final(&channel, &what.stages, resources) {
            Ok(()) => {
                channel.setup_mut().accepted = Some(core::mem::take(&mut what.stages));
                self.channels.insert(channel);
                self.settle(now, resources);
            }
            Err(cause) => self.commit_failed(channel, cause, what, now, resources),
        }
    }

    /// Continues with the final bounds of the local stages.
    pub(super) fn commit(
        &mut self,
        mut channel: Box<Channel>,
        mut what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if let Err(cause) = commit(&mut channel, &mut what.stages, resources) {
            return self.commit_failed(channel, cause, what, now, resources);
        }
        self.note_degraded(&mut channel, &what.stages);
        let waits = !resources.fits(&channel.local);
        let input = if waits { Input::NotYet } else { Input::Accept };
        match transition(channel.local.role, channel.state, input) {
            Some(row) => self.carry_out(channel, row, what, now, resources),
            None => self.channels.insert(channel),
        }
    }

    fn commit_failed(
        &mut self,
        channel: Box<Channel>,
        cause: RefuseCause,
        mut what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        what.refusal = Some(self.refusal(cause));
        match transition(channel.local.role, channel.state, Input::CommitFailed) {
            Some(row) => self.carry_out(channel, row, what, now, resources),
            None => self.channels.insert(channel),
        }
    }

    fn carry_out(
        &mut self,
        mut channel: Box<Channel>,
        row: &Row,
        mut what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        self.note_end(&channel, row, &mut what, resources);
        let refused = row.role == Role::Forwarder && row.input == Input::Refuse;
        let keeps = refused && active(Mutation::RefuseKeepsHold);
        if let (State::Probing | State::Offering, Some(link)) = (row.state, channel.local.link_out) {
            self.withdraw(link, channel.local.path);
        }
        if row.state.holds() && !row.next.holds() && !keeps {
            resources.release(channel.local.channel);
        }
        if row.next != row.state {
            channel.deadline = Timer::OFF;
        }
        channel.state = row.next;
        resources.outdate(channel.local.channel);
        for action in row.actions.iter().filter(|action| !matches!(action, Action::TryNext)) {
            self.act(&mut channel, *action, &mut what, now);
        }
        if matches!(row.next, State::Accepted | State::Open) {
            channel.setup = None;
        }
        if row.next == State::Open && row.state != State::Open {
            self.report_opened_across(&channel);
        }
        let awaits = row.next == State::Draining && row.state != State::Draining && row.role != Role::Source;
        let last = what.sent.filter(|_| awaits).map(|sent| (channel.local.channel, sent));
        if row.next != State::Gone {
            self.channels.insert(channel);
            last.into_iter().for_each(|(id, sent)| resources.await_last(id, sent));
        } else if row.actions.contains(&Action::TryNext) {
            self.try_next(*channel, what, now, resources);
        }
    }

    fn act(&mut self, channel: &mut Channel, action: Action, what: &mut InputDetails, now: Instant) {
        let (path, id) = (channel.local.path, channel.local.channel);
        let (up, down) = (channel.local.link_in, channel.local.link_out);
        match action {
            Action::Commit | Action::TryNext => {}
            Action::SendAccept => self.send_accept(channel, what),
            Action::KeepAnswer => {
                channel.setup_mut().all_stages = core::mem::take(&mut what.stages);
                channel.deadline = Timer::due(now + SHAPER_PATIENCE);
            }
            Action::SendConfirm => self.send_to_neighbour(down, &Message::Confirm { path }),
            Action::SendRefuse => self.send_refuse(channel, what),
            Action::DestroyForward => self.send_to_neighbour(
                down,
                &Message::Destroy { path, reason: what.reason.reported(), sent: what.sent },
            ),
            Action::DestroyBack => self.send_to_neighbour(
                up,
                &Message::Destroy { path, reason: what.reason.reported(), sent: None },
            ),
            Action::KeepWord => {
                channel.reason = what.reason;
                self.losses.keep_word(path, what.receipt.take().unwrap_or_default());
            }
            Action::SendPassed => self.send_passed(channel, what.passed),
            Action::SendDone => self.send_ended(channel, CloseReason::Local, what.receipt),
            Action::SendEnded => self.send_ended(channel, what.reason.reported(), what.receipt),
            Action::StartGrace => {
                channel.reason = what.reason;
                channel.deadline = Timer::due(now + self.drain_time(channel));
            }
            Action::StartSettling => self.start_settling(channel, what.passed, now),
            Action::TellOpened => {
                let grant = self.grant(channel, core::mem::take(&mut what.stages));
                self.announcements.events.push_back(Event::Opened { channel: id, grant });
            }
            Action::TellProbed => {
                let grant = self.grant(channel, core::mem::take(&mut what.stages));
                self.announcements.events.push_back(Event::Probed { channel: id, answer: Ok(grant) });
            }
            Action::TellEstablished => {
                self.announcements.events.push_back(Event::Established { channel: id })
            }
            Action::TellClosed => self.report_closed(channel, what),
        }
    }

    fn send_accept(&mut self, channel: &mut Channel, what: &mut InputDetails) {
        let at_sink = channel.local.role == Role::Sink;
        let own = channel.setup.as_mut().filter(|_| at_sink).map(|setup| &mut setup.all_stages);
        let stages = core::mem::take(own.unwrap_or(&mut what.stages));
        let accept = Message::Accept { path: channel.local.path, drift: channel.drift, stages };
        self.answer(channel.local.link_in, source_of(channel), &accept);
    }

    fn send_refuse(&mut self, channel: &Channel, what: &mut InputDetails) {
        let next = channel.next().unwrap_or(self.config.id);
        let lost = || self.refusal(self.unreachable(next));
        let refusal = what.refusal.take().unwrap_or_else(lost);
        let refuse = Message::Refuse { path: channel.local.path, refusal };
        self.answer(channel.local.link_in, source_of(channel), &refuse);
    }

    /// The outgoing link now meets the bounds of a final channel: its reply is sent.
    pub fn fitted(&mut self, id: ChannelId, now: Instant, resources: &mut dyn Resources) {
        let stages = self.channels.change(id, |channel| {
            let kept = channel.setup.as_mut().filter(|_| channel.state == State::Fitting);
            kept.map(|setup| core::mem::take(&mut setup.all_stages))
        });
        if let Some(stages) = stages.flatten() {
            self.apply(id, Input::Fitted, InputDetails::stages(stages), now, resources);
        }
    }

    fn try_next(
        &mut self,
        mut channel: Channel,
        what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(mut attempt) = channel.take_setup().attempt else { return };
        if let Some(offering) = attempt.offering.take() {
            return self.offer_answered(&channel, attempt, offering, what, now, resources);
        }
        let next = channel.next().unwrap_or(self.config.id);
        let refusal = what.refusal.unwrap_or_else(|| self.refusal(self.unreachable(next)));
        attempt.note(refusal, channel.route.nodes.iter().skip(1).copied().collect());
        let (contract, user, probe) = (*channel.local.contract, attempt.user, attempt.probe);
        let request = OpenRequest { to: channel.route.to.clone(), contract, user, probe, token: None };
        self.try_routes(channel.local.channel, &request, attempt, now, resources);
    }

    pub(super) fn apply_to_path(
        &mut self,
        path: PathId,
        input: Input,
        what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        match self.channels.of_path(path) {
            Some(channel) => {
                let id = channel.local.channel;
                self.apply(id, input, what, now, resources);
            }
            // The report crossed the end of the channel.
            None => self.counters.unexpected += 1,
        }
    }

    /// Handles a message about a channel. It must come from the side that may send it.
    pub(super) fn on_channel_message(
        &mut self,
        link: LinkId,
        message: Message,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let (path, forward, backward, what) = match message {
            Message::Accept { path, drift, stages } => {
                let what = InputDetails { drift, ..InputDetails::stages(stages) };
                (path, None, Some(Input::Accept), what)
            }
            Message::Refuse { path, refusal } => {
                (path, None, Some(Input::Refuse), InputDetails::refusal(refusal))
            }
            Message::Confirm { path } => (path, Some(Input::Confirm), None, InputDetails::default()),
            Message::Destroy { path, reason, sent } => {
                self.forget_waiting(path, link);
                let what = InputDetails { sent, ..InputDetails::reason(reason) };
                (path, Some(Input::DestroyForward), Some(Input::DestroyBack), what)
            }
            _ => return,
        };
        let side = self.channels.of_path(path).map(|channel| &channel.local);
        let input = match side {
            Some(local) if local.link_in == Some(link) => forward,
            Some(local) if local.link_out == Some(link) => backward,
            _ => None,
        };
        match input {
            Some(input) => self.apply_to_path(path, input, what, now, resources),
            None => self.counters.unexpected += 1,
        }
    }
}
