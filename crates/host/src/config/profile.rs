//! The costs in a configuration: the file of a profile, its margin, costs in the configuration itself.

use std::path::PathBuf;

use punctual_engine::profile::MARGIN_DEFAULT;
use punctual_proto::api::RtuCost;
use punctual_proto::config::CpuCosts;
use punctual_proto::{Nanos, Ppm};
use serde::{Deserialize, Serialize};

/// What to do with the profile of another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mismatch {
    /// The host does not start.
    #[default]
    Refuse,
    /// The profile is used, and the host reports that its guarantees do not rest on it.
    Accept,
}

/// The `profile` keys of `[processor]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSettings {
    /// The file. If it does not exist yet, a short profile is measured and written there.
    pub file: Option<PathBuf>,
    /// Added to every measured cost.
    pub margin: Ppm,
    /// See [`Mismatch`].
    pub mismatch: Mismatch,
    /// Whether a host without a file measures itself as it starts; else the costs are those of the configuration.
    pub measure: bool,
    /// Costs that the configuration gives: they override.
    pub given: GivenCosts,
}

impl Default for ProfileSettings {
    fn default() -> Self {
        Self {
            file: None,
            margin: MARGIN_DEFAULT,
            mismatch: Mismatch::Refuse,
            measure: true,
            given: GivenCosts::default(),
        }
    }
}

/// Costs of `[processor.costs]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of CpuCosts")]
pub struct GivenCosts {
    pub send_message: Option<Nanos>,
    pub send_packet: Option<Nanos>,
    pub send_packet_later: Option<Nanos>,
    pub forward_packet: Option<Nanos>,
    pub receive_packet: Option<Nanos>,
    pub deliver_message: Option<Nanos>,
    pub copy_kib: Option<Nanos>,
    pub cold_start: Option<Nanos>,
    /// Each segment of TCP.
    pub segment: Option<Nanos>,
    /// Each call of a handler of TCP besides.
    pub segment_call: Option<Nanos>,
}

impl GivenCosts {
    /// `costs`, with the given values in their place.
    pub fn over(&self, costs: &CpuCosts) -> CpuCosts {
        CpuCosts {
            send_message: self.send_message.unwrap_or(costs.send_message),
            send_packet: self.send_packet.unwrap_or(costs.send_packet),
            // If the cost of a packet is given and none for later ones, it is meant for all of
            // them.
            send_packet_later: self.send_packet_later.or(self.send_packet).unwrap_or(costs.send_packet_later),
            forward_packet: self.forward_packet.unwrap_or(costs.forward_packet),
            receive_packet: self.receive_packet.unwrap_or(costs.receive_packet),
            deliver_message: self.deliver_message.unwrap_or(costs.deliver_message),
            copy_kib: self.copy_kib.unwrap_or(costs.copy_kib),
            cold_start: self.cold_start.unwrap_or(costs.cold_start),
        }
    }

    /// `cost` of a segment of TCP, with the given values in their place.
    pub fn over_segment(&self, cost: RtuCost) -> RtuCost {
        RtuCost { run: self.segment_call.unwrap_or(cost.run), unit: self.segment.unwrap_or(cost.unit) }
    }

    /// Whether all costs of messages and packets are given, so that none must be measured.
    pub fn is_complete(&self) -> bool {
        let Self {
            send_message,
            send_packet,
            send_packet_later: _,
            forward_packet,
            receive_packet,
            deliver_message,
            copy_kib,
            cold_start: _,
            segment: _,
            segment_call: _,
        } = self;
        [send_message, send_packet, forward_packet, receive_packet, deliver_message, copy_kib]
            .into_iter()
            .all(Option::is_some)
    }
}
