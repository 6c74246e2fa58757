//! RIO figures 9 and 10: the round trip of 64 B beside bulk that over-loads the host, and with CPU hogs as well.
//!
//! Three worlds, each on its own two hosts with a CPU each: plain kernel sockets; kernel sockets as an expert would
//! tune them (real-time client and server, an htb class of priority on both hosts, busy polling); Punctual, the
//! round trip over guaranteed channels and bulk as best effort. Plain sockets run twice (A/A).

use punctual::{BitRate, Contract, Nanos, Rate};
use serde_json::json;

use super::contest::{Contest, block};
use super::{Conditions, Measured, judged, tail};
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::loads::hogs::Hogs;
use crate::measure::{Ratio, Statistic, compare};
use crate::report::{Bars, Plot, Row, Series};
use crate::testbed::{Block, Contender, LinkSpec, PairSetup, Wait};

/// Rate of the link, of the order of magnitude of RIO's. It keeps both emulated hosts busy.
const LINK: BitRate = BitRate(400_000_000);
/// Queue in front of the link: longer than a socket's queue, so that no packet is lost.
const QUEUE: Nanos = Nanos::from_millis(20);
/// Message size of the round trip.
pub const BYTES: u32 = 64;
/// Message size of bulk.
pub const BULK_BYTES: u32 = 8_192;
/// Time between round trips.
pub const INTERVAL: Nanos = Nanos::from_micros(400);
const DEADLINE: Nanos = Nanos::from_millis(10);
/// Loads in order.
const LOADS: [&str; 3] = ["idle", "bulk", "bulk and hogs"];
const HOGS: usize = 4;
/// Width of a histogram's bar, and beyond what all round trips are in the last one.
const BAR_MS: f64 = 0.1;
const LAST_BAR_MS: f64 = 8.0;

/// Mbit/s of bulk under each load in each world; `None` without bulk.
type BulkRates = Vec<Vec<Option<f64>>>;

/// The contract of a round trip; its rate is twice the rate of the calls, so that a late call does not make
/// the next one early.
///
/// # Panics
/// Never: the figures are constants within range.
pub fn promise() -> Contract {
    let rate = Rate::every(INTERVAL / 2).expect("not zero");
    Contract::new(BYTES, rate, 2, DEADLINE).expect("constants within range")
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::new(LINK, QUEUE), pinned: true };
    let mut contest = Contest::new(setup, LOADS.len(), conditions);
    for name in ["plain", "plain again"] {
        contest.sockets(name, Wait::Block, Class::Ordinary, BULK_BYTES)?;
    }
    let port = contest.sockets("tuned", Wait::SpinThenBlock, conditions.class(), BULK_BYTES)?;
    contest.pairs[TUNED].prioritise(&[port])?;
    contest.punctual(promise(), BULK_BYTES)?;
    let witness = conditions.witness()?;
    let mut bulk = BulkRates::new();
    for (load, name) in LOADS.iter().enumerate() {
        let _hogs = (load == 2).then(|| Hogs::start(HOGS)).transpose()?;
        let before = contest.bulk_bytes()?;
        let (count, length) = match load {
            0 => conditions.rounds((2, 300), (10, 500)),
            _ => conditions.rounds((4, 1_150), (20, 2_000)),
        };
        let bulk_interval = (load > 0).then_some(Nanos::ZERO);
        let block = Block { bulk: bulk_interval, ..block(length, INTERVAL, BYTES) };
        contest.rounds(&format!("{name}: "), count, load, &block)?;
        let after = contest.bulk_bytes()?;
        let rate = |(contender, (from, to)): (&Contender, (&u64, &u64))| {
            let seconds = contender.windows[load].total().as_u64() as f64 / 1e9;
            (load > 0).then(|| (to - from) as f64 * 8.0 / 1e6 / seconds)
        };
        bulk.push(contest.contenders.iter().zip(before.iter().zip(&after)).map(rate).collect());
    }
    let mut measured = judged(witness, |excuses| Ok(judge(&contest.contenders, &bulk, excuses)))?;
    measured.doubt_demoted(&contest.contenders, &mut contest.pairs)?;
    Ok(measured)
}

// Which contender is which, in the order of making.
const PLAIN: usize = 0;
const AGAIN: usize = 1;
const TUNED: usize = 2;
const PUNCTUAL: usize = 3;

fn judge(contenders: &[Contender], bulk: &BulkRates, excuses: &Excuses) -> Measured {
    let columns = "load, world, samples, mean_us, std_us, p50_us, p99_us, p999_us, max_us, excused, lost, \
             bulk_mbit_s";
    let mut measured = Measured::new("load", columns);
    for (load, name) in LOADS.iter().enumerate() {
        for (index, contender) in contenders.iter().enumerate() {
            let (world, lost) = (contender.name, contender.lost[load]);
            let first = json!({ "load": name, "world": world });
            measured.add_side(
                first,
                &contender.sides[load],
                excuses,
                |_| json!({ "lost": lost, "bulk_mbit_s": bulk[load][index] }),
            );
        }
    }
    let ratio = |load: usize, against: usize, statistic| -> Ratio {
        let side = |index: usize| &contenders[index].sides[load];
        compare(side(against), side(PUNCTUAL), side(AGAIN), statistic, excuses)
    };
    use Statistic::{Jitter, Mean, P99, P999};
    let named = |load: usize, against: usize, statistic: Statistic| {
        let (load, statistic, against) = (LOADS[load], statistic.name(), contenders[against].name);
        format!("{load}: {statistic} of the round trip against {against} sockets")
    };
    for (load, against, statistic, limit) in
        [(1, PLAIN, Mean, 0.88), (1, PLAIN, Jitter, 0.57), (2, PLAIN, Jitter, 0.3)]
    {
        let found = ratio(load, against, statistic).ratio;
        measured.at_most(named(load, against, statistic), found, limit);
    }
    for (load, against, limit) in [(1, PLAIN, 0.5), (2, PLAIN, 0.1), (1, TUNED, 0.7), (2, TUNED, 0.7)] {
        let of = |statistic| ratio(load, against, statistic);
        tail::check(&mut measured, |statistic| named(load, against, statistic), limit, of);
    }
    // A lost answer is in no quantile.
    let lost: u64 = contenders[PUNCTUAL].lost.iter().sum();
    measured.at_most("round trips over Punctual without an answer", lost as f64, 0.0);
    let noise = [Mean, Jitter, P99, P999].map(|statistic| {
        let found = ratio(1, PLAIN, statistic);
        format!("{} {:.2} (half-width {:.2})", statistic.name(), found.identical, found.half_width)
    });
    measured.note(format!("two identical plain worlds under bulk differed by: {}", noise.join(", ")));
    compared(&mut measured, contenders, excuses);
    measured.plot = Some(plot(contenders, excuses));
    measured.rows = bars(contenders, bulk, excuses).into_iter().map(Row::Bars).collect();
    measured
}

fn compared(measured: &mut Measured, contenders: &[Contender], excuses: &Excuses) {
    let show = |world: usize, load: usize| {
        let figures = contenders[world].sides[load].figures(excuses).clean;
        format!("mean {:.0}, jitter {:.0}, max {:.0} us", figures.mean_us, figures.std_us, figures.max_us)
    };
    let floor = "without load (the machine's floor)";
    measured.compare(floor, "mean 653 to 665, jitter 19", show(PUNCTUAL, 0), show(PLAIN, 0));
    let paper = "RIO 946, 282, 2038; default 1072, 497, 3158 us";
    measured.compare("beside bulk", paper, show(PUNCTUAL, 1), show(PLAIN, 1));
    measured.compare("beside bulk, tuned sockets", "-", show(PUNCTUAL, 1), show(TUNED, 1));
    measured.compare("beside bulk and hogs", "-", show(PUNCTUAL, 2), show(PLAIN, 2));
    measured.compare("beside bulk and hogs, tuned sockets", "-", show(PUNCTUAL, 2), show(TUNED, 2));
}

/// Figure 9, how many round trips at which latency, and figure 10, what bulk had meanwhile.
fn bars(contenders: &[Contender], bulk: &BulkRates, excuses: &Excuses) -> Vec<Vec<Bars>> {
    let worlds = || [PLAIN, TUNED, PUNCTUAL].into_iter().enumerate();
    let histograms = |load: usize| -> Vec<Bars> {
        let panel = |(colour, world): (usize, usize)| {
            let spans = contenders[world].sides[load].clean_spans(excuses);
            let spans = spans.map(|span| span.0 as f64 / 1e6);
            let title = format!("{}, {}", contenders[world].name, LOADS[load]);
            Bars::histogram(&title, "round trip, ms", spans, (BAR_MS, LAST_BAR_MS, colour))
        };
        worlds().map(panel).collect()
    };
    let bandwidth = |load: usize| {
        let had = worlds().map(|(colour, world)| {
            (contenders[world].name.to_owned(), bulk[load][world].unwrap_or_default(), colour)
        });
        Bars::named(&format!("figure 10: {}", LOADS[load]), "bulk, Mbit/s", had)
    };
    vec![histograms(1), histograms(2), vec![bandwidth(1), bandwidth(2)]]
}

/// Share of round trips above a latency: the tail in figure 9's histograms.
fn plot(contenders: &[Contender], excuses: &Excuses) -> Plot {
    let curve = |colour, contender: &Contender, load: usize| {
        let name = format!("{}, {}", contender.name, LOADS[load]);
        Series::new(name, colour, super::exceedance(&contender.sides[load], excuses)).dashed(load == 2)
    };
    let worlds = [PLAIN, TUNED, PUNCTUAL].into_iter().enumerate();
    let series =
        worlds.flat_map(|(colour, world)| [1, 2].map(|load| curve(colour, &contenders[world], load)));
    let title = "RIO figure 9: share of round trips longer than";
    Plot::tails(title, "round trip of 64 B, us", "share", series)
}
