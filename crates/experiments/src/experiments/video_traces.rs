//! Real video traces, each through a contract that `punctual suggest` derives for it, all at once beside a flood
//! of twice the link and a hog per CPU. CLIPS announced this experiment in its section 8.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use punctual::{BitRate, Nanos, counted};
use punctual_analysis::suggest::{Choice, Kind, Packets, Trace, choices};

use super::findings::Findings;
use super::sweep::{Point, Sweep, Worlds};
use super::{Compared, Conditions, Measured};
use crate::loads::hogs::Hogs;
use crate::loads::source_tree::find;
use crate::loads::{Arrivals, Content};
use crate::report::{Mark, Plot, Series};
use crate::testbed::{LinkSpec, StreamSpec, System};

/// File of each trace below examples/traces and its stream's name.
const TRACES: [(&str, &str); 3] = [
    ("bigbuckbunny-720p25-h264.csv", "bunny-h264"),
    ("bikes-640x272-h264.csv", "bikes-h264"),
    ("bigbuckbunny-352x240p30-mpeg1.csv", "bunny-mpeg1"),
];
/// How each is carried: its name here and the kind of contract.
const PARTS: [(&str, Kind); 2] = [("peak", Kind::Peak), ("smoothed", Kind::SmoothedHalf)];
const FLOOD: &str = "flood";
const LINK: BitRate = BitRate(50_000_000);
const FLOOD_BYTES: usize = 1_400;
/// For a frame to be complete after it was sent.
const DEADLINE: Nanos = Nanos::from_millis(100);

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let traces = load()?;
    let mut findings = Findings::default();
    for (part, kind) in PARTS {
        findings.add(run_part(part, kind, &traces, conditions)?);
    }
    findings.check_guarantees();
    let (compared, plot) = (compared(&findings, &traces), plot(&findings));
    Ok(findings.measured("-", compared, plot))
}

fn load() -> anyhow::Result<Vec<(&'static str, Trace)>> {
    TRACES
        .iter()
        .map(|&(file, name)| {
            let path = find(&Path::new("examples/traces").join(file))?;
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let trace = Trace::parse_csv(&text).with_context(|| path.display().to_string())?;
            Ok((name, trace))
        })
        .collect()
}

/// The choice of that kind; if it would cost more than the peak, the most expensive one.
fn choose(trace: &Trace, kind: Kind) -> anyhow::Result<Choice> {
    let all = choices(trace, DEADLINE, &Packets::default());
    let wanted = all.iter().find(|choice| choice.kind == kind).or(all.first());
    wanted.copied().context("no contract fits this trace")
}

fn run_part(
    part: &'static str,
    kind: Kind,
    traces: &[(&'static str, Trace)],
    conditions: &Conditions,
) -> anyhow::Result<Findings> {
    let mut streams = Vec::new();
    for (name, trace) in traces {
        let contract = choose(trace, kind)?.contract;
        let (content, arrivals) = recorded(trace, contract.message_bytes_max);
        streams.push(StreamSpec::guaranteed(name, contract, content, arrivals));
    }
    let wire_bytes = (FLOOD_BYTES + 130) as u64;
    let flood = Arrivals::Bursty { interval: BitRate(2 * LINK.0).time_of(wire_bytes), burst: 8 };
    streams.push(StreamSpec::best_effort(FLOOD, Content::of_size(FLOOD_BYTES), flood));
    let link = LinkSpec::new(LINK, Nanos::from_millis(150));
    let sweep = Sweep {
        part,
        link,
        streams,
        points: vec![Point { x: 0.0, set: Vec::new() }],
        slice: Nanos::from_millis(if conditions.quick { 10_200 } else { 30_200 }),
        warm_up: Nanos::from_millis(200),
        link_options: String::new(),
    };
    let mut worlds = Worlds::create(link, "", conditions)?;
    let _hogs = Hogs::start(std::thread::available_parallelism()?.get())?;
    worlds.run(&sweep, conditions)
}

/// The trace's frames at their times, cut into messages of at most `bytes_max`.
fn recorded(trace: &Trace, bytes_max: u32) -> (Content, Arrivals) {
    let (mut sizes, mut times) = (Vec::new(), Vec::new());
    for frame in trace.frames() {
        let mut left = frame.bytes;
        while left > 0 {
            let piece = left.min(bytes_max);
            sizes.push(piece as usize);
            times.push(Nanos(frame.sent.0));
            left -= piece;
        }
    }
    (
        Content::Sizes(Arc::from(sizes)),
        Arrivals::Recorded { times: Arc::from(times), period: trace.duration() },
    )
}

fn compared(findings: &Findings, traces: &[(&'static str, Trace)]) -> Vec<Compared> {
    let mut rows = Vec::new();
    for (part, kind) in PARTS {
        for (name, trace) in traces {
            let Ok(choice) = choose(trace, kind) else { continue };
            let show = |system| {
                let figure = findings.of(part, system, name).next();
                figure.map_or("-".into(), |one| {
                    let latency = &one.figures.latency;
                    format!(
                        "p99 {:.1}, max {:.1} ms, {}",
                        latency.p99_ms,
                        latency.max_ms,
                        counted(one.figures.misses, "miss")
                    )
                })
            };
            let what = format!(
                "{name}, {part}: reserves {:.1} Mbit/s, bound {:.0} ms",
                choice.reserves.bits_per_second as f64 / 1e6,
                choice.contract.deadline.as_millis_f64()
            );
            rows.push(Compared::of(what, "announced, not reported", show));
        }
    }
    rows
}

fn plot(findings: &Findings) -> Plot {
    let curve = |colour, name: &str, system: System| {
        let latencies = findings.of("peak", system, name).next().map(|one| one.figures.exceedance());
        Series::new(format!("{name}, {}", system.name()), colour, latencies.unwrap_or_default())
            .dashed(system == System::Kernel)
    };
    let both = |(colour, (_, name))| System::COMPARED.map(|system| curve(colour, name, system));
    let title = "Video traces beside a flood: share of frames later than";
    let series = TRACES.into_iter().enumerate().flat_map(both);
    Plot::tails(title, "latency from the logical arrival, ms", "share of frames", series)
        .with_marks(vec![Mark { x: DEADLINE.as_millis_f64(), label: "bound".into(), colour: 6 }])
}
