//! `punctual recv`: a guaranteed channel to standard output.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use punctual::{
    CloseReason, Consent, Contract, MessageInfo, Name, Nanos, Receiver, RecvError, counted, failure,
};
use serde::Serialize;
use serde_json::Value;

use crate::host::{Host, degraded, ended};
use crate::output::{Outcome, Output, begin_stream, tell};
use crate::units::with_units;
use crate::values;

/// Listen on a name, take one channel, write its messages to standard output until it ends.
#[derive(Args)]
#[command(
    after_help = "Example: punctual recv cam | ffplay -f h264 -\nWith --json the summary goes to standard error: \
                        standard output carries the messages (or an object with \"error\", \
                        where it failed before the first).\n\
                        Exit code 0: the sender ended the channel, or --count messages came; 1: it was killed, or the path \
                        or a daemon was lost."
)]
pub struct Recv {
    /// The name that senders open to.
    #[arg(value_parser = values::name)]
    name: Name,
    /// Stop after so many messages.
    #[arg(long, value_parser = values::count)]
    count: Option<u64>,
    /// Say for each message when it came, on standard error.
    #[arg(long)]
    info: bool,
    /// Only let this host in.
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    from: Option<Name>,
    /// Receive in SCHED_FIFO, at the priority that this host maps the channel's class and period to.
    #[arg(long)]
    co_schedule: bool,
    #[command(flatten)]
    host: Host,
}

#[derive(Serialize)]
struct Received {
    from: String,
    contract: Contract,
    messages: u64,
    bytes: u64,
    /// Messages that never came.
    lost: u64,
    /// Messages that came after their deadline.
    late: u64,
    demoted: u64,
    /// The least time that was left before a deadline; negative: after it.
    slack_ns_min: Option<i64>,
    /// Hosts on the way that guarantee nothing; `None` where the channel ended before it was asked.
    degraded_by: Option<Vec<String>>,
    /// How the channel ended; `None` where that is not why it stopped.
    ended: Option<CloseReason>,
    /// As every verb gives it where it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl Received {
    /// Nothing yet.
    fn by(receiver: &Receiver) -> anyhow::Result<Self> {
        let request = receiver.request().cloned();
        let request = request.ok_or_else(|| anyhow::anyhow!("a channel without a sender"))?;
        Ok(Self {
            from: request.from,
            contract: request.contract,
            messages: 0,
            bytes: 0,
            lost: 0,
            late: 0,
            demoted: 0,
            slack_ns_min: None,
            degraded_by: receiver.state().map(|state| state.status.degraded_by).ok(),
            ended: None,
            error: None,
        })
    }
}

/// One message for `--info`.
#[derive(Serialize)]
struct Line {
    number: u64,
    bytes: u32,
    slack_ns: i64,
    demoted: bool,
}

impl Recv {
    /// Listens, receives, prints.
    ///
    /// # Errors
    /// Where the name is taken, there is no daemon, `--from` is no host, the sender fails, or standard output cannot be
    /// written.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let mut receiver = self.accept(output)?;
        let mut received = Received::by(&receiver)?;
        let taken = self.take(&mut receiver, &mut received, output);
        drop(receiver);
        received.error = taken.as_ref().err().map(|error| failure(&punctual::one_line(error.as_ref()), 1));
        summary(&received, output)?;
        taken.map(|()| Outcome::Done)
    }

    /// Waits for a sender.
    fn accept(&self, output: Output) -> anyhow::Result<Receiver> {
        let endsystem = self.host.connect()?;
        if let Some(host) = &self.from {
            endsystem.check_host(host.as_str()).context("--from")?;
        }
        let only = self.from.clone();
        let listener = endsystem.listen(self.name.as_str(), move |request| match &only {
            Some(host) if host.as_str() != request.from => Consent::refuse(format!("only {host} is let in")),
            _ => Consent::Accept,
        })?;
        if output.is_live() {
            eprintln!("listening: senders open {}@{}", self.name, endsystem.host());
        }
        let receiver = listener.accept()?;
        // Gives the name back without waiting: even of a daemon that stops now, what has come is read.
        drop(listener);
        if self.co_schedule {
            let priority = receiver.co_schedule()?;
            if output.is_live() {
                eprintln!("receiving at SCHED_FIFO priority {priority}");
            }
        }
        Ok(receiver)
    }

    /// Writes what comes, until that is all that was wanted.
    fn take(&self, receiver: &mut Receiver, received: &mut Received, output: Output) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        while self.count.is_none_or(|count| received.messages < count) {
            let taken = receiver.recv_in_place(|bytes, info| {
                begin_stream();
                (stdout.write_all(bytes).and_then(|()| stdout.flush()), *info)
            });
            match taken {
                Ok((Ok(()), info)) => self.count_in(received, &info, output),
                // Whoever read the output has had enough.
                Ok((Err(error), _)) if error.kind() == io::ErrorKind::BrokenPipe => break,
                Ok((Err(error), _)) => return Err(error).context("standard output"),
                Err(RecvError::Closed(reason)) => {
                    received.ended = reason;
                    anyhow::ensure!(
                        reason == Some(CloseReason::Peer),
                        "the sender did not end it, the stream may be incomplete after {}: {}",
                        counted(received.messages, "message"),
                        ended(reason)
                    );
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn count_in(&self, received: &mut Received, info: &MessageInfo, output: Output) {
        let slack_ns = info.deadline.minus(info.delivered);
        received.messages += 1;
        received.bytes += u64::from(info.len);
        received.lost = (info.number + 1).saturating_sub(received.messages);
        received.demoted += u64::from(info.demoted);
        received.late += u64::from(slack_ns < 0 && !info.demoted);
        received.slack_ns_min = Some(received.slack_ns_min.map_or(slack_ns, |least| least.min(slack_ns)));
        if self.info {
            let line = Line { number: info.number, bytes: info.len, slack_ns, demoted: info.demoted };
            match serde_json::to_string(&line) {
                Ok(json) if output.json => eprintln!("{json}"),
                _ => eprintln!("message {}: {} B, {}", line.number, line.bytes, slack_text(slack_ns)),
            }
        }
    }
}

fn summary(received: &Received, output: Output) -> anyhow::Result<()> {
    if output.json {
        tell(&with_units(serde_json::to_value(received)?).to_string());
        return Ok(());
    }
    let least = received.slack_ns_min.map_or_else(|| "none came".into(), slack_text);
    tell(&format!(
        "{}, {} B from {}: {} lost, {} late, {} demoted; at the tightest {least}{}",
        counted(received.messages, "message"),
        received.bytes,
        received.from,
        received.lost,
        received.late,
        received.demoted,
        received.degraded_by.as_deref().map_or_else(String::new, degraded),
    ));
    Ok(())
}

fn slack_text(slack_ns: i64) -> String {
    let span = Nanos(slack_ns.unsigned_abs());
    if slack_ns < 0 { format!("{span} LATE") } else { format!("{span} before its deadline") }
}
