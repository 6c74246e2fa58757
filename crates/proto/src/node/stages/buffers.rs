//! Buffers of channels: bytes of this node, frames of the link that a channel comes in on, pools of soft
//! channels.
//!
//! Invariant: the count of taken frames of a link is the sum of its channels' own frames and of its pool.

use alloc::vec::Vec;

use punctual_analysis::buffers::{PoolPart, pooled};
use punctual_analysis::{Ppb, RefusalReason};

use super::reserved::Reserved;
use super::{Held, Stages};
use crate::api::RefuseCause;
use crate::ids::{ChannelId, LinkId};

/// The frames that the soft channels which come in on a link share.
#[derive(Default)]
pub(super) struct Pool {
    parts: Vec<(ChannelId, PoolPart, Ppb)>,
    frames: u32,
}

impl Pool {
    /// Number of channels that share the pool.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The number of frames that the pool needs without `gone` and with `new`.
    fn with(&self, gone: ChannelId, new: Option<(PoolPart, Ppb)>) -> u32 {
        let kept =
            self.parts.iter().filter(|(channel, ..)| *channel != gone).map(|&(_, part, ratio)| (part, ratio));
        let all: Vec<_> = kept.chain(new).collect();
        let parts: Vec<_> = all.iter().map(|(part, _)| *part).collect();
        let strictest = all.iter().map(|(_, ratio)| *ratio).min();
        strictest.map_or(0, |ratio| pooled(&parts, ratio))
    }

    fn set(&mut self, channel: ChannelId, part: Option<(PoolPart, Ppb)>) {
        self.parts.retain(|(known, ..)| *known != channel);
        self.parts.extend(part.map(|(part, ratio)| (channel, part, ratio)));
        self.frames = self.with(channel, part);
    }
}

impl Stages {
    /// Reserves the buffers of a held channel, in place of those that it had before.
    ///
    /// # Errors
    /// If the node has no more; nothing changes then.
    pub fn reserve_buffers(&mut self, channel: ChannelId, wanted: Reserved) -> Result<(), RefuseCause> {
        self.check_buffers(channel, &wanted)?;
        let had = self.held.get_mut(channel).map(|held| held.replace_buffers(wanted)).unwrap_or_default();
        self.count_buffers(channel, &had, &wanted);
        Ok(())
    }

    /// Whether a channel could reserve these buffers in place of its present ones.
    ///
    /// # Errors
    /// If the node has no more.
    pub fn check_buffers(&self, channel: ChannelId, wanted: &Reserved) -> Result<(), RefuseCause> {
        let had = self.held.get(channel).map(Held::buffers).unwrap_or_default();
        let free_bytes = self.buffer_bytes_max.saturating_sub(self.buffer_bytes - had.bytes);
        let refuse = |wanted_bytes, free_bytes| {
            Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes, free_bytes }))
        };
        if wanted.bytes > free_bytes {
            return refuse(wanted.bytes, free_bytes);
        }
        if let Some((link, frames)) = wanted.frames {
            let stage = &self.links[usize::from(link.0)];
            let pool = stage.pool.with(channel, wanted.part().map(|(_, part, ratio)| (part, ratio)));
            let own = if wanted.pooled.is_some() { 0 } else { frames };
            let others = stage.frames - had.own_frames();
            let free = stage.frames_max.saturating_sub(others);
            let frame_bytes = u64::from(stage.packet_bytes_max);
            if own.saturating_add(pool) > free {
                return refuse(
                    u64::from(own.saturating_add(pool)) * frame_bytes,
                    u64::from(free) * frame_bytes,
                );
            }
        }
        Ok(())
    }

    pub(super) fn count_buffers(&mut self, channel: ChannelId, had: &Reserved, has: &Reserved) {
        self.buffer_bytes = self.buffer_bytes - had.bytes + has.bytes;
        if let Some((link, _)) = had.frames {
            self.links[usize::from(link.0)].frames -= had.own_frames();
        }
        if let Some((link, _)) = has.frames {
            self.links[usize::from(link.0)].frames += has.own_frames();
        }
        if let Some((link, ..)) = had.part().or(has.part()) {
            let part = has.part().map(|(_, part, ratio)| (part, ratio));
            self.links[usize::from(link.0)].pool.set(channel, part);
        }
    }

    /// Frames that all soft channels which come in on a link may hold together.
    pub fn pool_frames(&self, link: LinkId) -> u32 {
        self.links[usize::from(link.0)].pool.frames
    }
}
