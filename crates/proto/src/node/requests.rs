//! Requests of applications to a node.

use punctual_analysis::{Contract, Instant, Nanos};

use super::Node;
use super::plane::{FlowRoute, Message, Plane, Portion, room_bytes};
use crate::api::{CloseReason, OpenRequest, RequestError, UserId};
use crate::ids::{Address, ChannelId, ChannelNumber, LinkId, ListenerId, Name, NodeId, PathId};
use crate::limits::RING_MESSAGES_MAX;
use crate::memory::Memory;

impl<M: Memory> Node<M> {
    /// Memory of the node, in bytes, for each message of a source's burst: its place in a queue, for as long
    /// as the channel exists.
    pub const SOURCE_MESSAGE_BYTES: u64 = room_bytes::<Message<M>>() as u64;

    /// Largest memory of the node, in bytes, for a best-effort port with messages of at most
    /// `message_bytes_max` bytes, beside its ring, for as long as the port is bound.
    pub fn port_room_bytes(message_bytes_max: u32) -> u64 {
        Plane::<M>::port_room_bytes(message_bytes_max)
    }

    /// Listens on a name.
    ///
    /// # Errors
    /// `NameTaken` for a second listener.
    pub fn listen(&mut self, port: Name) -> Result<ListenerId, RequestError> {
        self.listen_with(port, Nanos::ZERO)
    }

    /// Listens on a name whose application handles each message on the processor right at its delivery (an
    /// [`Inbox`](crate::memory::Inbox) that does so in `publish`) and declares `handler_time` for that: channels
    /// to it are admitted with it.
    ///
    /// # Errors
    /// `NameTaken` for a second listener.
    pub fn listen_with(&mut self, port: Name, handler_time: Nanos) -> Result<ListenerId, RequestError> {
        self.signalling.listen(port, handler_time)
    }

    /// The ring of a channel that ends here and was consented to.
    pub fn inbox_mut(&mut self, channel: ChannelId) -> Option<&mut M::Inbox> {
        self.plane.inbox_mut(channel)
    }

    /// Stops listening. Open channels stay; channels that wait for consent are refused and end with `Closed`.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn unlisten(&mut self, listener: ListenerId, now: Instant) -> Result<(), RequestError> {
        self.signalling.unlisten(listener, now, &mut self.plane)
    }

    /// Starts to open a channel; `Opened`, `Refused` or `Probed` follows.
    ///
    /// # Errors
    /// If it cannot even be tried.
    pub fn open(&mut self, request: OpenRequest, now: Instant) -> Result<ChannelId, RequestError> {
        self.signalling.open(request, now, &mut self.plane)
    }

    /// Gives an opened channel its outgoing ring.
    ///
    /// # Errors
    /// `Unknown` if it is not an open source, or has one already.
    pub fn attach_outbox(
        &mut self,
        channel: ChannelId,
        outbox: M::Outbox,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.plane.attach_outbox(channel, outbox, now).ok_or(RequestError::Unknown)
    }

    /// Gives an open source another outgoing ring than it has. Messages that were taken from the old one are sent.
    ///
    /// # Errors
    /// `Unknown` if it is not an open source with a ring.
    pub fn replace_outbox(
        &mut self,
        channel: ChannelId,
        outbox: M::Outbox,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.plane.replace_outbox(channel, outbox, now).ok_or(RequestError::Unknown)
    }

    /// The agent consents to an incoming channel and provides its ring.
    ///
    /// # Errors
    /// `Unknown` if it does not wait for consent (any more).
    pub fn consent(&mut self, channel: ChannelId, inbox: M::Inbox, now: Instant) -> Result<(), RequestError> {
        self.signalling.consent(channel, now, &mut self.plane)?;
        self.plane.attach_inbox(channel, inbox).ok_or(RequestError::Unknown)
    }

    /// Memory of the node, in bytes, for the messages and packets of an open channel, beside the
    /// application's ring, for as long as the channel exists. The few hundred bytes that every channel needs
    /// are not included.
    pub fn room_bytes(&self, channel: ChannelId) -> u64 {
        self.plane.room_bytes(channel)
    }

    /// The agent refuses an incoming channel.
    ///
    /// # Errors
    /// `Unknown` if it does not wait for consent (any more).
    pub fn refuse(&mut self, channel: ChannelId, why: &str, now: Instant) -> Result<(), RequestError> {
        self.signalling.refuse(channel, why, now, &mut self.plane)
    }

    /// Requests that a source host's listener opens a channel to `reply_to` here (as RSVP's receivers do).
    ///
    /// # Errors
    /// If it cannot even be tried.
    pub fn request(
        &mut self,
        source: &Address,
        reply_to: Name,
        contract: Contract,
        user: UserId,
        now: Instant,
    ) -> Result<u64, RequestError> {
        self.signalling.request(source, reply_to, contract, user, now)
    }

    /// Refuses a receiver's request.
    ///
    /// # Errors
    /// `Unknown` if the request does not wait (any more).
    pub fn refuse_request(&mut self, token: u64, why: &str, now: Instant) -> Result<(), RequestError> {
        self.signalling.refuse_request(token, why, now)
    }

    /// The application has put messages into its outgoing ring, or taken messages out of its incoming one.
    pub fn handle_ring(&mut self, channel: ChannelId, now: Instant) {
        self.handle_ring_within(channel, RING_MESSAGES_MAX, now);
    }

    /// Does the same as [`Self::handle_ring`], for several rings that share one limit of messages: it takes
    /// at most `messages_max` messages, and never more than [`RING_MESSAGES_MAX`]. Returns their number. The
    /// rest of the ring is taken when those messages are served, and in the background.
    pub fn handle_ring_within(&mut self, channel: ChannelId, messages_max: u32, now: Instant) -> u32 {
        if self.plane.read_reports(channel, now) {
            return 1;
        }
        self.plane.serve_ring(channel, Portion::InPassing(messages_max), now)
    }

    /// Closes either end of a channel, a best-effort flow or a bound port. A source sends its queued messages
    /// first.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn close(&mut self, channel: ChannelId, now: Instant) -> Result<(), RequestError> {
        self.close_for(channel, CloseReason::Local, now)
    }

    /// Closes the end of an application that has terminated without closing it. The reason at the other end
    /// is that the application vanished.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn abandon(&mut self, channel: ChannelId, now: Instant) -> Result<(), RequestError> {
        self.close_for(channel, CloseReason::Vanished, now)
    }

    fn close_for(
        &mut self,
        channel: ChannelId,
        reason: CloseReason,
        now: Instant,
    ) -> Result<(), RequestError> {
        if let Some(handler) = self.upcall_of(channel) {
            self.remove_handler(handler, now);
            return Ok(());
        }
        if self.plane.close_best_effort(channel, now) {
            return Ok(());
        }
        self.signalling.close(channel, reason, now, &mut self.plane)?;
        self.plane.begin_closing(channel, now);
        Ok(())
    }

    /// Opens a best-effort flow. It has no guarantee and needs no consent.
    ///
    /// # Errors
    /// If the host is unknown or there is no route to it, and `TooLong` if a message of `message_bytes_max`
    /// bytes would need too many packets.
    pub fn open_best_effort(
        &mut self,
        to: Address,
        message_bytes_max: u32,
        outbox: M::Outbox,
        now: Instant,
    ) -> Result<ChannelId, RequestError> {
        let link = self.link_towards(&to)?.1;
        let (bytes, bytes_max) = (message_bytes_max, self.plane.flow_message_bytes_max(link));
        if bytes > bytes_max {
            return Err(RequestError::TooLong { bytes, bytes_max });
        }
        let (channel, way) = self.flow_route(&to)?;
        self.plane.open_flow(channel, way, message_bytes_max, outbox, now);
        Ok(channel)
    }

    /// The host of an address, and the link on which best effort leaves for it.
    fn link_towards(&self, to: &Address) -> Result<(NodeId, LinkId), RequestError> {
        let destination = self.plane.config().resolve(&to.host)?;
        let link = self.plane.best_effort_link(destination);
        Ok((destination, link.ok_or_else(|| RequestError::NoRoute(to.host.clone()))?))
    }

    /// A handle and a way for what is sent without a channel.
    pub(super) fn flow_route(&mut self, to: &Address) -> Result<(ChannelId, FlowRoute), RequestError> {
        let (destination, link) = self.link_towards(to)?;
        let (channel, path) = self.flow_path();
        Ok((channel, FlowRoute { to: to.clone(), destination, path, link }))
    }

    /// A handle and a path of this host that no flow has.
    pub(super) fn flow_path(&mut self) -> (ChannelId, PathId) {
        loop {
            let channel = self.signalling.next_channel_id();
            let number = ChannelNumber::of_flow(channel);
            let config = self.plane.config();
            let path = PathId { node: config.id, channel: number, epoch: config.epoch };
            // Another flow can have the number only if it has existed for 2^31 handles.
            if !ChannelNumber::comes_again(channel) || !self.plane.has_flow(path) {
                return (channel, path);
            }
        }
    }

    /// Binds a name to receive best effort.
    ///
    /// # Errors
    /// `NameTaken`.
    pub fn bind_best_effort(
        &mut self,
        port: Name,
        message_bytes_max: u32,
        inbox: M::Inbox,
    ) -> Result<ChannelId, RequestError> {
        if self.plane.is_bound(&port) {
            return Err(RequestError::NameTaken(port));
        }
        let channel = self.signalling.next_channel_id();
        self.plane.bind(channel, &port, message_bytes_max, inbox);
        Ok(channel)
    }

    /// Closes everything. Keep driving the node until `is_quiet`, or until the grace is over. Messages that
    /// are not sent by then are lost.
    pub fn shutdown(&mut self, now: Instant) {
        let channels = self.plane.channel_ids();
        self.signalling.shutdown(now, &mut self.plane);
        channels.into_iter().for_each(|channel| self.plane.begin_closing(channel, now));
        self.plane.close_all_best_effort(now);
    }

    /// Whether nothing is open or under way.
    pub fn is_quiet(&self) -> bool {
        self.plane.is_empty() && !self.plane.stages().is_asked() && self.signalling.is_quiet()
    }
}
