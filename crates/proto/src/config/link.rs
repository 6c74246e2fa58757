//! The link to a neighbour: its rate, its pacing and the traffic beside it.

use alloc::string::String;

use punctual_analysis::{Admission, BitRate, Interference, Nanos, Pacing, Ppm};
use serde::{Deserialize, Serialize};

use super::degraded::Degraded;
use crate::ids::NodeId;
use crate::limits;

/// Other traffic that leaves by the link's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelTraffic {
    /// Nothing goes out except what [`LinkConfig::interference`] states.
    #[default]
    Bounded,
    /// Bounded as in [`Self::Bounded`], and the kernel's packets are sent behind all of Punctual's. Best
    /// effort leaves them half of what is not reserved.
    Behind,
    /// The other traffic is not bounded: what is promised across the link is no guarantee.
    Unbounded,
}

/// A point-to-point link to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Display name: the interface or the driver's name for it.
    pub name: String,
    /// The node at the other end.
    pub neighbour: NodeId,
    /// Measured drain rate.
    pub rate: BitRate,
    /// Error of the rate, by this host's clock: the clock's own tolerance is part of it. Admission and pacing use the rate less
    /// this error.
    pub rate_error: Ppm,
    /// The rate is not known yet: [`Self::rate`] is the largest that a measurement tries. It is measured once
    /// the neighbour is up, and until then nothing is admitted across the link.
    pub rate_auto: bool,
    /// The largest rate that a measurement tries, if it is larger than [`Self::rate`].
    pub rate_ceiling: Option<BitRate>,
    /// Largest packet, from our header on, in bytes.
    pub packet_bytes_max: u32,
    /// Largest best-effort packet, from our header on; `None`: the same as `packet_bytes_max`. Signalling
    /// packets are not larger either.
    pub packet_best_effort_bytes_max: Option<u32>,
    /// Bytes on the wire that each packet adds: UDP, IP, Ethernet, preamble, gap.
    pub overhead_bytes: u32,
    /// Largest packets' worth of bytes that may be handed over and not yet sent.
    pub pipeline_depth: u32,
    /// Event that drives the pipeline: completions or the clock.
    pub pace: Pacing,
    /// delta: reaction time to a completion or to the clock.
    pub reaction: Nanos,
    /// Shortest propagation to the neighbour's driver.
    pub propagation_min: Nanos,
    /// Longest propagation to the neighbour's driver.
    pub propagation_max: Nanos,
    /// How much later than predicted by slack the receive time there may be: kernel and driver jitter.
    pub prediction_error: Nanos,
    /// Kernel traffic beside us.
    pub interference: Interference,
    /// What is known of the kernel traffic.
    pub kernel_traffic: KernelTraffic,
    /// The largest share for kernel traffic while the admitted channels allow it: the host's shaper follows
    /// ([`crate::node::Node::poll_shaper`]). Admission assumes `interference`. If this is no larger than rho
    /// of `interference`, the kernel always has rho.
    pub kernel_share_max: Ppm,
    /// Share of the link that cannot be reserved.
    pub best_effort_share_min: Ppm,
    /// Most of the link's rate that one best-effort flow may take; `Ppm::ONE` is no cap.
    pub best_effort_flow_cap: Ppm,
    /// Most of the link's rate that best effort as a whole may take; `Ppm::ONE` is no cap.
    pub best_effort_cap: Ppm,
    /// Bytes that each best-effort flow may queue here.
    pub best_effort_flow_bytes_max: u32,
    /// Frames that the driver receives into. Packets that pass through keep theirs until they are sent.
    pub frames: u32,
    /// Admission policy of this link.
    pub admission: Admission,
}

impl LinkConfig {
    /// The rate that our packets are paced and charged at: the measured one less its error and, where the
    /// clock paces, less what kernel traffic may take of it. With completions the adapter limits us by
    /// itself. A clock that also used the kernel's share would fill the adapter's queue without limit.
    pub fn paced_rate(&self) -> BitRate {
        let drained = self.rate.less(self.rate_error);
        match self.pace {
            Pacing::Clock => drained.less(self.interference.rho),
            Pacing::Completion => drained,
        }
    }

    /// Whether the kernel's share follows admission. Only our clock can make room for it, and only sums of
    /// densities hold while it changes, so the run order must be EDF.
    pub fn follows(&self) -> bool {
        let by_deadline = self.admission.bears_changing_share;
        self.kernel_share_max > self.interference.rho && self.pace == Pacing::Clock && by_deadline
    }

    /// The rate that our packets are paced at while kernel traffic has `share` of the link.
    pub fn paced_beside(&self, share: Ppm) -> BitRate {
        self.rate.less(self.rate_error).less(share)
    }

    /// Longest time by which kernel packets of this share may delay a departure where the clock paces,
    /// whatever the order in which the adapter takes their packets and ours.
    pub fn delay_beside(&self, share: Ppm) -> Nanos {
        let kept = u128::from(1_000_000 - share.0.min(999_999));
        let delay = (u128::from(self.interference.sigma.0) * 1_000_000).div_ceil(kept);
        Nanos(u64::try_from(delay).unwrap_or(u64::MAX))
    }

    /// Why the link's bounds are no guarantee; `None` if they are one.
    pub fn degraded(&self) -> Option<Degraded> {
        (self.kernel_traffic == KernelTraffic::Unbounded).then_some(Degraded::KernelTraffic)
    }

    /// Largest best-effort packet, from our header on.
    pub fn best_effort_bytes_max(&self) -> u32 {
        self.packet_best_effort_bytes_max.unwrap_or(self.packet_bytes_max)
    }

    /// Largest signalling packet: signalling blocks other classes no longer than best effort does.
    pub fn signal_bytes_max(&self) -> u32 {
        self.best_effort_bytes_max().min(limits::SIGNAL_BYTES_MAX as u32)
    }

    /// A link with the defaults for all values but its neighbour and rate.
    pub fn new(name: &str, neighbour: NodeId, rate: BitRate) -> Self {
        Self {
            name: name.into(),
            neighbour,
            rate,
            rate_error: Ppm(10_000),
            rate_auto: false,
            rate_ceiling: None,
            packet_bytes_max: limits::FRAGMENT_BYTES_DEFAULT + limits::HEADER_BYTES as u32,
            packet_best_effort_bytes_max: None,
            overhead_bytes: 66,
            pipeline_depth: 2,
            pace: Pacing::Clock,
            reaction: Nanos::from_micros(100),
            propagation_min: Nanos::ZERO,
            propagation_max: Nanos::from_micros(200),
            prediction_error: Nanos::from_micros(500),
            interference: Interference::default(),
            kernel_traffic: KernelTraffic::Bounded,
            kernel_share_max: Ppm(0),
            best_effort_share_min: Ppm(50_000),
            best_effort_flow_cap: Ppm::ONE,
            best_effort_cap: Ppm::ONE,
            best_effort_flow_bytes_max: 256 * 1024,
            frames: limits::FRAMES_DEFAULT,
            admission: Admission::EDF,
        }
    }
}
