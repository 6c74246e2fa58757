//! Requests of senders: open a channel, probe what would be granted, and open a channel that a receiver
//! requested.

use punctual_analysis::Contract;
use punctual_ipc::api::{Answer, ApiError, Resource};
use punctual_ipc::ring::RingShape;
use punctual_proto::api::{Grant, OpenRequest, RequestError, UserId};
use punctual_proto::ids::{Address, ChannelId, Name};
use punctual_proto::node::Node;
use punctual_trial::{Defence, holds};

use super::{Outcome, checked, done};
use crate::service::end::Held;
use crate::service::files::Needs;
use crate::service::{ClientId, End, Host, Service, Stage};

/// An open is charged this many times its measured time: the network's grant and the end of the channel are
/// handled on the processor too, at times when no user can be charged, and each may take one and a half times
/// as long (docs/adr/0032).
const OPEN_CHARGE: u64 = 4;

impl<H: Host> Service<H> {
    pub(super) fn open(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        to: Address,
        contract: Contract,
        token: Option<u64>,
    ) -> Outcome {
        if let Some(token) = token {
            match self.requested.get(&token) {
                Some(owner) if *owner == client => self.requested.remove(&token),
                _ => return Err(RequestError::Unknown.into()),
            };
        }
        let user = self.user_of(client);
        let request = OpenRequest { to, contract, user, probe: false, token };
        self.start_open(client, account, request, Stage::Opening { call, contract })
    }

    pub(super) fn probe(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        to: Address,
        contract: Contract,
    ) -> Outcome {
        let user = self.user_of(client);
        let request = OpenRequest { to, contract, user, probe: true, token: None };
        self.start_open(client, account, request, Stage::Probing { call, contract })
    }

    /// Bytes of the processor's heap that the messages of a burst take.
    pub(super) fn room_of(contract: &Contract) -> u64 {
        u64::from(contract.burst_messages_max) * Node::<H::Memory>::SOURCE_MESSAGE_BYTES
    }

    /// Whether the quotas of a probe's user have room for its channel here; takes nothing.
    pub(in super::super) fn check_probe(
        &mut self,
        channel: ChannelId,
        grant: &Grant,
    ) -> Result<(), ApiError> {
        let Some((account, contract)) = self.ends.get(&channel).and_then(|end| match end.stage {
            Stage::Probing { contract, .. } => Some((end.account, contract)),
            _ => None,
        }) else {
            return Ok(());
        };
        let needs = Needs::outbox(RingShape::new(grant.outbox_messages, contract.message_bytes_max)?);
        let ring = needs.all();
        let held = Held {
            bytes: ring.bytes.saturating_add(Self::room_of(&contract)),
            descriptors: ring.descriptors + needs.handed_over,
        };
        self.take_held(account, held)?;
        self.give_back_held(account, held);
        Ok(())
    }

    pub(super) fn start_open(
        &mut self,
        client: ClientId,
        account: UserId,
        request: OpenRequest,
        stage: Stage,
    ) -> Outcome {
        let counts = !request.probe && holds(Defence::BurstRoom);
        let room_bytes = if counts { Self::room_of(&request.contract) } else { 0 };
        self.take(account, Resource::Channels, 1)?;
        self.take(account, Resource::BufferBytes, room_bytes)
            .inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        let what = format!("to {}", request.to);
        self.expect_room(self.room_bytes + room_bytes);
        let opening = self.ask_node(move |node, now| node.open(request, now));
        let channel = opening.inspect_err(|_| {
            self.accounts.give_back(account, Resource::Channels, 1);
            self.accounts.give_back(account, Resource::BufferBytes, room_bytes);
            self.expect_room(self.room_bytes - room_bytes);
        })?;
        self.spent.set(self.spent.get() * OPEN_CHARGE);
        self.ends.insert(channel, End { room_bytes, ..End::new(client, account, stage, what) });
        Ok(None)
    }

    pub(super) fn ask(
        &mut self,
        client: ClientId,
        source: Address,
        reply_to: Name,
        contract: Contract,
    ) -> Outcome {
        if !self.listeners.values().any(|(owner, name)| *owner == client && *name == reply_to) {
            return Err(RequestError::Unknown.into());
        }
        let user = self.user_of(client);
        let token = self.ask_node(move |node, now| node.request(&source, reply_to, contract, user, now))?;
        self.asked.insert(token, client);
        Ok(Some((Answer::Asked { token }, Vec::new())))
    }

    pub(super) fn refuse_ask(&mut self, client: ClientId, token: u64, why: String) -> Outcome {
        let why = checked(why)?;
        if self.requested.get(&token) != Some(&client) {
            return Err(RequestError::Unknown.into());
        }
        self.requested.remove(&token);
        self.ask_node(move |node, now| node.refuse_request(token, &why, now))?;
        done()
    }
}
