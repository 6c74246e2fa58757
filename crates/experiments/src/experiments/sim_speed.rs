//! How many packets a second the simulator carries from link to link: what a campaign of 10^8 messages costs.

use punctual::Nanos;
use punctual_os::clock::process_cpu;
use punctual_os::interrupt;
use punctual_sim::{FaultKinds, Options, SizeChoice, Traffic, run_many};
use serde::Serialize;

use super::{Measured, Wanted};
use crate::demo::outcome::Check;
use crate::report::{Axis, Plot, Series};

/// At least so many packet-hops a second and core.
const HOPS_PER_S_MIN: f64 = 300_000.0;

/// What is simulated.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    traffic: Nanos,
    faults: FaultKinds,
}

#[derive(Serialize)]
struct Point {
    load: &'static str,
    traffic_ms: u64,
    seeds: u64,
    messages: u64,
    packet_hops: u64,
    /// CPU time.
    seconds: f64,
    packet_hops_per_s: f64,
    messages_per_s: f64,
}

/// Runs it: one core, networks of 2 to 7 hosts.
///
/// # Errors
/// If a run cannot be set up, or is interrupted.
pub fn run(conditions: &Wanted) -> anyhow::Result<Measured> {
    let (seeds, turns) = match conditions.smoke {
        true => (1, 1),
        false if conditions.quick => (16, 3),
        false => (64, 5),
    };
    let loads = [
        Load { name: "short runs", traffic: Nanos::from_millis(1_000), faults: FaultKinds::NONE },
        Load { name: "long runs", traffic: Nanos::from_secs(8), faults: FaultKinds::NONE },
        Load { name: "all faults", traffic: Nanos::from_secs(4), faults: FaultKinds::ALL },
    ];
    let columns = "load, traffic_ms, seeds, messages, packet_hops, packet_hops_per_s, messages_per_s";
    let mut measured = Measured::new("traffic, ms", columns);
    let mut series = Vec::new();
    for (colour, load) in loads.into_iter().enumerate() {
        let mut points = Vec::with_capacity(turns);
        for turn in 0..turns {
            conditions.progress(format_args!("{}, turn {turn}", load.name));
            interrupt::check()?;
            points.push(turn_of(load, seeds)?);
        }
        points.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let middle = points.swap_remove(turns / 2);
        if load.faults == FaultKinds::NONE {
            let name = format!("packet-hops a second and core, {}", load.name);
            measured.checks.push(Check::at_least(name, middle.packet_hops_per_s, HOPS_PER_S_MIN));
        }
        series.push(Series::new(
            load.name,
            colour,
            vec![(middle.traffic_ms as f64, middle.packet_hops_per_s)],
        ));
        measured.add(&middle);
    }
    measured.notes.push("CPU time of one core; the median of several turns over the same seeds".into());
    measured.plot = Some(Plot::new(
        "simulated packet-hops a second and core",
        Axis::logarithmic("virtual time in which applications send, ms"),
        Axis::linear("packet-hops/s"),
        series,
    ));
    Ok(measured)
}

fn turn_of(load: Load, seeds: u64) -> anyhow::Result<Point> {
    let options =
        Options { traffic: Traffic::For(load.traffic), sizes: SizeChoice::Small, ..Options::default() };
    let options = options.with_faults(load.faults);
    let began = process_cpu();
    let outcomes = run_many(0..seeds, &options, 1, |_| {})?;
    let seconds = (process_cpu() - began).as_secs_f64();
    let (messages, packet_hops) = (
        outcomes.iter().map(|outcome| outcome.messages).sum::<u64>(),
        outcomes.iter().map(|outcome| outcome.packets).sum::<u64>(),
    );
    Ok(Point {
        load: load.name,
        traffic_ms: load.traffic.0 / 1_000_000,
        seeds,
        messages,
        packet_hops,
        seconds,
        packet_hops_per_s: packet_hops as f64 / seconds,
        messages_per_s: messages as f64 / seconds,
    })
}
