//! RTU figures 8, 10, 11 and 12: guaranteed connections of TCP, alone and beside connections of the other classes, without
//! and with CPU hogs. The figures differ in numbers only.
//!
//! A guaranteed connection sends so many packets at the begin of each of its periods. They are due at the receiving
//! program before the next period ends. Each point of a sweep has hosts of its own: the rate of a connection is part of its
//! class.

mod judge;
mod world;

use punctual::{BitRate, Nanos};

pub(super) use self::judge::seconds;
use self::world::{Finished, World};
use super::{Conditions, Measured, judged};
use crate::loads::hogs::Hogs;
use crate::testbed::{LinkSpec, PairSetup, TcpStack};

/// Rate of the link: that of the paper's ATM network.
const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(20);
const LOADS: [&str; 2] = ["idle", "hogs"];
const HOGS: usize = 4;
const PUNCTUAL: &str = "Punctual";

/// What runs in each world, and the sweep.
struct Figure {
    title: &'static str,
    /// Periods of the guaranteed connections, in ms.
    periods_ms: &'static [u64],
    packet_bytes: u32,
    /// Packets of a period: the sweep, and that of a quick run.
    packets: [&'static [u32]; 2],
    /// Connections of best effort, whose programs are ordinary threads.
    best_effort: u32,
    /// Whether there are round trips over a low-delay connection.
    has_calls: bool,
    /// Rounds and their length in ms: of a quick run and of a full one.
    rounds: [(usize, u64); 2],
    worlds: &'static [(&'static str, TcpStack)],
    /// The paper's result.
    paper: &'static str,
}

const WORLDS: [(&str, TcpStack); 3] =
    [("plain", TcpStack::Plain), ("tuned", TcpStack::Tuned), (PUNCTUAL, TcpStack::Punctual)];
const SWEEP: [&[u32]; 2] = [&[1, 2, 3, 4], &[1, 4]];

const THROUGHPUT: Figure = Figure {
    title: "RTU figure 8: three guaranteed connections",
    periods_ms: &[1, 2, 10],
    packet_bytes: 4_096,
    packets: [&[1], &[1]],
    best_effort: 0,
    has_calls: false,
    rounds: [(1, 3_000), (3, 10_000)],
    worlds: &[
        ("plain", TcpStack::Plain),
        ("plain again", TcpStack::Plain),
        ("tuned", TcpStack::Tuned),
        (PUNCTUAL, TcpStack::Punctual),
    ],
    paper: "RTU: constant, with and without hogs; kernel: 50 Mbit/s each, 25 under hogs",
};
const BANDWIDTH: Figure = Figure {
    title: "RTU figure 10: guaranteed connections beside best effort",
    periods_ms: &[1, 5, 10],
    packet_bytes: 1_024,
    packets: SWEEP,
    best_effort: 1,
    has_calls: false,
    rounds: [(1, 2_000), (2, 4_000)],
    worlds: &WORLDS,
    paper: "exactly as expected, with and without hogs",
};
const DELAY: Figure = Figure {
    title: "RTU figure 11: guaranteed connections beside low delay",
    best_effort: 0,
    has_calls: true,
    paper: "as expected; round trip of low delay from 0.6 to 1.0 ms, 0.1 ms more under hogs",
    ..BANDWIDTH
};
const ALL: Figure = Figure {
    title: "RTU figure 12: connections of all classes",
    periods_ms: &[1, 5],
    best_effort: 2,
    paper: "as expected; round trip of low delay almost 1 ms, under hogs from 0.7 to 1.5 ms",
    ..DELAY
};

/// Figure 8.
pub fn throughput(conditions: &Conditions) -> anyhow::Result<Measured> {
    run(&THROUGHPUT, conditions)
}

/// Figure 10.
pub fn coexist_bandwidth(conditions: &Conditions) -> anyhow::Result<Measured> {
    run(&BANDWIDTH, conditions)
}

/// Figure 11.
pub fn coexist_delay(conditions: &Conditions) -> anyhow::Result<Measured> {
    run(&DELAY, conditions)
}

/// Figure 12.
pub fn coexist_all(conditions: &Conditions) -> anyhow::Result<Measured> {
    run(&ALL, conditions)
}

fn run(figure: &Figure, conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::new(LINK, QUEUE), pinned: true };
    let [full, quick] = figure.packets;
    let (count, length) = conditions.rounds(figure.rounds[0], figure.rounds[1]);
    let witness = conditions.witness()?;
    let mut finished: Vec<Finished> = Vec::new();
    for &packets in conditions.pick(&quick[quick.len() - 1..], quick, full) {
        conditions.progress(format_args!("{packets} packets a period"));
        let create = |&(name, stack)| World::create(name, stack, figure, packets, &setup, conditions);
        let mut worlds = figure.worlds.iter().map(create).collect::<anyhow::Result<Vec<_>>>()?;
        for (load, name) in LOADS.iter().enumerate() {
            let _hogs = (load > 0).then(|| Hogs::start(HOGS)).transpose()?;
            let what = format!("{packets} packets a period, {name}: ");
            conditions.in_turns(&what, count, &mut worlds, |_, world| world.block(load, length))?;
        }
        for world in worlds {
            finished.push(world.finish()?);
        }
    }
    judged(witness, |excuses| Ok(judge::judge(figure, &finished, excuses)))
}
