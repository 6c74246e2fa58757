//! `punctual channels`: promises and evidence.

use clap::Args;
use punctual::{ChannelStatus, Late, LateStage, Nanos, Observed, Role, Statistical};

use crate::host::Host;
use crate::output::{Outcome, Output, table};

/// List the channels that start at, pass or end at this host, with promise and evidence.
#[derive(Args)]
#[command(after_help = "Example: punctual channels --json")]
pub struct Channels {
    #[command(flatten)]
    host: Host,
}

impl Channels {
    /// Asks the daemon and prints.
    ///
    /// # Errors
    /// Where there is no daemon.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let host = self.host.connect()?;
        let (channels, late) = (host.channels()?, host.status()?.node.late);
        output.print_with_units(&channels, |channels| text(channels, &late))?;
        Ok(Outcome::Done)
    }
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

/// At the sink all that is missing; elsewhere what this host dropped.
fn lost(channel: &ChannelStatus) -> u64 {
    let counters = &channel.counters;
    let here = counters.incomplete + counters.overruns + counters.overflows + counters.demoted_dropped;
    if channel.role == Role::Sink { counters.lost.max(here) } else { here }
}

/// A channel that drops what is late, bears misses, or is guaranteed by nobody says so.
fn state(channel: &ChannelStatus) -> String {
    if let Some(stage) = channel.broken.first() {
        return format!("{}, DEGRADED: {stage}", channel.state);
    }
    if !channel.degraded_by.is_empty() {
        let (by, why) = (channel.degraded_by.join(", "), channel.degraded_why.join("; "));
        return format!("{}, DEGRADED by {by} ({why})", channel.state);
    }
    match (channel.contract.statistical, channel.contract.late) {
        (Some(Statistical { miss_ratio, .. }), _) => {
            format!("{}, soft ({miss_ratio} may miss)", channel.state)
        }
        (None, Late::Drop) => format!("{}, soft", channel.state),
        (None, Late::Deliver) => channel.state.clone(),
    }
}
