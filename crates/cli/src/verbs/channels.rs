//! `punctual channels`: promises and evidence.

use std::cmp::Reverse;

use clap::Args;
use punctual::{BrokenStage, ChannelStatus, Late, LateStage, Nanos, Observed, Role, Statistical};
use serde_json::Value;

use crate::causes::with_causes;
use crate::host::Host;
use crate::output::{Outcome, Output, table};

/// List the channels that start at, pass through or end at this host: promised bounds, and observed latencies and losses.
#[derive(Args)]
#[command(
    after_help = "Example: punctual channels --json\nIn JSON, the list \"degraded\" of a channel shows why the channel has no \
                        guarantee: each entry names a host or link, with \"cause_kind\" and \"cause_text\". \"late\" and \
                        \"misses\" are the same number."
)]
pub struct Channels {
    #[command(flatten)]
    host: Host,
}

impl Channels {
    /// Requests the channels from the daemon and prints them.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let host = self.host.connect()?;
        let (channels, late) = (host.channels()?, host.status()?.node.late);
        if output.json {
            output.print_with_units(&as_json(&channels)?, |_| String::new())?;
        } else {
            output.print(&channels, |channels| text(channels, &late))?;
        }
        Ok(Outcome::Done)
    }
}

/// The answer of the daemon, with `late` in addition to `misses`: the text shows that name.
fn as_json(channels: &[ChannelStatus]) -> serde_json::Result<Value> {
    let printed = |channel: &ChannelStatus| {
        let mut printed = with_causes(serde_json::to_value(channel)?);
        printed["counters"]["late"] = channel.counters.misses.into();
        Ok(printed)
    };
    channels.iter().map(printed).collect()
}

fn text(channels: &[ChannelStatus], late: &[LateStage]) -> String {
    if channels.is_empty() {
        return "no channels".into();
    }
    let head = [
        "id", "path", "role", "from", "to", "state", "promised", "last", "p99", "max", "+-", "messages",
        "late", "perhaps", "waited", "dropped", "demoted", "lost", "expired",
    ];
    let late: String = late.iter().map(|stage| format!("\nLATE: {stage}")).collect();
    table(&head, &channels.iter().map(row).collect::<Vec<_>>()) + &late
}

fn row(channel: &ChannelStatus) -> Vec<String> {
    let counters = &channel.counters;
    let role = match channel.role {
        Role::Source => "source",
        Role::Forwarder => "forwarder",
        Role::Sink => "sink",
    };
    let observed = |value: fn(&Observed) -> Nanos| {
        channel.observed.as_ref().map_or_else(|| "-".into(), |observed| value(observed).to_string())
    };
    let at_sink = |value: String| if channel.role == Role::Sink { value } else { "-".into() };
    vec![
        channel.channel.0.to_string(),
        channel.path.to_string(),
        role.into(),
        channel.from.clone(),
        channel.to.to_string(),
        state(channel),
        channel.contract.deadline.to_string(),
        observed(|observed| observed.last.latency),
        observed(|observed| observed.p99),
        observed(|observed| observed.max.latency),
        observed(|observed| observed.last.error),
        counters.messages_out.to_string(),
        at_sink(counters.misses.to_string()),
        at_sink((counters.perhaps_late + counters.unmeasured).to_string()),
        counters.delayed.to_string(),
        counters.dropped.to_string(),
        counters.demoted.to_string(),
        lost(channel).to_string(),
        counters.expired.to_string(),
    ]
}

/// At the sink all missing messages; elsewhere the messages that this host dropped.
fn lost(channel: &ChannelStatus) -> u64 {
    let counters = &channel.counters;
    let here = counters.incomplete + counters.overruns + counters.overflows + counters.demoted_dropped;
    if channel.role == Role::Sink { counters.lost.max(here) } else { here }
}

/// All stages that break their promise, the latest first.
fn broken(channel: &ChannelStatus) -> Vec<String> {
    let mut stages: Vec<&BrokenStage> = channel.broken.iter().collect();
    stages.sort_by_key(|stage| Reverse(stage.late.by_max));
    stages.into_iter().map(ToString::to_string).collect()
}

/// The hosts that are degraded as they are set up.
fn degraded_by(channel: &ChannelStatus) -> Vec<String> {
    match &channel.degraded_by[..] {
        [] => Vec::new(),
        hosts => vec![format!("by {} ({})", hosts.join(", "), channel.degraded_why.join("; "))],
    }
}

/// The state, with a word if the channel is soft or degraded.
fn state(channel: &ChannelStatus) -> String {
    if !channel.broken.is_empty() || !channel.degraded_by.is_empty() {
        let printed = [broken(channel), degraded_by(channel)].concat().join(" | ");
        return format!("{}, DEGRADED {printed}", channel.state);
    }
    match (channel.contract.statistical, channel.contract.late) {
        (Some(Statistical { miss_ratio, .. }), _) => {
            format!("{}, soft ({miss_ratio} may miss)", channel.state)
        }
        (None, Late::Drop) => format!("{}, soft", channel.state),
        (None, Late::Deliver) => channel.state.clone(),
    }
}

#[cfg(test)]
mod tests {
    use punctual::{
        BitRate, Cause, ChannelCounters, ChannelId, Contract, Delivery, Guarantee, Lateness, Name, Rate,
    };
    use punctual_proto::ids::{Address, PathId};

    use super::*;

    fn stage(host: &str, late_ms: u64, cause: Cause) -> BrokenStage {
        let late = Lateness { times: 3, by_max: Nanos::from_millis(late_ms) };
        BrokenStage { host: host.into(), towards: Some("b".into()), late, cause, channels: None }
    }

    fn channel(broken: Vec<BrokenStage>) -> ChannelStatus {
        let name = |name| Name::new(name).expect("a name");
        let rate = Rate::per_second(10).expect("a rate");
        ChannelStatus {
            channel: ChannelId(7),
            path: PathId::default(),
            role: Role::Sink,
            from: "a".into(),
            to: Address { port: name("cam"), host: name("b") },
            contract: Contract::new(100, rate, 1, Nanos::from_millis(50)).expect("a contract"),
            jitter_allowance: Nanos::ZERO,
            guarantee: Guarantee::Degraded,
            degraded_by: Vec::new(),
            degraded_why: Vec::new(),
            degraded: broken.iter().map(punctual::DegradedPlace::stage).collect(),
            stages: Vec::new(),
            state: "open".into(),
            delivery: Delivery::Asap,
            counters: ChannelCounters { misses: 5, ..ChannelCounters::default() },
            observed: None,
            broken,
        }
    }

    #[test]
    fn all_broken_stages_are_named_the_latest_first() {
        let slow = Cause::SlowLink { drains: BitRate(20_000_000), configured: BitRate(95_000_000) };
        let mut channel = channel(vec![stage("a", 3, Cause::LongerTravel), stage("r", 40, slow)]);
        let printed = state(&channel);
        let (latest, other) = (printed.find("link r-b drains at"), printed.find("| link a-b takes longer"));
        assert!(
            printed.starts_with("open, DEGRADED link r-b ") && latest.is_some() && latest < other,
            "{printed}"
        );
        channel.degraded_by = vec!["a".into()];
        channel.degraded_why = vec!["a: no real-time class".into()];
        assert!(state(&channel).ends_with(" | by a (a: no real-time class)"), "{}", state(&channel));
    }

    #[test]
    fn json_has_one_place_for_why_nothing_is_guaranteed_and_late_beside_misses() {
        let printed = as_json(&[channel(vec![stage("a", 3, Cause::LongerTravel)])]).expect("JSON");
        let printed = &printed[0];
        assert_eq!((&printed["counters"]["late"], &printed["counters"]["misses"]), (&5.into(), &5.into()));
        assert_eq!(
            (&printed["guarantee"], &printed["degraded"][0]["place"]),
            (&"degraded".into(), &"link a-b".into())
        );
        assert_eq!(printed["degraded"][0]["cause_kind"], "longer-travel");
        assert_eq!(
            (&printed["broken"][0]["cause"], &printed["broken"][0]["cause_kind"]),
            (&"longer-travel".into(), &"longer-travel".into())
        );
    }
}
