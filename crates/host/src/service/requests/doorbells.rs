//! Requests on an existing ring: the program attaches to it, and gets other doorbells.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_ipc::api::{Answer, ApiError};
use punctual_ipc::ring::{RingError, Turns};
use punctual_ipc::wake::Doorbell;
use punctual_proto::api::RequestError;
use punctual_proto::ids::ChannelId;

use super::{Outcome, done};
use crate::service::end::Held;
use crate::service::quota::is_privileged;
use crate::service::{CALL_COST, ClientId, End, Health, Host, Service, Stage};

/// Quota of a doorbell in addition to those that a ring is made with.
const DOORBELL: Held = Held { bytes: 0, descriptors: 1 };

impl<H: Host> Service<H> {
    /// Whether the client takes the messages of this guaranteed channel.
    pub(in super::super) fn is_receiver(&self, client: ClientId, channel: ChannelId) -> bool {
        self.ends.get(&channel).is_some_and(|end| {
            let receives = matches!((&end.stage, &end.health), (Stage::Open, Some(Health::Inbox(_))));
            end.client == Some(client) && receives
        })
    }

    /// The client has sealed the file that it writes: only now the file is mapped here, and read by the
    /// processor.
    pub(super) fn attached(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        let end = self.ends.get(&channel).filter(|end| end.client == Some(client));
        let health = end.and_then(|end| end.health.as_ref()).ok_or(RequestError::Unknown)?;
        health.accept().map_err(RingError::from)?;
        if let (Stage::Tcp(_), Some(tcp)) =
            (&end.map(|end| &end.stage).ok_or(RequestError::Unknown)?, self.host.tcp())
        {
            tcp.ready(channel);
            return done();
        }
        // Handle the messages that it has sent or taken before.
        self.on_node(move |node, now| node.handle_ring(channel, now))?;
        done()
    }

    /// The processor watches a doorbell of the channel in place of the one before.
    pub(in super::super) fn watch(
        &mut self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
    ) -> Result<(), ApiError> {
        let Some(end) = self.ends.get_mut(&channel) else { return Ok(()) };
        let payer = (!is_privileged(end.account)).then_some(end.account);
        let took = self.host.watch(channel, Arc::clone(&doorbell), payer).map_err(ApiError::Ring)?;
        self.spent.set(self.spent.get() + took + CALL_COST);
        let (account, before) = (end.account, end.doorbell.replace(doorbell));
        self.release_later(account, None, before, DOORBELL);
        Ok(())
    }

    pub(super) fn alternate(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        if !self.is_receiver(client, channel) {
            return Err(RequestError::Unknown.into());
        }
        let account = self.account_of(client).ok_or(RequestError::Unknown)?;
        let room = self.room_for_turns(channel);
        // The answer carries one.
        self.take_held(account, Held { descriptors: room.descriptors + 1, ..room })?;
        self.give_back_held(account, Held { bytes: 0, descriptors: 1 });
        let watched = Doorbell::pair()
            .map_err(|error| RingError::from(error).into())
            .and_then(|(ours, theirs)| self.watch(channel, Arc::new(ours)).map(|()| theirs));
        let theirs = watched.inspect_err(|_: &ApiError| self.give_back_held(account, room))?;
        let turns = self.make_turns(channel, room);
        self.ask_node(move |node, _| {
            node.inbox_mut(channel).map(|inbox| inbox.alternate(turns)).ok_or(RequestError::Unknown)
        })?;
        Ok(Some((Answer::Alternates, vec![theirs])))
    }

    /// What alternating takes: a doorbell each time, which replaces the one before, and room for turns the first time.
    pub(super) fn room_for_turns(&self, channel: ChannelId) -> Held {
        match self.ends.get(&channel) {
            Some(End { doorbell: None, health: Some(Health::Inbox(health)), .. }) => {
                Held { bytes: health.shape().turns_bytes(), ..DOORBELL }
            }
            _ => DOORBELL,
        }
    }

    /// The room that was taken becomes the channel's; none if it has some.
    pub(super) fn make_turns(&mut self, channel: ChannelId, room: Held) -> Turns {
        let Some(end) = self.ends.get_mut(&channel).filter(|_| room.bytes > 0) else {
            return Turns::default();
        };
        end.held.bytes += room.bytes;
        end.held.descriptors += room.descriptors;
        self.ringers.grew(end.account, room.bytes);
        match &end.health {
            Some(Health::Inbox(health)) => health.turns(),
            _ => Turns::default(),
        }
    }
}
