//! `punctual connections`: TCP connections of this host's own.

use clap::Args;
use punctual::rtu::Class as RtuClass;
use punctual::tcp::ConnectionStatus;

use crate::host::Host;
use crate::output::{Outcome, Output, table};

/// List the TCP connections that this host's daemon runs itself: class, state, segments and buffers.
#[derive(Args)]
#[command(after_help = "Example: punctual connections --json\n\
                  The kernel does not know these connections: ss, netstat and tcpdump do not show them. The class is a promise of \
                  this host alone. \"punctual status\" shows the handlers of input and output, with their bounds and what was late.")]
pub struct Connections {
    #[command(flatten)]
    host: Host,
}

impl Connections {
    /// Requests the connections from the daemon and prints them.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        output.print(&self.host.connect()?.tcp_connections()?, |connections| text(connections))?;
        Ok(Outcome::Done)
    }
}

fn text(connections: &[ConnectionStatus]) -> String {
    if connections.is_empty() {
        return "no TCP connections".into();
    }
    let head =
        ["id", "user", "local", "peer", "class", "state", "in", "out", "dropped", "unread", "unacknowledged"];
    table(&head, &connections.iter().map(row).collect::<Vec<_>>())
}

fn class(class: RtuClass) -> String {
    match class {
        RtuClass::LowDelay { interval, units, .. } => format!("low-delay {units}/{interval}"),
        RtuClass::Guaranteed { period, units, .. } => format!("guaranteed {units}/{period}"),
        RtuClass::BestEffort => "best-effort".into(),
    }
}

fn row(connection: &ConnectionStatus) -> Vec<String> {
    vec![
        connection.channel.0.to_string(),
        connection.user.0.to_string(),
        connection.local.to_string(),
        connection.peer.to_string(),
        class(connection.class),
        connection.state.to_string(),
        connection.segments_in.to_string(),
        connection.segments_out.to_string(),
        connection.dropped.to_string(),
        connection.readable_bytes.to_string(),
        connection.unacknowledged_bytes.to_string(),
    ]
}
