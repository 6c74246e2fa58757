//! What the rows of [`super::states::TABLE`] mean: inputs found, actions done.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Ppm};

use super::Signalling;
use super::budget;
use super::channel::Channel;
use super::message::Message;
use super::resources::{CommitTerms, Resources};
use super::states::{Action, Input, Row, State, transition};
use crate::ids::{ChannelId, LinkId, PathId};
use crate::node::api::{ChannelRefusal, CloseReason, Event, OpenRequest, RefuseCause, Role, StageGrant};

/// What an input brings along.
#[derive(Debug)]
pub struct Particulars {
    /// Of the whole route.
    pub stages: Vec<StageGrant>,
    /// rho, as the hop behind knows it.
    pub drift: Ppm,
    pub refusal: Option<ChannelRefusal>,
    /// Why it ends, as this end's application is told.
    pub reason: CloseReason,
}

impl Default for Particulars {
    fn default() -> Self {
        Self::reason(CloseReason::PathLost)
    }
}
impl Particulars {
    pub const fn reason(reason: CloseReason) -> Self {
        Self { stages: Vec::new(), drift: Ppm(0), refusal: None, reason }
    }
    pub fn stages(stages: Vec<StageGrant>) -> Self {
        Self { stages, ..Self::default() }
    }
    pub fn refusal(refusal: ChannelRefusal) -> Self {
        Self { refusal: Some(refusal), ..Self::default() }
    }
}

/// Makes the local stages final and writes them into the route's.
pub fn commit(
    channel: &mut Channel,
    stages: &mut [StageGrant],
    resources: &mut dyn Resources,
) -> Result<CommitTerms, RefuseCause> {
    let garbled = || RefuseCause::Unsuitable("ACCEPT does not fit what was held".into());
    let Channel { local, drift, setup: Some(setup), .. } = channel else { return Err(garbled()) };
    let (own, drift) = (setup.own.clone(), *drift);
    let mine = stages.get(own.clone()).ok_or_else(garbled)?;
    if mine != &*setup.stages || budget::spent(stages, drift) > local.contract.deadline {
        return Err(garbled());
    }
    let fixed = setup.arrival_error_fixed;
    let terms = budget::terms(&local.contract, stages, own.clone(), local.role, fixed, drift);
    let grants = resources.commit(local, &terms)?;
    let within = grants.iter().zip(&terms.bounds).all(|(grant, most)| grant.bound <= *most);
    if grants.len() != own.len() || !within {
        return Err(RefuseCause::Unsuitable("stages took more than their share".into()));
    }
    stages[own].copy_from_slice(&grants);
    setup.stages = grants;
    Ok(terms)
}

impl Signalling {
    /// Drives one channel by the table. Nothing changes where the input is unexpected.
    pub(super) fn apply(
        &mut self,
        id: ChannelId,
        input: Input,
        mut what: Particulars,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(mut channel) = self.channels.take(id) else { return };
        let Some(mut row) = transition(channel.local.role, channel.state, input) else {
            self.counters.unexpected += 1;
            self.channels.insert(channel);
            return;
        };
        channel.drift = channel.drift.max(what.drift);
        if row.actions.contains(&Action::Commit)
            && let Err(cause) = commit(&mut channel, &mut what.stages, resources)
        {
            what.refusal = Some(self.refusal(cause));
            let Some(failed) = transition(channel.local.role, channel.state, Input::CommitFailed) else {
                return;
            };
            row = failed;
        }
        self.carry_out(channel, row, what, now, resources);
    }

    fn carry_out(
        &mut self,
        mut channel: Box<Channel>,
        row: &Row,
        mut what: Particulars,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if row.state == State::Draining {
            what.reason = channel.reason;
        }
        let refused = row.role == Role::Forwarder && row.input == Input::Refuse;
        let keeps = refused && active(Mutation::RefuseKeepsHold);
        if row.next == State::Gone && row.state != State::Probing && !keeps {
            resources.release(channel.local.channel);
        }
        if row.next != row.state {
            channel.deadline = None;
        }
        channel.state = row.next;
        for action in row.actions.iter().filter(|action| !matches!(action, Action::TryNext)) {
            self.act(&mut channel, *action, &mut what, now);
        }
        if matches!(row.next, State::Accepted | State::Open) {
            channel.setup = None;
        }
        if row.next != State::Gone {
            self.channels.insert(channel);
        } else if row.actions.contains(&Action::TryNext) {
            self.try_next(*channel, what, now, resources);
        }
    }

    fn act(&mut self, channel: &mut Channel, action: Action, what: &mut Particulars, now: Instant) {
        let (path, id) = (channel.local.path, channel.local.channel);
        let (up, down) = (channel.local.link_in, channel.local.link_out);
        match action {
            Action::Commit | Action::TryNext => {}
            Action::SendAccept => {
                let at_sink = channel.local.role == Role::Sink;
                let own = channel.setup.as_mut().filter(|_| at_sink).map(|setup| &mut setup.all_stages);
                let stages = core::mem::take(own.unwrap_or(&mut what.stages));
                self.say_to(up, &Message::Accept { path, drift: channel.drift, stages });
            }
            Action::SendConfirm => self.say_to(down, &Message::Confirm { path }),
            Action::SendRefuse => {
                let next = channel.next().unwrap_or(self.config.id);
                let lost = || self.refusal(self.unreachable(next));
                let refusal = what.refusal.take().unwrap_or_else(lost);
                self.say_to(up, &Message::Refuse { path, refusal });
            }
            Action::DestroyForward => {
                self.say_to(down, &Message::Destroy { path, reason: told(what.reason) })
            }
            Action::DestroyBack => self.say_to(up, &Message::Destroy { path, reason: told(what.reason) }),
            Action::StartGrace => {
                let grace = self.config.signalling.grace;
                let at_source = channel.local.role == Role::Source;
                let grace = if at_source { grace } else { grace.min(channel.local.contract.deadline) };
                channel.reason = what.reason;
                channel.deadline = Some(now + grace);
                channel.lease = None;
            }
            Action::TellOpened => {
                let grant = self.grant(channel, core::mem::take(&mut what.stages));
                self.events.push_back(Event::Opened { channel: id, grant });
            }
            Action::TellProbed => {
                let grant = self.grant(channel, core::mem::take(&mut what.stages));
                self.events.push_back(Event::Probed { channel: id, answer: Ok(grant) });
            }
            Action::TellEstablished => self.events.push_back(Event::Established { channel: id }),
            Action::TellClosed => self.events.push_back(Event::Closed { channel: id, reason: what.reason }),
        }
    }

    fn try_next(
        &mut self,
        mut channel: Channel,
        what: Particulars,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(mut attempt) = channel.take_setup().attempt else { return };
        let next = channel.next().unwrap_or(self.config.id);
        attempt.note(what.refusal.unwrap_or_else(|| self.refusal(self.unreachable(next))));
        let (contract, user, probe) = (*channel.local.contract, attempt.user, attempt.probe);
        let request = OpenRequest { to: channel.way.to.clone(), contract, user, probe, token: None };
        self.try_routes(channel.local.channel, &request, attempt, now, resources);
    }

    pub(super) fn apply_to_path(
        &mut self,
        path: PathId,
        input: Input,
        what: Particulars,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        match self.channels.of_path(path) {
            Some(channel) => {
                let id = channel.local.channel;
                self.apply(id, input, what, now, resources);
            }
            // It crossed the end of the channel.
            None => self.counters.unexpected += 1,
        }
    }

    /// A message about a channel, which must come from the side that may say it.
    pub(super) fn on_channel_message(
        &mut self,
        link: LinkId,
        message: Message,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let (path, forward, backward, what) = match message {
            Message::Accept { path, drift, stages } => {
                let what = Particulars { drift, ..Particulars::stages(stages) };
                (path, None, Some(Input::Accept), what)
            }
            Message::Refuse { path, refusal } => {
                (path, None, Some(Input::Refuse), Particulars::refusal(refusal))
            }
            Message::Confirm { path } => (path, Some(Input::Confirm), None, Particulars::default()),
            Message::Destroy { path, reason } => {
                (path, Some(Input::DestroyForward), Some(Input::DestroyBack), Particulars::reason(reason))
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

/// A close here is a close by the peer there.
const fn told(reason: CloseReason) -> CloseReason {
    match reason {
        CloseReason::Local => CloseReason::Peer,
        other => other,
    }
}
