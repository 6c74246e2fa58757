//! The interface of the data plane for the node: queries, commands and output.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::clip::Ending;
use super::source::Portion;
use super::{Clip, Plane, RoleState, SourceEnd};
use crate::api::{BusyRecord, ChannelCounters, DropCounters, Event, FilterChange, PathRecord, WakeRecord};
use crate::breach::Watch;
use crate::config::NodeConfig;
use crate::ids::{ChannelId, LinkId};
use crate::latencies::{Latencies, Observed};
use crate::memory::{Inbox, Memory};
use crate::node::stages::Stages;

impl<M: Memory> Plane<M> {
    pub const fn config(&self) -> &NodeConfig {
        &self.config
    }
    pub const fn stages(&self) -> &Stages {
        &self.stages
    }
    pub const fn stages_mut(&mut self) -> &mut Stages {
        &mut self.stages
    }
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// How many channels start, pass or end here.
    pub fn channels(&self) -> usize {
        self.channels.clips.len()
    }

    /// Number of channels here that have a soft guarantee.
    pub const fn channels_soft(&self) -> u32 {
        self.channels.soft
    }

    /// Handles of all channels here, in order.
    pub fn channel_ids(&self) -> Vec<ChannelId> {
        let mut ids: Vec<ChannelId> = self.channels.clips.iter().map(|clip| clip.local.channel).collect();
        ids.sort_unstable();
        ids
    }

    /// Total counters of present and closed channels.
    pub fn counted_total(&self) -> ChannelCounters {
        let mut total = self.channels.counted_gone;
        self.channels.clips.iter().for_each(|clip| total.add(&clip.counted()));
        total
    }

    /// Counters of a channel at this host.
    pub fn counted(&self, channel: ChannelId) -> ChannelCounters {
        self.channels.clips.get(channel).map(Clip::counted).unwrap_or_default()
    }

    /// Observations of the receiver of a channel that ends here.
    pub fn observed(&self, channel: ChannelId) -> Option<Observed> {
        match &self.channels.clips.get(channel)?.role {
            RoleState::Sink(sink) => sink.inbox.as_ref()?.observed().map(Latencies::observed),
            _ => None,
        }
    }

    /// Whether there is no channel and no flow.
    pub fn is_empty(&self) -> bool {
        self.channels.clips.is_empty() && self.best_effort.flows.is_empty()
    }

    /// The ring of a channel that ends here.
    pub fn inbox_mut(&mut self, channel: ChannelId) -> Option<&mut M::Inbox> {
        match &mut self.channels.clips.get_mut(channel)?.role {
            RoleState::Sink(sink) => sink.inbox.as_mut(),
            _ => None,
        }
    }

    /// Attaches the outgoing ring of a channel that starts here; `None` if the channel is not here or has a
    /// ring.
    pub fn attach_outbox(&mut self, channel: ChannelId, outbox: M::Outbox, now: Instant) -> Option<()> {
        match &mut self.channels.clips.get_mut(channel)?.role {
            RoleState::Source(source) if source.outbox.is_none() => source.outbox = Some(outbox),
            _ => return None,
        }
        self.show_from_now_on(channel);
        self.serve_ring(channel, Portion::ALONE, now);
        Some(())
    }

    /// Gives a channel that starts here another outgoing ring; `None` if the channel is not here or has none. Messages that were
    /// taken stay.
    pub fn replace_outbox(&mut self, channel: ChannelId, outbox: M::Outbox, now: Instant) -> Option<()> {
        match &mut self.channels.clips.get_mut(channel)?.role {
            RoleState::Source(source) if source.outbox.is_some() => source.outbox = Some(outbox),
            _ => return None,
        }
        self.show_from_now_on(channel);
        self.serve_ring(channel, Portion::ALONE, now);
        Some(())
    }

    /// The ring of a channel that ends here; `None` if it does not.
    pub fn attach_inbox(&mut self, channel: ChannelId, inbox: M::Inbox) -> Option<()> {
        self.channels.sink(channel)?.sink.inbox = Some(inbox);
        self.show_from_now_on(channel);
        Some(())
    }

    /// Begins to close a source for its application. Signalling is notified when its last message is sent.
    pub fn begin_closing(&mut self, channel: ChannelId, now: Instant) {
        let Some(SourceEnd { source, .. }) = self.channels.source(channel) else { return };
        if source.ending == Ending::Open {
            source.ending = Ending::Closing;
            self.serve_ring(channel, Portion::ALONE, now);
        }
    }

    /// The next notice for an application, the oldest first.
    pub fn poll_notice(&mut self) -> Option<Event> {
        let (channel, notice) = self.context.news.notices.pop_front()?;
        Some(Event::Notice { channel, notice })
    }

    /// The next change for a driver.
    pub fn poll_filter(&mut self) -> Option<(LinkId, FilterChange)> {
        self.context.news.filters.pop_front()
    }

    /// A closing source that has sent everything, or a channel that passes or ends here and receives nothing
    /// more.
    pub fn poll_drained(&mut self) -> Option<ChannelId> {
        self.context.news.drained.pop_front()
    }

    /// Whether [`Self::poll_drained`] has one.
    pub fn has_drained(&self) -> bool {
        !self.context.news.drained.is_empty()
    }

    /// A channel whose grant waited for a shaper and may be sent now.
    pub fn poll_fitted(&mut self) -> Option<ChannelId> {
        self.context.news.fitted.pop()
    }

    /// A channel that ends here, if the unit that was just done has received its first packet.
    pub const fn take_first_data(&mut self) -> Option<ChannelId> {
        self.context.news.first_data.take()
    }

    /// Whether something was late since the node checked last.
    pub const fn is_stirred(&self) -> bool {
        self.context.news.stirred
    }

    /// Requests a check by the node.
    pub const fn request_check(&mut self) {
        self.context.news.stirred = true;
    }

    /// Notes that the node has checked.
    pub const fn settle(&mut self) {
        self.context.news.stirred = false;
    }

    /// Packets that this processor served late, and its standstills.
    pub const fn processor_watch(&self) -> &Watch {
        &self.context.processor.watch
    }
    pub const fn processor_watch_mut(&mut self) -> &mut Watch {
        &mut self.context.processor.watch
    }

    /// Whether a handler has something to do now.
    pub fn has_ready(&self) -> bool {
        self.context.processor.executor.has_ready()
    }

    /// Refunds the part of a unit's charge that was not used.
    pub fn refund(&mut self, unused: Nanos, now: Instant) {
        self.context.processor.executor.refund(unused, now);
    }

    /// The processor had nothing to do for `span`.
    pub fn record_idle(&mut self, span: Nanos) {
        self.context.processor.record.add_idle(span, self.config.cpu.burst());
        self.rtus_idle(span);
    }

    /// Records that the processor woke up `late`; its own stage's bound includes that time.
    pub fn record_wake(&mut self, late: Nanos, now: Instant) {
        self.context.processor.record.add_wake(late, self.config.cpu.release_latency);
        self.note_standstill(late, now);
    }

    /// Number of units that exceeded their declared time.
    pub fn overruns(&self) -> u64 {
        self.context.processor.record.overruns()
    }

    /// Durations of units of work, of busy periods, and of wake-ups.
    pub fn work_records(&self) -> (Vec<PathRecord>, BusyRecord, WakeRecord) {
        let (record, cpu) = (&self.context.processor.record, &self.config.cpu);
        (record.paths().collect(), record.busy(cpu.burst()), record.wakes(cpu.release_latency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Notice;
    use crate::ids::{NodeId, PathId};
    use crate::node::tests::{LINK, node};

    /// What has happened is told in the order in which it was noted: a filter that was cleared and set again
    /// stays set, and channels end in the order in which their last messages left.
    #[test]
    fn news_are_told_in_their_order() {
        let mut node = node();
        let plane = &mut node.plane;
        let ids = [3, 1, 2].map(ChannelId);
        let notices = ids.map(|channel| (channel, Notice::Late));
        let paths = [5, 4, 6].map(|node| PathId { node: NodeId(node), ..PathId::default() });
        let filters = paths.map(|path| (LINK, FilterChange::Clear(path)));
        plane.context.news.notices.extend(notices);
        plane.context.news.filters.extend(filters);
        plane.context.news.drained.extend(ids);
        let told: Vec<_> = core::iter::from_fn(|| plane.poll_notice()).collect();
        assert_eq!(told, notices.map(|(channel, notice)| Event::Notice { channel, notice }));
        let told: Vec<_> = core::iter::from_fn(|| plane.poll_filter()).collect();
        assert_eq!(told, filters);
        let told: Vec<_> = core::iter::from_fn(|| plane.poll_drained()).collect();
        assert_eq!(told, ids);
    }
}
