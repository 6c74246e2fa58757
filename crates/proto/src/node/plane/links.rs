//! The outgoing links: lookup by number and by neighbour, rates and shares, and which waiting source
//! continues when room becomes free.

use punctual_analysis::{BitRate, Instant, Ppm};

use super::{LinkState, Plane, Waiters};
use crate::config::{KernelTraffic, LinkConfig};
use crate::ids::{ChannelId, LinkId, NodeId};
use crate::linksched::LinkParameters;
use crate::memory::Memory;
use crate::node::signals::Signals;

impl<M: Memory> Plane<M> {
    /// All links of the host.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<M> {
        (0..self.context.links.states.len()).map(|link| LinkId(link as u16))
    }

    pub fn link_state(&self, link: LinkId) -> &LinkState<M> {
        &self.context.links.states[usize::from(link.0)]
    }

    pub fn link_state_mut(&mut self, link: LinkId) -> &mut LinkState<M> {
        &mut self.context.links.states[usize::from(link.0)]
    }

    /// The link to a neighbour.
    pub fn link_to(&self, node: NodeId) -> Option<LinkId> {
        let index = self.context.links.states.iter().position(|state| state.config.neighbour == node)?;
        Some(LinkId(index as u16))
    }

    /// The link on which best effort leaves for `destination`.
    pub fn best_effort_link(&self, destination: NodeId) -> Option<LinkId> {
        let route = self.config.routes.iter().find(|route| route.via.last() == Some(&destination));
        let next = route.and_then(|route| route.via.first()).copied().unwrap_or(destination);
        self.link_to(next)
    }

    /// [`Self::divide_rest`] of all links.
    pub fn divide_rests(&mut self) {
        self.links().for_each(|link| self.divide_rest(Some(link)));
    }

    /// If the kernel's packets are sent after ours, best effort takes at most half of the rate that is not
    /// reserved. The kernel has the other half, and what best effort does not use.
    pub fn divide_rest(&mut self, link: Option<LinkId>) {
        let Some(link) = link else { return };
        let given = self.stages.link_utilisation(link);
        let state = self.link_state_mut(link);
        if state.config.kernel_traffic == KernelTraffic::Behind {
            let half = Ppm(Ppm::ONE.0.saturating_sub(given.0) / 2);
            state.scheduler.set_best_effort_cap(half.min(state.config.best_effort_cap));
        }
    }

    /// Sets the drain rate of a link that no channel uses. Returns `false`, and changes nothing, if the link
    /// could not carry its own signalling then.
    pub fn set_link_rate(&mut self, link: LinkId, rate: BitRate, error: Ppm) -> bool {
        let index = usize::from(link.0);
        let known = &self.config.links[index];
        // The next measurement tries rates as high as the first one did.
        let rate_ceiling = Some(known.rate_ceiling.unwrap_or(known.rate));
        let changed = LinkConfig { rate, rate_error: error, rate_ceiling, ..known.clone() };
        if !self.stages.set_link(link, &changed, &self.config) {
            return false;
        }
        let state = self.link_state_mut(link);
        state.scheduler.set_parameters(&LinkParameters::of(&changed));
        state.config = changed.clone();
        self.config.links[index] = changed;
        self.divide_rest(Some(link));
        true
    }

    /// The adapter has sent `wire_bytes` more: sources whose slots became free compete for the processor
    /// again.
    pub fn complete(&mut self, link: LinkId, wire_bytes: u32, now: Instant) {
        let LinkState { scheduler, waiters: Waiters { left, .. }, .. } = self.link_state_mut(link);
        scheduler.complete_each(wire_bytes, |flow| left.push(flow));
        while let Some(flow) = self.link_state_mut(link).waiters.left.pop() {
            if let Some(channel) = self.link_state(link).source_of(flow) {
                self.arm_clip(channel, now);
            }
        }
        self.unblock_one(link, now);
    }

    /// Called when room becomes free in a link's queues: the filler of a measurement, and the source or flow
    /// that has waited longest, compete for the processor again. A waiter that has closed or has nothing to
    /// send is skipped.
    pub fn unblock_one(&mut self, link: LinkId, now: Instant) {
        self.arm_filler(link, now);
        while let Some(channel) = self.link_state_mut(link).waiters.blocked.pop_front() {
            if self.unblock(channel, now) {
                return;
            }
        }
    }

    /// Rearms a waiter that was taken off the list; it competes again, or waits again. Returns whether it
    /// exists and has something to send.
    fn unblock(&mut self, channel: ChannelId, now: Instant) -> bool {
        if let Some(flow) = self.best_effort.flows.get_mut(&channel) {
            flow.listed = false;
            let sends = flow.outgoing.has_head(&self.context.messages);
            flow.arm(channel, &mut self.context, now);
            return sends;
        }
        let Some(mut end) = self.channels.source(channel) else { return self.arm_sender(channel, now) };
        end.source.listed = false;
        let sends = end.source.sends(&self.context.messages);
        end.arm(&mut self.context, now);
        sends
    }

    /// Whether a waiting signal of the link could be queued by a call of `transmit`.
    pub fn may_queue_signal(&self, link: LinkId, signalling: &Signals) -> bool {
        let state = self.link_state(link);
        !state.signals.is_queued
            && signalling.has_signal(link)
            && state.scheduler.slots_free(state.signals.flow) > 0
    }
}
