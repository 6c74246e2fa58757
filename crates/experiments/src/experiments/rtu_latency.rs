//! RTU figure 9 and table 1: round trips of 64 B to 8 KB over TCP, without and with CPU hogs, and beside bulk.
//!
//! Worlds with two hosts and a CPU each: TCP of the kernel, plain and as an expert tunes it, and TCP of Punctual in the
//! low-delay class on both hosts, or on one. Plain TCP runs twice (A/A).

use punctual::Nanos;
use punctual::tcp::Qos;
use serde_json::json;

use super::contest::{Contest, block};
use super::{Conditions, Measured, judged, tail};
use crate::excuse::Excuses;
use crate::loads::hogs::Hogs;
use crate::measure::{Figures, Ratio, Statistic, compare};
use crate::report::{Check, Plot, Row, Series};
use crate::testbed::{Block, Contender, LinkSpec, PairSetup, TcpStack, TcpWorld};

/// The configured rate of a direct link.
const CONFIGURED: punctual::BitRate = punctual::BitRate(1_000_000_000);
/// Sizes of messages of a round trip: those of table 1.
const SIZES: [u32; 5] = [64, 1_024, 2_048, 4_096, 8_192];
const LOADS: [&str; 3] = ["idle", "hogs", "hogs and bulk"];
const IDLE: usize = 0;
const HOGGED: usize = 1;
const BULK: usize = 2;
const HOGS: usize = 4;
const BULK_BYTES: u32 = 8_192;
/// Segments of a round trip of the largest size in each direction, acknowledgements included, and its shortest interval.
pub const QOS: Qos = Qos::LowDelay { interval: Nanos::from_millis(4), units: 12, priority: None };

const WORLDS: [(&str, TcpStack); 5] = [
    ("plain", TcpStack::Plain),
    ("plain again", TcpStack::Plain),
    ("tuned", TcpStack::Tuned),
    ("Punctual", TcpStack::Punctual),
    ("Punctual to a kernel", TcpStack::PunctualToKernel),
];
const PLAIN: usize = 0;
const AGAIN: usize = 1;
const TUNED: usize = 2;
const PUNCTUAL: usize = 3;

/// The number of a load with a size of message.
const fn load_of(load: usize, size: usize) -> usize {
    load * SIZES.len() + size
}

/// Loads and sizes that are measured: bulk beside the smallest messages only.
fn cases() -> impl Iterator<Item = (usize, usize)> {
    (0..LOADS.len()).flat_map(|load| (0..SIZES.len()).map(move |size| (load, size))).filter(|case| {
        let (load, size) = *case;
        load != BULK || size == 0
    })
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(CONFIGURED), pinned: true };
    let mut contest = Contest::new(setup, LOADS.len() * SIZES.len(), conditions);
    let mut threads = Vec::new();
    for (name, stack) in WORLDS {
        conditions.progress(format_args!("{name}"));
        let mut world = TcpWorld::create(stack, &setup, conditions)?;
        let (caller, class) = (world.call(QOS)?, world.class(QOS));
        let bulk = world.bulk(BULK_BYTES)?;
        let (napi, pair) = world.finish()?;
        contest.join_with_bulk((name, class), caller, bulk, BULK_BYTES, pair)?;
        threads.push(napi);
    }
    let witness = conditions.witness()?;
    for (load, size) in cases() {
        let _hogs = (load != IDLE).then(|| Hogs::start(HOGS)).transpose()?;
        let ((count, length), interval) = match size {
            // More than the 10,000 that p99.9 needs, as some are excused.
            0 => (conditions.rounds((3, 720), (26, 2_000)), conditions.pick(2, 2, 5)),
            _ => (conditions.rounds((2, 200), (4, 2_500)), conditions.pick(4, 4, 100)),
        };
        let bulk = (load == BULK).then_some(Nanos::ZERO);
        let block = Block { bulk, ..block(length, Nanos::from_millis(interval), SIZES[size]) };
        let name = format!("{}, {} B: ", LOADS[load], SIZES[size]);
        contest.rounds(&name, count, load_of(load, size), &block)?;
    }
    judged(witness, |excuses| Ok(judge(&contest.contenders, excuses)))
}

fn judge(contenders: &[Contender], excuses: &Excuses) -> Measured {
    let columns =
        "load, bytes, world, samples, mean_us, std_us, p50_us, p99_us, p999_us, max_us, excused, lost";
    let mut measured = Measured::new("load", columns);
    let mut figures = vec![[Figures::default(); WORLDS.len()]; LOADS.len() * SIZES.len()];
    for (load, size) in cases() {
        for (world, contender) in contenders.iter().enumerate() {
            let at = load_of(load, size);
            let first = json!({ "load": LOADS[load], "bytes": SIZES[size], "world": contender.name });
            let lost = json!({ "lost": contender.lost[at] });
            figures[at][world] = measured.add_side(first, &contender.sides[at], excuses, |_| lost);
        }
    }
    let ratio = |load, size, against: usize, statistic| -> Ratio {
        let side = |world: usize| &contenders[world].sides[load_of(load, size)];
        compare(side(against), side(PUNCTUAL), side(AGAIN), statistic, excuses)
    };
    for (size, limit) in [(0, 1.14), (SIZES.len() - 1, 1.0)] {
        let found = ratio(IDLE, size, PLAIN, Statistic::Median);
        let name = format!(
            "idle, {} B: p50 against plain kernel TCP (A/A {:.3}, half-width {:.3})",
            SIZES[size], found.identical, found.half_width
        );
        measured.at_most(name, found.ratio, limit);
    }
    for (size, bytes) in SIZES.iter().enumerate() {
        let std = |load| figures[load_of(load, size)][PUNCTUAL].clean.std_us;
        let half_width = ratio(IDLE, size, PLAIN, Statistic::Jitter).half_width;
        let name = format!("{bytes} B: deviation under hogs against idle");
        measured.checks.push(Check::ratio_at_most(name, std(HOGGED) / std(IDLE), 1.2, half_width));
    }
    for (load, against, limit) in
        [(HOGGED, PLAIN, 0.05), (HOGGED, TUNED, 1.0), (BULK, PLAIN, 0.1), (BULK, TUNED, 0.5)]
    {
        let named = |statistic: Statistic| {
            let (world, load) = (contenders[against].name, LOADS[load]);
            format!("{load}: {} of the round trip of 64 B against {world} kernel TCP", statistic.name())
        };
        tail::check(&mut measured, named, limit, |statistic| ratio(load, 0, against, statistic));
    }
    let lost: u64 = contenders[PUNCTUAL].lost.iter().sum();
    measured.at_most("round trips over Punctual without an answer in time", lost as f64, 0.0);
    compared(&mut measured, &figures);
    plots(&mut measured, contenders, &figures, excuses);
    measured
}

/// Table 1's deviation without and with hogs and mean with hogs, in ms.
const PAPER: [[f64; 3]; SIZES.len()] = [
    [0.178, 0.186, 0.451],
    [0.186, 0.188, 0.581],
    [0.211, 0.206, 0.713],
    [0.192, 0.221, 1.089],
    [0.122, 0.232, 1.626],
];

fn compared(measured: &mut Measured, figures: &[[Figures; WORLDS.len()]]) {
    for (size, (bytes, [idle, hogged, mean])) in SIZES.iter().zip(PAPER).enumerate() {
        let show = |world: usize| {
            let [idle, hogged] = [IDLE, HOGGED].map(|load| figures[load_of(load, size)][world].clean);
            format!("{:.0}, {:.0}, {:.0}", idle.std_us, hogged.std_us, hogged.mean_us)
        };
        let what = format!("{bytes} B: deviation idle, under hogs; mean under hogs, us");
        let paper = format!("{:.0}, {:.0}, {:.0}", idle * 1e3, hogged * 1e3, mean * 1e3);
        measured.compare(what, &paper, show(PUNCTUAL), format!("{} (tuned {})", show(PLAIN), show(TUNED)));
    }
}

/// Figure 9, and the tails of the smallest messages.
fn plots(
    measured: &mut Measured,
    contenders: &[Contender],
    figures: &[[Figures; WORLDS.len()]],
    excuses: &Excuses,
) {
    let shown = || [PLAIN, TUNED, PUNCTUAL].into_iter().enumerate();
    let both = || shown().flat_map(|(colour, world)| [IDLE, HOGGED].map(|load| (colour, world, load)));
    let means = both().map(|(colour, world, load)| {
        let mean = |size: usize| figures[load_of(load, size)][world].clean.mean_us / 1e3;
        let points = SIZES.iter().enumerate().map(|(size, &bytes)| (f64::from(bytes), mean(size)));
        Series::new(format!("{}, {}", contenders[world].name, LOADS[load]), colour, points)
            .dashed(load == HOGGED)
    });
    measured.plot = Some(Plot::log_log("RTU figure 9: round trip by size", "message, B", "mean, ms", means));
    let tails = shown().flat_map(|(colour, world)| [HOGGED, BULK].map(|load| (colour, world, load)));
    let tails = tails.map(|(colour, world, load)| {
        let points = super::exceedance(&contenders[world].sides[load_of(load, 0)], excuses);
        Series::new(format!("{}, {}", contenders[world].name, LOADS[load]), colour, points)
            .dashed(load == BULK)
    });
    let tails = Plot::tails("Round trips of 64 B longer than", "us", "share", tails);
    measured.rows.push(Row::Plot(tails));
}
