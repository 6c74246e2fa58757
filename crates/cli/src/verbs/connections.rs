//! `punctual connections`: TCP connections of this host's own.

use clap::Args;
use punctual::rtu::Class as RtuClass;
use punctual::tcp::{ConnectionStatus, Path};

use crate::host::Host;
use crate::output::{Outcome, Output, table};

/// List the TCP connections that this host's daemon runs itself: class, state, segments, windows and buffers.
#[derive(Args)]
#[command(after_help = "Example: punctual connections --json\n\
                  The kernel does not know these connections: ss, netstat and tcpdump do not show them. The class is a promise of \
                  this host alone where promise shows \"host\", and of the reserved path where it shows \"path\" with the bounds of packets that \
                  leave and come: \"punctual channels\" shows its channels. Segments that were sent again are \"resent\". The windows, in bytes, are what the peer takes \
                  and what this end takes. \"punctual status\" shows the handlers of input and output, with their bounds and what was late.")]
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
    let head = [
        "id",
        "user",
        "local",
        "peer",
        "class",
        "promise",
        "state",
        "in",
        "out",
        "resent",
        "dropped",
        "windows",
        "unread",
        "unacknowledged",
    ];
    table(&head, &connections.iter().map(row).collect::<Vec<_>>())
}

fn class(class: RtuClass) -> String {
    match class {
        RtuClass::LowDelay { interval, units, .. } => format!("low-delay {units}/{interval}"),
        RtuClass::Guaranteed { period, units, .. } => format!("guaranteed {units}/{period}"),
        RtuClass::BestEffort => "best-effort".into(),
    }
}

/// How far the promise reaches: this host's part, or the path as well, with the bound of packets that leave and that come.
fn promise(path: Option<Path>) -> String {
    match path.map(|path| path.sending.zip(path.receiving)) {
        None => "host".into(),
        Some(None) => "host (channels)".into(),
        Some(Some((sending, receiving))) => format!("path {sending}/{receiving}"),
    }
}

fn row(connection: &ConnectionStatus) -> Vec<String> {
    vec![
        connection.channel.0.to_string(),
        connection.user.0.to_string(),
        connection.local.to_string(),
        connection.peer.to_string(),
        class(connection.class),
        promise(connection.path),
        connection.state.to_string(),
        connection.segments_in.to_string(),
        connection.segments_out.to_string(),
        connection.resent.to_string(),
        connection.dropped.to_string(),
        format!("{}/{}", connection.send_window_bytes, connection.receive_window_bytes),
        connection.readable_bytes.to_string(),
        connection.unacknowledged_bytes.to_string(),
    ]
}
