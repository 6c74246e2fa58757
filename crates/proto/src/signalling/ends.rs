//! Requests of applications and of this host for channels that begin or end here: listeners, consent,
//! closing.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::resources::Resources;
use super::states::{Input, State, transition};
use super::transitions::{CLOSED, InputDetails};
use super::{Listener, Signalling};
use crate::api::{CloseReason, RefuseCause, RequestError, Role};
use crate::ids::{ChannelId, ListenerId, Name};
use crate::limits::{ENDS_MAX, LISTENERS_MAX, REASON_BYTES_MAX};
use crate::text::Foreign;

impl Signalling {
    /// Registers a listener. `handler_time`: the time that the application declares for handling a message on
    /// the processor.
    ///
    /// # Errors
    /// The name is taken, or there are too many.
    pub fn listen(&mut self, port: Name, handler_time: Nanos) -> Result<ListenerId, RequestError> {
        if self.listeners.by_name.contains_key(&port) {
            return Err(RequestError::NameTaken(port));
        }
        if self.listeners.by_name.len() >= LISTENERS_MAX {
            return Err(RequestError::Exhausted);
        }
        self.listeners.last_id += 1;
        let listener = ListenerId(self.listeners.last_id);
        self.listeners.names.insert(listener, port.clone());
        self.listeners.by_name.insert(port, Listener { id: listener, handler_time });
        Ok(listener)
    }
    /// Ends a listener. Its open channels stay. Channels that wait for its consent are refused, and get
    /// `Closed` here: some at once, the others by [`Self::handle_timeout`].
    ///
    /// # Errors
    /// `Unknown` if there is no such listener.
    pub fn unlisten(
        &mut self,
        listener: ListenerId,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let port = self.listeners.names.remove(&listener).ok_or(RequestError::Unknown)?;
        self.listeners.by_name.remove(&port);
        // The newest is served first, so a user with many refused channels does not delay the others.
        self.listeners.gone.push_front((listener, port));
        self.refuse_unlistened(now, resources);
        Ok(())
    }
    /// Whether [`Self::handle_timeout`] must be called again at once, because the work exceeds one call.
    pub fn has_more(&self) -> bool {
        !self.listeners.gone.is_empty() || self.refreshes.rest.is_some()
    }
    /// Refuses some of the channels that wait for a removed listener.
    pub(super) fn refuse_unlistened(&mut self, now: Instant, resources: &mut dyn Resources) {
        let Some((listener, port)) = self.listeners.gone.pop_front() else { return };
        let waiting: Vec<_> = self.channels.asking(listener).take(ENDS_MAX).collect();
        for &channel in &waiting {
            let refusal = self.refusal(RefuseCause::NoListener(port.clone()));
            // Unlike after an agent's own refusal, this end gets `Closed`: the program that accounts for the
            // channel did not request its end.
            let what = InputDetails { reason: CloseReason::Local, ..InputDetails::refusal(refusal) };
            self.apply(channel, Input::Close, what, now, resources);
        }
        if waiting.len() == ENDS_MAX {
            self.listeners.gone.push_front((listener, port));
        }
    }
    /// The receiving application accepts `Incoming`. The data path must take packets from now on.
    ///
    /// # Errors
    /// The channel does not wait for it (any more).
    pub fn consent(
        &mut self,
        channel: ChannelId,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        self.apply_request(channel, Input::Consent, InputDetails::default(), now, resources)
    }
    /// The first packet of a channel that ends here has come. If the channel waits for its CONFIRM, a packet
    /// replaces it: a source sends only once it has the ACCEPT, and CONFIRM may wait for its turn on each
    /// link.
    pub fn first_data(&mut self, channel: ChannelId, now: Instant, resources: &mut dyn Resources) {
        if self.channels.get(channel).is_some_and(|channel| channel.state == State::Accepted) {
            self.apply(channel, Input::FirstData, InputDetails::default(), now, resources);
        }
    }
    /// The receiving application refuses `Incoming`.
    ///
    /// # Errors
    /// The channel does not wait for it (any more).
    pub fn refuse(
        &mut self,
        channel: ChannelId,
        why: &str,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let refusal = self.refusal(RefuseCause::Receiver(Foreign::beginning(why, REASON_BYTES_MAX / 4)));
        self.apply_request(channel, Input::Deny, InputDetails::refusal(refusal), now, resources)
    }
    /// Closes a channel at one of its ends for a `reason` of this end's. At the source the channel keeps its
    /// stages until [`Self::drained`], or until the time for queued messages is over. `Closed` follows with
    /// the sink's final report, or when the time for that report is over.
    ///
    /// # Errors
    /// There is none, or it is closing already.
    pub fn close(
        &mut self,
        channel: ChannelId,
        reason: CloseReason,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        if self.close_waiting(channel, reason) || self.close_deciding(channel, reason) {
            return Ok(());
        }
        let refusal = self.refusal(RefuseCause::Receiver(CLOSED.into()));
        let what = InputDetails { reason, ..InputDetails::refusal(refusal) };
        self.apply_request(channel, Input::Close, what, now, resources)
    }
    /// The node has no packets of a closing channel left: releases the channel before its time is over.
    pub fn drained(&mut self, channel: ChannelId, now: Instant, resources: &mut dyn Resources) {
        if self.channels.get(channel).is_some_and(|channel| channel.state == State::Draining) {
            self.apply(channel, Input::Drained, InputDetails::default(), now, resources);
        }
    }
    /// Ends a channel that this host cannot serve after all. A channel that is being set up is refused; an
    /// open one ends at once. All hosts of the route get the reason. A closing channel continues to close.
    pub fn abort(
        &mut self,
        channel: ChannelId,
        reason: CloseReason,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(known) = self.channels.get(channel) else { return };
        let input = match (known.local.role, known.state) {
            (_, State::Draining | State::Settling | State::Probing | State::Offering) => return,
            (Role::Source, State::Creating) | (Role::Sink, State::Asking) => Input::Silence,
            (Role::Forwarder, State::Creating) => Input::CommitFailed,
            _ => Input::LeaseOver,
        };
        let why = match reason {
            CloseReason::RuntimeRefused => "the kernel does not give the processor more time",
            _ => "the driver does not let its packets in",
        };
        let refusal = self.refusal(RefuseCause::Unsuitable(why.into()));
        let what = InputDetails { reason, ..InputDetails::refusal(refusal) };
        self.apply(channel, input, what, now, resources);
    }
    /// The channel that was admitted last, among those that are not closing.
    pub fn newest(&self) -> Option<ChannelId> {
        let held = |state: State| state.holds() && state != State::Draining;
        self.channels.iter().filter(|c| held(c.state)).map(|channel| channel.local.channel).max()
    }
    fn apply_request(
        &mut self,
        channel: ChannelId,
        input: Input,
        what: InputDetails,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let known = self.channels.get(channel).ok_or(RequestError::Unknown)?;
        transition(known.local.role, known.state, input).ok_or(RequestError::Unknown)?;
        self.apply(channel, input, what, now, resources);
        Ok(())
    }
}
