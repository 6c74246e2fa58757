//! The list of the experiments.

use punctual_host::config::Driver;

use super::{
    Carrier, Experiment, ONE_CLOCK, Run, acceptance, clips, harts, harts_adapter, harts_endtoend,
    harts_overhead, harts_preemption, livelock, profile_limit, rio_bandwidth, rio_cost, rio_latency,
    rio_roundtrip, rio_utilisation, sim_scale, sim_speed, small_messages, video_traces,
};

/// Why an experiment needs both hosts on one machine, beside [`ONE_CLOCK`].
const ONE_CPU: &str = "it measures the CPU time of one host, with no other host behind its device";
const BOTH_ENDS: &str = "it works both ends of a link by one program";
const NO_HOST: &str = "no host takes part in it";

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment::of_streams(
        "clips-enforcement",
        "CLIPS 7.1, figure 5",
        "a channel delivers what is offered up to its rate, and no more",
        clips::enforcement,
    ),
    Experiment::of_streams(
        "clips-isolation",
        "CLIPS 7.2, figures 6a and 6b",
        "neither a greedy channel nor best effort disturbs the others",
        clips::isolation,
    ),
    Experiment::of_streams(
        "clips-fairness",
        "CLIPS 7.3 and 7.4, figure 7",
        "best effort uses what channels leave, however bursty they are",
        clips::fairness,
    ),
    Experiment::of_streams(
        "harts-isolation",
        "HARTS 6.2, figure 7",
        "three channels, one bursty, under growing best effort",
        harts::isolation,
    ),
    Experiment::of_streams(
        "harts-misbehaving",
        "HARTS 6.2, figure 8",
        "the same while one channel sends twice what it may",
        harts::misbehaving,
    ),
    Experiment::of_streams(
        "harts-burst",
        "HARTS 6.3",
        "messages of 4 to 32 KB at the same load: the paper lost conforming packets",
        harts::burst,
    ),
    Experiment::of_streams(
        "video-traces",
        "CLIPS 8 (announced there)",
        "real video traces through suggested contracts beside floods",
        video_traces::run,
    ),
    Experiment::new(
        "harts-overhead",
        "HARTS 5.2.1, figure 5",
        "cost of a message by its fragments on a null device, without and with the link scheduler",
        Run::Measured(harts_overhead::run),
    )
    .alone(ONE_CPU)
    .over(Carrier::NullDevice),
    Experiment::new(
        "harts-adapter",
        "HARTS 4.2, figure 4",
        "throughput and access latency of the bare adapter by packet size and pipeline depth",
        Run::Measured(harts_adapter::run),
    )
    .alone(BOTH_ENDS),
    Experiment::new(
        "harts-endtoend",
        "HARTS 5.3, figure 6",
        "throughput and latency by message size for fragments of 1, 2 and 4 KB",
        Run::Measured(harts_endtoend::run),
    )
    .alone(ONE_CLOCK),
    Experiment::new(
        "harts-preemption",
        "HARTS 5.2.2 (left open there)",
        "how long an urgent message waits for the CPU by quantum, and what shorter quanta cost",
        Run::Measured(harts_preemption::run),
    )
    .alone(ONE_CPU),
    Experiment::new(
        "livelock",
        "RIO 2.0.1",
        "guaranteed traffic under floods of smallest packets, with and without early demultiplexing",
        Run::Measured(livelock::run),
    )
    .alone(ONE_CLOCK),
    Experiment::new(
        "small-messages",
        "HARTS 5, for packets of today",
        "messages of 64 B a second and core against sendmmsg and recvmmsg",
        Run::Measured(small_messages::run),
    )
    .alone(BOTH_ENDS),
    Experiment::new(
        "rio-cost",
        "RIO 3.2.2, figures 6 and 7",
        "what scheduled protocol processing adds to the round trip of 64 B",
        Run::Measured(rio_cost::run),
    ),
    Experiment::new(
        "rio-utilisation",
        "RIO 3.2.3",
        "up to which load a round trip of 64 B stays below 2 ms",
        Run::Measured(rio_utilisation::run),
    ),
    Experiment::new(
        "rio-roundtrip",
        "RIO 3.2.2; CLIPS 6 for the costs of a daemon",
        "the round trip of 64 B, spinning and blocking, embedded and through the daemon",
        Run::Measured(rio_roundtrip::run),
    ),
    Experiment::new(
        "rio-bandwidth",
        "RIO 3.2.4, figure 11",
        "guaranteed flows join one by one beside best effort; best effort bounded to 40 %",
        Run::Measured(rio_bandwidth::run),
    ),
    Experiment::new(
        "rio-latency",
        "RIO 3.2.3, figures 9 and 10",
        "the round trip of 64 B beside bulk and CPU hogs, against plain and tuned kernel sockets",
        Run::Measured(rio_latency::run),
    ),
    Experiment::new(
        "acceptance",
        "HARTS 3.2; CLIPS 4.2",
        "channels admitted over 3 and 8 stages by load, policy and the way of sharing the leftover deadline",
        Run::Measured(acceptance::run),
    )
    .alone(NO_HOST)
    .over(Carrier::Nothing),
    Experiment::new(
        "profile-limit",
        "CLIPS 6",
        "channels admitted on measured CPU costs until refused, and what the machine could carry",
        Run::Measured(profile_limit::run),
    )
    .alone(ONE_CPU)
    .over(Carrier::Always(Driver::MEMORY)),
    Experiment::new(
        "sim-speed",
        "none",
        "packet-hops that the simulator does in a second of one core",
        Run::Simulated(sim_speed::run),
    )
    .alone(NO_HOST)
    .over(Carrier::Nothing),
    Experiment::new(
        "sim-scale",
        "none",
        "what channels cost by their number: up to 10,000 nodes and a million channels, simulated",
        Run::Simulated(sim_scale::run),
    )
    .alone(NO_HOST)
    .over(Carrier::Nothing),
];
