//! Channels here: found by their paths, told things, and how they end.

use punctual_analysis::Instant;

use super::Plane;
use crate::api::Notice;
use crate::ids::{ChannelId, PathId};
use crate::memory::Memory;
use crate::times::earliest;

impl<M: Memory> Plane<M> {
    /// The channel that takes packets of `path` from a link.
    pub fn channel_of(&self, path: &PathId) -> Option<ChannelId> {
        self.channels.of_path(path)
    }

    /// A demoted packet of a channel found no room as best effort: of one that was touched by it, or that passes.
    pub fn note_demoted_dropped(&mut self, path: &PathId) {
        let Some((channel, clip)) = self.channels.clip_of_path(path) else { return };
        clip.counters.demoted_dropped += 1;
        self.look_for_end(channel);
    }

    /// Notes that something of a channel was sent, taken in or thrown away. If that was the last of a channel
    /// that closes, signalling is told.
    pub fn look_for_end(&mut self, channel: ChannelId) {
        let Some(clip) = self.channels.clips.get_mut(channel).filter(|clip| clip.last.is_some()) else {
            return;
        };
        if clip.has_ended() && !self.best_effort.arrivals.has(&clip.local.path) {
            clip.last = None;
            self.context.news.drained.push_back(channel);
        }
    }

    /// Tells an application something once. There is room for it ([`Self::make_room_for_notices`]), however many are unread.
    pub fn notice(&mut self, channel: ChannelId, notice: Notice) {
        let news = self.channels.clips.get_mut(channel).is_some_and(|clip| clip.notices_given.first(notice));
        if news {
            self.context.news.notices.push_back((channel, notice));
        }
    }

    /// Makes room for every notice that channels here may still give: then nothing is allocated when one gives it.
    pub fn make_room_for_notices(&mut self) {
        let notices_max = self.channels.clips.len() * Notice::COUNT;
        self.context.news.notices.reserve(notices_max);
    }

    /// The earliest time at which something happens by itself, where no handler is ready.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let links = self.context.links.lines.iter().map(|line| line.scheduler.next_timeout());
        links.fold(self.context.processor.executor.next_timeout(), earliest)
    }
}
