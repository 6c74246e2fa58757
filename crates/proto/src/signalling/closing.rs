//! The end of a channel: how long it may take, what each end learns of it, and the sink's ENDED.

use punctual_analysis::{Instant, Nanos};

use super::channel::Timer;
use super::message::{Message, Route};
use super::resources::Resources;
use super::states::{Action, Input, Row, State};
use super::transitions::{CLOSED, InputDetails};
use super::{Channel, Signalling, budget};
use crate::api::{CloseReason, Event, Passed, Receipt, RefuseCause, Role};
use crate::ids::{LinkId, PathId};

/// Longest time that a sink's final report may take beyond the packets under way; about as long as a
/// neighbour's silence until it is given up.
const SETTLING_TIME_MAX: Nanos = Nanos::from_secs(5);

impl Signalling {
    /// Adds this host's own information about a channel that changes its state by `row` to that of the input.
    pub(super) fn note_end(
        &self,
        channel: &Channel,
        row: &Row,
        what: &mut InputDetails,
        resources: &dyn Resources,
    ) {
        // The operation is complete; any other input came in between.
        let is_done =
            row.input == Input::Drained || row.input == Input::Ended && what.reason == CloseReason::Local;
        if is_done {
            what.reason = channel.reason;
        }
        if row.role == Role::Sink && row.next == State::Gone {
            what.receipt = Some(resources.receipt(channel.local.channel));
        }
        if row.input == Input::Drained || row.actions.contains(&Action::SendPassed) {
            what.passed = resources.passed(channel.local.channel);
        }
        if row.role == Role::Source && row.state.holds() {
            what.sent = Some(resources.sent(channel.local.channel));
        }
        // Only a source that settles has one.
        let word = self.losses.word(channel.local.path);
        if let Some(word) = word.filter(|_| row.next == State::Gone) {
            (what.reason, what.receipt) = (channel.reason, Some(word));
        }
    }

    /// Starts the timer for the loss reports of the hosts on the route.
    pub(super) fn start_settling(&mut self, channel: &mut Channel, passed: Passed, now: Instant) {
        let transit = budget::transit_time_max(&channel.local.contract);
        let answered = transit + self.answer_time().min(SETTLING_TIME_MAX);
        channel.deadline = Timer::due(now + answered);
        self.losses.begin(channel.local.path, self.config.id, passed);
    }

    pub(super) fn report_closed(&mut self, channel: &mut Channel, what: &mut InputDetails) {
        self.answer_asker(channel, what);
        let at_source = channel.local.role == Role::Source;
        let lost_at = self.losses.end(channel.local.path, &channel.route.nodes, what.receipt.as_ref());
        let receipt = what.receipt.filter(|_| at_source).map(|receipt| Receipt { lost_at, ..receipt });
        let closed = Event::Closed { channel: channel.local.channel, reason: what.reason, receipt };
        self.announcements.events.push_back(closed);
    }

    /// Refuses the request of a receiver whose channel the source has closed before it was open.
    pub(super) fn answer_asker(&mut self, channel: &mut Channel, what: &mut InputDetails) {
        let attempt = channel.setup.as_mut().and_then(|setup| setup.attempt.as_mut());
        if let Some(asked) = attempt.and_then(|attempt| attempt.asked.take()) {
            let closed = || self.refusal(RefuseCause::Receiver(CLOSED.into()));
            let refusal = what.refusal.take().unwrap_or_else(closed);
            self.answer_no(&asked, refusal);
        }
    }

    /// How long a closing channel may take here: at its source until queued messages are sent, behind it as
    /// long as the last packet may be under way. A host that stops has its grace and no longer.
    pub(super) fn drain_time(&self, channel: &Channel) -> Nanos {
        let grace = self.config.signalling.grace;
        let needed = match channel.local.role {
            Role::Source => budget::drain_max(&channel.local.contract).max(grace),
            Role::Forwarder | Role::Sink => budget::transit_time_max(&channel.local.contract),
        };
        if self.leaving { needed.min(grace) } else { needed }
    }

    pub(super) fn send_ended(&mut self, channel: &Channel, reason: CloseReason, receipt: Option<Receipt>) {
        let route = Route { nodes: channel.route.nodes.clone(), position: channel.position }.back();
        self.pass_ended(channel.local.path, route, reason, receipt.unwrap_or_default());
    }

    /// `route` as its next receiver sees it.
    pub(super) fn pass_ended(&mut self, path: PathId, route: Route, reason: CloseReason, receipt: Receipt) {
        let link = self.link_along(&route);
        self.send_to_neighbour(link, &Message::Ended { path, route, reason, receipt });
    }

    pub(super) fn on_ended(
        &mut self,
        link: LinkId,
        path: PathId,
        route: &Route,
        what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if route.next().is_some() {
            self.pass_ended(path, route.advanced(), what.reason, what.receipt.unwrap_or_default());
        } else {
            let waits = |c: &&Channel| matches!(c.state, State::Open | State::Draining | State::Settling);
            let known = self.channels.of_path(path).filter(|c| c.local.link_out == Some(link));
            // At other hosts DESTROY, which follows hop by hop, carries what is needed.
            if let Some(id) = known.filter(waits).map(|channel| channel.local.channel) {
                self.apply(id, Input::Ended, what, now, resources);
            }
        }
    }
}
