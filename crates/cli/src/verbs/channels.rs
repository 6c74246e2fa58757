//! `punctual channels`: promises and evidence.

use clap::Args;
use punctual::{ChannelStatus, Late, Role, Statistical};

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
        let channels = self.host.connect()?.channels()?;
        output.print_with_units(&channels, |channels| text(channels))?;
        Ok(Outcome::Done)
    }
}

fn text(channels: &[ChannelStatus]) -> String {
    if channels.is_empty() {
        return "no channels".into();
    }
    let head = [
        "id",
        "path",
        "role",
        "from",
        "to",
        "state",
        "promised",
        "observed max",
        "messages",
        "misses",
        "waited",
        "dropped",
        "demoted",
        "lost",
        "expired",
    ];
    table(&head, &channels.iter().map(row).collect::<Vec<_>>())
}

fn row(channel: &ChannelStatus) -> Vec<String> {
    let counters = &channel.counters;
    let role = match channel.role {
        Role::Source => "source",
        Role::Forwarder => "forwarder",
        Role::Sink => "sink",
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
        at_sink(counters.latency_max.to_string()),
        counters.messages_out.to_string(),
        at_sink(counters.misses.to_string()),
        counters.delayed.to_string(),
        counters.dropped.to_string(),
        counters.demoted.to_string(),
        (counters.incomplete + counters.overruns + counters.overflows).to_string(),
        counters.expired.to_string(),
    ]
}

/// A channel that drops what is late, bears misses, or is guaranteed by nobody says so.
fn state(channel: &ChannelStatus) -> String {
    if !channel.degraded_by.is_empty() {
        return format!("{}, DEGRADED by {}", channel.state, channel.degraded_by.join(", "));
    }
    match (channel.contract.statistical, channel.contract.late) {
        (Some(Statistical { miss_ratio, .. }), _) => {
            format!("{}, soft ({miss_ratio} may miss)", channel.state)
        }
        (None, Late::Drop) => format!("{}, soft", channel.state),
        (None, Late::Deliver) => channel.state.clone(),
    }
}
