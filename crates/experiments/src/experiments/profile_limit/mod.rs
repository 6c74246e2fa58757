//! What admission lets in on measured CPU costs, run for long, and how much more the machine could have carried
//! (design 9): two engines in this process over rings in memory, so that the processor is what runs out.
//!
//! Channels of one kind are opened until the source refuses; all of them send at their contract's edge, in step, which
//! is the worst that they may do. The limit of the machine is found with the same channels and admission switched off
//! (policy fifo), more and more of them until messages are late outside platform holes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail};
use punctual::{
    Channel, Consent, Contract, Endsystem, Instant, Listener, Nanos, OpenError, Ppm, Rate, Receiver,
    SendError,
};
use punctual_engine::config;
use punctual_link::{Link, MemoryLink, MemoryOptions};
use serde_json::json;

use super::{Conditions, Measured};
use crate::clock::{duration, now, sleep_until, wait_until};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::realtime;
use crate::testbed::configuration::domain_key;
use crate::witness::{Testimony, Witness};

/// D of every channel: the issue's.
const DEADLINE: Nanos = Nanos::from_millis(5);
/// I: short beside D, so that the load and not the burst decides.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Ten packets.
const MESSAGE_BYTES: u32 = 14_000;
/// A whole message is one run.
const QUANTUM: u32 = 10;
/// Admission stops here, should it never refuse.
const CHANNELS_MAX: usize = 400;
/// What is admitted is at least this part of what can be carried.
const RATIO_MIN: f64 = 0.6;
/// The applications run below the processors.
const APPLICATION_PRIORITY: u8 = 40;
/// Between two steps of the search, as a part of what is carried.
const STEP_PERCENT: usize = 15;
const READY_WITHIN: Nanos = Nanos::from_secs(10);

/// Runs it.
///
/// # Errors
/// Where the engines do not start, the machine cannot be measured, or a channel breaks.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    anyhow::ensure!(conditions.real_time, "profile-limit needs the real-time class: run as root");
    let (at_limit, each) = if conditions.quick {
        (Nanos::from_secs(15), Nanos::from_secs(3))
    } else {
        (Nanos::from_secs(600), Nanos::from_secs(10))
    };
    let steps_max = if conditions.quick { 7 } else { 30 };
    let mut found = Measured::new(
        "channels",
        &["channels", "admission", "seconds", "messages", "late", "late outside holes"],
    );
    conditions.progress(format_args!("opening channels until admission refuses"));
    let pair = Pair::start("edf", None)?;
    let (ends, refusal) = pair.open_until_refused(CHANNELS_MAX)?;
    let admitted = ends.len();
    let profile = pair.profile()?;
    let costs = pair.costs.clone();
    found.notes.push(format!("admission refused channel {}: {refusal}", admitted + 1));
    found.notes.push(profile);
    conditions.progress(format_args!("{admitted} channels for {at_limit}"));
    let run = carry(ends, at_limit)?;
    record(&mut found, admitted, true, at_limit, &run);
    found.checks.push(Check::at_most(
        "messages late or lost outside holes at admission's limit".into(),
        run.unexcused as f64,
        0.0,
    ));
    drop(pair);
    let mut carried = admitted;
    let mut broke = None;
    for _ in 0..steps_max {
        let wanted = carried + (carried * STEP_PERCENT / 100).max(1);
        conditions.progress(format_args!("{wanted} channels without admission"));
        let pair = Pair::start("fifo", Some(&costs))?;
        let ends = pair.open(wanted)?;
        let run = carry(ends, each)?;
        record(&mut found, wanted, false, each, &run);
        if run.unexcused > 0 {
            broke = Some(wanted);
            break;
        }
        carried = wanted;
    }
    if broke.is_none() {
        found.notes.push(format!("no miss up to {carried} channels: the machine may carry more"));
    }
    let ratio = admitted as f64 / carried.max(1) as f64;
    found.checks.push(Check::at_least("admitted beside what the machine carries".into(), ratio, RATIO_MIN));
    Ok(found)
}

fn record(found: &mut Measured, channels: usize, admission: bool, span: Nanos, run: &Carried) {
    let seconds = span.as_millis_f64() / 1e3;
    found.points.push(json!({
        "channels": channels, "admission": admission, "seconds": seconds, "messages": run.messages,
        "late": run.late, "late_outside_holes": run.unexcused, "latency_max_us": run.latency_max.0 / 1_000,
    }));
    found.table.rows.push(vec![
        channels.to_string(),
        if admission { "edf" } else { "off (fifo)" }.into(),
        format!("{seconds:.0}"),
        run.messages.to_string(),
        run.late.to_string(),
        run.unexcused.to_string(),
    ]);
    // What breaks without admission says nothing about the holes' share.
    if admission {
        found.samples += run.messages;
        found.excused += run.late.saturating_sub(run.unexcused);
        found.testimony.add(run.testimony.clone());
    }
}

/// Two hosts in this process.
struct Pair {
    source: Endsystem,
    sink: Endsystem,
    listener: Listener,
    /// `[processor.costs]` that the source's profile came to, for the runs without admission.
    costs: String,
}

type Ends = Vec<(Channel, Receiver)>;

impl Pair {
    /// `costs`: of an earlier pair; else both measure themselves as they start.
    fn start(policy: &str, costs: Option<&str>) -> anyhow::Result<Self> {
        let key = domain_key()?;
        let cpus = realtime::usable_cpus()?;
        let options = MemoryOptions { ring_packets: 8_192, frames: 16_384, ..MemoryOptions::default() };
        let (one, other) = MemoryLink::pair(options)?;
        let start = |place: usize, link: MemoryLink| -> anyhow::Result<Endsystem> {
            let host = config::parse(
                &text(place, policy, cpus[place % cpus.len()], &key, costs),
                Path::new("profile-limit"),
            )?;
            Ok(Endsystem::embedded_with(&host, vec![Box::new(link) as Box<dyn Link>])?)
        };
        let (source, sink) = (start(0, one)?, start(1, other)?);
        let until = now() + READY_WITHIN;
        while !source.status()?.node.links.iter().all(|link| link.alive) {
            if now() >= until {
                bail!("the hosts do not hear one another over memory links");
            }
            wait_until(now() + Nanos::from_millis(10))?;
        }
        let listener = sink.listen("limit", |_| Consent::Accept)?;
        Ok(Self { source, sink, listener, costs: "profile_measure = false".into() })
    }

    fn contract() -> anyhow::Result<Contract> {
        let rate = Rate::every(INTERVAL).context("the interval is out of range")?;
        Ok(Contract::new(MESSAGE_BYTES, rate, 1, DEADLINE)?)
    }

    fn open_one(&self) -> anyhow::Result<Result<(Channel, Receiver), String>> {
        let channel = match self.source.open(&format!("limit@{}", self.sink.host()), Self::contract()?) {
            Ok(channel) => channel,
            Err(OpenError::Refused(refusal)) => return Ok(Err(refusal.to_string())),
            Err(error) => return Err(error.into()),
        };
        let receiver = self.listener.accept_timeout(duration(READY_WITHIN))?;
        let receiver =
            receiver.ok_or_else(|| anyhow!("a channel was granted and never reached its receiver"))?;
        Ok(Ok((channel, receiver)))
    }

    fn open_until_refused(&self, most: usize) -> anyhow::Result<(Ends, String)> {
        let mut ends = Vec::new();
        while ends.len() < most {
            match self.open_one()? {
                Ok(end) => ends.push(end),
                Err(refusal) => return Ok((ends, refusal)),
            }
        }
        Ok((ends, format!("nothing up to {most} channels")))
    }

    fn open(&self, count: usize) -> anyhow::Result<Ends> {
        (0..count)
            .map(|_| self.open_one()?.map_err(|refusal| anyhow!("refused without admission: {refusal}")))
            .collect()
    }

    fn profile(&self) -> anyhow::Result<String> {
        let status = self.source.status()?;
        Ok(status.engine["profile"]["summary"].as_str().unwrap_or_default().to_owned())
    }
}

fn text(place: usize, policy: &str, cpu: u32, key: &str, costs: Option<&str>) -> String {
    let (name, neighbour) = if place == 0 { ("source", "sink") } else { ("sink", "source") };
    format!(
        "[node]\nname = \"{name}\"\nbuffers = \"4GiB\"\n\n[processor]\ncpu = {cpu}\npolicy = \"{policy}\"\n\
         quantum = {QUANTUM}\nlock_memory = false\n{}\n\n\
         [signalling]\nkey = \"{key}\"\npackets_per_second = 500\n\n\
         [[host]]\nname = \"source\"\nid = 1\n\n[[host]]\nname = \"sink\"\nid = 2\n\n\
         [[link]]\nname = \"ring\"\nneighbour = \"{neighbour}\"\ndriver = \"memory\"\nrate = \"400Gbit/s\"\n\
         pace = \"completion\"\npipeline_depth = 16\nreaction = \"1us\"\npropagation_max = \"100us\"\nframes = 16384\n",
        costs.unwrap_or_default(),
    )
}

/// What became of the messages.
struct Carried {
    messages: u64,
    late: u64,
    unexcused: u64,
    latency_max: Nanos,
    testimony: Testimony,
}

/// A late message: its logical arrival and its delivery.
type Late = (Instant, Instant);

/// What a thread of receivers saw.
#[derive(Default)]
struct Seen {
    messages: u64,
    late: Vec<Late>,
    latency_max: Nanos,
}

/// All channels send for `span`, in step.
fn carry(ends: Ends, span: Nanos) -> anyhow::Result<Carried> {
    let (channels, receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let witness = Witness::start().context("witness")?;
    let stop = Arc::new(AtomicBool::new(false));
    let receiving = receive(receivers, Arc::clone(&stop))?;
    let sending = send(channels, span)?;
    let failed = |_| anyhow!("a thread of the experiment failed");
    let (sent, lost, channels) = sending.join().map_err(failed)??;
    // What is on its way arrives within D; what takes much longer is lost.
    sleep_until(now() + DEADLINE * 20);
    stop.store(true, Ordering::Relaxed);
    let seen = receiving.join().map_err(failed)??;
    drop(channels);
    let testimony = witness.stop();
    let excuses = Excuses::new(&testimony.holes, Ppm(900_000));
    let unexcused =
        seen.late.iter().filter(|(logical, delivered)| !excuses.covers(*logical, *delivered)).count();
    // A message that never came is late for good, and no hole excuses it.
    let missing = sent.saturating_sub(seen.messages) + lost;
    Ok(Carried {
        messages: sent,
        late: seen.late.len() as u64 + missing,
        unexcused: unexcused as u64 + missing,
        latency_max: seen.latency_max,
        testimony,
    })
}

type Sender = JoinHandle<anyhow::Result<(u64, u64, Vec<Channel>)>>;

/// Every interval one message on each channel; says how many were sent, and how many found no room.
fn send(mut channels: Vec<Channel>, span: Nanos) -> std::io::Result<Sender> {
    std::thread::Builder::new().name("limit-send".into()).spawn(move || {
        realtime::enter_fifo(APPLICATION_PRIORITY, realtime::usable_cpus()?.last().copied())?;
        let message = vec![0x5a; MESSAGE_BYTES as usize];
        let (mut sent, mut lost) = (0, 0);
        let mut due = now() + INTERVAL;
        let until = due + span;
        while due < until {
            sleep_until(due);
            for channel in &mut channels {
                match channel.try_send(&message) {
                    Ok(()) => sent += 1,
                    Err(SendError::WouldBlock) => lost += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            due = (due + INTERVAL).max(now());
        }
        Ok((sent, lost, channels))
    })
}

/// Reads everything out until `stop`.
fn receive(
    mut receivers: Vec<Receiver>,
    stop: Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<anyhow::Result<Seen>>> {
    std::thread::Builder::new().name("limit-receive".into()).spawn(move || {
        realtime::enter_fifo(APPLICATION_PRIORITY - 1, realtime::usable_cpus()?.last().copied())?;
        let mut seen = Seen::default();
        while !stop.load(Ordering::Relaxed) {
            sleep_until(now() + INTERVAL);
            for receiver in &mut receivers {
                // `Err` says that nothing waits.
                while let Ok(info) = receiver.try_recv_in_place(|_, info| *info) {
                    let logical = info.deadline - DEADLINE;
                    seen.messages += 1;
                    seen.latency_max = seen.latency_max.max(info.delivered.since(logical));
                    if info.delivered > info.deadline {
                        seen.late.push((logical, info.delivered));
                    }
                }
            }
        }
        Ok(seen)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_configurations_are_valid() {
        let key = "00".repeat(32);
        for (policy, costs) in [("edf", None), ("fifo", Some("profile_measure = false"))] {
            for place in 0..2 {
                let text = text(place, policy, 0, &key, costs);
                config::parse(&text, Path::new("test")).unwrap_or_else(|error| panic!("{error}\n{text}"));
            }
        }
    }
}
