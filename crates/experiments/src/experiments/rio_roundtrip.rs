//! The round trip of 64 B: Punctual in the program and through the daemon, against kernel sockets that wait the same
//! way, and where each microsecond goes.

use punctual::{BitRate, Contract, Nanos, Rate};
use serde::Serialize;

use super::{Conditions, Measured, judged};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::measure::{Figures, Side, Statistic, compare};
use crate::report::{Axis, Legend, Plot, Series};
use crate::testbed::{Bed, Block, Contender, Hosting, LinkSpec, Options, Pair, SPIN, Wait, rounds};

const TOLD: BitRate = BitRate(10_000_000_000);
const BYTES: u32 = 64;
/// Of those who spin: shorter than any round trip, so that none waits for its logical arrival.
const INTERVAL: Nanos = Nanos::from_micros(4);
/// Of those who block: shorter than [`PACE`].
const PACED_INTERVAL: Nanos = Nanos::from_micros(100);
const DEADLINE: Nanos = Nanos::from_millis(5);
/// Of those who block. The stages share what is left of it by their cost: where leader and handler declare what they
/// may take with cold caches, the others must keep a bound that is longer than that.
const PACED_DEADLINE: Nanos = Nanos::from_millis(10);

#[derive(Serialize)]
struct Point {
    world: &'static str,
    #[serde(flatten)]
    figures: Figures,
    lost: u64,
}

/// How a world calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    /// Kernel sockets.
    Kernel,
    /// The same once more: how far two that are equal differ.
    Again,
    /// The drivers alone: the floor of whatever is built on them.
    Bare,
    /// The client's thread does its engine's work: one thread a host, as with sockets.
    Leading,
    /// The engine wakes the client.
    Woken,
    /// Engines in processes of their own.
    Daemon,
}

/// Those with a client that can be called and spins. The bare ones are not everywhere.
const SPINNING: [(&str, World); 3] = [
    ("kernel, spinning", World::Kernel),
    ("kernel, spinning again", World::Again),
    ("bare driver, spinning", World::Bare),
];
/// Those whose client blocks.
const BLOCKING: [(&str, World); 6] = [
    ("kernel, blocking", World::Kernel),
    ("kernel, blocking again", World::Again),
    ("embedded, blocking", World::Leading),
    ("embedded, client woken by its engine", World::Woken),
    ("daemon, blocking", World::Daemon),
    ("bare driver, blocking", World::Bare),
];
/// Between the calls of those who block. Longer than the span in which an engine answers one channel's doorbell once.
const PACE: Nanos = Nanos::from_micros(200);
const DIRECT: &str = "embedded, spinning";

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let bed = Bed { link: LinkSpec::direct(TOLD), pinned: true };
    // Over another machine, or kernel sockets, there is no driver to show alone.
    let has_floor = conditions.driver.bypasses_kernel() && conditions.peer.is_none();
    let mut pairs = Vec::new();
    let mut open = |wait: Wait, worlds: &[(&'static str, World)]| {
        let worlds = worlds.iter().filter(|(_, world)| has_floor || !matches!(world, World::Bare));
        let mut group = Group::default();
        for &(name, world) in worlds {
            let mut pair = Pair::create(&bed, conditions)?;
            group.contenders.push(contender(name, world, wait, &mut pair, pairs.len(), conditions)?);
            group.worlds.push(world);
            pairs.push(pair);
        }
        anyhow::Ok(group)
    };
    let mut worlds = Worlds {
        spinning: open(Wait::Spin, &SPINNING)?,
        blocking: open(Wait::Block, &BLOCKING)?,
        direct: Side::default(),
    };
    let mut pair = Pair::create(&bed, conditions)?;
    let engine = pair.start_engines(&options(true, pairs.len(), conditions), Hosting::Embedded)?;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((5, 600), (20, 2_000));
    // Those who block are called at a pace, so that every wait is a sleep; those who spin at once again.
    let block = |interval| Block { length, interval, bytes: BYTES as usize, bulk: None };
    for round in 0..count {
        conditions.progress(format_args!("round {} of {count}", round + 1));
        rounds(&mut worlds.spinning.contenders, 1, 0, &block(Nanos::ZERO), |_| ())?;
        rounds(&mut worlds.blocking.contenders, 1, 0, &block(PACE), |_| ())?;
        worlds.direct.push(pair.loop_directly(
            engine,
            promise(INTERVAL, DEADLINE),
            BYTES as usize,
            length,
        )?);
    }
    let mut measured = judged(witness, |excuses| Ok(judge(&worlds, conditions, excuses)))?;
    pairs.push(pair);
    measured.doubt_demoted(&worlds.blocking.contenders, &mut pairs)?;
    Ok(measured)
}

fn promise(interval: Nanos, deadline: Nanos) -> Contract {
    let rate = Rate::every(interval).expect("not zero");
    Contract::new(BYTES, rate, 2, deadline).expect("constants within range")
}

fn options(spin: bool, world: usize, conditions: &Conditions) -> Options {
    let ports = super::on_ports(world, conditions);
    let spinning = if spin && conditions.driver.bypasses_kernel() {
        format!("spin = \"{}us\"\n", SPIN.0 / 1_000)
    } else {
        String::new()
    };
    Options {
        driver: conditions.driver,
        real_time: conditions.real_time,
        processor: super::FAST_COSTS.into(),
        link: format!("reaction = \"1us\"\n{spinning}{}", ports.link),
        ..ports
    }
}

fn contender(
    name: &'static str,
    world: World,
    wait: Wait,
    pair: &mut Pair,
    number: usize,
    conditions: &Conditions,
) -> anyhow::Result<Contender> {
    let class = if conditions.real_time { Class::RealTime } else { Class::Ordinary };
    let options = options(false, number, conditions);
    let mut channels = |hosting, waits| {
        let engine = pair.start_engines(&options, hosting)?;
        pair.call_channels(engine, promise(PACED_INTERVAL, PACED_DEADLINE), waits, class)
    };
    let caller = match world {
        World::Leading => channels(Hosting::Embedded, [Wait::Lead, Wait::Direct])?,
        World::Woken => channels(Hosting::Embedded, [Wait::Block, Wait::Direct])?,
        World::Daemon => channels(Hosting::Daemon, [Wait::Block; 2])?,
        World::Kernel | World::Again => pair.call_sockets(wait, class)?.0,
        World::Bare => pair.call_adapters(&options, BYTES, wait, class)?,
    };
    Ok(Contender::new(name, class, &pair.place, caller, 1))
}

/// Worlds that are called in turns, with what they measured.
#[derive(Default)]
struct Group {
    /// What the contenders are, in their order.
    worlds: Vec<World>,
    contenders: Vec<Contender>,
}

impl Group {
    fn find(&self, world: World) -> Option<&Contender> {
        let at = self.worlds.iter().position(|&other| other == world)?;
        self.contenders.get(at)
    }

    /// Of one that is everywhere.
    fn side(&self, world: World) -> &Side {
        &self.find(world).expect("all but the bare drivers are always called").sides[0]
    }
}

/// All that are compared.
struct Worlds {
    spinning: Group,
    blocking: Group,
    /// Processors that spin and call handlers: no client.
    direct: Side,
}

fn judge(worlds: &Worlds, conditions: &Conditions, excuses: &Excuses) -> Measured {
    let columns = "world, samples, p50_us, mean_us, std_us, p99_us, p999_us, min_us, max_us, excused, lost";
    let mut measured = Measured::new("world", columns);
    let called = worlds.spinning.contenders.iter().chain(&worlds.blocking.contenders);
    let called = called.map(|one| (one.name, &one.sides[0], one.lost[0]));
    for (world, side, lost) in called.chain([(DIRECT, &worlds.direct, 0)]) {
        let figures = side.figures(excuses);
        measured.samples += figures.with_holes.samples as u64;
        measured.excused += figures.excused;
        measured.add(&Point { world, figures, lost });
    }
    let [spinning, blocking] = [&worlds.spinning, &worlds.blocking];
    for (what, ours, group, limit) in [
        ("spinning, in the program", &worlds.direct, spinning, 0.8),
        ("blocking, in the program", blocking.side(World::Leading), blocking, 1.05),
        ("blocking, through the daemon", blocking.side(World::Daemon), blocking, 2.0),
    ] {
        let [kernel, again] = [World::Kernel, World::Again].map(|world| group.side(world));
        let found = compare(kernel, ours, again, Statistic::Median, excuses);
        let name = format!(
            "{what}: p50 against kernel sockets (A/A {:.3}, half-width {:.3})",
            found.identical, found.half_width
        );
        measured.checks.push(Check::at_most(name, found.ratio, limit));
    }
    if !conditions.driver.bypasses_kernel() {
        measured.notes.push("the targets are for driver xdp; with udp the processors cannot spin".into());
    }
    account(&mut measured, worlds, excuses);
    measured.plot = Some(plot(worlds, excuses));
    measured
}

/// Where the microseconds go, by what each world has more than the one before.
fn account(measured: &mut Measured, worlds: &Worlds, excuses: &Excuses) {
    let p50 = |side: &Side| side.figures(excuses).clean.p50_us;
    let of = |group: &Group, world| group.find(world).map(|one| p50(&one.sides[0]));
    let us = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1} us"));
    let less = |more: Option<f64>, less: Option<f64>| Some(more? - less?);
    let spinning = |world| of(&worlds.spinning, world);
    let blocking = |world| of(&worlds.blocking, world);
    let direct = Some(p50(&worlds.direct));
    use World::{Bare, Daemon, Kernel, Leading, Woken};
    let rows = [
        ("wire and driver, both ways (bare, spinning)", "-", spinning(Bare), None),
        ("protocol, both ways (spinning, more than bare)", "-", less(direct, spinning(Bare)), None),
        ("all of it (spinning)", "-", direct, spinning(Kernel)),
        (
            "server and client woken (blocking less spinning)",
            "-",
            less(blocking(Leading), direct),
            less(blocking(Kernel), spinning(Kernel)),
        ),
        ("the same of bare drivers", "-", less(blocking(Bare), spinning(Bare)), None),
        (
            "protocol with cold caches (blocking, more than bare)",
            "-",
            less(blocking(Leading), blocking(Bare)),
            None,
        ),
        (
            "the client's thread beside its engine's: a switch and a wake-up each way",
            "-",
            less(blocking(Woken), blocking(Leading)),
            None,
        ),
        (
            "two processes instead of one, and a server of its own",
            "IPC 563 to 875 us (CLIPS)",
            less(blocking(Daemon), blocking(Woken)),
            None,
        ),
    ];
    for (what, paper, ours, kernel) in rows {
        measured.compare(what, paper, us(ours), us(kernel));
    }
}

fn plot(worlds: &Worlds, excuses: &Excuses) -> Plot {
    let line = |name: &str, colour, dashed, side| {
        Series::new(name, colour, super::exceedance(side, excuses)).dashed(dashed).without_dots()
    };
    let mut series = vec![line(DIRECT, 0, false, &worlds.direct)];
    for (group, lines) in [
        (&worlds.spinning, [(World::Kernel, 0, true), (World::Bare, 3, true)].as_slice()),
        (
            &worlds.blocking,
            [
                (World::Kernel, 1, true),
                (World::Leading, 1, false),
                (World::Woken, 2, true),
                (World::Daemon, 2, false),
                (World::Bare, 3, false),
            ]
            .as_slice(),
        ),
    ] {
        for &(world, colour, dashed) in lines {
            series.extend(group.find(world).map(|one| line(one.name, colour, dashed, &one.sides[0])));
        }
    }
    Plot::new("Round trips of 64 B longer than", Axis::logarithmic("us"), Axis::logarithmic("share"), series)
        .with_legend(Legend::LowerLeft)
}
