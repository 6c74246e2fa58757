//! What a relay adds to the delay of programs as they are: round trips of 64 B, and redis with redis-benchmark, without and with
//! CPU hogs.
//!
//! The client is a program on a with the kernel's TCP, the server one on b. Between them: nothing, a plain proxy (two threads
//! that copy), and `punctual relay`. All programs are ordinary threads in every world; of Punctual the processor alone is in
//! the real-time class. So a hog delays the relay's own thread as it delays the proxy's.

mod between;
mod redis;

use anyhow::Context;
use punctual::Nanos;
use serde_json::json;

use self::between::{Between, ECHO, REDIS, World};
use self::redis::Figures as Redis;
use super::contest::block;
use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::loads::hogs::Hogs;
use crate::measure::{Figures, Ratio, Statistic, compare};
use crate::report::{Plot, Series};
use crate::testbed::{Contender, LinkSpec, PairSetup};

/// The configured rate of a direct link.
const RATE: punctual::BitRate = punctual::BitRate(1_000_000_000);
const LOADS: [&str; 2] = ["idle", "hogs"];
const IDLE: usize = 0;
const HOGS: usize = 4;
const BYTES: u32 = 64;
const WORLDS: [(&str, Between); 4] = [
    ("kernel", Between::Nothing),
    ("kernel again", Between::Nothing),
    ("plain proxy", Between::Proxy),
    ("relay", Between::Relay),
];
const KERNEL: usize = 0;
const AGAIN: usize = 1;
const PROXY: usize = 2;
const RELAY: usize = 3;

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(RATE), pinned: true };
    let (mut worlds, mut contenders) = (Vec::new(), Vec::new());
    for (name, between) in WORLDS {
        conditions.progress(format_args!("{name}"));
        let mut world = World::create(between, ECHO, &setup, conditions).context(name)?;
        let caller = world.caller()?;
        contenders.push(Contender::new(name, Class::Ordinary, &world.pair().place, caller, LOADS.len()));
        worlds.push(world);
    }
    let mut redis = Vec::new();
    for (name, between) in WORLDS.into_iter().filter(|_| redis::is_installed()) {
        conditions.progress(format_args!("{name}, redis"));
        let world = World::create(between, REDIS, &setup, conditions).context(name)?;
        redis.push(Redis::start(name, world)?);
    }
    let witness = conditions.witness()?;
    for (load, name) in LOADS.iter().enumerate() {
        let _hogs = (load != IDLE).then(|| Hogs::start(HOGS)).transpose()?;
        let (count, length) = conditions.rounds((3, 720), (25, 2_000));
        let block = block(length, Nanos::from_millis(conditions.pick(2, 2, 5)), BYTES);
        conditions.in_turns(&format!("{name}: "), count, &mut contenders, |_, one| {
            one.block(load, &block).context(one.name)
        })?;
        let requests = conditions.pick(200, 1_000, 10_000);
        let rounds = conditions.pick(1, 2, 5);
        conditions
            .in_turns(&format!("{name}, redis: "), rounds, &mut redis, |_, one| one.round(load, requests))?;
    }
    judged(witness, |excuses| Ok(judge(&contenders, &redis, excuses)))
}

fn judge(contenders: &[Contender], redis: &[Redis], excuses: &Excuses) -> Measured {
    let columns =
        "load, what, world, samples, p50_us, p99_us, p999_us, max_us, requests_per_s, excused, lost";
    let mut measured = Measured::new("load", columns);
    let mut figures = [[Figures::default(); WORLDS.len()]; LOADS.len()];
    for (load, name) in LOADS.iter().enumerate() {
        for (world, contender) in contenders.iter().enumerate() {
            let first = json!({ "load": name, "what": "64 B round trip", "world": contender.name });
            // Only rows of redis have a rate; all rows have the key, whether redis is installed or not.
            let lost = json!({ "lost": contender.lost[load], "requests_per_s": null });
            figures[load][world] = measured.add_side(first, &contender.sides[load], excuses, |_| lost);
        }
        for found in redis {
            for row in found.rows(load) {
                measured.add([json!({ "load": name, "world": found.name }), row]);
            }
        }
    }
    if redis.is_empty() {
        measured.notes.push("redis was left out: redis-server and redis-benchmark are not installed".into());
    }
    for (load, name) in LOADS.iter().enumerate() {
        for against in [KERNEL, PROXY] {
            let found = ratio(contenders, load, against, Statistic::Median, excuses);
            let added = figures[load][RELAY].clean.p50_us - figures[load][against].clean.p50_us;
            measured.notes.push(format!(
                "{name}: a relay adds {added:.0} us (p50) to a round trip against {}; ratio {:.3} (A/A {:.3}, half-width {:.3})",
                contenders[against].name, found.ratio, found.identical, found.half_width
            ));
        }
    }
    let lost: u64 = contenders[RELAY].lost.iter().sum();
    measured.at_most("round trips through the relay without an answer in time", lost as f64, 0.0);
    measured.plot = Some(plot(contenders, excuses));
    measured
}

fn ratio(
    contenders: &[Contender],
    load: usize,
    against: usize,
    statistic: Statistic,
    excuses: &Excuses,
) -> Ratio {
    let side = |world: usize| &contenders[world].sides[load];
    // The two identical worlds are both the kernel's.
    compare(side(against), side(RELAY), side(AGAIN), statistic, excuses)
}

fn plot(contenders: &[Contender], excuses: &Excuses) -> Plot {
    let shown = [KERNEL, PROXY, RELAY].into_iter().enumerate();
    let both = shown.flat_map(|(colour, world)| (0..LOADS.len()).map(move |load| (colour, world, load)));
    let series = both.map(|(colour, world, load)| {
        let points = super::exceedance(&contenders[world].sides[load], excuses);
        let name = format!("{}, {}", contenders[world].name, LOADS[load]);
        Series::new(name, colour, points).dashed(load != IDLE)
    });
    Plot::tails("Round trips of 64 B longer than", "us", "share", series)
}
