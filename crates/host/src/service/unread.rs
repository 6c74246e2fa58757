//! What programs have not read yet counts in the quotas of their users: bytes, and descriptors on their way ([`super::descriptors_in_flight`]).

use punctual_ipc::api::{Answer, ApiError, FromDaemon, PACKET_BYTES_MAX, Resource};
use punctual_ipc::socket::Packet;
use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};

use super::backlog::Cost;
use super::{ClientId, Host, Service};

/// The error that a program gets if its answer could not carry the descriptors.
const TOO_MANY_ALOFT: &str = "the kernel accepts no more descriptors on their way to programs that do not read \
                              (ETOOMANYREFS): try again, or raise the daemon's limit of descriptors \
                              (LimitNOFILE)";

impl<H: Host> Service<H> {
    /// Whether the longest answer to `client` fits into its user's quota of unread bytes.
    pub fn has_room_for(&self, client: ClientId) -> bool {
        let needed = Cost::of(&Packet::default()).bytes + PACKET_BYTES_MAX as u64;
        let account = self.account_of(client);
        account.is_some_and(|account| self.accounts.has_room(account, Resource::UnreadBytes, needed))
    }

    /// Charges a packet to the quotas of `client`'s user for unread packets. `false` if not enough is left,
    /// or if this client alone would have more than a quarter of the bytes of all of its user's programs.
    pub(super) fn take_unread(&mut self, client: ClientId, held: u64, more: Cost) -> bool {
        let one_max = (self.accounts.quotas().unread_bytes / 4).max(2 * PACKET_BYTES_MAX as u64);
        let Some(account) = self.account_of(client) else { return false };
        if held + more.bytes > one_max && holds(Defence::BoundedUnread)
            || self.accounts.take(account, Resource::UnreadBytes, more.bytes).is_err()
        {
            return false;
        }
        let taken = self.accounts.take(account, Resource::Descriptors, more.descriptors);
        taken.inspect_err(|_| self.accounts.give_back(account, Resource::UnreadBytes, more.bytes)).is_ok()
    }

    /// Charges `account` for descriptors in transit to one of its programs: see [`flight`]. Quota for them
    /// was available when their ring was made.
    pub(super) fn count_aloft(&mut self, account: UserId, descriptors: u64) {
        if holds(Defence::DescriptorsAloft) {
            self.accounts.add(account, Resource::Descriptors, descriptors);
        }
    }

    /// Gives back to `account` descriptors that are not on their way any more.
    pub(super) fn give_back_aloft(&mut self, account: UserId, descriptors: u64) {
        if holds(Defence::DescriptorsAloft) {
            self.accounts.give_back(account, Resource::Descriptors, descriptors);
        }
    }

    /// The kernel accepts no more descriptors in transit: the client gets an error in place of the answer,
    /// and the channel of these descriptors is closed.
    pub(super) fn undelivered(&mut self, client: ClientId, packet: &Packet) {
        let Ok(FromDaemon::Answer { id, result: Ok(answer) }) = packet.parse() else { return };
        if let Answer::Ring { channel, .. } | Answer::Opened { channel, .. } = answer {
            // The client never got this channel, so it receives no notice of its end.
            if let Some(end) = self.ends.get_mut(&channel) {
                end.client = None;
            }
            self.close_end(channel);
        }
        self.answer(client, id, Err(ApiError::Ring(TOO_MANY_ALOFT.into())), Vec::new());
    }

    pub(super) fn give_back_unread(&mut self, client: ClientId, cost: Cost) {
        if let Some(account) = self.account_of(client) {
            self.accounts.give_back(account, Resource::UnreadBytes, cost.bytes);
            self.accounts.give_back(account, Resource::Descriptors, cost.descriptors);
        }
    }
}
