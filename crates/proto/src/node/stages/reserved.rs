//! What a channel has of this host's buffers.

use punctual_analysis::buffers::PoolPart;
use punctual_analysis::{Nanos, Ppb};

use crate::ids::LinkId;

/// Buffers of a channel here.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct Reserved {
    /// Bytes of rings and packets.
    pub bytes: u64,
    /// Frames of the driver of the link that it comes in on.
    pub frames: Option<(LinkId, u32)>,
    /// Set if those frames are of the pool of that link's soft channels: the channel's mean use and the miss
    /// ratio.
    pub pooled: Option<Pooled>,
}

/// The share of a soft channel in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Pooled {
    pub period: Nanos,
    pub mean_period: Nanos,
    pub ratio: Ppb,
}

impl Reserved {
    /// Frames that are its own.
    pub(super) fn own_frames(&self) -> u32 {
        self.frames.filter(|_| self.pooled.is_none()).map_or(0, |(_, frames)| frames)
    }

    /// The channel's part of the pool of a link; `None` if its frames are its own.
    pub(super) fn part(&self) -> Option<(LinkId, PoolPart, Ppb)> {
        let (link, most) = self.frames?;
        let Pooled { period, mean_period, ratio } = self.pooled?;
        Some((link, PoolPart { most, period, mean_period }, ratio))
    }
}
