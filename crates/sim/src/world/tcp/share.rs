//! What the handlers of connections hold of processors and links, by the sums of ADR 0051: C is B * (dispatch + run + unit) for
//! low delay, whose units may come one by one, and ceil(B / b_p) * (dispatch + run) + B * unit for guaranteed, with the node's
//! own work for each packet that a unit sends; a link carries B packets in each period.

use punctual_analysis::Nanos;
use punctual_proto::api::{RtuClass, WorkKind};
use punctual_proto::config::link_model;
use punctual_proto::limits::{HEADER_BYTES, RAW_TAG_BYTES};

use super::World;

/// Shares in millionths, and the number of terms that were rounded.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct Shares {
    pub cpu_ppm: u64,
    pub link_ppm: u64,
    pub count: usize,
}

const fn ppm(cost: Nanos, period: Nanos) -> u64 {
    (cost.0 as u128 * 1_000_000 / period.0 as u128) as u64
}

impl World {
    /// What connections at `host` hold of its processor and of one of its links.
    pub(in crate::world) fn tcp_shares(&self, host: usize, link: usize) -> Shares {
        let mut shares = Shares::default();
        let Some(tcp) = &self.hosts[host].tcp else { return shares };
        let (costs, cost) = (&self.scenario.hosts[host].config.cpu.costs, self.scenario.tcp.cost);
        let model = link_model(&self.scenario.hosts[host].config.links[link]);
        for place in tcp.places.values() {
            let (number, end) = place.of;
            let plan = &self.conversations[number].plan;
            // A packet counts as one of ours with the tag behind it.
            let packet_bytes = u32::from(plan.config.mtu_bytes) + RAW_TAG_BYTES as u32;
            let sent = costs.of_unit(WorkKind::Send, 1, packet_bytes - HEADER_BYTES as u32, true);
            let (units, period) = match plan.classes[end] {
                RtuClass::LowDelay { interval, units, .. } => (u64::from(units), interval),
                RtuClass::Guaranteed { period, units, .. } => (u64::from(units), period),
                RtuClass::BestEffort => continue,
            };
            // b_p is 1: both classes have as many calls as units.
            let calls = (costs.dispatch() + cost.run + cost.unit) * units;
            // What goes over channels is theirs.
            let is_joined = place.joined.is_some();
            let sent = if is_joined { Nanos::ZERO } else { sent };
            let over = !is_joined && usize::from(plan.links[end]) == link;
            if tcp.accounts.contains_key(&place.input) {
                shares.cpu_ppm += ppm(calls, period);
                shares.count += 1;
            }
            if tcp.accounts.contains_key(&place.output) {
                shares.cpu_ppm += ppm(calls + sent * units, period);
                shares.count += 1;
                let wire_bytes = u64::from(packet_bytes - HEADER_BYTES as u32 + model.overhead_bytes);
                let packets = match model.pipeline_depth {
                    0 | 1 => model.cost_of(wire_bytes) * units,
                    _ => model.cost_of(wire_bytes * units).max(model.cost_of(wire_bytes)),
                };
                shares.link_ppm += if over { ppm(packets, period) } else { 0 };
            }
        }
        shares
    }
}
