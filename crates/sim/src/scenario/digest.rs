//! The name of a plan, computed from all drawn values. Fields of a configuration that no plan draws do not
//! count, so that a new field changes no name.

use punctual_analysis::Contract;
use punctual_proto::config::{CpuConfig, LinkConfig, NodeConfig};

use super::{ChannelPlan, HostPlan, Scenario};

impl Scenario {
    /// The name of the plan; different plans have different names.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let hosts = self.hosts.iter().map(host);
        let channels = self.channels.iter().map(channel);
        let rest = format!("{:?} {:?} {:?} {:?}", self.floods, self.faults, self.schedule, self.times);
        // A part that no plan had before changes no name.
        let requests = (!self.requests.is_empty()).then(|| format!("{:?}", self.requests));
        let tcp = (!self.tcp.is_none()).then(|| format!("{:?}", self.tcp));
        hosts.chain(channels).chain([rest]).chain(requests).chain(tcp).for_each(|text| {
            hasher.update(text.as_bytes());
        });
        hasher.finalize().to_hex()[..16].into()
    }
}

fn host(plan: &HostPlan) -> String {
    let HostPlan { config, clock, wake_max, slow, links } = plan;
    let NodeConfig { id, epoch, fragment_bytes, fragment_low_latency_bytes, .. } = config;
    let NodeConfig { buffer_bytes_max, wakeup_margin, .. } = config;
    let node = (id, epoch, fragment_bytes, fragment_low_latency_bytes, buffer_bytes_max, wakeup_margin);
    let CpuConfig { costs, best_effort_share_min, interference, run, admission, quantum_packets, .. } =
        &config.cpu;
    let CpuConfig { best_effort_cpu_cap, best_effort_flow_cpu_cap, .. } = &config.cpu;
    let cpu = (costs, best_effort_share_min, interference, run, admission, quantum_packets);
    let caps = (best_effort_cpu_cap, best_effort_flow_cpu_cap);
    let drawn = config.links.iter().map(link).collect::<String>();
    format!("{node:?} {cpu:?} {caps:?} {clock:?} {wake_max:?} {slow:?} {links:?} {drawn}")
}

fn link(config: &LinkConfig) -> String {
    let LinkConfig { neighbour, rate, pipeline_depth, pace, propagation_min, propagation_max, .. } = config;
    let LinkConfig { prediction_error, interference, admission, .. } = config;
    let LinkConfig { best_effort_share_min, best_effort_flow_cap, .. } = config;
    let line = (neighbour, rate, pipeline_depth, pace, propagation_min, propagation_max);
    let shares = (best_effort_share_min, best_effort_flow_cap);
    format!("{line:?} {prediction_error:?} {interference:?} {admission:?} {shares:?}")
}

fn channel(plan: &ChannelPlan) -> String {
    let Contract { message_bytes_max, rate_max, burst_messages_max, deadline, .. } = plan.contract;
    let Contract { policing, delivery, horizon, activation, late, statistical, .. } = plan.contract;
    let traffic = (message_bytes_max, rate_max, burst_messages_max, deadline, statistical);
    let ways = (policing, delivery, horizon, activation, late);
    let ChannelPlan { from, to, arrivals, squeezes, full, consents, silent, storm, .. } = plan;
    let ChannelPlan { vanishes_at, opens_at, closes_at, sink_closes, reopens, .. } = plan;
    let who = (from, to, arrivals, squeezes, full, consents, silent, storm);
    let times = (vanishes_at, opens_at, closes_at, sink_closes, reopens);
    format!("{traffic:?} {ways:?} {who:?} {times:?}")
}

#[cfg(test)]
mod tests {
    use punctual_analysis::Nanos;

    use super::super::{Reply, RequestPlan};
    use super::*;
    use crate::options::Options;
    use crate::time::SimTime;

    #[test]
    fn what_is_drawn_has_a_name_of_its_own_and_nothing_else() {
        let drawn = |seed| Scenario::draw(seed, &Options::default()).expect("drawn");
        let plan = drawn(3);
        assert_eq!(plan.digest(), drawn(3).digest());
        assert_ne!(plan.digest(), drawn(4).digest());
        let other = |change: fn(&mut Scenario)| {
            let mut other = plan.clone();
            change(&mut other);
            other.digest()
        };
        assert_ne!(plan.digest(), other(|plan| plan.times.stops.0 += 1));
        assert_ne!(plan.digest(), other(|plan| plan.hosts[0].wake_max += Nanos(1)));
        assert_ne!(plan.digest(), other(|plan| plan.channels[0].contract.deadline += Nanos(1)));
        assert_ne!(plan.digest(), other(|plan| plan.hosts[0].config.links[0].pipeline_depth += 1));
        let asked = RequestPlan {
            asker: 1,
            source: 0,
            contract: plan.channels[0].contract,
            at: SimTime(1),
            reply: Reply::Opens,
        };
        let asking = Scenario { requests: vec![asked], ..plan.clone() };
        let refused = RequestPlan { reply: Reply::Refuses, ..asked };
        assert_ne!(asking.digest(), Scenario { requests: vec![refused], ..plan.clone() }.digest());
        assert_eq!(plan.digest(), other(|plan| plan.hosts[0].config.cpu.utilisation_max.0 -= 1), "not drawn");
    }
}
