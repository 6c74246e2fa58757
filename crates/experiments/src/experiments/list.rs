//! The list of the experiments.

use punctual_host::config::Driver;

use super::Run::{Measured, Simulated};
use super::{
    Carrier, Experiment, ONE_CLOCK, acceptance, clips, harts, harts_adapter, harts_endtoend, harts_overhead,
    harts_preemption, livelock, orb_demux, profile_limit, rio_bandwidth, rio_cost, rio_latency,
    rio_utilisation, roundtrip, rtu_best_effort, rtu_latency, rtu_path, rtu_relay, rtu_scale, rtu_streams,
    sim_scale, sim_speed, small_messages, video_traces,
};

/// Why an experiment needs both hosts on one machine, beside [`ONE_CLOCK`].
const ONE_CPU: &str = "it measures the CPU time of one host, with no other host behind its device";
const BOTH_ENDS: &str = "it works both ends of a link by one program";

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment::new(
        "clips-enforcement",
        "CLIPS 7.1, figure 5",
        "a channel delivers what is offered up to its rate, and no more",
        Measured(clips::enforcement),
    )
    .of_streams(),
    Experiment::new(
        "clips-isolation",
        "CLIPS 7.2, figures 6a and 6b",
        "neither a greedy channel nor best effort disturbs the others",
        Measured(clips::isolation),
    )
    .of_streams(),
    Experiment::new(
        "clips-fairness",
        "CLIPS 7.3 and 7.4, figure 7",
        "best effort uses what channels leave, however bursty they are",
        Measured(clips::fairness),
    )
    .of_streams(),
    Experiment::new(
        "harts-isolation",
        "HARTS 6.2, figure 7",
        "three channels, one bursty, under growing best effort",
        Measured(harts::isolation),
    )
    .of_streams(),
    Experiment::new(
        "harts-misbehaving",
        "HARTS 6.2, figure 8",
        "the same while one channel sends twice what it may",
        Measured(harts::misbehaving),
    )
    .of_streams(),
    Experiment::new(
        "harts-burst",
        "HARTS 6.3",
        "messages of 4 to 32 KB at the same load: the paper lost conforming packets",
        Measured(harts::burst),
    )
    .of_streams(),
    Experiment::new(
        "video-traces",
        "CLIPS 8 (announced there)",
        "real video traces through suggested contracts beside floods",
        Measured(video_traces::run),
    )
    .of_streams(),
    Experiment::new(
        "harts-overhead",
        "HARTS 5.2.1, figure 5",
        "cost of a message by its fragments on a null device, without and with the link scheduler",
        Measured(harts_overhead::run),
    )
    .alone(ONE_CPU)
    .over(Carrier::NullDevice),
    Experiment::new(
        "harts-adapter",
        "HARTS 4.2, figure 4",
        "throughput and access latency of the bare adapter by packet size and pipeline depth",
        Measured(harts_adapter::run),
    )
    .alone(BOTH_ENDS),
    Experiment::new(
        "harts-endtoend",
        "HARTS 5.3, figure 6",
        "throughput and latency by message size for fragments of 1, 2 and 4 KB",
        Measured(harts_endtoend::run),
    )
    .alone(ONE_CLOCK),
    Experiment::new(
        "harts-preemption",
        "HARTS 5.2.2 (left open there)",
        "how long an urgent message waits for the CPU by quantum, and what shorter quanta cost",
        Measured(harts_preemption::run),
    )
    .alone(ONE_CPU),
    Experiment::new(
        "livelock",
        "RIO 2.0.1",
        "guaranteed traffic under floods of smallest packets, with and without early demultiplexing",
        Measured(livelock::run),
    )
    .alone(ONE_CLOCK),
    Experiment::new(
        "small-messages",
        "HARTS 5, for packets of today",
        "messages of 64 B a second and core against sendmmsg and recvmmsg",
        Measured(small_messages::run),
    )
    .alone(BOTH_ENDS),
    Experiment::new(
        "rio-cost",
        "RIO 3.2.2, figures 6 and 7",
        "what scheduled protocol processing adds to the round trip of 64 B",
        Measured(rio_cost::run),
    ),
    Experiment::new(
        "rio-utilisation",
        "RIO 3.2.3",
        "up to which load a round trip of 64 B stays below 2 ms",
        Measured(rio_utilisation::run),
    ),
    Experiment::new(
        "rio-roundtrip",
        "RIO 3.2.2; CLIPS 6 for the costs of a daemon",
        "the round trip of 64 B, spinning and blocking, embedded and through the daemon",
        Measured(roundtrip::channels::run),
    ),
    Experiment::new(
        "rio-bandwidth",
        "RIO 3.2.4, figure 11",
        "guaranteed flows join one by one beside best effort; best effort bounded to 40 %",
        Measured(rio_bandwidth::run),
    ),
    Experiment::new(
        "rio-latency",
        "RIO 3.2.3, figures 9 and 10",
        "the round trip of 64 B beside bulk and CPU hogs, against plain and tuned kernel sockets",
        Measured(rio_latency::run),
    ),
    Experiment::new(
        "rtu-throughput",
        "RTU 7.1, figure 8",
        "three guaranteed TCP connections under CPU hogs, second by second, against kernel TCP",
        Measured(rtu_streams::throughput),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-latency",
        "RTU 7.2, figure 9 and table 1",
        "round trips of 64 B to 8 KB over TCP under CPU hogs, against plain and tuned kernel TCP",
        Measured(rtu_latency::run),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-roundtrip",
        "RTU 7.2, Idle (the ratio to the kernel)",
        "the round trip of 64 B and 8 KB over TCP, spinning and blocking, embedded and through the daemon",
        Measured(roundtrip::tcp::run),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-coexist-bandwidth",
        "RTU 7.3, figure 10",
        "three guaranteed TCP connections of growing rates beside one of best effort",
        Measured(rtu_streams::coexist_bandwidth),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-coexist-delay",
        "RTU 7.3, figure 11",
        "the round trip of a low-delay TCP connection beside three guaranteed ones of growing rates",
        Measured(rtu_streams::coexist_delay),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-coexist-all",
        "RTU 7.3, figure 12",
        "two guaranteed, two best-effort and one low-delay TCP connection",
        Measured(rtu_streams::coexist_all),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-best-effort",
        "RTU 7.3 (best effort)",
        "what one best-effort TCP connection carries, against smoltcp alone, and over 10 ms with loss against the kernel",
        Measured(rtu_best_effort::run),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-scale",
        "RTU 7.3 (more connections)",
        "the round trip of 64 B over TCP by the number of connections, and beside idle ones",
        Measured(rtu_scale::run),
    )
    .of_tcp(),
    Experiment::new(
        "rtu-path",
        "RTU 5.2 over channels (ADR 0055)",
        "a guaranteed TCP connection over a - r - b with a reserved path beside a twofold flood, against kernel TCP",
        Measured(rtu_path::run),
    )
    .of_streams(),
    Experiment::new(
        "rtu-relay",
        "RTU (programs as they are)",
        "what `punctual relay` adds to round trips of 64 B and to redis, against the kernel alone and a plain proxy",
        Measured(rtu_relay::run),
    )
    .of_tcp(),
    Experiment::new(
        "acceptance",
        "HARTS 3.2; CLIPS 4.2",
        "channels admitted over 3 and 8 stages by load, policy and the way of sharing the leftover deadline",
        Measured(acceptance::run),
    )
    .computed(),
    Experiment::new(
        "profile-limit",
        "CLIPS 6",
        "channels admitted on measured CPU costs until refused, and what the machine could carry",
        Measured(profile_limit::run),
    )
    .alone(ONE_CPU)
    .over(Carrier::Always(Driver::MEMORY)),
    Experiment::new(
        "sim-speed",
        "none",
        "packet-hops that the simulator does in a second of one core",
        Simulated(sim_speed::run),
    )
    .computed(),
    Experiment::new(
        "sim-scale",
        "none",
        "what channels cost by their number: up to 10,000 nodes and a million channels, simulated",
        Simulated(sim_scale::run),
    )
    .computed(),
    Experiment::new(
        "orb-demux",
        "TAO, appendix A",
        "from an object key to an operation: active demultiplexing, hashing and linear search, 1 to 100,000 objects",
        Simulated(orb_demux::run),
    )
    .computed(),
];

#[cfg(test)]
mod tests;
