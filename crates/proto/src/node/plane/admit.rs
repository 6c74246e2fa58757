//! What signalling requests of the data plane: to hold, commit and release a channel's local stages and its
//! clip.

mod install;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Delivery, Horizon, Nanos, buffers};

use super::buffers::Buffers;
use super::{Clip, Plane};
use crate::api::{Passed, Receipt, RefuseCause, Role, StageGrant, Tally};
use crate::fragment::packet_wire_bytes;
use crate::ids::ChannelId;
use crate::memory::Memory;
use crate::node::stages::{Held, Pooled, Relaxed, Reserved};
use crate::signalling::{Answer, CommitTerms, LocalChannel, Resources};

/// The final bounds and horizons of the local stages.
struct Terms {
    bounds: Vec<Nanos>,
    horizons: Vec<Nanos>,
    arrival_error: Nanos,
    upstream: Nanos,
    upstream_min: Nanos,
    /// How far ahead of its logical arrival a message may leave its source.
    early: Nanos,
}

impl Terms {
    /// The terms for stages that take `bounds`.
    fn of(terms: &CommitTerms, bounds: Vec<Nanos>) -> Self {
        Self {
            horizons: (0..bounds.len()).map(|index| terms.horizon(index, &bounds)).collect(),
            arrival_error: terms.arrival_error(&bounds),
            upstream: terms.upstream(0, &bounds),
            upstream_min: terms.upstream_min,
            early: terms.early,
            bounds,
        }
    }
}

impl<M: Memory> Resources for Plane<M> {
    fn ask(&mut self, local: &Arc<LocalChannel>, limit: Nanos, dry: bool) {
        self.stages.ask(local, limit, dry);
    }

    fn ask_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms) {
        let wanted = if keeps_offer(local) { &self.offered(local.channel) } else { &terms.bounds };
        self.stages.ask_final(local, wanted, terms);
    }

    fn try_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms, limit: Nanos) {
        let wanted = (!keeps_offer(local)).then(|| terms.bounds.clone());
        self.stages.try_final(local, wanted, terms, limit);
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        match self.stages.poll_answer()? {
            Answer::Tried(channel, Ok(_)) => {
                let tried = self.stages.take_tried(channel).ok_or(RefuseCause::Exhausted);
                Some(Answer::Tried(channel, tried.and_then(|tried| self.would_commit(tried))))
            }
            answer => {
                if let Answer::Held(channel, _) = answer {
                    let link_out = self.stages.held(channel).and_then(|held| held.link());
                    self.divide_rest(link_out.map(|(link, _)| link));
                }
                Some(answer)
            }
        }
    }

    fn commit(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &CommitTerms,
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        let relaxed = self.stages.take_relaxed(local.channel).ok_or(RefuseCause::Exhausted)?;
        let terms = Terms::of(terms, relaxed.bounds.clone());
        let mut buffers = buffers_of(local, &terms);
        if active(Mutation::UnrelaxedBuffers) {
            // As before any stage took its share of the leftover.
            let upstream = terms.upstream_min;
            let before = |index: usize| upstream + relaxed.offered.iter().take(index).copied().sum();
            let horizons = (0..relaxed.offered.len()).map(before).collect();
            buffers =
                buffers_of(local, &Terms { horizons, upstream, bounds: relaxed.offered.clone(), ..terms });
        }
        self.stages.reserve_buffers(local.channel, reserved(local, buffers, relaxed.soft.0))?;
        self.install(local, &terms, buffers, &relaxed)?;
        self.share_with(local);
        Ok(self.stages.holding(local))
    }

    fn fits(&self, local: &LocalChannel) -> bool {
        !self.awaits_shaper(local)
    }

    fn receipt(&self, channel: ChannelId) -> Receipt {
        self.channels.clips.get(channel).map(Clip::receipt).unwrap_or_default()
    }

    fn passed(&self, channel: ChannelId) -> Passed {
        self.channels.clips.get(channel).map(Clip::passed).unwrap_or_default()
    }

    fn sent(&self, channel: ChannelId) -> Tally {
        self.channels.clips.get(channel).map(Clip::sent).unwrap_or_default()
    }

    fn await_last(&mut self, channel: ChannelId, sent: Tally) {
        if let Some(clip) = self.channels.clips.get_mut(channel) {
            clip.last = Some(Box::new(sent));
        }
        self.check_for_end(channel);
    }

    fn outdate(&mut self, channel: ChannelId) {
        if let Some(clip) = self.channels.clips.get_mut(channel) {
            clip.outdate();
        }
    }

    fn release(&mut self, channel: ChannelId) {
        self.remove_clip(channel);
        let link_out = self.stages.held(channel).and_then(|held| held.link());
        self.stages.release(channel);
        self.share_without(link_out.map(|(link, _)| link), channel);
        self.divide_rest(link_out.map(|(link, _)| link));
    }
}

/// True for a sink that delivers at the deadline: it delivers d before the deadline, so its share of the
/// leftover goes to other stages.
fn keeps_offer(local: &LocalChannel) -> bool {
    local.role == Role::Sink && local.contract.delivery == Delivery::AtDeadline
}

/// The buffer formulas (GUARANTEES).
fn buffers_of(local: &LocalChannel, terms: &Terms) -> Buffers {
    let contract = &local.contract;
    let period = contract.policed_interval();
    let jitter = terms.arrival_error;
    let stage = |index: usize| {
        let (bound, horizon) = (terms.bounds[index], terms.horizons[index]);
        let upstream = terms.upstream + terms.bounds.iter().take(index).copied().sum();
        match (contract.horizon, index) {
            (Horizon::Cumulative, _) => buffers::cumulative(horizon, bound, jitter, period),
            // Within a host h(k-1) = 0 and d(k-1) is known; at its entry, no more than all of upstream.
            (Horizon::Regulated, 0) => buffers::regulated(upstream, Nanos::ZERO, bound, jitter, period),
            (Horizon::Regulated, _) => {
                buffers::regulated(terms.bounds[index - 1], Nanos::ZERO, bound, jitter, period)
            }
        }
    };
    let cpu = match local.role {
        Role::Source => buffers::source(contract.burst_messages_max, terms.early + terms.bounds[0], period),
        Role::Forwarder | Role::Sink => stage(0),
    };
    let sink = match contract.delivery {
        Delivery::AtDeadline => buffers::sink_at_deadline(terms.early, contract.deadline, jitter, period),
        Delivery::Asap => cpu,
    };
    Buffers {
        cpu_messages: messages(cpu),
        link_messages: if local.link_out.is_some() { messages(stage(1)) } else { 0 },
        sink_messages: messages(sink),
    }
}

fn messages(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Memory in bytes, and frames of the driver that packets come in through: each waiting packet keeps a whole
/// frame. Frames of a soft channel come out of a pool.
fn reserved(local: &LocalChannel, buffers: Buffers, soft: bool) -> Reserved {
    let packets = local.contract.packets_max(local.fragment_bytes);
    let message = u64::from(local.contract.message_bytes_max);
    let on_wire = message + u64::from(packets) * u64::from(packet_wire_bytes(0, 0));
    let waiting = buffers.waiting_messages();
    let frames = local.link_in.map(|link| (link, waiting.saturating_mul(packets)));
    let bytes = match local.role {
        // Packets of a source refer to the ring.
        Role::Source => u64::from(buffers.cpu_messages.max(buffers.link_messages)).saturating_mul(message),
        Role::Forwarder => u64::from(waiting).saturating_mul(on_wire),
        Role::Sink => {
            let ring = u64::from(buffers.sink_messages).saturating_mul(message);
            u64::from(waiting).saturating_mul(on_wire).saturating_add(ring)
        }
    };
    let pooled = local.soft.as_deref().filter(|_| soft).map(|own| {
        let period = local.contract.policed_interval();
        Pooled { period, mean_period: own.mean_period, ratio: own.miss_ratio }
    });
    Reserved { bytes, frames, pooled }
}

impl<M: Memory> Plane<M> {
    /// The result that [`Resources::commit`] would return for a channel whose stages could become `relaxed`.
    fn would_commit(
        &self,
        (local, relaxed, terms): (Arc<LocalChannel>, Relaxed, CommitTerms),
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        let buffers = buffers_of(&local, &Terms::of(&terms, relaxed.bounds.clone()));
        let wanted = reserved(&local, buffers, relaxed.soft.0);
        self.stages.check_buffers(local.channel, &wanted)?;
        Ok(self.stages.would_hold(&local, &relaxed, wanted.bytes))
    }

    /// The smallest bounds that were offered: what is held before anything is relaxed.
    fn offered(&self, channel: ChannelId) -> Vec<Nanos> {
        let held = self.stages.held(channel);
        let link = held.and_then(Held::link).map(|(_, bound)| bound);
        held.map(Held::cpu).into_iter().chain(link).collect()
    }
}
