//! Dispatches events of the node to the clients that they concern.

use std::sync::Arc;

use punctual_ipc::api::{Answer, ApiError, Push, Resource};
use punctual_ipc::ring::RingHandles;
use punctual_proto::api::{
    ChannelRefusal, CloseReason, Event, Grant, HostName, Incoming, RefuseCause, UserId,
};
use punctual_proto::ids::ChannelId;

use super::requests::{NewRing, reason};
use super::waiting::{Place, Requester};
use super::{ClientId, End, Health, Host, HostGone, Service, Stage};

/// A decision is charged with this fraction of its time. A user may have ten times its share of the thread
/// that decides, because that is not the processor. Releasing the channel at its end may take as long as the
/// decision, and no user can be charged at that time (docs/adr/0035).
const DECISION_CHARGE_DIVISOR: u64 = 5;

/// The reason that a source gets if there was no place to wait for consent, or another user has taken its
/// place.
const CROWDED: &str =
    "too many opens of this user wait for consent here: wait for some of them, then try again";

/// The channel that an event is about, whose owner is charged for its cost.
fn channel_of(event: &Event) -> Option<ChannelId> {
    match event {
        Event::Opened { channel, .. }
        | Event::Refused { channel, .. }
        | Event::Probed { channel, .. }
        | Event::Established { channel }
        | Event::Closed { channel, .. }
        | Event::Decided { channel, .. }
        | Event::Registered { channel, .. }
        | Event::Notice { channel, .. } => Some(*channel),
        Event::Stage { channel, .. } => *channel,
        _ => None,
    }
}

impl<H: Host> Service<H> {
    /// Handles every event that waits.
    ///
    /// # Errors
    /// If the engine has stopped, so that no more events come.
    pub fn handle_events(&mut self) -> Result<(), HostGone> {
        while self.handle_next_event()? {}
        Ok(())
    }

    /// Handles the next event that waits. Returns `false` if there is none.
    ///
    /// # Errors
    /// See [`Self::handle_events`].
    pub fn handle_next_event(&mut self) -> Result<bool, HostGone> {
        let Some(event) = self.host.try_next_event()? else { return Ok(false) };
        self.discard_time();
        let account = channel_of(&event).and_then(|channel| self.ends.get(&channel)).map(|end| end.account);
        self.handle_event(event);
        if let Some(account) = account {
            self.charge(account);
        }
        Ok(true)
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Opened { channel, grant } => self.opened(channel, grant),
            Event::Refused { channel, refusal } => {
                self.finish_call(channel, Err(ApiError::Refused(refusal)));
            }
            Event::Probed { channel, answer } => {
                let allowed = answer.as_ref().map_or(Ok(()), |grant| self.check_probe(channel, grant));
                self.finish_call(channel, allowed.map(|()| Answer::Probed { answer }));
            }
            Event::Registered { channel, answer } => self.registered(channel, answer),
            Event::Incoming(incoming) => self.incoming_channel(incoming),
            Event::Established { channel } => self.notify(channel, Push::Established { channel }),
            Event::Requested { listener, to, contract, user, token } => {
                match self.listeners.get(&listener).map(|(client, _)| *client) {
                    Some(client) => {
                        self.requested.insert(token, client);
                        self.push(client, Push::Requested { listener, to, contract, user, token });
                    }
                    None => {
                        let why = "the listener was just closed";
                        let _ = self.on_node(move |node, now| node.refuse_request(token, why, now));
                    }
                }
            }
            Event::RequestOver { token } => drop(self.requested.remove(&token)),
            Event::RequestFailed { token, refusal } => self.ask_failed(token, refusal),
            Event::Closed { channel, reason, receipt } => {
                if let Some(end) = self.ends.get(&channel) {
                    self.host.channel_closed(end.account, &end.what, reason);
                }
                self.notify(channel, Push::Closed { channel, reason, receipt });
                if self.ends.get(&channel).is_some_and(|end| end.doorbell.is_some()) {
                    self.host.unwatch(channel);
                }
                self.joined_closed(channel);
                self.release_end(channel);
            }
            Event::Decided { took, .. } => self.spent.set(self.spent.get() + took / DECISION_CHARGE_DIVISOR),
            Event::Stage { channel: Some(channel), stage, healed } => {
                self.notify(channel, Push::Stage { channel, stage, healed });
            }
            Event::Stage { channel: None, stage, healed } => self.host.stage_changed(&stage, healed),
            Event::Late(stage) => self.host.stage_late(&stage),
            Event::Rate { link, result } => self.rate_measured(link, result),
            Event::Link { link, change } => self.host.link_changed(link, change),
            Event::Notice { channel, notice } => self.notify(channel, Push::Notice { channel, notice }),
        }
    }

    fn notify(&mut self, channel: ChannelId, push: Push) {
        if let Some(client) = self.ends.get(&channel).and_then(|end| end.client) {
            self.push(client, push);
        }
    }

    /// Answers the call that waits for `channel` and forgets the channel.
    fn finish_call(&mut self, channel: ChannelId, answer: Result<Answer, ApiError>) {
        let Some(end) = self.release_end(channel) else { return };
        if let (Some(client), Stage::Opening { call, .. } | Stage::Probing { call, .. }) =
            (end.client, &end.stage)
        {
            self.answer(client, *call, answer, Vec::new());
        }
    }

    fn opened(&mut self, channel: ChannelId, grant: Grant) {
        let waiting = self.ends.get(&channel).map(|end| (end.client, end.account, &end.stage));
        let Some((Some(client), account, &Stage::Opening { call, contract })) = waiting else {
            // The client that requested it is gone.
            return self.close_end(channel);
        };
        match self.give_outbox(channel, account, grant.outbox_messages, contract.message_bytes_max) {
            Ok(handles) => {
                let answer = Answer::Opened { channel, grant, ring: handles.shape };
                self.answer(client, call, Ok(answer), handles.descriptors);
            }
            Err(error) => {
                if let Some(end) = self.ends.get_mut(&channel) {
                    end.client = None;
                }
                self.close_end(channel);
                self.answer(client, call, Err(error), Vec::new());
            }
        }
    }

    fn give_outbox(
        &mut self,
        channel: ChannelId,
        account: UserId,
        messages: u32,
        bytes: u32,
    ) -> Result<RingHandles, ApiError> {
        let (NewRing { end: reader, handles, held }, doorbell) =
            self.make_outbox(account, messages, bytes)?;
        let health = reader.health();
        if let Some(end) = self.ends.get_mut(&channel) {
            end.stage = Stage::Open;
            end.held = held;
            end.health = Some(Health::Outbox(health));
        }
        let room = self.ask_node(move |node, now| {
            node.attach_outbox(channel, reader, now)?;
            Ok(node.room_bytes(channel))
        })?;
        self.count_room(channel, room)?;
        self.watch(channel, Arc::new(doorbell))?;
        Ok(handles)
    }

    fn incoming_channel(&mut self, incoming: Incoming) {
        let Incoming { channel, listener, from, user, contract, inbox_messages, token } = incoming;
        // A client that has requested the channel has consented to the charge to its quota.
        let is_asked = token.is_some_and(|token| self.asked.contains_key(&token));
        let asker = (!is_asked).then(|| Requester { host: from.clone(), user });
        let refuse = match self.accept_for(listener, asker.as_ref()) {
            Ok((client, owner)) => {
                if let Some(asker) = &asker {
                    self.waiting.add(owner, asker, channel);
                }
                if let Some(token) = token {
                    self.asked.remove(&token);
                }
                let stage = Stage::Incoming { contract, messages: inbox_messages, asker };
                let port = self.listeners.get(&listener).map(|(_, port)| port.as_str()).unwrap_or_default();
                let what = format!("{port} from {from}");
                self.ends.insert(channel, End::new(client, owner, stage, what));
                return self.push(client, Push::Incoming { channel, listener, from, user, contract, token });
            }
            Err(why) => why,
        };
        if let Some(token) = token {
            self.ask_failed(token, self.refusal_here(&refuse));
        }
        let _ = self.on_node(move |node, now| node.refuse(channel, &refuse, now));
    }

    /// Notifies the client that requested a channel that the channel was refused.
    fn ask_failed(&mut self, token: u64, refusal: ChannelRefusal) {
        if let Some(client) = self.asked.remove(&token) {
            self.push(client, Push::AskFailed { token, refusal });
        }
    }

    /// A refusal by this host of a channel that came in answer to its own request.
    fn refusal_here(&self, why: &str) -> ChannelRefusal {
        let host = HostName { node: self.node, name: self.name.clone() };
        let cause = RefuseCause::Receiver(why.into());
        ChannelRefusal { node: self.node, cause, offer: None, stages: Vec::new(), hosts: vec![host] }
    }

    /// Finds the listener and takes a waiting place for one more channel of `asker`: nothing is charged to
    /// the quotas before consent. `None`: the listener has requested the channel, and its quota is charged.
    fn accept_for(
        &mut self,
        listener: punctual_proto::ids::ListenerId,
        asker: Option<&Requester>,
    ) -> Result<(ClientId, UserId), String> {
        let client =
            self.listeners.get(&listener).map(|(client, _)| *client).ok_or("the listener was just closed")?;
        let account = self.account_of(client).ok_or("the listener is gone")?;
        let taken = match asker.map(|asker| self.waiting.place(account, asker)) {
            Some(Place::Free) => Ok(()),
            Some(Place::Of(channel)) => {
                self.give_way(channel);
                Ok(())
            }
            Some(Place::None) => Err(CROWDED.into()),
            None => self.take(account, Resource::Channels, 1).map_err(|error| reason(&error)),
        };
        taken.inspect_err(|_| self.counters.over_quota += 1)?;
        Ok((client, account))
    }

    /// A channel that waits for consent is refused: another user has less.
    fn give_way(&mut self, channel: ChannelId) {
        self.counters.over_quota += 1;
        self.notify(channel, Push::Closed { channel, reason: CloseReason::Local, receipt: None });
        self.release_end(channel);
        // `Unknown` means that its source has closed it: that event follows, and has no effect.
        let _ = self.on_node(move |node, now| node.refuse(channel, CROWDED, now));
    }
}
