//! How many packets a second the simulator carries from link to link: the cost of a campaign of 10^8
//! messages.

use punctual::Nanos;
use punctual_os::clock::process_cpu;
use punctual_os::interrupt;
use punctual_sim::{FaultKinds, Options, SizeChoice, Traffic, run_many};
use serde_json::json;

use super::{Measured, Wanted};
use crate::report::{Plot, Series};

/// Minimum number of packet-hops per second and core.
const HOPS_PER_S_MIN: f64 = 300_000.0;

/// The simulated load.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    traffic: Nanos,
    faults: FaultKinds,
}

/// The time of a turn over all seeds.
struct Turn {
    messages: u64,
    packet_hops: u64,
    /// CPU time.
    seconds: f64,
}

/// Runs it: one core, networks of 2 to 7 hosts.
///
/// # Errors
/// If a run cannot be set up, or is interrupted.
pub fn run(conditions: &Wanted) -> anyhow::Result<Measured> {
    let (seeds, turns) = conditions.pick((1, 1), (16, 3), (64, 5));
    let loads = [
        Load { name: "short runs", traffic: Nanos::from_millis(1_000), faults: FaultKinds::NONE },
        Load { name: "long runs", traffic: Nanos::from_secs(8), faults: FaultKinds::NONE },
        Load { name: "all faults", traffic: Nanos::from_secs(4), faults: FaultKinds::ALL },
    ];
    let columns = "load, traffic_ms, seeds, messages, packet_hops, packet_hops_per_s, messages_per_s";
    let mut measured = Measured::new("traffic, ms", columns);
    let mut series = Vec::new();
    for (colour, load) in loads.into_iter().enumerate() {
        let mut found = Vec::with_capacity(turns);
        for turn in 0..turns {
            conditions.progress(format_args!("{}, turn {turn}", load.name));
            interrupt::check()?;
            found.push(turn_of(load, seeds)?);
        }
        found.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let Turn { messages, packet_hops, seconds } = found.swap_remove(turns / 2);
        let [hops_per_s, messages_per_s] = [packet_hops, messages].map(|count| count as f64 / seconds);
        if load.faults == FaultKinds::NONE {
            let name = format!("packet-hops a second and core, {}", load.name);
            measured.at_least(name, hops_per_s, HOPS_PER_S_MIN);
        }
        let traffic_ms = load.traffic.0 / 1_000_000;
        series.push(Series::new(load.name, colour, [(traffic_ms as f64, hops_per_s)]));
        measured.add([json!({
            "load": load.name, "traffic_ms": traffic_ms, "seeds": seeds, "messages": messages,
            "packet_hops": packet_hops, "seconds": seconds, "packet_hops_per_s": hops_per_s,
            "messages_per_s": messages_per_s,
        })]);
    }
    measured.note("CPU time of one core; the median of several turns over the same seeds");
    let x = "virtual time in which applications send, ms";
    measured.plot = Some(Plot::log_x("simulated packet-hops a second and core", x, "packet-hops/s", series));
    Ok(measured)
}

fn turn_of(load: Load, seeds: u64) -> anyhow::Result<Turn> {
    let options =
        Options { traffic: Traffic::For(load.traffic), sizes: SizeChoice::Small, ..Options::default() };
    let options = options.with_faults(load.faults);
    let began = process_cpu();
    let outcomes = run_many(0..seeds, &options, 1, |_| {})?;
    let seconds = (process_cpu() - began).as_secs_f64();
    let messages = outcomes.iter().map(|outcome| outcome.messages).sum();
    let packet_hops = outcomes.iter().map(|outcome| outcome.packets).sum();
    Ok(Turn { messages, packet_hops, seconds })
}
