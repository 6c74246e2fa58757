//! The doorbells of the applications' outgoing rings, and which of them have rung.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use punctual_proto::ids::ChannelId;

#[derive(Debug, Default)]
pub(super) struct Doorbells {
    watched: HashMap<ChannelId, OwnedFd>,
    /// Grows to what one wake-up can tell, then never again.
    rung: Vec<ChannelId>,
}

impl Doorbells {
    pub fn insert(&mut self, channel: ChannelId, doorbell: OwnedFd) {
        self.watched.insert(channel, doorbell);
    }

    pub fn remove(&mut self, channel: ChannelId) -> Option<OwnedFd> {
        self.watched.remove(&channel)
    }

    pub fn rung(&mut self, channel: ChannelId) {
        self.rung.push(channel);
    }

    /// The next channel whose doorbell rang and that is still watched.
    pub fn next_rung(&mut self) -> Option<ChannelId> {
        while let Some(channel) = self.rung.pop() {
            if self.watched.contains_key(&channel) {
                return Some(channel);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::wait::Doorbell;
    use std::os::fd::AsFd;

    #[test]
    fn a_ring_of_a_forgotten_channel_is_nobodys() {
        let bell = Doorbell::new().expect("an eventfd");
        let mut doorbells = Doorbells::default();
        for channel in [1, 2].map(ChannelId) {
            doorbells.insert(channel, bell.as_fd().try_clone_to_owned().expect("a descriptor"));
            doorbells.rung(channel);
        }
        assert!(doorbells.remove(ChannelId(2)).is_some());
        assert_eq!(doorbells.next_rung(), Some(ChannelId(1)));
        assert_eq!(doorbells.next_rung(), None);
    }
}
