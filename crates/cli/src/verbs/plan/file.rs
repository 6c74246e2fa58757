//! The file of `punctual plan`: hosts, flows, and their costs on these hosts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use punctual_analysis::contract::SPAN_MAX;
use punctual_analysis::plan::Flow;
use punctual_analysis::{
    Activation, ActivationError, BitRate, Class, Contract, Cpu, Demand, FlowName, Nanos, PathCosts, Ppm,
    Rate, StageModel, Urgency,
};
use punctual_engine::profile::{MARGIN_DEFAULT, OtherCosts, Profile, costs_with_margin, quantum_that_fits};
use punctual_host::config::quantity::{Bytes, Text};
use punctual_proto::api::Role;
use punctual_proto::config::{CpuConfig, Interference, LinkConfig, cpu_model, path_costs, payload_bytes_max};
use punctual_proto::ids::NodeId;
use punctual_proto::limits::FRAGMENT_BYTES_DEFAULT;
use serde::Deserialize;

use super::timer;
use crate::values;

/// Signalling of one neighbour, as hosts have it by default.
const SIGNALS_PER_SECOND: u64 = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanInput {
    #[serde(default)]
    host: Vec<HostInput>,
    flow: Vec<FlowInput>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostInput {
    name: String,
    config: Option<PathBuf>,
    profile: Option<PathBuf>,
    release_latency: Option<Text<Nanos>>,
    cpu_share_max: Option<Text<Ppm>>,
    best_effort_share_min: Option<Text<Ppm>>,
    interference_burst: Option<Text<Nanos>>,
    interference_share: Option<Text<Ppm>>,
    quantum: Option<u32>,
    fragment: Option<Text<Bytes>>,
    neighbours: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowInput {
    name: String,
    from: String,
    to: Option<String>,
    period: Text<Nanos>,
    packets: Option<u32>,
    size: Option<Text<Bytes>>,
    rate: Option<String>,
    cost: Option<Text<Nanos>>,
    deadline: Option<Text<Nanos>>,
    #[serde(default)]
    after: Vec<String>,
}

/// A host with its share of the flows.
pub struct Host {
    pub name: punctual::Name,
    pub model: StageModel,
    pub release_latency: Nanos,
    pub flows: Vec<HostFlow>,
    cpu: CpuConfig,
    processor: Cpu,
    fragment_bytes: u32,
    neighbours: u32,
}

/// A flow on one host.
pub struct HostFlow {
    pub analysed: Flow,
    pub period: Nanos,
    pub packets: u32,
}

impl Host {
    fn new(input: &HostInput, folder: &Path) -> Result<Self, String> {
        let name = values::name(&input.name)?;
        let mut cpu = CpuConfig::default();
        let (mut fragment_bytes, mut neighbours) = (FRAGMENT_BYTES_DEFAULT, 1);
        let (mut quantum, mut around) = (input.quantum, OtherCosts::default());
        let mut links = vec![link_to_no_host()];
        if let Some(path) = &input.config {
            let config =
                punctual_host::config::load(&folder.join(path)).map_err(|error| error.to_string())?;
            if config.node.name != name {
                return Err(format!(
                    "host \"{name}\": {} is the configuration of \"{}\"",
                    path.display(),
                    config.node.name
                ));
            }
            (fragment_bytes, neighbours) = (config.node.fragment_bytes, config.node.links.len() as u32);
            (cpu, links) = (config.node.cpu, config.node.links);
            quantum = quantum.or(config.quantum);
        }
        if let Some(path) = &input.profile {
            let profile = Profile::load(&folder.join(path)).map_err(|error| error.to_string())?;
            cpu.costs = costs_with_margin(&profile.costs.cpu_costs(), MARGIN_DEFAULT);
            around = OtherCosts::of(&profile);
        }
        let pick = |given: &Option<Text<Nanos>>, default| given.as_ref().map_or(default, |text| text.0);
        let share = |given: &Option<Text<Ppm>>, default| given.as_ref().map_or(default, |text| text.0);
        cpu.release_latency = pick(&input.release_latency, cpu.release_latency);
        cpu.utilisation_max = share(&input.cpu_share_max, cpu.utilisation_max);
        cpu.best_effort_share_min = share(&input.best_effort_share_min, cpu.best_effort_share_min);
        cpu.interference = Interference {
            sigma: pick(&input.interference_burst, cpu.interference.sigma),
            rho: share(&input.interference_share, cpu.interference.rho),
        };
        if let Some(Text(bytes)) = &input.fragment {
            fragment_bytes = u32::try_from(bytes.0).unwrap_or(u32::MAX);
        }
        cpu.quantum_packets = quantum
            .map_or_else(|| quantum_that_fits(&cpu, fragment_bytes, &links, around), |given| given.max(1));
        // Units are reckoned as the host itself does: of the largest packets that it makes or passes on.
        let processor = cpu_model(&cpu, payload_bytes_max(fragment_bytes, &links));
        Ok(Self {
            name,
            model: processor.model(),
            release_latency: cpu.release_latency,
            flows: Vec::new(),
            neighbours: input.neighbours.unwrap_or(neighbours),
            cpu,
            processor,
            fragment_bytes,
        })
    }

    /// Signalling, as the host itself holds it.
    pub fn beside(&self) -> Vec<Demand> {
        let period = timer(Nanos(1_000_000_000 / SIGNALS_PER_SECOND));
        let unit_cost_max = self.cpu.costs.receive_packet;
        let signalling = Demand {
            cost: unit_cost_max * u64::from(self.neighbours),
            unit_cost_max,
            period,
            release_latency: self.release_latency,
            early: Nanos::ZERO,
            urgency: Urgency::of_period(Class::LowLatency, period),
            soft: None,
        };
        if self.neighbours == 0 { Vec::new() } else { vec![signalling] }
    }

    fn add(&mut self, input: &FlowInput, name: FlowName, roles: &[Role]) -> Result<(), String> {
        let traffic = Traffic::of(input, self.fragment_bytes)?;
        let period = input.period.0;
        let mut cost = Nanos::ZERO;
        let mut unit_cost_max = Nanos::ZERO;
        for &role in roles {
            let demand = self.demand(&traffic, &path_costs(&self.cpu.costs, role))?;
            cost += demand.cost;
            unit_cost_max = unit_cost_max.max(demand.unit_cost_max);
        }
        if let Some(Text(given)) = input.cost {
            (cost, unit_cost_max) = (given, unit_cost_max.min(given));
        }
        let deadline = input.deadline.as_ref().map_or(period, |text| text.0);
        if deadline > period {
            return Err(format!(
                "flow \"{name}\": deadline {deadline} is beyond its period {period}: shorten it"
            ));
        }
        let deadline = deadline.min(timer(period));
        let analysed = Flow { name, period: timer(period), cost, unit_cost_max, deadline, after: Vec::new() };
        self.flows.push(HostFlow { analysed, period, packets: traffic.packets });
        Ok(())
    }

    fn demand(&self, traffic: &Traffic, costs: &PathCosts) -> Result<Demand, String> {
        let service = traffic.contract.service(self.fragment_bytes).map_err(|error| error.to_string())?;
        let Traffic { contract, .. } = traffic;
        Ok(self.processor.demand_of(contract, &service, self.fragment_bytes, costs, self.release_latency))
    }
}

/// The link that is assumed for a host that names no configuration: one link with the default packet size and
/// reaction time. Its rate is not used here.
fn link_to_no_host() -> LinkConfig {
    LinkConfig::new("", NodeId(0), BitRate(1))
}

/// The messages of a flow, and the packets of its period.
struct Traffic {
    contract: Contract,
    packets: u32,
}

impl Traffic {
    fn of(input: &FlowInput, fragment_bytes: u32) -> Result<Self, String> {
        let wrong = |what: String| format!("flow \"{}\": {what}", input.name);
        let period = input.period.0;
        let rate = match &input.rate {
            Some(text) => values::rate(text).map_err(wrong)?,
            None => Rate::every(period).ok_or_else(|| wrong("period of 0: give one like 10ms".into()))?,
        };
        let bytes = match (&input.size, input.packets) {
            (Some(Text(size)), _) => u32::try_from(size.0).unwrap_or(u32::MAX),
            (None, Some(packets)) => packets.saturating_mul(fragment_bytes),
            (None, None) => return Err(wrong("give packets, or size and rate".into())),
        };
        let plain = Contract::new(bytes, rate, 1, SPAN_MAX).map_err(|error| wrong(error.to_string()))?;
        let timed = |packets| Contract { activation: Activation::Periodic { period, packets }, ..plain };
        let packets = match (input.packets, timed(1).service(fragment_bytes)) {
            (Some(packets), _) => packets,
            (None, Err(ActivationError::Packets { needed, .. })) => u32::try_from(needed).unwrap_or(u32::MAX),
            (None, _) => 1,
        };
        let contract = timed(packets);
        contract.validate().map_err(|error| wrong(error.to_string()))?;
        contract.service(fragment_bytes).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { contract, packets })
    }
}

/// The hosts with their flows; a host that only flows name has the defaults.
pub fn hosts(input: PlanInput, folder: &Path) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<Host> = Vec::new();
    for host in &input.host {
        if hosts.iter().any(|known| known.name.as_str() == host.name) {
            return Err(format!("host \"{}\" is listed twice: remove one", host.name));
        }
        hosts.push(Host::new(host, folder)?);
    }
    let mut names: HashMap<&str, FlowName> = HashMap::new();
    for flow in &input.flow {
        let name = FlowName::new(&flow.name).map_err(|error| error.to_string())?;
        if names.insert(&flow.name, name).is_some() {
            return Err(format!("flow \"{}\" is listed twice: remove one", flow.name));
        }
        let local = flow.to.as_ref().is_none_or(|to| *to == flow.from);
        let ends = match &flow.to {
            Some(to) if !local => vec![(&flow.from, &[Role::Source][..]), (to, &[Role::Sink][..])],
            _ => vec![(&flow.from, &[Role::Source, Role::Sink][..])],
        };
        for (at, roles) in ends {
            let index = match hosts.iter().position(|host| host.name.as_str() == at) {
                Some(index) => index,
                None => {
                    hosts.push(Host::new(&HostInput { name: at.clone(), ..HostInput::default() }, folder)?);
                    hosts.len() - 1
                }
            };
            hosts[index].add(flow, name, roles)?;
        }
    }
    for flow in &input.flow {
        let own = names[flow.name.as_str()];
        for before in &flow.after {
            let before = *names.get(before.as_str()).ok_or_else(|| {
                format!(
                    "flow \"{own}\" runs after \"{before}\", which is no flow: add it or correct the name"
                )
            })?;
            order(&mut hosts, before, own)?;
        }
    }
    Ok(hosts)
}

/// `own` goes after `before` wherever both have work.
fn order(hosts: &mut [Host], before: FlowName, own: FlowName) -> Result<(), String> {
    let mut shared = false;
    for host in hosts {
        let find = |name| host.flows.iter().position(|flow| flow.analysed.name == name);
        if let (Some(first), Some(second)) = (find(before), find(own)) {
            host.flows[second].analysed.after.push(first);
            shared = true;
        }
    }
    if shared {
        return Ok(());
    }
    Err(format!("flow \"{own}\" runs after \"{before}\", but no host works for both: remove the \"after\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that forwards longer packets than its own forwards them one per unit, like any others.
    #[test]
    fn a_plan_reckons_with_the_units_of_the_host() {
        let folder = std::env::temp_dir().join(format!("punctual-plan-units-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = "
            node = { name = \"a\", fragment = \"600B\" }
            processor = { best_effort_host = true, profile_measure = false }
            signalling = { key = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\" }
            host = [{ name = \"a\", id = 1 }, { name = \"b\", id = 2 }]
            link = [{ name = \"l\", neighbour = \"b\", driver = \"memory\", rate = \"100Mbit/s\" }]
        ";
        std::fs::write(folder.join("a.toml"), text).expect("written");
        let input = HostInput {
            name: "a".into(),
            config: Some("a.toml".into()),
            quantum: Some(3),
            ..HostInput::default()
        };
        let host = Host::new(&input, &folder).unwrap_or_else(|error| panic!("{error}"));
        let loaded = punctual_host::config::load(&folder.join("a.toml")).expect("a configuration");
        let longest = payload_bytes_max(600, &loaded.node.links);
        assert!(host.fragment_bytes == 600 && longest > 600, "{longest}");
        assert_eq!(host.processor.best_effort_unit, cpu_model(&host.cpu, longest).best_effort_unit);
        assert!(host.processor.best_effort_unit > cpu_model(&host.cpu, 600).best_effort_unit);
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
