//! What the number of TCP connections costs a low-delay round trip: 64 connections that call in turns instead of 4, and connections
//! that are open and idle beside 4.
//!
//! Each world has two engines of its own. In all of them one client calls at the same intervals, over its connections one after the
//! other, and each connection declares its share of the calls. So the worlds differ in nothing but the number of connections. Four
//! connections run twice (A/A).

mod idle;

use punctual::Nanos;
use punctual::tcp::Qos;
use serde_json::json;

use self::idle::Idle;
pub use self::idle::connect;
use super::contest::{Contest, block};
use super::{Conditions, Measured, exceedance, judged};
use crate::excuse::Excuses;
use crate::measure::{Ratio, Statistic, compare};
use crate::report::{Plot, Series};
use crate::testbed::{Contender, LinkSpec, PairSetup, TcpPlan, TcpStack, TcpWorld};

/// The configured rate of a direct link.
const RATE: punctual::BitRate = punctual::BitRate(1_000_000_000);
const LINK: &str = "flows_max = 16384\nlisteners_max = 128\npipeline_depth = 4\nreaction = \"20us\"\n";
const BYTES: u32 = 64;
const FEW: usize = 4;
const MANY: usize = 64;
/// Segments of a round trip in each direction, acknowledgements included.
const UNITS: u32 = 4;

const WORLDS: [(&str, usize, bool); 4] = [
    ("4 connections", FEW, false),
    ("64 connections", MANY, false),
    ("4 connections again", FEW, false),
    ("4 connections, and idle ones", FEW, true),
];
const BASE: usize = 0;
const OF_MANY: usize = 1;
const AGAIN: usize = 2;
const BESIDE_IDLE: usize = 3;

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(RATE), pinned: true };
    let interval = Nanos::from_millis(conditions.pick(2, 2, 5));
    let idle_count = idle::possible(conditions.pick(20, 10_000, 10_000))?;
    let mut contest = Contest::new(setup, 1, conditions);
    let mut idle = None;
    for (name, count, has_idle) in WORLDS {
        conditions.progress(format_args!("{name}"));
        let plan = TcpPlan { link: LINK, ..TcpPlan::default() };
        let mut world = TcpWorld::create_as(TcpStack::Punctual, plan, &setup, conditions)?;
        if has_idle {
            let progress = |open| conditions.progress(format_args!("{open} idle connections"));
            idle = Some(Idle::open(&world, idle_count, progress)?);
        }
        let qos = Qos::LowDelay { interval: interval * count as u64, units: UNITS, priority: None };
        let (caller, class) = (world.call_in_turns(qos, count)?, world.class(qos));
        let (_, pair) = world.finish()?;
        contest.join(name, class, caller, pair);
    }
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((6, 1_000), (25, 2_000));
    contest.rounds("", count, 0, &block(length, interval, BYTES))?;
    let found = idle.as_ref().map(Found::of).transpose()?.unwrap_or_default();
    // Connections end before the hosts do.
    drop(idle);
    judged(witness, |excuses| Ok(judge(&contest.contenders, found, excuses)))
}

/// What was found of the idle connections.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// How many were open until the end.
    open: usize,
    /// Resident memory that each took, and what of it is buffers, in bytes.
    each_bytes: f64,
    buffers_bytes: u64,
}

impl Found {
    fn of(idle: &Idle) -> anyhow::Result<Self> {
        let open = idle.open_count()?;
        Ok(Self { open, each_bytes: idle.each_bytes, buffers_bytes: Idle::buffer_bytes_each()? })
    }
}

fn judge(contenders: &[Contender], idle: Found, excuses: &Excuses) -> Measured {
    let columns = "world, samples, p50_us, mean_us, p99_us, p999_us, max_us, excused, lost";
    let mut measured = Measured::new("world", columns);
    for one in contenders {
        let lost = json!({ "lost": one.lost[0] });
        measured.add_side(json!({ "world": one.name }), &one.sides[0], excuses, |_| lost);
    }
    let ratio = |world: usize, statistic| -> Ratio {
        let side = |world: usize| &contenders[world].sides[0];
        compare(side(BASE), side(world), side(AGAIN), statistic, excuses)
    };
    let beside = format!("4 connections beside {} idle ones", idle.open);
    for (world, name, statistic, limit) in [
        (OF_MANY, "64 connections", Statistic::P99, 1.1),
        (BESIDE_IDLE, beside.as_str(), Statistic::Median, 1.05),
    ] {
        let found = ratio(world, statistic);
        let name = format!(
            "{name}: {} of a round trip against 4 connections (A/A {:.3}, half-width {:.3})",
            statistic.name(),
            found.identical,
            found.half_width
        );
        measured.checks.push(crate::report::Check::ratio_at_most(name, found.ratio, limit, found.half_width));
    }
    let lost: u64 = contenders.iter().map(|one| one.lost[0]).sum();
    measured.at_most("round trips without an answer in time", lost as f64, 0.0);
    let besides = (idle.each_bytes - idle.buffers_bytes as f64) / 1_024.0;
    let name = format!(
        "KiB of resident memory of an idle connection, besides the {} KiB of its buffers and rings",
        idle.buffers_bytes / 1_024
    );
    measured.at_most(name, besides, 16.0);
    let series = contenders.iter().enumerate().map(|(colour, one)| {
        Series::new(one.name, colour, exceedance(&one.sides[0], excuses)).dashed(colour == AGAIN)
    });
    measured.plot = Some(Plot::tails("Round trips of 64 B longer than", "us", "share", series));
    measured
}
