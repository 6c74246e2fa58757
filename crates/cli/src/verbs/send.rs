//! `punctual send`: standard input through a guaranteed channel.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use punctual::{
    Address, Channel, CloseReason, Contract, Ending, Grant, Guarantee, LostAt, LostWhy, Nanos, Policing,
    Receipt, SendError, counted, failure,
};
use serde::Serialize;
use serde_json::Value;

use crate::host::{Host, Traffic, degraded, ended, lateness, not_opened};
use crate::output::{Outcome, Output, print_note};
use crate::split::{Messages, Split};
use crate::stages::{self, ReportedStage, Stages};
use crate::values;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(500);
/// How long the last messages may take.
const FLUSH: Duration = Duration::from_secs(60);
/// How long the daemon may take beyond D to report what arrived: it ends this sooner by itself.
const SETTLE: Duration = Duration::from_secs(60);

/// Send standard input through a guaranteed channel, message by message, no faster than the contract's rate.
#[derive(Args)]
#[command(after_help = "Example: ffmpeg -re -i film.mp4 -c:v copy -bsf:v h264_mp4toannexb -f h264 - \\\n  \
                        | punctual send cam@hostb --rate 25/s --size 110KB --deadline 80ms\n\
                        At the end send waits until the receiver's host has reported what arrived. The last line shows what \
                        was late or lost. If a stage on the route breaks its promise, send reports it as soon as this \
                        host learns of it.\n\
                        Exit code 0: all messages arrived, in time or late (with a soft contract or --policing demote: the \
                        channel ended in order). 1: some did not arrive, or it is not known.")]
pub struct Send {
    /// The receiver's name and its host, for example cam@hostb.
    #[arg(value_parser = values::address)]
    peer: Address,
    #[command(flatten)]
    traffic: Traffic,
    /// How to cut the input into messages: auto, h264 (one frame each), h264:1400B (frames cut into pieces), lines, or
    /// blocks of a size such as 1400B.
    #[arg(long, default_value = "auto")]
    split: Split,
    #[command(flatten)]
    host: Host,
}

#[derive(Serialize)]
struct Sent {
    messages: u64,
    bytes: u64,
    /// Duration in seconds.
    took_s: f64,
    grant: Option<Grant>,
    /// Hosts on the way that guarantee nothing.
    degraded_by: Vec<String>,
    /// Stages on the way that broke their promise meanwhile.
    broken: Vec<ReportedStage>,
    /// As the receiver's host reported it; `None` if the report did not come.
    #[serde(flatten)]
    arrived: Arrived,
    /// The error, as every verb prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// A place at which messages were lost.
#[derive(Serialize)]
struct LostHere {
    place: String,
    messages: u64,
    /// Why a host threw them away; `None` of a link.
    why: Option<LostWhy>,
}

/// The outcome.
#[derive(Default, Serialize)]
struct Arrived {
    /// Messages that the receiver was given.
    delivered: Option<u64>,
    /// Messages that it did not get, without those that policing dropped.
    lost: Option<u64>,
    /// The place at which most of those were lost, and how many, as far as the hosts on the way have
    /// reported.
    lost_at: Option<LostHere>,
    /// Messages that it was surely given after their deadline, by the clocks of the hosts on the way.
    late: Option<u64>,
    /// Messages whose deadline was within the clocks' error of their delivery.
    perhaps_late: Option<u64>,
    /// Messages of unknown timeliness: the clocks were not known.
    unmeasured: Option<u64>,
    /// The longest from a logical arrival to its delivery.
    latency_max_ns: Option<Nanos>,
    /// Messages that broke the contract and were dropped here; `None` if the channel ended before this was
    /// requested.
    dropped: Option<u64>,
    /// How the channel ended.
    ended: Option<CloseReason>,
}

impl Arrived {
    /// The timeliness of the messages that arrived.
    fn in_time(&self) -> String {
        let Self { late, perhaps_late, unmeasured, latency_max_ns, .. } = self;
        format!(
            "{}{}",
            lateness(late.unwrap_or(0), perhaps_late.unwrap_or(0), unmeasured.unwrap_or(0)),
            latency_max_ns.map_or_else(String::new, |most| format!(", {most} at most"))
        )
    }

    /// An explanation that the exit code is 0 although messages were late; empty if none was.
    fn late_plainly(&self) -> String {
        match (self.late, self.delivered) {
            (Some(late @ 1..), Some(delivered)) => format!(
                "; {late} of {delivered} arrived AFTER THEIR DEADLINE: exit code 0 means that they arrived, \
                 not that they were in time"
            ),
            _ => String::new(),
        }
    }

    fn lost_where(&self) -> String {
        let named = |LostHere { place, messages, why }: &LostHere| {
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            format!(", {messages} of those were lost at {place}{why}")
        };
        self.lost_at.as_ref().map_or_else(String::new, named)
    }
}

impl Send {
    /// Opens the channel and sends until the input ends.
    ///
    /// # Errors
    /// If it is refused, a message is too long, or the channel ends.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let contract = self.traffic.contract()?;
        let host = self.host.connect()?;
        let channel = host.open(&self.peer.to_string(), contract);
        let mut channel = channel.map_err(|error| anyhow::anyhow!(not_opened(&host, &error)))?;
        let started = Instant::now();
        let grant = channel.grant().cloned();
        let degraded_by = grant.as_ref().map(Grant::degraded_by).unwrap_or_default();
        let mut sent = Sent {
            messages: 0,
            bytes: 0,
            took_s: 0.0,
            grant,
            degraded_by,
            broken: Vec::new(),
            arrived: Arrived::default(),
            error: None,
        };
        let stages = Stages::of(channel.watch(), self.peer.to_string(), output);
        let streamed = self.stream(&mut channel, &mut sent, contract.message_bytes_max as usize, output);
        sent.took_s = started.elapsed().as_secs_f64();
        let outcome = match streamed {
            Ok(()) => {
                sent.arrived.dropped = channel.state().map(|state| state.status.counters.dropped).ok();
                let ending = channel.finish(settle(&contract));
                sent.broken = stages.end();
                ending
                    .map_err(Into::into)
                    .and_then(|it| sent.judge(it, &contract).map_err(anyhow::Error::msg))
            }
            Err(error) => {
                // The channel is not closed, but left behind by a program that ends: the receiver must not
                // take the stream as complete.
                std::mem::forget(channel);
                sent.broken = stages.so_far();
                Err(error)
            }
        };
        let outcome = outcome.map_err(|error| {
            error.context(format!("{}: after {}", self.peer, counted(sent.messages, "message")))
        });
        sent.error = outcome.as_ref().err().map(|error| failure(&punctual::one_line(error.as_ref()), 1));
        let line_start = if output.is_foreground() { "\r\x1b[K" } else { "" };
        if output.json {
            output.print_with_units(&sent, |_| String::new())?;
        } else {
            eprint!("{line_start}");
        }
        outcome?;
        if !output.json {
            print_note(&summary(&self.peer, &sent));
        }
        Ok(Outcome::Done)
    }

    /// Sends until the input ends and everything has left this host.
    fn stream(
        &self,
        channel: &mut Channel,
        sent: &mut Sent,
        bytes_max: usize,
        output: Output,
    ) -> anyhow::Result<()> {
        let mut messages = Messages::new(io::stdin().lock(), self.split, bytes_max);
        let started = Instant::now();
        let mut shown = started;
        while let Some(message) = messages.next()? {
            channel.send(&message).map_err(|error| sent.broken_off(error))?;
            sent.messages += 1;
            sent.bytes += message.len() as u64;
            if shown.elapsed() >= PROGRESS && output.is_foreground() {
                shown = Instant::now();
                sent.took_s = started.elapsed().as_secs_f64();
                progress(&self.peer, sent, channel);
            }
        }
        let is_flushed = channel.flush(FLUSH).map_err(|error| sent.broken_off(error))?;
        let within = FLUSH.as_secs();
        anyhow::ensure!(
            is_flushed,
            "the last messages were not sent within {within} s: see 'punctual status'"
        );
        Ok(())
    }
}

impl Sent {
    /// Why a message could not be sent.
    fn broken_off(&mut self, error: SendError) -> anyhow::Error {
        match error {
            SendError::Closed(reason) => {
                self.arrived.ended = reason;
                anyhow::anyhow!("{}", ended(reason))
            }
            error => error.into(),
        }
    }

    /// Records what arrived; an error if that does not meet the request, or if it is unknown.
    fn judge(&mut self, ending: Option<Ending>, contract: &Contract) -> Result<(), String> {
        let unknown = "whether the last messages arrived is not known";
        let Some(Ending { reason, receipt }) = ending else {
            let within = settle(contract).as_secs();
            return Err(format!("{unknown}: the daemon did not report it within {within} s"));
        };
        self.arrived.ended = reason;
        let Some(receipt) = receipt else {
            return Err(format!("{unknown}: {}", ended(reason)));
        };
        let Receipt { delivered, late, perhaps_late, unmeasured, latency_max, lost_at, .. } = receipt;
        let place = |LostAt { stage, messages, why }: LostAt| {
            Some(LostHere { place: self.grant.as_ref()?.place(&stage), messages, why })
        };
        let lost_at = lost_at.and_then(place);
        self.arrived = Arrived {
            delivered: Some(delivered),
            late: Some(late),
            perhaps_late: Some(perhaps_late),
            unmeasured: Some(unmeasured),
            latency_max_ns: Some(latency_max),
            lost_at,
            ..self.arrived
        };
        let missing = self.messages.saturating_sub(delivered);
        let lost = match self.arrived.dropped {
            Some(dropped) => missing.saturating_sub(dropped),
            None if contract.policing == Policing::Drop && missing > 0 => {
                let which = "policing dropped them here or they were lost";
                return Err(format!("{missing} of them did not arrive, {which}: {}", ended(reason)));
            }
            None => missing,
        };
        self.arrived.lost = Some(lost);
        // Demoted messages may still be in transit; a soft contract tolerates misses.
        let may_miss = contract.guarantee() == Guarantee::Soft || contract.policing == Policing::Demote;
        match reason {
            Some(CloseReason::Local | CloseReason::Peer) if lost == 0 || may_miss => Ok(()),
            Some(CloseReason::Local) => Err(format!(
                "{lost} of them did not arrive{}; of the {delivered} that did, {}{}: see 'punctual channels' \
                 and 'punctual status' on the hosts on the route for what was dropped, and whether the \
                 receiver keeps up",
                self.arrived.lost_where(),
                self.arrived.in_time(),
                stages::summary(&self.broken)
            )),
            reason => Err(format!(
                "the receiver got {delivered} of them, {}{}: {}",
                self.arrived.in_time(),
                stages::summary(&self.broken),
                ended(reason)
            )),
        }
    }
}

fn settle(contract: &Contract) -> Duration {
    SETTLE + Duration::from_nanos(contract.deadline.0)
}

fn progress(peer: &Address, sent: &Sent, channel: &Channel) {
    // A terminal that cannot be written is no reason to stop sending.
    let _ = write!(io::stderr(), "\r\x1b[K{}, {} queued", summary(peer, sent), channel.outstanding());
}

fn summary(peer: &Address, sent: &Sent) -> String {
    // n messages are n - 1 intervals.
    let rate = sent.messages.saturating_sub(1) as f64 / sent.took_s.max(1e-9);
    let promised = sent.grant.as_ref().map_or_else(String::new, |grant| {
        format!(", within {}{}", grant.deadline, degraded(&sent.degraded_by))
    });
    let megabytes = sent.bytes as f64 / 1e6;
    let Arrived { delivered, dropped, .. } = sent.arrived;
    let dropped = match dropped {
        Some(dropped) if dropped > 0 => format!(", {dropped} dropped by policing"),
        _ => String::new(),
    };
    let arrived = match delivered {
        Some(delivered) => format!(", {delivered} arrived, {}", sent.arrived.in_time()),
        None => String::new(),
    };
    format!(
        "{peer}: {}, {megabytes:.1} MB, {rate:.1}/s{promised}{dropped}{arrived}{}{}",
        counted(sent.messages, "message"),
        stages::summary(&sent.broken),
        sent.arrived.late_plainly()
    )
}

#[cfg(test)]
mod tests {
    use punctual::Rate;

    use super::*;

    fn sent(messages: u64, broken: Vec<ReportedStage>) -> Sent {
        let arrived = Arrived { dropped: Some(0), ..Arrived::default() };
        let (grant, degraded_by) = (None, Vec::new());
        Sent { messages, bytes: 64, took_s: 1.0, grant, degraded_by, broken, arrived, error: None }
    }

    fn judge(sent: &mut Sent, delivered: u64, late: u64) -> Result<(), String> {
        let rate = Rate::per_second(100).expect("a rate");
        let contract = Contract::new(64, rate, 1, Nanos::from_millis(5)).expect("a contract");
        let receipt = Receipt { delivered, late, latency_max: Nanos::from_millis(212), ..Receipt::default() };
        sent.judge(Some(Ending { reason: Some(CloseReason::Local), receipt: Some(receipt) }), &contract)
    }

    fn broken() -> ReportedStage {
        ReportedStage {
            stage: "link a-b".into(),
            cause_kind: "slow-link".into(),
            cause_text: "drains at 20.0 Mbit/s, configured 95.0 Mbit/s".into(),
            late_at_first: punctual::Lateness::default(),
            healed: false,
        }
    }

    #[test]
    fn a_receipt_with_losses_has_what_was_late_and_which_stage_broke() {
        let error = judge(&mut sent(15_206, vec![broken()]), 11_042, 3_649).expect_err("messages are lost");
        assert!(
            error.starts_with("4164 of them did not arrive; of the 11042 that did, 3649 late"),
            "{error}"
        );
        assert!(
            error.contains("212.00 ms at most") && error.contains("link a-b drains at 20.0 Mbit/s"),
            "{error}"
        );
    }

    #[test]
    fn the_report_shows_plainly_that_late_messages_are_no_failure() {
        let peer: Address = "cam@b".parse().expect("an address");
        let mut late = sent(10_000, vec![broken()]);
        judge(&mut late, 10_000, 9_865).expect("all arrived");
        let printed = summary(&peer, &late);
        assert!(printed.contains("10000 arrived, 9865 late"), "{printed}");
        assert!(
            printed.contains("9865 of 10000 arrived AFTER THEIR DEADLINE: exit code 0 means"),
            "{printed}"
        );
        assert!(printed.contains("DEGRADED on the way"), "{printed}");
        let mut fine = sent(10, Vec::new());
        judge(&mut fine, 10, 0).expect("all arrived");
        let printed = summary(&peer, &fine);
        assert!(!printed.contains("AFTER") && !printed.contains("DEGRADED"), "{printed}");
    }
}
