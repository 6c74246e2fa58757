//! Requests for best-effort flows and ports.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_ipc::api::{Answer, ApiError, Resource};
use punctual_ipc::ring::RingShape;
use punctual_proto::api::UserId;
use punctual_proto::ids::{Address, ChannelId, Name};
use punctual_proto::node::Node;

use super::{NewRing, Outcome};
use crate::service::end::Held;
use crate::service::{ClientId, End, Health, Host, Service, Stage};

impl<H: Host> Service<H> {
    pub(super) fn open_best_effort(
        &mut self,
        client: ClientId,
        account: UserId,
        to: Address,
        ring: RingShape,
    ) -> Outcome {
        self.take(account, Resource::Channels, 1)?;
        let opened = self.make_best_effort(account, to, ring);
        let (channel, NewRing { end: health, handles, held }, doorbell) =
            opened.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        self.insert_best_effort(client, account, channel, held, health);
        self.watch(channel, doorbell).inspect_err(|_| self.close_end(channel))?;
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    pub(super) fn make_best_effort(
        &mut self,
        account: UserId,
        to: Address,
        ring: RingShape,
    ) -> Result<(ChannelId, NewRing<Health>, Arc<OwnedFd>), ApiError> {
        let (NewRing { end: reader, handles, held }, doorbell) =
            self.make_outbox(account, ring.slots, ring.message_bytes_max)?;
        let health = Health::Outbox(reader.health());
        let opened =
            self.ask_node(move |node, now| node.open_best_effort(to, ring.message_bytes_max, reader, now));
        let channel = opened.inspect_err(|_| self.forget_ring(account, held))?;
        Ok((channel, NewRing { end: health, handles, held }, Arc::new(doorbell)))
    }

    pub(super) fn bind_best_effort(
        &mut self,
        client: ClientId,
        account: UserId,
        port: Name,
        ring: RingShape,
    ) -> Outcome {
        self.take(account, Resource::Channels, 1)?;
        let made = self.make_inbox(account, ring.slots, ring.message_bytes_max);
        let NewRing { end: writer, handles, held } =
            made.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        let health = writer.health();
        let bytes = ring.message_bytes_max;
        // Packets that any host sends to the port make the processor keep some of their data.
        let room_bytes = Node::<H::Memory>::port_room_bytes(bytes);
        let bound = self.take(account, Resource::BufferBytes, room_bytes);
        let bound = bound.and_then(|()| {
            self.expect_room(self.room_bytes + room_bytes);
            self.ask_node(move |node, _| node.bind_best_effort(port, bytes, writer)).inspect_err(|_| {
                self.expect_room(self.room_bytes - room_bytes);
                self.accounts.give_back(account, Resource::BufferBytes, room_bytes);
            })
        });
        let channel = bound.inspect_err(|_| {
            self.accounts.give_back(account, Resource::Channels, 1);
            self.forget_ring(account, held);
        })?;
        self.insert_best_effort(client, account, channel, held, Health::Inbox(health));
        if let Some(end) = self.ends.get_mut(&channel) {
            end.room_bytes = room_bytes;
        }
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    pub(super) fn insert_best_effort(
        &mut self,
        client: ClientId,
        account: UserId,
        channel: ChannelId,
        held: Held,
        health: Health,
    ) {
        let end =
            End { held, health: Some(health), ..End::new(client, account, Stage::BestEffort, String::new()) };
        self.ends.insert(channel, end);
    }
}
