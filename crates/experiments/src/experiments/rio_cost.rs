//! RIO figures 6 and 7: what scheduled protocol processing costs an idle host's round trip of 64 B.
//!
//! The same stack in turns: demand-driven (handlers in the order of arrival, the paper's default), the same again (A/A),
//! scheduled by deadline, and scheduled by ordinary threads below the applications (the paper's kthreads of the system
//! class). In these, receive work of the devices is done where the packet is sent, in soft interrupts. In two more worlds
//! it is done in kernel threads (threaded NAPI) on the receiving host's CPU: of real-time priority, and ordinary ones.

use serde_json::json;

use super::contest::{Contest, block};
use super::rio_latency::{BYTES, INTERVAL, promise};
use super::{Conditions, Measured, instructions, judged};
use crate::excuse::Excuses;
use crate::measure::{Side, Statistic, compare_rounds};
use crate::report::{Bars, Check, Plot, Row, Series};
use crate::testbed::receive::{self, ReceiveClass, ReceiveThreads};
use crate::testbed::{Contender, Hosting, LinkSpec, Options, PairSetup, Wait};

/// The configured rate of a direct link.
const DECLARED_RATE: punctual::BitRate = punctual::BitRate(1_000_000_000);
/// The paper's overhead.
pub(super) const MEAN_MAX: f64 = 1.018;
/// Width of a histogram's bar in figure 7, in us.
const BAR_US: f64 = 5.0;

/// A world.
struct World {
    name: &'static str,
    policy: &'static str,
    /// Whether its processors are real-time threads.
    real_time: bool,
    /// The class of its devices' kernel threads; none: soft interrupts.
    receive: Option<ReceiveClass>,
}

impl World {
    const fn new(
        name: &'static str,
        policy: &'static str,
        real_time: bool,
        receive: Option<ReceiveClass>,
    ) -> Self {
        Self { name, policy, real_time, receive }
    }
}

const WORLDS: [World; 6] = [
    World::new("demand-driven", "fifo", true, None),
    World::new("demand-driven again", "fifo", true, None),
    World::new("scheduled, real-time", "edf", true, None),
    World::new("scheduled, low priority", "edf", false, None),
    World::new("scheduled, real-time NAPI threads", "edf", true, Some(ReceiveClass::RealTime)),
    World::new("scheduled, low-priority NAPI threads", "edf", true, Some(ReceiveClass::Ordinary)),
];
const DEFAULT: usize = 0;
const AGAIN: usize = 1;
const SCHEDULED: usize = 2;
const LOW: usize = 3;
/// The worlds with kernel threads, and the titles of their histograms.
const THREADED: [(usize, &str); 2] = [(4, "real-time NAPI threads"), (5, "low-priority NAPI threads")];
/// All longer round trips are in the last bar.
const LAST_BAR_US: f64 = 400.0;

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(DECLARED_RATE), pinned: true };
    let mut contest = Contest::new(setup, 1, conditions);
    let worlds = WORLDS.iter().enumerate();
    let _threads: Vec<_> = worlds
        .map(|(number, world)| join(&mut contest, number, world, conditions))
        .collect::<anyhow::Result<_>>()?;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((10, 330), (40, 1_000));
    contest.rounds("", count, 0, &block(length, INTERVAL, BYTES))?;
    let contenders = &contest.contenders;
    judged(witness, |excuses| {
        conditions.progress(format_args!("counting instructions"));
        let counted = match conditions.smoke {
            true => Err("left out".into()),
            false => instructions::of_policies(conditions.quick),
        };
        let mut measured = judge(contenders, &counted, excuses);
        if conditions.peer.is_some() {
            measured.note(
                "NAPI threads: on one machine only, where the class of both hosts' kernel threads is ours to set",
            );
        }
        Ok(measured)
    })
}

/// Adds a world, if it is possible: with the kernel threads of its devices, which are dropped before its
/// hosts.
fn join(
    contest: &mut Contest<'_>,
    number: usize,
    world: &World,
    conditions: &Conditions,
) -> anyhow::Result<Option<ReceiveThreads>> {
    if world.receive.is_some() && (conditions.peer.is_some() || !conditions.real_time) {
        return Ok(None);
    }
    let mut pair = contest.pair()?;
    let ports = conditions.options_of(number);
    let over_xdp = conditions.driver.bypasses_kernel() && world.receive.is_some();
    let options = Options {
        real_time: world.real_time && conditions.real_time,
        processor: format!("policy = \"{}\"\n", world.policy),
        link: format!("{}{}", ports.link, if over_xdp { receive::LINK_OPTION } else { "" }),
        ..ports
    };
    let engine = pair.start_engines(&options, Hosting::Embedded)?;
    let start = |class| ReceiveThreads::start(&pair, conditions.driver, class);
    let threads = world.receive.map(start).transpose()?;
    let caller = pair.call_channels(engine, promise(), [Wait::Block; 2], conditions.class())?;
    contest.join(world.name, conditions.class(), caller, pair);
    Ok(threads)
}

fn judge(contenders: &[Contender], counted: &Result<[f64; 2], String>, excuses: &Excuses) -> Measured {
    let columns = "world, samples, mean_us, std_us, min_us, p50_us, p99_us, p999_us, max_us, excused, lost, \
             instructions_per_message";
    let mut measured = Measured::new("world", columns);
    for (contender, world) in contenders.iter().zip(&WORLDS) {
        let of_policy = usize::from(world.policy == "edf");
        let instructions = counted.as_ref().ok().map(|counts| counts[of_policy]);
        let (name, lost) = (contender.name, contender.lost[0]);
        measured.add_side(
            json!({ "world": name }),
            &contender.sides[0],
            excuses,
            |_| json!({ "lost": lost, "instructions_per_message": instructions }),
        );
    }
    let side = |index: usize| -> &Side { &contenders[index].sides[0] };
    for (statistic, limit) in [(Statistic::Mean, MEAN_MAX), (Statistic::Max, 1.0), (Statistic::Jitter, 1.0)] {
        let found = compare_rounds(side(DEFAULT), side(SCHEDULED), side(AGAIN), statistic, excuses);
        let name = format!(
            "scheduled against demand-driven: {}, median of rounds (limit {limit} and the A/A half-width {:.4}; A/A {:.4})",
            statistic.name(),
            found.half_width,
            found.identical
        );
        measured.checks.push(Check::ratio_at_most(name, found.ratio, limit, found.half_width));
    }
    let lost: u64 = contenders.iter().map(|contender| contender.lost[0]).sum();
    measured.at_most("round trips without an answer", lost as f64, 0.0);
    if let Err(why) = counted {
        measured.note(format!("instructions were not counted: {why}"));
    }
    compared(&mut measured, contenders, excuses);
    measured.plot = Some(plot(contenders, excuses));
    measured.rows = bars(contenders, excuses).into_iter().map(Row::Bars).collect();
    measured
}

/// The table under figure 6. Both kinds of threads are compared with the paper's: its kthreads did all of the
/// processing, here NAPI threads do the device's part and processors the rest.
fn compared(measured: &mut Measured, contenders: &[Contender], excuses: &Excuses) {
    const PAPER_RT: &str = "665, 824, 620, 18.8";
    const PAPER_SYS: &str = "799, 1014, 729, 38.0";
    let side = |index: usize| &contenders[index].sides[0];
    let [(threads, _), (low_threads, _)] = THREADED;
    for (world, paper) in [
        (DEFAULT, "653, 807, 613, 19.6"),
        (SCHEDULED, PAPER_RT),
        (threads, PAPER_RT),
        (LOW, PAPER_SYS),
        (low_threads, PAPER_SYS),
    ] {
        let Some(contender) = contenders.get(world) else { continue };
        let found = contender.sides[0].figures(excuses).clean;
        let mean = compare_rounds(side(DEFAULT), &contender.sides[0], side(AGAIN), Statistic::Mean, excuses);
        let shown = format!(
            "{:.0}, {:.0}, {:.0}, {:.1}; mean {:.3} of the first",
            found.mean_us, found.max_us, found.min_us, found.std_us, mean.ratio
        );
        measured.compare(format!("{}: mean, max, min, jitter in us", contender.name), paper, shown, "-");
    }
}

/// What no hole touches, in us.
fn micros<'a>(side: &'a Side, excuses: &'a Excuses) -> impl Iterator<Item = f64> + 'a {
    side.clean_spans(excuses).map(|span| span.0 as f64 / 1e3)
}

/// Figure 7 as bars: how many round trips at which latency, world by world.
fn bars(contenders: &[Contender], excuses: &Excuses) -> Vec<Vec<Bars>> {
    let panel = |(world, title): (usize, &str), colour: usize| {
        let spans = micros(&contenders.get(world)?.sides[0], excuses);
        Some(Bars::histogram(title, "round trip, us", spans, (BAR_US, LAST_BAR_US, colour)))
    };
    let soft =
        [(DEFAULT, "demand-driven"), (SCHEDULED, "scheduled, real-time"), (LOW, "scheduled, low priority")];
    let row = |worlds: &[(usize, &str)], colour: usize| -> Vec<Bars> {
        worlds.iter().enumerate().filter_map(|(index, &world)| panel(world, colour + index)).collect()
    };
    [row(&soft, 0), row(&THREADED, soft.len())].into_iter().filter(|row| !row.is_empty()).collect()
}

/// Figure 7: how many samples at which latency.
fn plot(contenders: &[Contender], excuses: &Excuses) -> Plot {
    let counts = |side: &Side| {
        let bars = Bars::histogram("", "", micros(side, excuses), (BAR_US, f64::MAX, 0)).bars;
        bars.into_iter().map(|bar| ((bar.span.0 + bar.span.1) / 2.0, bar.height))
    };
    let worlds = contenders.iter().enumerate().filter(|(world, _)| *world != AGAIN);
    let series = worlds.enumerate().map(|(colour, (world, contender))| {
        Series::new(contender.name, colour, counts(&contender.sides[0]))
            .dashed(world == DEFAULT)
            .without_dots()
    });
    let title = "RIO figure 7: round trips of 64 B by latency";
    Plot::log_log(title, "round trip, us", "samples in 5 us", series)
}
