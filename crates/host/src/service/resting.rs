//! Connections in TIME-WAIT count in their user's quotas for a minute after both ends have closed. They give way: if a quota has no
//! room for something new of that user, the oldest of them end early, as they do in kernels that have too many.
//!
//! Invariant: each connection here has an end, without rings, and none is here twice.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use punctual_ipc::api::{ApiError, Push, Resource, TcpEnd};
use punctual_proto::api::UserId;
use punctual_proto::ids::ChannelId;

use super::{Host, Service};

/// Connections that give way for one request at most: bounds its work.
const GIVE_WAY_MAX: usize = 64;

/// The connections, by user, in the order in which they came to rest.
#[derive(Debug, Default)]
pub(super) struct Resting {
    channels: BTreeMap<(u32, u64), ChannelId>,
    keys: HashMap<ChannelId, (u32, u64)>,
    count: u64,
}

impl Resting {
    pub fn add(&mut self, user: UserId, channel: ChannelId) {
        let key = (user.0, self.count);
        if let Entry::Vacant(entry) = self.keys.entry(channel) {
            entry.insert(key);
            self.channels.insert(key, channel);
            self.count += 1;
        }
    }

    pub fn remove(&mut self, channel: ChannelId) {
        if let Some(key) = self.keys.remove(&channel) {
            self.channels.remove(&key);
        }
    }

    /// The user's connection that came to rest first.
    pub fn oldest(&self, user: UserId) -> Option<ChannelId> {
        self.channels.range((user.0, 0)..=(user.0, u64::MAX)).next().map(|(_, channel)| *channel)
    }
}

impl<H: Host> Service<H> {
    /// Takes `amount` of `what` for this user. Where it has no room, the user's oldest connections in TIME-WAIT give way.
    ///
    /// # Errors
    /// [`ApiError::Quota`].
    pub(super) fn take(&mut self, account: UserId, what: Resource, amount: u64) -> Result<(), ApiError> {
        for _ in 0..GIVE_WAY_MAX {
            let taken = self.accounts.take(account, what, amount);
            // What such a connection holds.
            let may_help = match &taken {
                Err(ApiError::Quota { what: Resource::Channels | Resource::BufferBytes, limit, .. }) => {
                    amount <= *limit
                }
                _ => false,
            };
            let Some(channel) = self.resting.oldest(account).filter(|_| may_help) else { return taken };
            self.end_resting(channel);
        }
        self.accounts.take(account, what, amount)
    }

    /// Ends a connection in TIME-WAIT at once. Both ends have closed it, so a program that still holds it is told so.
    fn end_resting(&mut self, channel: ChannelId) {
        self.resting.remove(channel);
        if let Some(tcp) = self.host.tcp() {
            tcp.reset(channel);
        }
        if let Some(client) = self.release_end(channel).and_then(|end| end.client) {
            self.push(client, Push::TcpEnded { channel, why: TcpEnd::Closed });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_users_oldest_connection_is_found() {
        let (ann, bob, channel) = (UserId(1), UserId(2), ChannelId);
        let mut resting = Resting::default();
        for (user, number) in [(ann, 9), (bob, 3), (ann, 4), (ann, 9)] {
            resting.add(user, channel(number));
        }
        assert_eq!(
            [ann, bob, UserId(0)].map(|user| resting.oldest(user)),
            [Some(channel(9)), Some(channel(3)), None]
        );
        resting.remove(channel(9));
        resting.remove(channel(9));
        assert_eq!(resting.oldest(ann), Some(channel(4)));
        resting.remove(channel(4));
        assert_eq!(resting.oldest(ann), None);
        resting.remove(channel(3));
        assert!(resting.channels.is_empty() && resting.keys.is_empty());
    }
}
