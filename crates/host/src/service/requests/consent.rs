//! Requests of a listener about a channel that waits for its consent.

use punctual_analysis::{Contract, Nanos};
use punctual_ipc::api::{Answer, ApiError, Resource};
use punctual_proto::api::{RequestError, UserId};
use punctual_proto::ids::ChannelId;

use super::{NewRing, Outcome, checked, done, is_anothers, reason};
use crate::service::{ClientId, End, Health, Host, Service, Stage};

impl<H: Host> Service<H> {
    pub(super) fn consent(
        &mut self,
        client: ClientId,
        account: UserId,
        channel: ChannelId,
        stall: Option<Nanos>,
    ) -> Outcome {
        let (contract, messages) = self.incoming(client, channel)?;
        let room = self.on_node(move |node, _| node.room_bytes(channel))?;
        let made = self
            .take_channel(channel)
            .and_then(|()| self.count_room(channel, room))
            .and_then(|()| self.make_inbox_of(account, &contract, messages, stall));
        let NewRing { end: writer, handles, held } = made.inspect_err(|error| {
            let why = reason(error);
            let _ = self.ask_node(move |node, now| node.refuse(channel, &why, now));
            self.release_end(channel);
        })?;
        let health = writer.health();
        if let Some(end) = self.ends.get_mut(&channel) {
            end.held = held;
            end.health = Some(Health::Inbox(health));
        }
        let consented = self.ask_node(move |node, now| node.consent(channel, writer, now));
        consented.inspect_err(|_| drop(self.release_end(channel)))?;
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    /// A channel that waits for consent waits no more: from now on it counts in its user's quota, if it did not before.
    pub(super) fn take_channel(&mut self, channel: ChannelId) -> Result<(), ApiError> {
        let waits = |end: &End| matches!(end.stage, Stage::Incoming { asker: Some(_), .. });
        if let Some(account) = self.ends.get(&channel).filter(|end| waits(end)).map(|end| end.account) {
            self.take(account, Resource::Channels, 1)?;
        }
        let Some(end) = self.ends.get_mut(&channel) else { return Ok(()) };
        if let Stage::Incoming { asker: Some(asker), .. } = &end.stage {
            self.waiting.remove(end.account, asker, channel);
        }
        end.stage = Stage::Open;
        Ok(())
    }

    pub(super) fn refuse(&mut self, client: ClientId, channel: ChannelId, why: String) -> Outcome {
        let why = checked(why)?;
        self.incoming(client, channel)?;
        self.release_end(channel);
        self.ask_node(move |node, now| node.refuse(channel, &why, now))?;
        done()
    }

    /// The channel, if it waits for this client's consent.
    pub(super) fn incoming(&self, client: ClientId, channel: ChannelId) -> Result<(Contract, u32), ApiError> {
        match self.ends.get(&channel) {
            Some(End { client: Some(owner), stage: Stage::Incoming { contract, messages, .. }, .. })
                if !is_anothers(*owner, client) =>
            {
                Ok((*contract, *messages))
            }
            _ => Err(RequestError::Unknown.into()),
        }
    }
}
