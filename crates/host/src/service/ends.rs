//! Ends of channels at this host: closes them, and gives back the resources that they hold.

use punctual_ipc::api::{ApiError, Resource};
use punctual_proto::ids::ChannelId;

use super::cleanup::Abandoned;
use super::{End, Health, Host, Service, Stage};

impl<H: Host> Service<H> {
    /// Closes the channels whose rings applications broke, which no other part detects. Gives back the memory
    /// of rings that are gone.
    pub fn close_broken(&mut self) {
        self.alarm.clear();
        self.collect_freed();
        let broken: Vec<ChannelId> = self
            .ends
            .iter()
            .filter(|(_, end)| !end.broken && end.health.as_ref().is_some_and(Health::is_broken))
            .map(|(id, _)| *id)
            .collect();
        for channel in broken {
            self.counters.broken_rings += 1;
            if let Some(end) = self.ends.get_mut(&channel) {
                end.broken = true;
                self.cleanup.add(end.account, [Abandoned::Channel(channel)]);
            }
        }
    }

    /// Requests that the node close a channel, on behalf of its application. A best-effort end is gone at
    /// once.
    pub(super) fn close_end(&mut self, channel: ChannelId) {
        // `Unknown` means that the node has closed it already: its event is on the way.
        let _ = self.on_node(move |node, now| node.close(channel, now));
        self.after_end(channel);
    }

    /// Has this much of the processor's memory ready for the bursts of all channels.
    pub(super) fn expect_room(&mut self, bytes: u64) {
        if bytes != self.room_bytes {
            self.room_bytes = bytes;
            self.host.expect_room(bytes);
        }
    }

    /// Charges `bytes`, the node's memory for an open channel, to its user's quota: a source's burst is
    /// charged already.
    pub(super) fn count_room(&mut self, channel: ChannelId, bytes: u64) -> Result<(), ApiError> {
        let Some(end) = self.ends.get(&channel) else { return Ok(()) };
        let more = bytes.saturating_sub(end.room_bytes + end.more_bytes);
        self.take(end.account, Resource::BufferBytes, more)?;
        if let Some(end) = self.ends.get_mut(&channel) {
            end.more_bytes += more;
        }
        Ok(())
    }

    /// Removes a channel's end and gives back its resources.
    pub(super) fn release_end(&mut self, channel: ChannelId) -> Option<End> {
        self.end_co_schedule(channel);
        let mut end = self.ends.remove(&channel)?;
        match &end.stage {
            Stage::Incoming { asker: Some(asker), .. } => self.waiting.remove(end.account, asker, channel),
            _ => self.accounts.give_back(end.account, Resource::Channels, 1),
        }
        self.accounts.give_back(end.account, Resource::BufferBytes, end.room_bytes + end.more_bytes);
        self.expect_room(self.room_bytes - end.room_bytes);
        self.release_later(end.account, end.health.take(), end.doorbell.take(), end.held);
        Some(end)
    }
}
