//! `punctual connections`: the TCP connections that the daemon processes, and its listeners.

use clap::Args;
use punctual::rtu::Class as RtuClass;
use punctual::tcp::{ConnectionStatus, ListenerStatus};

use crate::host::Host;
use crate::output::{Outcome, Output, table};

/// List the TCP connections that this host's daemon processes in place of the kernel: class, state, segments and buffers.
#[derive(Args)]
#[command(after_help = "Examples:\n  punctual connections --json\n  punctual connections --listeners\n\
                  The kernel does not know these connections: ss, netstat and tcpdump do not show them. The column 'promise' shows \
                  where delays are bounded. 'none': nowhere, as for best effort and in TIME-WAIT. 'host I/O': on this host only: a segment that \
                  comes to it is with the program within I, and a segment that the program sends has left within O. This holds for \
                  segments within the \
                  budget of the class. 'path S/R': on the reserved path, too; packets arrive at the peer within S, and packets of \
                  the peer arrive here within R ('punctual channels' shows the channels). '(channels)': the connection uses \
                  channels, but they guarantee no bound. 'delay': the mean and the longest time from the arrival of a segment \
                  at the driver until the program had what it brought; segments beyond the budget count, too. 'resent': segments \
                  of data that left again, because they were lost or to find out whether they were. 'windows S/R': the peer \
                  accepts S bytes now, and this host accepts R bytes; 0 means that the program there, or here, does not read. \
                  'punctual status' shows the two handlers of each connection (one for each direction), their bounds, and how \
                  often they were late.")]
pub struct Connections {
    #[command(flatten)]
    host: Host,
    /// List the addresses and ports at which programs listen instead, with the class of the connections that they accept.
    #[arg(long)]
    listeners: bool,
}

impl Connections {
    /// Requests the connections or the listeners from the daemon and prints them.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let endsystem = self.host.connect()?;
        if self.listeners {
            output.print(&endsystem.tcp_listeners()?, |listeners| listeners_text(listeners))?;
        } else {
            output.print(&endsystem.tcp_connections()?, |connections| text(connections))?;
        }
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
        "delay",
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

fn listeners_text(listeners: &[ListenerStatus]) -> String {
    if listeners.is_empty() {
        return "no TCP listeners".into();
    }
    let row = |it: &ListenerStatus| {
        let (id, user) = (it.channel.0.to_string(), it.user.0.to_string());
        let counts = [u64::from(it.half_open), u64::from(it.waiting), it.cookies, it.unanswered];
        let counts = counts.map(|count| count.to_string());
        let head = vec![id, user, it.local.to_string(), class(it.class), it.backlog.to_string()];
        [head, counts.to_vec()].concat()
    };
    let head = ["id", "user", "local", "class", "backlog", "half-open", "waiting", "cookies", "unanswered"];
    table(&head, &listeners.iter().map(row).collect::<Vec<_>>())
}

fn class(class: RtuClass) -> String {
    match class {
        RtuClass::LowDelay { interval, units, priority: Some(priority) } => {
            format!("low-delay {units}/{interval}, priority {priority}")
        }
        RtuClass::LowDelay { interval, units, priority: None } => format!("low-delay {units}/{interval}"),
        RtuClass::Guaranteed { period, units, .. } => format!("guaranteed {units}/{period}"),
        RtuClass::BestEffort => "best-effort".into(),
    }
}

/// How far the promise reaches: nowhere, this host alone, or the path as well, with its bound in each direction.
fn promise(connection: &ConnectionStatus) -> String {
    let bounds = connection.bound_in.zip(connection.bound_out);
    let host = bounds.map_or_else(|| "none".into(), |(input, output)| format!("host {input}/{output}"));
    match connection.path.map(|path| path.sending.zip(path.receiving)) {
        None => host,
        Some(None) => format!("{host} (channels)"),
        Some(Some((sending, receiving))) => format!("path {sending}/{receiving}"),
    }
}

/// Mean and longest delay on this host.
fn delay(connection: &ConnectionStatus) -> String {
    let delays = connection.delay_mean.zip(connection.delay_max);
    delays.map_or_else(|| "-".into(), |(mean, max)| format!("{mean}/{max}"))
}

fn row(connection: &ConnectionStatus) -> Vec<String> {
    vec![
        connection.channel.0.to_string(),
        connection.user.0.to_string(),
        connection.local.to_string(),
        connection.peer.to_string(),
        class(connection.class),
        promise(connection),
        delay(connection),
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
