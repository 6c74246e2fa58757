//! The round trip over TCP on idle hosts: Punctual in the program and through the daemon, against kernel TCP that waits the same
//! way (RTU 7.2 compares idle hosts with 64 B and 8 KB).
//!
//! Worlds with two hosts and a CPU each. "Blocking" sleeps in the kernel: between two calls, and until the answer comes. "Spinning"
//! polls. The kernel runs twice in each group (A/A).

use punctual::Nanos;
use serde_json::json;

use super::super::contest::block;
use super::super::rtu_latency::QOS;
use super::super::{Conditions, Measured, exceedance, judged};
use super::{Group, World};
use crate::excuse::Excuses;
use crate::measure::{Side, Statistic, compare};
use crate::report::{Plot, Series};
use crate::testbed::{Contender, Hosting, LinkSpec, PairSetup, TcpPlan, TcpStack, TcpWorld};

const TOLD: punctual::BitRate = punctual::BitRate(10_000_000_000);
const SIZES: [u32; 2] = [64, 8_192];
const SMALL: usize = 0;
const LARGE: usize = 1;
/// Time between the calls of blocking clients: longer than the interval of the class.
const PACE: Nanos = Nanos::from_millis(5);

const BLOCKING: [(&str, World); 5] = [
    ("kernel, blocking", World::Kernel),
    ("kernel, blocking again", World::Again),
    ("embedded, blocking", World::Leading),
    ("embedded, client and server woken", World::Woken),
    ("daemon, blocking", World::Daemon),
];
const SPINNING: [(&str, World); 2] =
    [("kernel, spinning", World::Kernel), ("kernel, spinning again", World::Again)];
const DIRECT: &str = "embedded, spinning";

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(TOLD), pinned: true };
    let group = |worlds: &[(&'static str, World)], spins| {
        let mut group = Group::new(setup, SIZES.len(), conditions);
        for &named in worlds {
            conditions.progress(format_args!("{}", named.0));
            join(&mut group, named, &setup, spins)?;
        }
        anyhow::Ok(group)
    };
    let mut worlds = Worlds {
        blocking: group(&BLOCKING, false)?,
        spinning: group(&SPINNING, true)?,
        direct: Default::default(),
    };
    let plan = TcpPlan { spins: true, ..TcpPlan::default() };
    let mut direct = TcpWorld::create_as(TcpStack::Punctual, plan, &setup, conditions)?;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((6, 1_000), (40, 2_500));
    for round in 0..count {
        conditions.progress(format_args!("round {} of {count}", round + 1));
        for (size, &bytes) in SIZES.iter().enumerate() {
            let pace = conditions.pick(Nanos::from_millis(2), PACE, PACE);
            worlds.blocking.contest.turn(size, &block(length, pace, bytes))?;
            let brief = length / 4;
            worlds.spinning.contest.turn(size, &block(brief, Nanos::ZERO, bytes))?;
            worlds.direct[size].push(direct.loop_directly(QOS, bytes as usize, brief)?);
        }
    }
    judged(witness, |excuses| Ok(judge(&worlds, excuses)))
}

fn join(
    group: &mut Group<'_>,
    named: (&'static str, World),
    setup: &PairSetup,
    spins: bool,
) -> anyhow::Result<()> {
    let world = named.1;
    let stack =
        if matches!(world, World::Kernel | World::Again) { TcpStack::Plain } else { TcpStack::Punctual };
    let hosting = if world == World::Daemon { Hosting::Daemon } else { Hosting::Embedded };
    let conditions = group.contest.conditions;
    let mut hosts =
        TcpWorld::create_as(stack, TcpPlan { hosting, spins, ..TcpPlan::default() }, setup, conditions)?;
    // All have the class of Punctual's programs: what is compared is TCP.
    let class = conditions.class();
    let is_leading = world == World::Leading;
    let caller = if is_leading { hosts.call_leading(QOS)? } else { hosts.call_as(QOS, class)? };
    let (_, pair) = hosts.finish()?;
    group.join(named, class, caller, pair);
    Ok(())
}

/// All that are compared.
struct Worlds<'a> {
    blocking: Group<'a>,
    spinning: Group<'a>,
    /// Engines that spin and call handlers: no client. By size.
    direct: [Side; SIZES.len()],
}

impl Worlds<'_> {
    fn contenders(&self) -> impl Iterator<Item = &Contender> {
        self.blocking.contest.contenders.iter().chain(&self.spinning.contest.contenders)
    }
}

fn judge(worlds: &Worlds<'_>, excuses: &Excuses) -> Measured {
    let columns =
        "bytes, world, samples, p50_us, mean_us, std_us, p99_us, p999_us, min_us, max_us, excused, lost";
    let mut measured = Measured::new("bytes", columns);
    for (size, bytes) in SIZES.iter().enumerate() {
        let called = worlds.contenders().map(|one| (one.name, &one.sides[size], one.lost[size]));
        for (world, side, lost) in called.chain([(DIRECT, &worlds.direct[size], 0)]) {
            let first = json!({ "bytes": bytes, "world": world });
            measured.add_side(first, side, excuses, |_| json!({ "lost": lost }));
        }
    }
    let [blocking, spinning] = [&worlds.blocking, &worlds.spinning];
    for (what, size, ours, group, limit) in [
        ("embedded, blocking", SMALL, blocking.side(World::Leading, SMALL), blocking, 1.14),
        ("embedded, blocking", LARGE, blocking.side(World::Leading, LARGE), blocking, 1.0),
        ("embedded, spinning", SMALL, &worlds.direct[SMALL], spinning, 0.9),
        ("daemon, blocking", SMALL, blocking.side(World::Daemon, SMALL), blocking, 2.0),
    ] {
        let [kernel, again] = [World::Kernel, World::Again].map(|world| group.side(world, size));
        let found = compare(kernel, ours, again, Statistic::Median, excuses);
        let name = format!(
            "{what}, {} B: p50 against kernel TCP (A/A {:.3}, half-width {:.3})",
            SIZES[size], found.identical, found.half_width
        );
        measured.at_most(name, found.ratio, limit);
    }
    let lost: u64 = worlds.contenders().flat_map(|one| &one.lost).sum();
    measured.at_most("round trips without an answer in time", lost as f64, 0.0);
    let led_no_more: u64 = worlds.contenders().map(|one| one.led_no_more).sum();
    measured.at_most("blocks in which a client lost the lead of its engine", led_no_more as f64, 0.0);
    measured.plot = Some(plot(worlds, excuses));
    measured
}

fn plot(worlds: &Worlds<'_>, excuses: &Excuses) -> Plot {
    let called = worlds.contenders().map(|one| (one.name, &one.sides[SMALL]));
    let sides = called.chain([(DIRECT, &worlds.direct[SMALL])]);
    let series = sides.enumerate().map(|(colour, (name, side))| {
        let is_kernel = name.starts_with("kernel");
        Series::new(name, colour, exceedance(side, excuses)).dashed(is_kernel)
    });
    Plot::tails("Round trips of 64 B over TCP longer than", "us", "share", series)
}
