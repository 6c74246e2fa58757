//! `punctual recv`: a guaranteed channel to standard output.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use punctual::{
    CloseReason, Consent, Contract, Endsystem, MessageInfo, Name, Nanos, OneWayLatency, Receiver, RecvError,
    Timeliness, counted, failure,
};
use serde::Serialize;
use serde_json::Value;

use crate::host::{Host, degraded, ended, lateness};
use crate::output::{Outcome, Output, begin_stream, print_note};
use crate::stages::{self, ReportedStage, Stages};
use crate::units::with_units;
use crate::values;

/// Listen on a name, accept one channel, and write its messages to standard output until it ends.
#[derive(Args)]
#[command(
    after_help = "Example: punctual recv cam | ffplay -f h264 -\nWhen recv listens, it prints a line on standard error. If a \
                        sender fails before its first message, recv reports it there and listens again. If a stage on the \
                        route breaks its promise, recv reports it on standard error as soon as this host learns of it.\n\
                        Standard output carries the messages. With --json the summary is therefore the last line on \
                        standard error (and each sender that failed before its first message has a line there). If recv \
                        itself fails before the first message, standard output gets an object with \"error\".\n\
                        Exit code 0: the sender ended the channel, or --count messages arrived. 1: the sender was killed, \
                        or the path or a daemon was lost."
)]
pub struct Recv {
    /// The name that senders use: cam for cam@THISHOST.
    #[arg(value_parser = values::name)]
    name: Name,
    /// Stop after this many messages.
    #[arg(long, value_parser = values::count)]
    count: Option<u64>,
    /// Write a line for each message to standard error: when it arrived, and how long before its deadline.
    #[arg(long)]
    info: bool,
    /// Accept senders on this host only.
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    from: Option<Name>,
    /// Receive in a SCHED_FIFO thread. Its priority follows from the channel's class and period. The operator must allow this
    /// (key co_schedule in [processor] of the daemon's configuration).
    #[arg(long)]
    co_schedule: bool,
    /// Longest pause between two messages that this receiver takes, in which no message may be lost (200ms). The buffers for
    /// that count in this user's quota [default: 20ms if the quota has room for that].
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    stall: Option<Nanos>,
    #[command(flatten)]
    host: Host,
}

#[derive(Serialize)]
struct Received {
    from: String,
    contract: Contract,
    messages: u64,
    bytes: u64,
    /// Messages that did not arrive, before the last one that did: a lower bound, since only the sender has
    /// the number of messages after that.
    lost: u64,
    /// Messages that surely came after their deadline, by the clocks of the hosts on the way.
    late: u64,
    /// Messages whose deadline was within the clocks' error of their arrival.
    perhaps_late: u64,
    /// Messages of unknown timeliness: the clocks were not known.
    unmeasured: u64,
    demoted: u64,
    /// The least time that was left before a deadline; negative: after it.
    slack_ns_min: Option<i64>,
    /// The longest from a logical arrival to the delivery.
    latency_ns_max: Option<Nanos>,
    /// The most that these times may be wrong by.
    clock_error_ns_max: Option<Nanos>,
    /// Hosts on the way that guarantee nothing; `None` if the channel ended before this was requested.
    degraded_by: Option<Vec<String>>,
    /// Stages on the way that broke their promise meanwhile.
    broken: Vec<ReportedStage>,
    /// How the channel ended; `None` if that is not why it stopped.
    ended: Option<CloseReason>,
    /// The error, as every verb prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl Received {
    /// The initial state, without messages.
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
            perhaps_late: 0,
            unmeasured: 0,
            demoted: 0,
            slack_ns_min: None,
            latency_ns_max: None,
            clock_error_ns_max: None,
            degraded_by: receiver.state().map(|state| state.status.degraded_by).ok(),
            broken: Vec::new(),
            ended: None,
            error: None,
        })
    }
}

impl Received {
    /// Counts a guaranteed message by its arrival time.
    fn judge(&mut self, info: &MessageInfo, slack_ns: i64) {
        match info.timeliness {
            Timeliness::InTime => {}
            Timeliness::PerhapsLate => self.perhaps_late += 1,
            Timeliness::Late => self.late += 1,
            Timeliness::Unmeasured => self.unmeasured += 1,
        }
        if let Some(OneWayLatency { measured, error }) = OneWayLatency::of(info) {
            self.slack_ns_min = Some(self.slack_ns_min.map_or(slack_ns, |least| least.min(slack_ns)));
            self.latency_ns_max = self.latency_ns_max.max(Some(measured));
            self.clock_error_ns_max = self.clock_error_ns_max.max(Some(error));
        }
    }

    /// No message came, because the sender, its host or the way ended: another sender may succeed.
    fn is_of_a_failed_sender(&self) -> bool {
        let failed = matches!(
            self.ended,
            Some(
                CloseReason::PeerVanished
                    | CloseReason::PeerStopped
                    | CloseReason::PeerRestarted
                    | CloseReason::PathLost
                    | CloseReason::LeaseOver
            )
        );
        failed && self.messages == 0
    }
}

/// One message for `--info`.
#[derive(Serialize)]
struct ReceivedMessage {
    number: u64,
    bytes: u32,
    /// Left before the deadline; negative: after it.
    slack_ns: i64,
    /// Time from the logical arrival to the delivery.
    latency_ns: Nanos,
    /// Most that both may be wrong by; `None` if the clocks are not known.
    clock_error_ns: Option<Nanos>,
    timeliness: Timeliness,
    demoted: bool,
}

impl ReceivedMessage {
    fn text(&self) -> String {
        let Some(error) = self.clock_error_ns else { return "when it was due is not known".into() };
        let judged = match self.timeliness {
            Timeliness::Late => " LATE",
            Timeliness::PerhapsLate => " perhaps late",
            Timeliness::InTime | Timeliness::Unmeasured => "",
        };
        format!(
            "{} after its logical arrival (+-{error}), {}{judged}",
            self.latency_ns,
            slack_text(self.slack_ns)
        )
    }
}

impl Recv {
    /// Listens, receives, prints.
    ///
    /// # Errors
    /// If the name is taken, there is no daemon, `--from` is no host, the sender fails, or standard output cannot be
    /// written.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let endsystem = self.host.connect()?;
        if let Some(host) = &self.from {
            endsystem.check_host(host.as_str()).context("--from")?;
        }
        loop {
            let mut receiver = self.accept(&endsystem, output)?;
            let mut received = Received::by(&receiver)?;
            let channel = format!("{} from {}", self.name, received.from);
            let stages = Stages::of(receiver.watch(), channel, output);
            let taken = self.take(&mut receiver, &mut received, output);
            drop(receiver);
            received.broken = stages.end();
            received.error =
                taken.as_ref().err().map(|error| failure(&punctual::one_line(error.as_ref()), 1));
            let is_over = !received.is_of_a_failed_sender();
            if is_over || output.json {
                summary(&received, output)?;
            } else {
                let why = ended(received.ended);
                print_note(&format!(
                    "the sender on {} failed before its first message: {why}",
                    received.from
                ));
            }
            if is_over {
                return taken.map(|()| Outcome::Done);
            }
        }
    }

    /// Waits for a sender.
    fn accept(&self, endsystem: &Endsystem, output: Output) -> anyhow::Result<Receiver> {
        let (only, stall) = (self.from.clone(), self.stall);
        let listener = endsystem.listen(self.name.as_str(), move |request| match &only {
            Some(host) if host.as_str() != request.from => Consent::refuse(format!("only {host} may send")),
            _ => stall.map_or(Consent::Accept, Consent::AcceptWithStall),
        })?;
        if !output.json {
            print_note(&format!("listening: senders open {}@{}", self.name, endsystem.host()));
        }
        let receiver = listener.accept()?;
        // Gives the name back without waiting: messages that have arrived are read even if the daemon stops
        // now.
        drop(listener);
        if self.co_schedule {
            let priority = receiver.co_schedule()?;
            if output.is_live() {
                print_note(&format!("receiving at SCHED_FIFO priority {priority}"));
            }
        }
        Ok(receiver)
    }

    /// Writes the messages, until the requested number has come.
    fn take(&self, receiver: &mut Receiver, received: &mut Received, output: Output) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        while self.count.is_none_or(|count| received.messages < count) {
            let taken = receiver.recv_in_place(|bytes, info| {
                begin_stream();
                (stdout.write_all(bytes).and_then(|()| stdout.flush()), *info)
            });
            match taken {
                Ok((Ok(()), info)) => self.count_in(received, &info, output),
                // The reader of the output has closed it.
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
        let latency = info.delivered.since(info.logical_arrival);
        if !info.unpromised {
            received.judge(info, slack_ns);
        }
        if self.info {
            let line = ReceivedMessage {
                number: info.number,
                bytes: info.len,
                slack_ns,
                latency_ns: latency,
                clock_error_ns: info.clock_error,
                timeliness: info.timeliness,
                demoted: info.demoted,
            };
            match serde_json::to_string(&line) {
                Ok(json) if output.json => eprintln!("{json}"),
                _ => print_note(&format!("message {}: {} B, {}", line.number, line.bytes, line.text())),
            }
        }
    }
}

fn summary(received: &Received, output: Output) -> anyhow::Result<()> {
    if output.json {
        print_note(&with_units(serde_json::to_value(received)?).to_string());
        return Ok(());
    }
    let least = received.slack_ns_min.map_or_else(|| "none was measured".into(), slack_text);
    let error = received.clock_error_ns_max.map_or_else(String::new, |error| format!(" (+-{error})"));
    print_note(&format!(
        "{}, {} B from {}: {}, {}, {} demoted; at the tightest {least}{error}{}{}",
        counted(received.messages, "message"),
        received.bytes,
        received.from,
        lost(received.lost),
        lateness(received.late, received.perhaps_late, received.unmeasured),
        received.demoted,
        received.degraded_by.as_deref().map_or_else(String::new, degraded),
        stages::summary(&received.broken),
    ));
    Ok(())
}

/// The text about missing messages; the number of messages after the last one that arrived is known only to
/// the sender.
fn lost(messages: u64) -> String {
    match messages {
        0 => "none lost before the last that arrived".into(),
        lost => format!("at least {lost} lost (the sender's host counts those after the last that arrived)"),
    }
}

fn slack_text(slack_ns: i64) -> String {
    let span = Nanos(slack_ns.unsigned_abs());
    if slack_ns < 0 { format!("{span} after its deadline") } else { format!("{span} before its deadline") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_sender_can_know_is_not_claimed() {
        assert_eq!(lost(0), "none lost before the last that arrived");
        assert!(lost(7).starts_with("at least 7 lost"));
    }
}
