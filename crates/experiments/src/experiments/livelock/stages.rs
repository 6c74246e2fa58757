//! The losses of packets, stage by stage: the counters of the sending host, the wire, the receiving driver
//! and the receiving host.

use std::collections::BTreeMap;

use punctual::Endsystem;
use punctual_proto::api::ChannelCounters;
use serde_json::Value;

use crate::testbed::receive::DEVICES;
use crate::testbed::{Pair, RoleId};

/// Counters by stage and name.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages(BTreeMap<String, u64>);

impl Stages {
    /// The counters until now.
    ///
    /// # Errors
    /// If an engine is gone or the wire cannot be queried.
    pub fn read(pair: &Pair, engine: RoleId) -> anyhow::Result<Self> {
        let mut stages = Self::default();
        stages.host("source", pair.endsystem(engine)?)?;
        stages.host("sink", pair.far_endsystem(engine)?)?;
        if let Some(network) = pair.network() {
            for (host, device) in network.hosts.iter().zip(DEVICES) {
                let printed = host.namespace.feed(&format!("ethtool -S {device}"), "")?;
                stages.wire(host.name, &printed);
            }
        }
        Ok(stages)
    }

    /// The counts since `before`, without zeros.
    pub fn since(&self, before: &Self) -> BTreeMap<String, u64> {
        let counted = |(name, now): (&String, &u64)| {
            let more = now.saturating_sub(before.0.get(name).copied().unwrap_or(0));
            (more > 0).then(|| (name.clone(), more))
        };
        self.0.iter().filter_map(counted).collect()
    }

    fn host(&mut self, name: &str, host: &Endsystem) -> anyhow::Result<()> {
        let status = host.status()?;
        for link in &status.engine.links {
            self.numbers(&format!("{name} driver"), &serde_json::to_value(link)?);
            self.numbers(&format!("{name} classifier"), &serde_json::to_value(link.drops)?);
        }
        self.numbers(&format!("{name} engine"), &serde_json::to_value(&status.engine)?);
        self.numbers(&format!("{name} node"), &serde_json::to_value(status.node.drops)?);
        let dropped = status.node.links.iter().map(|link| link.best_effort_dropped).sum();
        self.0.insert(format!("{name} node: best effort without a place in the link's queue"), dropped);
        for channel in host.channels()? {
            let ChannelCounters { misses, incomplete, overruns, overflows, demoted, dropped, .. } =
                channel.counters;
            for (what, count) in [
                ("missed here", misses),
                ("incomplete", incomplete),
                ("without room at the receiver", overruns),
                ("packets without a slot", overflows),
                ("packets demoted", demoted),
                ("dropped by policing", dropped),
            ] {
                *self.0.entry(format!("{name} channel: {what}")).or_default() += count;
            }
        }
        Ok(())
    }

    fn numbers(&mut self, stage: &str, counted: &Value) {
        for (name, value) in counted.as_object().into_iter().flatten() {
            // Maxima are no counts.
            if let Some(count) = value.as_u64().filter(|_| !name.ends_with("_max")) {
                *self.0.entry(format!("{stage}: {name}")).or_default() += count;
            }
        }
    }

    /// Lines like "     rx_queue_0_drops: 17".
    fn wire(&mut self, host: &str, printed: &str) {
        for line in printed.lines() {
            let Some((name, count)) = line.trim().split_once(": ") else { continue };
            if let Ok(count) = count.parse() {
                self.0.insert(format!("wire at {host}: {name}"), count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_of_the_interval_are_reported() {
        let (mut before, mut after) = (Stages::default(), Stages::default());
        before.wire("b", "NIC statistics:\n     peer_ifindex: 7\n     rx_queue_0_drops: 3\n");
        after.wire("b", "NIC statistics:\n     peer_ifindex: 7\n     rx_queue_0_drops: 5\n");
        after
            .numbers("sink driver", &serde_json::json!({ "name": "left", "overflows": 4, "loop_ns_max": 9 }));
        let printed: Vec<(String, u64)> = after.since(&before).into_iter().collect();
        assert_eq!(
            printed,
            [("sink driver: overflows".into(), 4), ("wire at b: rx_queue_0_drops".into(), 2)]
        );
    }
}
