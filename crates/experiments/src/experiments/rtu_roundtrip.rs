//! The round trip over TCP on idle hosts: Punctual in the program and through the daemon, against kernel TCP that waits the same
//! way (RTU 7.2 compares idle hosts with 64 B and 8 KB).
//!
//! Worlds with two hosts and a CPU each. "Blocking" sleeps in the kernel: between two calls, and until the answer comes. "Spinning"
//! polls. The kernel runs twice in each group (A/A).

use punctual::Nanos;
use punctual::tcp::Qos;
use serde_json::json;

use super::contest::{Contest, block};
use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::measure::{Side, Statistic, compare};
use crate::report::{Plot, Series};
use crate::testbed::{Contender, Hosting, LinkSpec, PairSetup, TcpPlan, TcpStack, TcpWorld};

const TOLD: punctual::BitRate = punctual::BitRate(10_000_000_000);
const SIZES: [u32; 2] = [64, 8_192];
const SMALL: usize = 0;
const LARGE: usize = 1;
/// Segments of a round trip of the largest size in each direction, acknowledgements included, and its shortest interval.
const QOS: Qos = Qos::LowDelay { interval: Nanos::from_millis(4), units: 12 };
/// Time between the calls of blocking clients: longer than the interval of the class.
const PACE: Nanos = Nanos::from_millis(5);

/// How a world calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    /// The kernel's TCP.
    Kernel,
    /// The same again.
    Again,
    /// The client's thread does its engine's work, and the server is a handler: one thread a host, as with the kernel.
    Leading,
    /// The engines wake client and server.
    Woken,
    /// Engines in separate processes.
    Daemon,
}

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
        let mut contest = Contest::new(setup, SIZES.len(), conditions);
        for &(name, world) in worlds {
            conditions.progress(format_args!("{name}"));
            join(&mut contest, name, world, spins)?;
        }
        anyhow::Ok(contest)
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
            turn(&mut worlds.blocking, size, &block(length, pace, bytes))?;
            let brief = length / 4;
            turn(&mut worlds.spinning, size, &block(brief, Nanos::ZERO, bytes))?;
            worlds.direct[size].push(direct.loop_directly(QOS, bytes as usize, brief)?);
        }
    }
    judged(witness, |excuses| Ok(judge(&worlds, excuses)))
}

fn join(contest: &mut Contest<'_>, name: &'static str, world: World, spins: bool) -> anyhow::Result<()> {
    let stack =
        if matches!(world, World::Kernel | World::Again) { TcpStack::Plain } else { TcpStack::Punctual };
    let hosting = if world == World::Daemon { Hosting::Daemon } else { Hosting::Embedded };
    let plan = TcpPlan { hosting, spins };
    let (setup, conditions) = (contest.setup(), contest.conditions);
    let mut hosts = TcpWorld::create_as(stack, plan, &setup, conditions)?;
    // All have the class of Punctual's programs: what is compared is TCP.
    let class = conditions.class();
    let is_leading = world == World::Leading;
    let caller = if is_leading { hosts.call_leading(QOS)? } else { hosts.call_as(QOS, class)? };
    let (_, pair) = hosts.finish()?;
    contest.join(name, class, caller, pair);
    Ok(())
}

/// A block of every contender, with messages of one size.
fn turn(contest: &mut Contest<'_>, size: usize, block: &crate::testbed::Block) -> anyhow::Result<()> {
    contest.contenders.iter_mut().try_for_each(|one| one.block(size, block))
}

/// All that are compared.
struct Worlds<'a> {
    blocking: Contest<'a>,
    spinning: Contest<'a>,
    /// Engines that spin and call handlers: no client. By size.
    direct: [Side; SIZES.len()],
}

fn judge(worlds: &Worlds<'_>, excuses: &Excuses) -> Measured {
    let columns =
        "bytes, world, samples, p50_us, mean_us, std_us, p99_us, p999_us, min_us, max_us, excused, lost";
    let mut measured = Measured::new("bytes", columns);
    for (size, bytes) in SIZES.iter().enumerate() {
        let called = worlds.blocking.contenders.iter().chain(&worlds.spinning.contenders);
        let called = called.map(|one| (one.name, &one.sides[size], one.lost[size]));
        for (world, side, lost) in called.chain([(DIRECT, &worlds.direct[size], 0)]) {
            let first = json!({ "bytes": bytes, "world": world });
            measured.add_side(first, side, excuses, |_| json!({ "lost": lost }));
        }
    }
    let [leading, daemon] = [World::Leading, World::Daemon].map(|world| find(&worlds.blocking, world));
    for (what, size, ours, group, limit) in [
        ("embedded, blocking", SMALL, &leading.sides[SMALL], &worlds.blocking, 1.14),
        ("embedded, blocking", LARGE, &leading.sides[LARGE], &worlds.blocking, 1.0),
        ("embedded, spinning", SMALL, &worlds.direct[SMALL], &worlds.spinning, 0.9),
        ("daemon, blocking", SMALL, &daemon.sides[SMALL], &worlds.blocking, 2.0),
    ] {
        let [kernel, again] = [World::Kernel, World::Again].map(|world| &find(group, world).sides[size]);
        let found = compare(kernel, ours, again, Statistic::Median, excuses);
        let name = format!(
            "{what}, {} B: p50 against kernel TCP (A/A {:.3}, half-width {:.3})",
            SIZES[size], found.identical, found.half_width
        );
        measured.at_most(name, found.ratio, limit);
    }
    let all = || worlds.blocking.contenders.iter().chain(&worlds.spinning.contenders);
    let lost: u64 = all().flat_map(|one| &one.lost).sum();
    measured.at_most("round trips without an answer in time", lost as f64, 0.0);
    let led_no_more: u64 = all().map(|one| one.led_no_more).sum();
    measured.at_most("blocks in which a client lost the lead of its engine", led_no_more as f64, 0.0);
    measured.plot = Some(plot(worlds, excuses));
    measured
}

/// The contender of a world, of which each group that has it has one; the kernel's come first in both.
fn find<'a>(group: &'a Contest<'_>, world: World) -> &'a Contender {
    let names = BLOCKING.iter().chain(&SPINNING).filter(|(_, other)| *other == world);
    let of = |name: &str| group.contenders.iter().find(|one| one.name == name);
    names.map(|(name, _)| name).find_map(|name| of(name)).expect("every world is called")
}

fn plot(worlds: &Worlds<'_>, excuses: &Excuses) -> Plot {
    let called = worlds.blocking.contenders.iter().chain(&worlds.spinning.contenders);
    let sides = called.map(|one| (one.name, &one.sides[SMALL])).chain([(DIRECT, &worlds.direct[SMALL])]);
    let series = sides.enumerate().map(|(colour, (name, side))| {
        let is_kernel = name.starts_with("kernel");
        Series::new(name, colour, super::exceedance(side, excuses)).dashed(is_kernel)
    });
    Plot::tails("Round trips of 64 B over TCP longer than", "us", "share", series)
}
