//! The round trip of 64 B: Punctual in the program and through the daemon, against kernel sockets that wait the same
//! way, and where each microsecond goes.

use punctual::{BitRate, Contract, Nanos, Rate};
use serde_json::json;

use super::super::contest::block;
use super::super::{Conditions, FAST_COSTS, Measured, exceedance, judged};
use super::{Group, World};
use crate::excuse::Excuses;
use crate::measure::{Side, Statistic, compare};
use crate::report::{Plot, Series};
use crate::testbed::{Hosting, LinkSpec, Options, Pair, PairSetup, SPIN, Wait};

const DECLARED_RATE: BitRate = BitRate(10_000_000_000);
const BYTES: u32 = 64;
/// Message interval of spinning clients: shorter than any round trip, so that no message waits for its
/// logical arrival.
const INTERVAL: Nanos = Nanos::from_micros(4);
/// Message interval of blocking clients: shorter than [`PACE`].
const PACED_INTERVAL: Nanos = Nanos::from_micros(100);
const DEADLINE: Nanos = Nanos::from_millis(5);
/// Deadline of blocking clients. The stages share the rest of it by their cost: if leader and handler declare
/// their time with cold caches, the bounds of the other stages must be longer than that.
const PACED_DEADLINE: Nanos = Nanos::from_millis(10);

/// Worlds with a spinning client that can be called. The bare drivers do not run under every load.
const SPINNING: [(&str, World); 3] = [
    ("kernel, spinning", World::Kernel),
    ("kernel, spinning again", World::Again),
    ("bare driver, spinning", World::Bare),
];
/// Worlds with a blocking client.
const BLOCKING: [(&str, World); 6] = [
    ("kernel, blocking", World::Kernel),
    ("kernel, blocking again", World::Again),
    ("embedded, blocking", World::Leading),
    ("embedded, client woken by its engine", World::Woken),
    ("daemon, blocking", World::Daemon),
    ("bare driver, blocking", World::Bare),
];
/// Time between the calls of blocking clients. Longer than the interval in which an engine handles one
/// channel's doorbell once.
const PACE: Nanos = Nanos::from_micros(200);
const DIRECT: &str = "embedded, spinning";

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(DECLARED_RATE), pinned: true };
    // With another machine, or kernel sockets, no driver can be shown alone.
    let has_floor = conditions.driver.bypasses_kernel() && conditions.peer.is_none();
    let mut others = 0;
    let mut open = |wait: Wait, worlds: &[(&'static str, World)]| {
        let mut group = Group::new(setup, 1, conditions);
        for &named in worlds.iter().filter(|(_, world)| has_floor || *world != World::Bare) {
            join(&mut group, named, wait, others)?;
            others += 1;
        }
        anyhow::Ok(group)
    };
    let mut worlds = Worlds {
        spinning: open(Wait::Spin, &SPINNING)?,
        blocking: open(Wait::Block, &BLOCKING)?,
        direct: Side::default(),
    };
    let mut pair = Pair::create(&setup, conditions)?;
    let engine = pair.start_engines(&options(true, others, conditions), Hosting::Embedded)?;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((5, 600), (20, 2_000));
    for round in 0..count {
        conditions.progress(format_args!("round {} of {count}", round + 1));
        // Blocking clients are called at a pace, so that every wait is a sleep; spinning clients call again
        // at once.
        worlds.spinning.contest.turn(0, &block(length, Nanos::ZERO, BYTES))?;
        worlds.blocking.contest.turn(0, &block(length, PACE, BYTES))?;
        let promise = promise(INTERVAL, DEADLINE);
        worlds.direct.push(pair.loop_directly(engine, promise, BYTES as usize, length)?);
    }
    let mut measured = judged(witness, |excuses| Ok(judge(&worlds, conditions, excuses)))?;
    let contest = &mut worlds.blocking.contest;
    contest.pairs.push(pair);
    measured.doubt_demoted(&contest.contenders, &mut contest.pairs)?;
    Ok(measured)
}

fn promise(interval: Nanos, deadline: Nanos) -> Contract {
    let rate = Rate::every(interval).expect("not zero");
    Contract::new(BYTES, rate, 2, deadline).expect("constants within range")
}

fn options(spin: bool, world: usize, conditions: &Conditions) -> Options {
    let ports = conditions.options_of(world);
    let spinning = if spin && conditions.driver.bypasses_kernel() {
        format!("spin = \"{}us\"\n", SPIN.0 / 1_000)
    } else {
        String::new()
    };
    let link = format!("reaction = \"1us\"\n{spinning}{}", ports.link);
    Options { processor: FAST_COSTS.into(), link, ..ports }
}

/// A world that waits like that, the experiment's number `number`.
fn join(
    group: &mut Group<'_>,
    named: (&'static str, World),
    wait: Wait,
    number: usize,
) -> anyhow::Result<()> {
    let conditions = group.contest.conditions;
    let class = conditions.class();
    let options = options(false, number, conditions);
    let mut pair = group.contest.pair()?;
    let mut channels = |hosting, waits| {
        let engine = pair.start_engines(&options, hosting)?;
        pair.call_channels(engine, promise(PACED_INTERVAL, PACED_DEADLINE), waits, class)
    };
    let caller = match named.1 {
        World::Leading => channels(Hosting::Embedded, [Wait::Lead, Wait::Direct])?,
        World::Woken => channels(Hosting::Embedded, [Wait::Block, Wait::Direct])?,
        World::Daemon => channels(Hosting::Daemon, [Wait::Block; 2])?,
        World::Kernel | World::Again => pair.call_sockets(wait, class)?.0,
        World::Bare => pair.call_adapters(&options, BYTES, wait, class)?,
    };
    group.join(named, class, caller, pair);
    Ok(())
}

/// All that are compared.
struct Worlds<'a> {
    spinning: Group<'a>,
    blocking: Group<'a>,
    /// Processors that spin and call handlers: no client.
    direct: Side,
}

fn judge(worlds: &Worlds<'_>, conditions: &Conditions, excuses: &Excuses) -> Measured {
    let columns = "world, samples, p50_us, mean_us, std_us, p99_us, p999_us, min_us, max_us, excused, lost";
    let mut measured = Measured::new("world", columns);
    let groups = [&worlds.spinning, &worlds.blocking].into_iter();
    let called = groups.flat_map(|group| &group.contest.contenders);
    let called = called.map(|one| (one.name, &one.sides[0], one.lost[0]));
    for (world, side, lost) in called.chain([(DIRECT, &worlds.direct, 0)]) {
        measured.add_side(json!({ "world": world }), side, excuses, |_| json!({ "lost": lost }));
    }
    let [spinning, blocking] = [&worlds.spinning, &worlds.blocking];
    for (what, ours, group, limit) in [
        ("spinning, in the program", &worlds.direct, spinning, 0.8),
        ("blocking, in the program", blocking.side(World::Leading, 0), blocking, 1.05),
        ("blocking, through the daemon", blocking.side(World::Daemon, 0), blocking, 2.0),
    ] {
        let [kernel, again] = [World::Kernel, World::Again].map(|world| group.side(world, 0));
        let found = compare(kernel, ours, again, Statistic::Median, excuses);
        let name = format!(
            "{what}: p50 against kernel sockets (A/A {:.3}, half-width {:.3})",
            found.identical, found.half_width
        );
        measured.at_most(name, found.ratio, limit);
    }
    if !conditions.driver.bypasses_kernel() {
        measured.note("the targets are for driver xdp; with udp the processors cannot spin");
    }
    account(&mut measured, worlds, excuses);
    measured.plot = Some(plot(worlds, excuses));
    measured
}

/// The composition of the round trip, from the difference of each world to the one before.
fn account(measured: &mut Measured, worlds: &Worlds<'_>, excuses: &Excuses) {
    let p50 = |side: &Side| side.figures(excuses).clean.p50_us;
    let of = |group: &Group<'_>, world| group.find(world).map(|one| p50(&one.sides[0]));
    let us = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1} us"));
    let less = |more: Option<f64>, less: Option<f64>| Some(more? - less?);
    let spinning = |world| of(&worlds.spinning, world);
    let blocking = |world| of(&worlds.blocking, world);
    let direct = Some(p50(&worlds.direct));
    use World::{Bare, Daemon, Kernel, Leading, Woken};
    let woken = less(blocking(Leading), direct);
    let kernel_woken = less(blocking(Kernel), spinning(Kernel));
    let bare_woken = less(blocking(Bare), spinning(Bare));
    let switched = "the client's thread beside its engine's: a switch and a wake-up each way";
    let processes = "two processes instead of one, and a server of its own";
    let clips = "IPC 563 to 875 us (CLIPS)";
    let cold = "protocol with cold caches (blocking, more than bare)";
    let rows = [
        ("wire and driver, both ways (bare, spinning)", "-", spinning(Bare), None),
        ("protocol, both ways (spinning, more than bare)", "-", less(direct, spinning(Bare)), None),
        ("all of it (spinning)", "-", direct, spinning(Kernel)),
        ("server and client woken (blocking less spinning)", "-", woken, kernel_woken),
        ("the same of bare drivers", "-", bare_woken, None),
        (cold, "-", less(blocking(Leading), blocking(Bare)), None),
        (switched, "-", less(blocking(Woken), blocking(Leading)), None),
        (processes, clips, less(blocking(Daemon), blocking(Woken)), None),
    ];
    for (what, paper, ours, kernel) in rows {
        measured.compare(what, paper, us(ours), us(kernel));
    }
}

fn plot(worlds: &Worlds<'_>, excuses: &Excuses) -> Plot {
    let line = |name: &str, colour, dashed, side| {
        Series::new(name, colour, exceedance(side, excuses)).dashed(dashed)
    };
    let spinning = [(World::Kernel, 0, true), (World::Bare, 3, true)].into_iter();
    let blocking = [
        (World::Kernel, 1, true),
        (World::Leading, 1, false),
        (World::Woken, 2, true),
        (World::Daemon, 2, false),
        (World::Bare, 3, false),
    ];
    let lines = spinning.map(|line| (&worlds.spinning, line));
    let lines = lines.chain(blocking.map(|line| (&worlds.blocking, line)));
    let lines = lines.filter_map(|(group, (world, colour, dashed))| {
        group.find(world).map(|one| line(one.name, colour, dashed, &one.sides[0]))
    });
    let series = [line(DIRECT, 0, false, &worlds.direct)].into_iter().chain(lines);
    Plot::tails("Round trips of 64 B longer than", "us", "share", series)
}
