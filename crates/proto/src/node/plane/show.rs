//! State of channels that applications read from shared memory: counters, updated at the end of each turn,
//! and the number of changes to the rest of their status.

use super::{Clip, Plane, RoleState};
use crate::ids::ChannelId;
use crate::memory::{Inbox, Memory, Outbox};
use crate::node::Node;
use crate::signalling::Resources;

impl<M: Memory> Node<M> {
    /// Publishes what channels have counted since the last call. Call it when a turn ends, before the next
    /// request is handled. The time is proportional to the number of touched channels; nothing is allocated.
    pub fn show_counters(&mut self) {
        self.plane.show_touched();
    }

    /// Marks the ends on whose route a stage began or ceased to break its promise.
    pub(in crate::node) fn outdate_channels(&mut self) {
        // Calls that may change signalling have its next time computed again; usually there are none.
        if !self.signalling.has_outdated() {
            return;
        }
        while let Some(channel) = self.signalling.poll_outdated() {
            self.plane.outdate(channel);
        }
    }
}

impl<M: Memory> Plane<M> {
    /// Notes that the channel has its ring. Makes room for every channel here to be touched in one turn, so
    /// that nothing is allocated later.
    pub fn show_from_now_on(&mut self, channel: ChannelId) {
        let Some(clip) = self.channels.clips.get_mut(channel) else { return };
        let before = self.context.news.touched.len();
        clip.touch(&mut self.context.news);
        if self.context.news.touched.len() > before {
            self.context.news.touched.reserve(self.channels.clips.len());
        }
    }

    fn show_touched(&mut self) {
        while let Some(channel) = self.context.news.touched.pop() {
            // The channel may have ended since.
            if let Some(clip) = self.channels.clips.get_mut(channel) {
                clip.show();
            }
        }
    }
}

impl<M: Memory> Clip<M> {
    fn show(&mut self) {
        let counters = self.counted();
        match &mut self.role {
            RoleState::Source(source) => source.outbox.iter_mut().for_each(|outbox| outbox.show(&counters)),
            RoleState::Sink(sink) => sink.inbox.iter_mut().for_each(|inbox| inbox.show(&counters)),
            RoleState::Forwarder(_) => {}
        }
    }

    /// Notes that the channel's status beside its counters has changed.
    pub fn outdate(&mut self) {
        match &mut self.role {
            RoleState::Source(source) => source.outbox.iter_mut().for_each(Outbox::outdate),
            RoleState::Sink(sink) => sink.inbox.iter_mut().for_each(Inbox::outdate),
            RoleState::Forwarder(_) => {}
        }
    }
}
