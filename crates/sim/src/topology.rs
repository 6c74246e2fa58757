//! Hosts and links of a network: drawn from the seed or read from a file.
//!
//! All values besides names and ends of links may be left out; the seed then determines them.

mod shapes;

use std::collections::{BTreeMap, BTreeSet};

use punctual_analysis::{Activation, Contract, Delivery, Horizon, Late, Nanos, Policing, Rate};
use punctual_proto::config::{Admission, Pacing, RunPolicy};
use punctual_proto::ids::Name;
use punctual_proto::limits::{CLOCK_TOLERANCE_PPM_DEFAULT, CLOCK_TOLERANCE_PPM_MAX};
use serde::Deserialize;
use thiserror::Error;

use self::shapes::Shape;
use crate::dice::Dice;

/// Most hosts of a simulated network.
pub const HOSTS_MAX: usize = 10_000;

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Its hosts.
    #[serde(rename = "host")]
    pub hosts: Vec<HostSpec>,
    /// Its links, each in both directions.
    #[serde(rename = "link")]
    pub links: Vec<LinkSpec>,
    /// Channels to open; drawn if there is none.
    #[serde(rename = "channel", default)]
    pub channels: Vec<ChannelSpec>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its name, unique.
    pub name: String,
    /// Order of handlers on its processor.
    pub run: Option<RunPolicy>,
    /// Admission of its processor; must suit `run`.
    pub admission: Option<Admission>,
    /// CPU costs in percent of the defaults.
    pub cpu_cost_percent: Option<u32>,
    /// Drift of its clock in parts per million, within the tolerance.
    pub drift_ppm: Option<i32>,
    /// Largest drift of its clock either way, in parts per million, 0 to 1,900; 100 if not given.
    pub clock_tolerance_ppm: Option<u32>,
}

impl HostSpec {
    /// Tolerance of its clock.
    pub(crate) fn tolerance_ppm(&self) -> u32 {
        self.clock_tolerance_ppm.unwrap_or(CLOCK_TOLERANCE_PPM_DEFAULT)
    }
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// The hosts at its ends.
    pub between: [String; 2],
    /// Drain rate, both ways.
    pub rate_mbit: Option<u32>,
    /// Longest propagation.
    pub propagation_max_us: Option<u32>,
    /// Evidence that a packet is sent: completions or the clock.
    pub pace: Option<Pacing>,
    /// Packets that may be outstanding, 1 to 4; at least 2 by the clock.
    pub pipeline_depth: Option<u32>,
    /// Its admission.
    pub admission: Option<Admission>,
}

/// A channel to open.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Source host.
    pub from: String,
    /// Sink host.
    pub to: String,
    /// S, at least 16.
    pub message_bytes_max: u32,
    /// I in microseconds.
    pub interval_us: u64,
    /// B.
    #[serde(default = "one")]
    pub burst_messages_max: u32,
    /// D in microseconds.
    pub deadline_us: u64,
    /// Handling of excess.
    #[serde(default)]
    pub policing: Policing,
    /// When the sink delivers.
    #[serde(default)]
    pub delivery: Delivery,
    /// How early hops may serve.
    #[serde(default)]
    pub horizon: Horizon,
    /// Activation of handlers.
    #[serde(default)]
    pub activation: Activation,
    /// Handling of late messages.
    #[serde(default)]
    pub late: Late,
    /// Arrival pattern; drawn if missing.
    pub arrivals: Option<Arrivals>,
}

const fn one() -> u32 {
    1
}

/// Sending pattern of an application. All but `Breaker` keep the contract, at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// One message every I.
    Periodic,
    /// B messages at once as soon as the contract allows B at once again.
    Bursts,
    /// Bursts of B that start at the same moments on every host.
    Synchronous,
    /// As many messages as conform, as soon as they do.
    Greedy,
    /// One at a time, with random pauses.
    Sporadic,
    /// Trains of messages with random pauses, at the mean rate of a soft contract: such a source is
    /// independent of all others.
    Independent,
    /// Three times the contract's rate: it may affect only itself.
    Breaker,
}

/// A file that describes no network.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// Not TOML, or unknown or missing keys.
    #[error("topology: {0}")]
    Syntax(#[from] toml::de::Error),
    /// Not JSON, or unknown or missing keys.
    #[error("topology: {0}")]
    Json(#[from] serde_json::Error),
    /// A value out of range or an unknown name.
    #[error("topology: {0}")]
    Value(String),
}

fn wrong(what: String) -> TopologyError {
    TopologyError::Value(what)
}

impl Topology {
    /// From TOML, or from JSON where the text begins with `{`.
    ///
    /// # Errors
    /// If the text is malformed or a value is invalid; the error's text names it.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let json = text.trim_start().starts_with('{');
        let topology: Self = if json { serde_json::from_str(text)? } else { toml::from_str(text)? };
        topology.check()?;
        Ok(topology)
    }

    /// Index of each host by name.
    pub fn positions(&self) -> BTreeMap<&str, usize> {
        self.hosts.iter().enumerate().map(|(position, host)| (host.name.as_str(), position)).collect()
    }

    fn check(&self) -> Result<(), TopologyError> {
        if !(2..=HOSTS_MAX).contains(&self.hosts.len()) {
            return Err(wrong(format!("{} hosts: give 2 to {HOSTS_MAX}", self.hosts.len())));
        }
        let mut names = BTreeSet::new();
        for host in &self.hosts {
            Name::new(&host.name).map_err(|error| wrong(error.to_string()))?;
            if !names.insert(host.name.as_str()) {
                return Err(wrong(format!("two hosts are called \"{}\"", host.name)));
            }
            let tolerance = host.tolerance_ppm();
            if tolerance > CLOCK_TOLERANCE_PPM_MAX {
                let most = CLOCK_TOLERANCE_PPM_MAX;
                return Err(wrong(format!("clock tolerance of \"{}\": give 0 to {most} ppm", host.name)));
            }
            if host.drift_ppm.is_some_and(|ppm| ppm.unsigned_abs() > tolerance) {
                return Err(wrong(format!(
                    "drift of \"{}\": give -{tolerance} to {tolerance} ppm, or a larger clock_tolerance_ppm",
                    host.name
                )));
            }
        }
        self.links.iter().try_for_each(|link| check_link(&names, link))?;
        self.channels.iter().try_for_each(|channel| check_channel(&names, channel))
    }
}

fn known(names: &BTreeSet<&str>, name: &str) -> Result<(), TopologyError> {
    if names.contains(name) { Ok(()) } else { Err(wrong(format!("no [[host]] is called \"{name}\""))) }
}

fn check_link(names: &BTreeSet<&str>, link: &LinkSpec) -> Result<(), TopologyError> {
    let [one, other] = &link.between;
    known(names, one)?;
    known(names, other)?;
    if one == other {
        return Err(wrong(format!("a link joins \"{one}\" with itself")));
    }
    let depth_min = if link.pace == Some(Pacing::Completion) { 1 } else { 2 };
    if link.pipeline_depth.is_some_and(|depth| !(depth_min..=4).contains(&depth)) {
        return Err(wrong(format!("pipeline_depth of {one} - {other}: give {depth_min} to 4")));
    }
    if link.rate_mbit.is_some_and(|rate| !(1..=100_000).contains(&rate)) {
        return Err(wrong(format!("rate_mbit of {one} - {other}: give 1 to 100000")));
    }
    Ok(())
}

fn check_channel(names: &BTreeSet<&str>, channel: &ChannelSpec) -> Result<(), TopologyError> {
    known(names, &channel.from)?;
    known(names, &channel.to)?;
    if channel.from == channel.to {
        return Err(wrong(format!("a channel from \"{}\" to itself", channel.from)));
    }
    if channel.message_bytes_max < crate::memory::MESSAGE_BYTES_MIN {
        return Err(wrong("message_bytes_max: give at least 16".into()));
    }
    channel.contract().map(|_| ())
}

impl Topology {
    /// A network of a shape and size that `dice` choose: a line, star, ring or mesh if it is small; a line,
    /// star, ring, fat tree or random network otherwise.
    pub fn draw(size: Size, dice: &mut Dice) -> Self {
        let (shape, wanted) = match size {
            Size::Small => {
                let shape = dice.pick(&Shape::SMALL);
                let hosts = if shape == Shape::Line { dice.between(2, 5) } else { dice.between(3, 7) };
                (shape, hosts)
            }
            Size::Medium => (dice.pick(&Shape::LARGE), dice.log_between(8, 64)),
            Size::Large => (dice.pick(&Shape::LARGE), dice.log_between(65, 200)),
            Size::Huge => (dice.pick(&Shape::LARGE), dice.log_between(201, 2_000)),
        };
        let (hosts, edges) = shape.lay_out(wanted as usize, dice);
        let names = (0..hosts).map(|n| HostSpec { name: format!("h{n}"), ..HostSpec::default() }).collect();
        let links = edges
            .into_iter()
            .map(|(a, b)| LinkSpec { between: [format!("h{a}"), format!("h{b}")], ..LinkSpec::default() });
        Self { hosts: names, links: links.collect(), channels: Vec::new() }
    }
}

/// Size of a drawn network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 2 to 7 hosts.
    Small,
    /// Up to 64.
    Medium,
    /// Up to 200.
    Large,
    /// Up to 2,000.
    Huge,
}

impl ChannelSpec {
    /// The contract.
    ///
    /// # Errors
    /// If it is out of range.
    pub fn contract(&self) -> Result<Contract, TopologyError> {
        let interval = Nanos::from_micros(self.interval_us);
        let rate = Rate::every(interval).ok_or_else(|| wrong("interval_us: give at least 1".into()))?;
        let contract = Contract {
            message_bytes_max: self.message_bytes_max,
            rate_max: rate,
            burst_messages_max: self.burst_messages_max,
            deadline: Nanos::from_micros(self.deadline_us),
            policing: self.policing,
            delivery: self.delivery,
            horizon: self.horizon,
            activation: self.activation,
            late: self.late,
            flow: None,
            statistical: None,
            jitter: None,
        };
        contract.validate().map_err(|error| wrong(format!("channel: {error}")))?;
        Ok(contract)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[host]]
        name = "a"
        [[host]]
        name = "b"
        run = "fixed-priority"
        admission = "fixed-priority"
        [[link]]
        between = ["a", "b"]
        rate_mbit = 40
        pace = "completion"
        pipeline_depth = 1
        [[channel]]
        from = "a"
        to = "b"
        message_bytes_max = 1000
        interval_us = 10000
        deadline_us = 20000
        arrivals = "greedy"
    "#;

    #[test]
    fn a_file_is_read() {
        let topology = Topology::parse(FILE).expect("good");
        assert_eq!(topology.hosts.len(), 2);
        assert_eq!(topology.links[0].pipeline_depth, Some(1));
        assert_eq!(topology.channels[0].arrivals, Some(Arrivals::Greedy));
        let drifts =
            FILE.replacen("name = \"b\"", "name = \"b\"\nclock_tolerance_ppm = 1900\ndrift_ppm = -1900", 1);
        assert_eq!(Topology::parse(&drifts).expect("good").hosts[1].drift_ppm, Some(-1900));
        let json = r#"{"host":[{"name":"a"},{"name":"b"}],"link":[{"between":["a","b"]}]}"#;
        assert_eq!(Topology::parse(json).expect("good").hosts.len(), 2);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (from, to, reason) in [
            ("name = \"b\"", "name = \"a\"", "two hosts"),
            ("between = [\"a\", \"b\"]", "between = [\"a\", \"c\"]", "no [[host]]"),
            ("to = \"b\"", "to = \"a\"", "to itself"),
            ("pipeline_depth = 1", "pipeline_depth = 9", "pipeline_depth"),
            ("name = \"b\"", "name = \"b\"\ndrift_ppm = -101", "give -100 to 100 ppm"),
            ("name = \"b\"", "name = \"b\"\nclock_tolerance_ppm = 1901", "give 0 to 1900 ppm"),
            ("rate_mbit = 40", "rate_mbits = 40", "unknown field"),
            ("message_bytes_max = 1000", "message_bytes_max = 1", "at least 16"),
            ("deadline_us = 20000", "deadline_us = 0", "deadline"),
        ] {
            let text = FILE.replacen(from, to, 1);
            let error = Topology::parse(&text).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
