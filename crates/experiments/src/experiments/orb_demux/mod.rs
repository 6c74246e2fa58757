//! From a request's key to its operation, by the number of objects and by the depth of adapters: active
//! demultiplexing of our ORB, and layers with linear search and with hashing. And whether a call is as quick
//! whatever the number of objects.
//!
//! Requests come one after the other: each look-up waits for the one before, and the key is in the cache, as the
//! bytes of a message are that was just read. The objects are not.

mod search;
mod served;

use std::hint::black_box;
use std::time::Instant;

use punctual_os::interrupt;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use super::{Measured, Wanted};
use crate::measure::Statistic;
use crate::report::{Plot, Series};
use search::{Asked, Hashed, Linear};
use served::{Served, operations};

/// Time of active demultiplexing with the most objects, ns.
const FIND_NS_MAX: f64 = 150.0;
/// How much longer the slowest call may take than the quickest.
const CALL_RATIO_MAX: f64 = 1.1;
/// Look-ups that are timed together.
const BATCH: usize = 256;

/// How much is measured.
struct Extent {
    objects: &'static [u64],
    depths: &'static [usize],
    batches: usize,
    rounds: usize,
    calls: usize,
}

const SMOKE: Extent = Extent { objects: &[1, 100], depths: &[1, 2], batches: 3, rounds: 2, calls: 20 };
const QUICK: Extent =
    Extent { objects: &[1, 1_000, 100_000], depths: &[1, 10], batches: 400, rounds: 20, calls: 300 };
const FULL: Extent = Extent {
    objects: &[1, 10, 100, 1_000, 10_000, 100_000],
    depths: &[1, 2, 5, 10],
    batches: 1_000,
    rounds: 60,
    calls: 300,
};

/// One number of objects in adapters of one depth.
struct Point {
    objects: u64,
    depth: usize,
    served: Served,
    find_ns: Found,
    /// Medians of calls, by round, ns.
    call_ns: Vec<f64>,
}

/// Time of a look-up, ns.
struct Found {
    active: f64,
    hashing: f64,
    linear: f64,
}

/// xorshift64: each run asks in the same order.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Runs it: one CPU, for the client and the servers.
///
/// # Errors
/// If a server cannot be made or called, or the run is interrupted.
pub fn run(conditions: &Wanted) -> anyhow::Result<Measured> {
    let all = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    (0..CpuSet::MAX_CPU).rev().find(|&cpu| all.is_set(cpu)).into_iter().for_each(|cpu| one.set(cpu));
    // Threads of the servers inherit it.
    sched_setaffinity(None, &one)?;
    let points = measure(conditions, &conditions.pick(SMOKE, QUICK, FULL));
    sched_setaffinity(None, &all)?;
    Ok(report(&points?))
}

fn measure(conditions: &Wanted, extent: &Extent) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for &objects in extent.objects {
        for &depth in extent.depths {
            conditions.progress(format_args!("{objects} objects, {depth} adapters"));
            interrupt::check()?;
            let adapters: Vec<String> = (0..depth).map(|level| format!("adapter-{level}")).collect();
            let served = Served::new(&adapters, objects)?;
            let find_ns = find_ns(&served, &adapters, objects, extent.batches);
            points.push(Point { objects, depth, served, find_ns, call_ns: Vec::new() });
        }
    }
    let mut random = Random(0x5eed);
    for round in 0..extent.rounds {
        conditions.progress(format_args!("calls, round {round}"));
        interrupt::check()?;
        // Each is the first by turns.
        for place in 0..points.len() {
            let number = (round + place) % points.len();
            let mut spans = points[number].served.call(extent.calls, |bound| random.below(bound))?;
            points[number].call_ns.push(Statistic::Median.of(&mut spans));
        }
    }
    Ok(points)
}

fn find_ns(served: &Served, adapters: &[String], objects: u64, batches: usize) -> Found {
    let names = operations();
    let (hashed, linear) = (Hashed::new(adapters, objects, names), Linear::new(adapters, objects, names));
    let asked = |object: usize, operation: usize| Asked {
        adapters,
        object: object as u64,
        operation: names[operation],
    };
    let keys = &served.keys;
    let bytes = keys[0].len();
    let mut hot = vec![0; bytes * BATCH];
    // A linear search among many takes long: fewer of them show as much.
    let few = batches.min(4_000_000 / objects as usize / BATCH).max(3);
    Found {
        active: timed(batches, objects, |wanted, times| {
            for (place, (object, _)) in wanted.iter().enumerate() {
                hot[place * bytes..][..bytes].copy_from_slice(&keys[*object]);
            }
            times.begin();
            let mut after = 0;
            for (place, (_, operation)) in wanted.iter().enumerate() {
                let key = &hot[(place + after) * bytes..][..bytes];
                after = waits_for(served.find(key, names[*operation]));
            }
            times.end();
        }),
        hashing: layered(batches, objects, |object, operation| hashed.find(&asked(object, operation))),
        linear: layered(few, objects, |object, operation| linear.find(&asked(object, operation))),
    }
}

/// Zero, which is not known before the operation is.
fn waits_for(found: Option<usize>) -> usize {
    let found = found.expect("all objects and operations are there");
    found ^ black_box(found)
}

fn layered(batches: usize, objects: u64, find: impl Fn(usize, usize) -> Option<usize>) -> f64 {
    timed(batches, objects, |wanted, times| {
        times.begin();
        let mut after = 0;
        for (object, operation) in wanted {
            after = waits_for(find(object + after, *operation));
        }
        times.end();
    })
}

/// Begin and end of a batch.
struct Times(Instant, Instant);

impl Times {
    fn begin(&mut self) {
        self.0 = Instant::now();
    }

    fn end(&mut self) {
        self.1 = Instant::now();
    }
}

/// The median over batches of the time of one look-up, ns. Each asks for random objects and operations.
fn timed(batches: usize, objects: u64, mut batch: impl FnMut(&[(usize, usize)], &mut Times)) -> f64 {
    let mut random = Random(0x5eed);
    let mut spans: Vec<f64> = (0..batches)
        .map(|_| {
            let mut draw = || (random.below(objects as usize), random.below(operations().len()));
            let wanted: Vec<(usize, usize)> = (0..BATCH).map(|_| draw()).collect();
            let now = Instant::now();
            let mut times = Times(now, now);
            batch(&wanted, &mut times);
            (times.1 - times.0).as_nanos() as f64 / BATCH as f64
        })
        .collect();
    Statistic::Median.of(&mut spans)
}

/// The calls of each point against those of the first one, the median over the rounds.
fn call_ratios(points: &[Point]) -> Vec<f64> {
    let against_first = |point: &Point| {
        let rounds = point.call_ns.iter().zip(&points[0].call_ns);
        Statistic::Median.of(&mut rounds.map(|(own, first)| own / first).collect::<Vec<f64>>())
    };
    points.iter().map(against_first).collect()
}

fn report(points: &[Point]) -> Measured {
    let columns = "objects, depth, active_ns, hashing_ns, linear_ns, call_p50_us, call_ratio";
    let mut measured = Measured::new("objects", columns);
    let ratios = call_ratios(points);
    for (point, call_ratio) in points.iter().zip(&ratios) {
        let Point { objects, depth, find_ns, call_ns, .. } = point;
        measured.add([json!({
            "objects": objects, "depth": depth, "active_ns": find_ns.active, "hashing_ns": find_ns.hashing,
            "linear_ns": find_ns.linear, "call_p50_us": Statistic::Median.of(&mut call_ns.clone()) / 1e3,
            "call_ratio": call_ratio,
        })]);
    }
    let most = points.iter().map(|point| point.objects).max().unwrap_or_default();
    let with_most = points.iter().filter(|point| point.objects == most);
    let slowest = with_most.map(|point| point.find_ns.active).fold(0.0, f64::max);
    measured.at_most(format!("from a key to its operation, {most} objects, ns"), slowest, FIND_NS_MAX);
    let [least, greatest] = [f64::min, f64::max].map(|pick| ratios.iter().copied().fold(ratios[0], pick));
    measured.at_most("the slowest call's p50 over the quickest's", greatest / least, CALL_RATIO_MAX);
    measured.note(
        "objects and operations in random order, each look-up after the one before; medians of batches",
    );
    measured.plot = Some(plot(points));
    measured
}

fn plot(points: &[Point]) -> Plot {
    let depths = [points.first(), points.last()].map(|point| point.map_or(0, |point| point.depth));
    let ways: [(&str, fn(&Found) -> f64); 3] = [
        ("active demultiplexing", |found| found.active),
        ("hashing", |found| found.hashing),
        ("linear search", |found| found.linear),
    ];
    let series = ways.into_iter().enumerate().flat_map(|(colour, (name, of))| {
        depths.into_iter().enumerate().map(move |(number, depth)| {
            let own = points.iter().filter(|point| point.depth == depth);
            let line = own.map(|point| (point.objects as f64, of(&point.find_ns)));
            Series::new(format!("{name}, {depth} adapters"), colour, line).dashed(number == 0)
        })
    });
    Plot::log_log("from a key to its operation", "objects", "ns", series)
}
