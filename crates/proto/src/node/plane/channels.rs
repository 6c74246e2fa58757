//! Channels at this host: lookup by path, notices to their applications, and their end.

use punctual_analysis::Instant;

use super::Plane;
use crate::api::{LostWhy, Notice};
use crate::ids::{ChannelId, PathId};
use crate::memory::Memory;
use crate::times::earliest;

impl<M: Memory> Plane<M> {
    /// The channel that takes packets of `path` from a link.
    pub fn channel_of(&self, path: &PathId) -> Option<ChannelId> {
        self.channels.of_path(path)
    }

    /// Counts a demoted packet of a channel that found no room as best effort. The packet was demoted here or
    /// at a host before.
    pub fn note_demoted_dropped(&mut self, path: &PathId) {
        let Some((channel, clip)) = self.channels.clip_of_path(path) else { return };
        clip.counters.drop_packet(LostWhy::Demoted);
        self.check_for_end(channel);
    }

    /// Checks for the end of a closing channel after a packet was sent, received or dropped. Signalling is
    /// notified if that was the last one.
    pub fn check_for_end(&mut self, channel: ChannelId) {
        let Some(clip) = self.channels.clips.get_mut(channel).filter(|clip| clip.last.is_some()) else {
            return;
        };
        if clip.has_ended() && !self.best_effort.arrivals.has(&clip.local.path) {
            clip.last = None;
            self.context.news.drained.push_back(channel);
        }
    }

    /// Sends a notice to an application, at most once. The queue has room for it
    /// ([`Self::make_room_for_notices`]), however many notices are unread.
    pub fn notice(&mut self, channel: ChannelId, notice: Notice) {
        let news = self.channels.clips.get_mut(channel).is_some_and(|clip| clip.notices_given.first(notice));
        if news {
            self.context.news.notices.push_back((channel, notice));
        }
    }

    /// Reserves room for every notice that channels here may still give, so that giving a notice allocates
    /// nothing.
    pub fn make_room_for_notices(&mut self) {
        let notices_max = self.channels.clips.len() * Notice::COUNT;
        self.context.news.notices.reserve(notices_max);
    }

    /// The earliest time at which something becomes due while no handler is ready.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let links = self.context.links.states.iter().map(|state| state.scheduler.next_timeout());
        links.fold(self.context.processor.executor.next_timeout(), earliest)
    }
}
