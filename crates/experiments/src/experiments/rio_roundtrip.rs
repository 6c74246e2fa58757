//! The round trip of 64 B: Punctual in the program and through the daemon, against kernel sockets that wait the same
//! way, and where each microsecond goes.

use punctual::{BitRate, Contract, Nanos, Ppm, Rate};
use serde::Serialize;

use super::{Conditions, Measured};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::measure::{Figures, Side, Statistic, compare};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::{Bed, Block, Contender, Hosting, Pair, RoleId, Wait, rounds};
use crate::testbed::configuration::Driver;
use crate::testbed::{LinkSpec, Options};
use crate::witness::Witness;

const TOLD: BitRate = BitRate(10_000_000_000);
const BYTES: u32 = 64;
/// Of those who spin: shorter than any round trip, so that none waits for its logical arrival.
const INTERVAL: Nanos = Nanos::from_micros(4);
/// Of those who block: shorter than [`PACE`].
const PACED_INTERVAL: Nanos = Nanos::from_micros(100);
const DEADLINE: Nanos = Nanos::from_millis(5);
/// How long the spinning processors look before they sleep: longer than a round trip.
const SPIN: &str = "1ms";

#[derive(Serialize)]
struct Point {
    world: &'static str,
    #[serde(flatten)]
    figures: Figures,
    lost: u64,
}

/// The worlds with a client that can be called.
const CALLED: [&str; 7] = [
    "kernel, spinning",
    "kernel, spinning again",
    "kernel, blocking",
    "kernel, blocking again",
    "embedded, blocking",
    "embedded, client woken by its engine",
    "daemon, blocking",
];
/// So many of them spin.
const SPINNING_WORLDS: usize = 2;
/// Between the calls of those who block. Longer than the span in which an engine answers one channel's doorbell once.
const PACE: Nanos = Nanos::from_micros(200);
const DIRECT: &str = "embedded, spinning";

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let bed = Bed { link: LinkSpec::direct(TOLD), pinned: true };
    let mut contenders = Vec::new();
    let mut pairs = Vec::new();
    for world in CALLED {
        let mut pair = Pair::create(&bed, conditions)?;
        contenders.push(contender(world, &mut pair, contenders.len(), conditions)?);
        pairs.push(pair);
    }
    let mut spinning = Pair::create(&bed, conditions)?;
    let engine = spinning.start_engines(&options(true, CALLED.len(), conditions), Hosting::Embedded)?;
    let witness = conditions.witness()?;
    let (count, length) = if conditions.quick { (5, 600) } else { (20, 2_000) };
    let length = Nanos::from_millis(length);
    // Those who block are called at a pace, so that every wait is a sleep; those who spin at once again.
    let block = |interval| Block { length, interval, bytes: BYTES as usize, bulk: None };
    let mut direct = Side::default();
    for round in 0..count {
        conditions.progress(format_args!("round {} of {count}", round + 1));
        let (spinning_worlds, blocking_worlds) = contenders.split_at_mut(SPINNING_WORLDS);
        rounds(spinning_worlds, 1, 0, &block(Nanos::ZERO), |_| ())?;
        rounds(blocking_worlds, 1, 0, &block(PACE), |_| ())?;
        direct.push(spinning.loop_directly(engine, promise(INTERVAL), BYTES as usize, length)?);
    }
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, Ppm(0));
    let mut measured = judge(&contenders, &direct, conditions, &excuses);
    measured.testimony = testimony;
    Ok(measured)
}

fn promise(interval: Nanos) -> Contract {
    let rate = Rate::every(interval).expect("not zero");
    Contract::new(BYTES, rate, 2, DEADLINE).expect("constants within range")
}

fn options(spin: bool, world: usize, conditions: &Conditions) -> Options {
    let ports = super::on_ports(world, conditions);
    let spinning =
        if spin && conditions.driver == Driver::Xdp { format!("spin = \"{SPIN}\"\n") } else { String::new() };
    Options {
        driver: conditions.driver,
        real_time: conditions.real_time,
        processor: super::FAST_COSTS.into(),
        link: format!("reaction = \"1us\"\n{spinning}{}", ports.link),
        ..ports
    }
}

fn contender(
    world: &'static str,
    pair: &mut Pair,
    number: usize,
    conditions: &Conditions,
) -> anyhow::Result<Contender> {
    let class = if conditions.real_time { Class::RealTime } else { Class::Ordinary };
    let (caller, class) = match number {
        0 | 1 => (pair.call_sockets(Wait::Spin, class)?.0, class),
        2 | 3 => (pair.call_sockets(Wait::Block, class)?.0, class),
        4 | 5 => {
            let engine: RoleId =
                pair.start_engines(&options(false, number, conditions), Hosting::Embedded)?;
            // One thread a host, as with sockets: the client's own does its engine's work.
            let client = if number == 4 { Wait::Direct } else { Wait::Block };
            (pair.call_channels(engine, promise(PACED_INTERVAL), [client, Wait::Direct], class)?, class)
        }
        _ => {
            let engine = pair.start_engines(&options(false, number, conditions), Hosting::Daemon)?;
            (pair.call_channels(engine, promise(PACED_INTERVAL), [Wait::Block; 2], class)?, class)
        }
    };
    Ok(Contender::new(world, class, &pair.place, caller, 1))
}

fn judge(contenders: &[Contender], direct: &Side, conditions: &Conditions, excuses: &Excuses) -> Measured {
    let columns = [
        "world", "samples", "p50_us", "mean_us", "std_us", "p99_us", "p999_us", "min_us", "max_us",
        "excused", "lost",
    ];
    let mut measured = Measured::new("world", &columns);
    let of_contenders = contenders.iter().map(|one| (one.name, &one.sides[0], one.lost[0]));
    for (world, side, lost) in of_contenders.chain([(DIRECT, direct, 0)]) {
        let figures = side.figures(excuses);
        measured.samples += figures.with_holes.samples as u64;
        measured.excused += figures.excused;
        measured.add(&Point { world, figures, lost });
    }
    let side = |index: usize| &contenders[index].sides[0];
    for (what, ours, kernel, limit) in [
        ("spinning, in the program", direct, 0, 0.8),
        ("blocking, in the program", side(4), 2, 1.05),
        ("blocking, through the daemon", side(6), 2, 2.0),
    ] {
        let found = compare(side(kernel), ours, side(kernel + 1), Statistic::Median, excuses);
        let name = format!(
            "{what}: p50 against kernel sockets (A/A {:.3}, half-width {:.3})",
            found.identical, found.half_width
        );
        measured.checks.push(Check::at_most(name, found.ratio, limit));
    }
    if conditions.driver != Driver::Xdp {
        measured.notes.push("the targets are for driver xdp; with udp the processors cannot spin".into());
    }
    account(&mut measured, contenders, direct, excuses);
    measured.plot = Some(plot(contenders, direct, excuses));
    measured
}

/// Where the microseconds go, by what each world has more than the one before.
fn account(measured: &mut Measured, contenders: &[Contender], direct: &Side, excuses: &Excuses) {
    let p50 = |side: &Side| side.figures(excuses).clean.p50_us;
    let of = |index: usize| p50(&contenders[index].sides[0]);
    let us = |value: f64| format!("{value:.1} us");
    measured.compare("wire, driver and protocol, both ways (spinning)", "-", us(p50(direct)), us(of(0)));
    let wakes = "server and client woken (blocking less spinning)";
    measured.compare(wakes, "-", us(of(4) - p50(direct)), us(of(2) - of(0)));
    measured.compare(
        "the client's thread beside its engine's: a switch and a wake-up each way",
        "-",
        us(of(5) - of(4)),
        "-".into(),
    );
    measured.compare(
        "two processes instead of one, and a server of its own",
        "IPC 563 to 875 us (CLIPS)",
        us(of(6) - of(5)),
        "-".into(),
    );
}

fn plot(contenders: &[Contender], direct: &Side, excuses: &Excuses) -> Plot {
    let line = |name: &str, colour, dashed, side| Series {
        name: name.into(),
        colour,
        dashed,
        dots: false,
        points: super::exceedance(side, excuses),
    };
    let side = |index: usize| &contenders[index].sides[0];
    Plot {
        title: "Round trips of 64 B longer than".into(),
        x: Axis::logarithmic("us"),
        y: Axis::logarithmic("share"),
        series: vec![
            line(CALLED[0], 0, true, side(0)),
            line(DIRECT, 0, false, direct),
            line(CALLED[2], 1, true, side(2)),
            line(CALLED[4], 1, false, side(4)),
            line(CALLED[5], 2, true, side(5)),
            line(CALLED[6], 2, false, side(6)),
        ],
        marks: Vec::new(),
        legend: Legend::LowerLeft,
    }
}
