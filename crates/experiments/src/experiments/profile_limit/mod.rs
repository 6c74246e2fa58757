//! Runs the channels that admission grants on measured CPU costs for a long time, and measures how much more
//! the machine could have carried (ADR 0013): two engines in this process over rings in memory, so that a
//! processor is the bottleneck.
//!
//! Channels of one kind are opened until a host refuses; all of them send at their contract's limit, in step,
//! which is the worst case. The limit of the machine is found with the same channels and admission switched
//! off: it then uses a quarter of the measured costs, so that order, shares of D and buffers stay those of a
//! real host. The search goes upwards from the admitted number until messages are late outside platform
//! holes, or downwards if they are late at that number.

mod evidence;
mod log;
mod pair;
mod traffic;

use anyhow::Context;
use punctual::Nanos;
use serde_json::json;

use self::pair::{Costs, Pair};
use self::traffic::Carried;
use super::{Conditions, Measured};
use crate::report::{Mark, Plot, Series};

/// D of every channel: the issue's.
const DEADLINE: Nanos = Nanos::from_millis(5);
/// I: short beside D, so that the load and not the burst decides.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// B of a sender at its full rate whose timer is sometimes late. With 1 nearly every message would break its
/// contract by some microseconds, and wait.
const BURST: u32 = 2;
/// Ten packets.
const MESSAGE_BYTES: u32 = 14_000;
/// Admission stops here, should it never refuse.
const CHANNELS_MAX: usize = 400;
/// Minimum ratio of the admitted to the possible number of channels.
const RATIO_MIN: f64 = 0.6;
/// Distance between two steps of the search, as a part of the channels.
const STEP_PERCENT: usize = 15;
/// How often a step is repeated until it is clean: a miss may be caused by platform holes too short for the
/// witness, and only a step that misses each time exceeds the machine.
const TRIES: usize = 3;
/// The search is over before what admission on a quarter of the costs would refuse.
const CARRIED_MAX: usize = 3;

/// How long, how often.
struct Extent {
    at_limit: Nanos,
    each: Nanos,
    steps_max: usize,
}

impl Extent {
    fn new(conditions: &Conditions) -> Self {
        let (at_limit, each, steps_max) =
            conditions.pick((300, 300, 1), (15_000, 2_500, 7), (600_000, 10_000, 20));
        let [at_limit, each] = [at_limit, each].map(Nanos::from_millis);
        Self { at_limit, each, steps_max }
    }
}

/// One run.
struct Run {
    channels: usize,
    admission: bool,
    span: Nanos,
    carried: Carried,
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    anyhow::ensure!(conditions.real_time, "profile-limit needs the real-time class: run as root");
    let extent = Extent::new(conditions);
    let columns = "channels, admission, seconds, messages, late, late outside holes, which stage";
    let mut found = Measured::new("channels", columns);
    conditions.progress(format_args!("opening channels until admission refuses"));
    let pair = Pair::start(Costs::Measured, &conditions.directory)?;
    let (ends, refusal) = pair.open_until_refused(CHANNELS_MAX)?;
    let admitted = ends.len();
    anyhow::ensure!(admitted > 0, "not even one channel was admitted: {refusal}");
    let costs = pair.measured_costs()?;
    found.note(format!("admission refused channel {}: {refusal}", admitted + 1));
    found.note(pair.profile()?);
    conditions.progress(format_args!("{admitted} channels for {}", extent.at_limit));
    let carried = traffic::carry(&pair, ends, extent.at_limit)?;
    let at_limit = Run { channels: admitted, admission: true, span: extent.at_limit, carried };
    drop(pair);
    let mut runs = vec![at_limit];
    search(conditions, &extent, &costs, &mut runs)?;
    runs.iter().for_each(|run| record(&mut found, run));
    judge(&mut found, &runs);
    found.plot = Some(plot(&runs));
    Ok(found)
}

/// Searches from the run at the limit: upwards while it is clean, else downwards until it is. A step is clean
/// if one of [`TRIES`] is.
fn search(
    conditions: &Conditions,
    extent: &Extent,
    costs: &[punctual_engine::profile::Costs; 2],
    runs: &mut Vec<Run>,
) -> anyhow::Result<()> {
    let (admitted, up) = (runs[0].channels, runs[0].carried.is_clean());
    let mut channels = admitted;
    for _ in 0..extent.steps_max {
        let step = (channels * STEP_PERCENT / 100).max(1);
        channels = if up { channels + step } else { channels - step.min(channels) };
        if channels == 0 || channels > admitted * CARRIED_MAX {
            break;
        }
        if carries(conditions, extent, costs, runs, channels)? != up {
            break;
        }
    }
    Ok(())
}

/// Runs `channels` without admission, with engines of its own each time, until a run has no miss.
fn carries(
    conditions: &Conditions,
    extent: &Extent,
    costs: &[punctual_engine::profile::Costs; 2],
    runs: &mut Vec<Run>,
    channels: usize,
) -> anyhow::Result<bool> {
    for again in 1..=TRIES {
        conditions.progress(format_args!("{channels} channels without admission, {again} of {TRIES} tries"));
        let pair = Pair::start(Costs::Quarter(*costs), &conditions.directory)?;
        let ends = pair.open(channels).context("admission was to be off")?;
        let carried = traffic::carry(&pair, ends, extent.each)?;
        let clean = carried.is_clean();
        runs.push(Run { channels, admission: false, span: extent.each, carried });
        if clean {
            return Ok(true);
        }
    }
    Ok(false)
}

fn record(found: &mut Measured, run: &Run) {
    let Run { channels, admission, span, carried } = run;
    let seconds = span.as_millis_f64() / 1e3;
    let stage = carried.blame();
    found.points.push(json!({
        "channels": channels, "admission": admission, "seconds": seconds, "messages": carried.messages,
        "late": carried.late, "late_outside_holes": carried.unexcused, "lost": carried.missing,
        "refused_outside_holes": carried.refused_unexcused,
        "latency_max_us": carried.latency_max.0 / 1_000, "sender": carried.sender,
        "handlers_demoted": carried.handlers_demoted, "which_stage": stage, "evidence": carried.evidence,
        "unexcused_when": carried.unexcused_when,
    }));
    let policy = if *admission { "edf" } else { "off" };
    let counts = [*channels as u64, carried.messages, carried.late, carried.unexcused];
    let [channels, messages, late, unexcused] = counts.map(|count| count.to_string());
    let seconds = format!("{seconds:.1}");
    found.table.rows.push(vec![channels, policy.into(), seconds, messages, late, unexcused, stage]);
    // Misses without admission are not counted for the holes' share.
    if *admission {
        found.samples += carried.messages;
        found.excused += carried.late.saturating_sub(carried.unexcused);
        found.testimony.add(carried.testimony.clone());
    }
}

fn judge(found: &mut Measured, runs: &[Run]) {
    let limit = &runs[0];
    let name = "messages late, lost or refused at the sender outside holes, at admission's limit";
    found.at_most(name, limit.carried.unexcused as f64, 0.0);
    let most = |runs: &mut dyn Iterator<Item = &Run>| runs.map(|run| run.channels).max().unwrap_or(0);
    let clean = most(&mut runs.iter().filter(|run| run.carried.is_clean()));
    if !limit.carried.is_clean() {
        found.note(format!(
            "the run at the limit missed, so its ratio means nothing: the machine carried {clean} channels of the {} \
             that were admitted",
            limit.channels
        ));
        return;
    }
    if clean == most(&mut runs.iter()) {
        found.note(format!("no miss up to {clean} channels: the machine may carry more"));
    }
    let ratio = limit.channels as f64 / clean.max(1) as f64;
    found.at_least("admitted beside what the machine carries", ratio, RATIO_MIN);
}

fn plot(runs: &[Run]) -> Plot {
    let point = |run: &Run| {
        let share = run.carried.unexcused as f64 * 100.0 / run.carried.messages.max(1) as f64;
        (run.channels as f64, share)
    };
    let mut points: Vec<(f64, f64)> = runs.iter().map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let admitted = runs[0].channels as f64;
    let title = "Admission on measured costs: what is late by number of channels";
    let x = "channels of 10 packets every ms, D = 5 ms";
    Plot::linear(title, x, "late, lost or refused outside holes, %", [Series::new("messages", 0, points)])
        .with_marks(vec![Mark { x: admitted, label: format!("admission's limit: {admitted}"), colour: 1 }])
}
