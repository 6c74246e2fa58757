//! The connected programs: their users, and the messages to them.

use std::os::fd::OwnedFd;

use punctual_ipc::api::{Answer, ApiError, FromDaemon, Push, Resource};
use punctual_ipc::socket::{Packet, Peer};
use punctual_proto::api::UserId;

use super::{Effect, Host, Service};

/// Descriptors of one connection: its socket, the handle of the process behind it, and the file of its
/// backlog.
const CLIENT_DESCRIPTORS: u64 = 3;

/// A connected program; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub(super) u64);

impl ClientId {
    /// The id of the next client.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

pub(super) struct Client {
    /// User id that the kernel reports for the connection.
    pub(super) user: UserId,
    /// User whose quotas are charged for the program's resources.
    pub(super) account: UserId,
    pub(super) peer: Peer,
    pub(super) greeted: bool,
}

impl<H: Host> Service<H> {
    /// User whose quotas are charged for the resources of `peer`. `None`: the user has connected more often
    /// than its share allows, so the connection must be closed without an answer, because no user would be
    /// charged for that.
    pub fn admit(&mut self, peer: &Peer) -> Option<UserId> {
        let account = self.subordinates.account(peer.user);
        if self.connections.wait(account, punctual_ipc::ring::now()).is_some() {
            self.counters.turned_away += 1;
            return None;
        }
        Some(account)
    }

    /// Takes in a program that has connected; `account` is the user that [`Self::admit`] returned.
    ///
    /// # Errors
    /// If the user has too many connections already. The caller must send the error and cut the connection.
    pub fn connect(&mut self, peer: Peer, account: UserId) -> Result<ClientId, ApiError> {
        let user = peer.user;
        let taken = self.take_place(account);
        taken.inspect_err(|_| self.counters.over_quota += 1)?;
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.clients.insert(id, Client { user, account, peer, greeted: false });
        self.counters.clients += 1;
        Ok(id)
    }

    pub(super) fn take_place(&mut self, account: UserId) -> Result<(), ApiError> {
        self.accounts.take(account, Resource::Clients, 1)?;
        let taken = self.accounts.take(account, Resource::Descriptors, CLIENT_DESCRIPTORS);
        taken.inspect_err(|_| self.accounts.give_back(account, Resource::Clients, 1))
    }

    /// Handles the disconnect of a program: its listeners and channels are closed and the other ends are
    /// notified, some of them at each [`Self::end_some`].
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(account) = self.account_of(client) else { return };
        self.co_scheduled_of(client).into_iter().for_each(|channel| self.end_co_schedule(channel));
        self.clients.remove(&client);
        self.counters.clients -= 1;
        self.leave(client, account);
        self.asked.retain(|_, owner| *owner != client);
        self.measuring.retain(|(_, owner, _)| *owner != client);
        self.accounts.give_back(account, Resource::Clients, 1);
        self.accounts.give_back(account, Resource::Descriptors, CLIENT_DESCRIPTORS);
    }

    /// User whose quotas are charged for the resources of `client`; `None` if the client is gone.
    pub fn account_of(&self, client: ClientId) -> Option<UserId> {
        self.clients.get(&client).map(|client| client.account)
    }

    /// User on whose behalf `client` makes requests; the id of the user `nobody` if the client is gone.
    pub(super) fn user_of(&self, client: ClientId) -> UserId {
        self.clients.get(&client).map_or(UserId(u32::MAX), |client| client.user)
    }

    /// Cuts a connection that sent an invalid request.
    pub fn reject(&mut self, client: ClientId, why: String) {
        self.counters.malformed += 1;
        let error = ApiError::Malformed(format!("malformed request: {why}"));
        self.answer(client, 0, Err(error), Vec::new());
        self.effects.push_back(Effect::Cut(client));
    }

    pub(super) fn answer(
        &mut self,
        client: ClientId,
        id: u64,
        result: Result<Answer, ApiError>,
        descriptors: Vec<OwnedFd>,
    ) {
        self.counters.requests += 1;
        self.counters.errors += u64::from(result.is_err());
        self.counters.over_quota += u64::from(matches!(result, Err(ApiError::Quota { .. })));
        match Packet::new(&FromDaemon::Answer { id, result }, descriptors) {
            Ok(packet) => self.effects.push_back(Effect::Send(client, packet)),
            Err(error) => self.answer(client, id, Err(ApiError::Ring(error.to_string())), Vec::new()),
        }
    }

    pub(super) fn push(&mut self, client: ClientId, push: Push) {
        match Packet::new(&FromDaemon::Push(push), Vec::new()) {
            Ok(packet) => self.effects.push_back(Effect::Send(client, packet)),
            // Pushes are bounded by the protocol's own limits; a longer one is a fault, and the connection is
            // cut.
            Err(_) => self.effects.push_back(Effect::Cut(client)),
        }
    }

    /// A connection was cut since its program did not read.
    pub fn count_not_reading(&mut self) {
        self.counters.not_reading += 1;
    }
}
