//! HARTS figure 5: what protocol processing of a message costs by its number of fragments on a null device, without
//! and with the link scheduler.

use punctual_os::clock::now;
use punctual_proto::config::RunPolicy;
use serde::Serialize;

use super::{Conditions, Measured};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::measure::{Moments, Sample, Side};
use crate::report::{Axis, Plot, Series};
use crate::testbed::Nodes;
use crate::witness::Witness;

/// The paper's.
const FRAGMENT_BYTES: u32 = 2_048;
const FRAGMENTS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The paper's costs in us: a packet without and with scheduler, and each further fragment.
const PAPER_US: [f64; 2] = [100.0, 250.0];
const PAPER_FURTHER_US: [f64; 2] = [90.0, 290.0];

#[derive(Serialize)]
struct Point {
    fragments: u32,
    message_kb: f64,
    scheduler: bool,
    /// Of a message.
    #[serde(flatten)]
    cost: Moments,
    us_per_packet: f64,
    mbyte_s: f64,
}

/// Both curves at one number of fragments.
struct Cost {
    fragments: u32,
    without: Moments,
    with: Moments,
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let witness = conditions.witness()?;
    let mut measurements: Vec<(u32, [Side; 2])> = Vec::new();
    // The paper sent 12,000 packets.
    let packets = conditions.amount(12_000, 60_000);
    for fragments in FRAGMENTS {
        conditions.progress(format_args!("{fragments} fragments"));
        measurements.push((fragments, measure(fragments, packets / fragments)?));
    }
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, punctual::Ppm(0));
    let costs = measurements.iter().map(|(fragments, [without, with])| Cost {
        fragments: *fragments,
        without: without.figures(&excuses).clean,
        with: with.figures(&excuses).clean,
    });
    let mut measured = judge(&costs.collect::<Vec<_>>());
    let all = || measurements.iter().map(|(_, [_, with])| with.figures(&excuses));
    measured.samples = all().map(|figures| figures.with_holes.samples as u64).sum();
    measured.excused = all().map(|figures| figures.excused).sum();
    measured.testimony = testimony;
    Ok(measured)
}

/// The protocol's part of each message, and all of it.
fn measure(fragments: u32, messages: u32) -> anyhow::Result<[Side; 2]> {
    let mut nodes = Nodes::open(RunPolicy::Edf, fragments, FRAGMENT_BYTES)?;
    let mut sides = [Vec::new(), Vec::new()];
    for message in 0..messages + messages / 10 {
        punctual_os::interrupt::check()?;
        nodes.offer();
        let begun = now();
        nodes.process();
        let queued = now();
        let packets = nodes.discard();
        let ended = now();
        anyhow::ensure!(packets == fragments, "{packets} of {fragments} packets reached the null device");
        // The first tenth warms the caches up.
        if message >= messages / 10 {
            sides[0].push(Sample { begun, span: queued.since(begun) });
            sides[1].push(Sample { begun, span: ended.since(begun) });
        }
    }
    Ok(sides.map(|samples| {
        let mut side = Side::default();
        side.push(samples);
        side
    }))
}

fn judge(costs: &[Cost]) -> Measured {
    let columns = "fragments, message_kb, scheduler, p50_us, mean_us, p99_us, us_per_packet, mbyte_s";
    let mut measured = Measured::new("fragments of a message", columns);
    for cost in costs {
        let bytes = f64::from(cost.fragments * FRAGMENT_BYTES);
        for (scheduler, moments) in [(false, cost.without), (true, cost.with)] {
            measured.add(&Point {
                fragments: cost.fragments,
                message_kb: bytes / 1_024.0,
                scheduler,
                cost: moments,
                us_per_packet: moments.p50_us / f64::from(cost.fragments),
                mbyte_s: bytes / moments.p50_us,
            });
        }
    }
    let [first, last] = [&costs[0], &costs[costs.len() - 1]];
    let further =
        |curve: fn(&Cost) -> f64| (curve(last) - curve(first)) / f64::from(last.fragments - first.fragments);
    let (with, without) = (further(|cost| cost.with.p50_us), further(|cost| cost.without.p50_us));
    measured.checks.extend([
        // The machines are 25 years apart: what the scheduler and a fragment add is compared, not microseconds.
        Check::at_most(
            "a packet with scheduler against without (limit: the paper's)".into(),
            first.with.p50_us / first.without.p50_us,
            PAPER_US[1] / PAPER_US[0],
        ),
        Check::at_most(
            "a further fragment with scheduler against without (limit: the paper's)".into(),
            with / without,
            PAPER_FURTHER_US[1] / PAPER_FURTHER_US[0],
        ),
        Check::at_most(
            "a further fragment without scheduler against the first packet (limit: the paper's)".into(),
            without / first.without.p50_us,
            PAPER_FURTHER_US[0] / PAPER_US[0],
        ),
    ]);
    let us = |value: f64| format!("{value:.2} us");
    measured.compare("a packet without scheduler", "100 us", us(first.without.p50_us), "-".into());
    measured.compare("a packet with scheduler", "250 us", us(first.with.p50_us), "-".into());
    measured.compare("each further fragment without scheduler", "90 us", us(without), "-".into());
    measured.compare("each further fragment with scheduler", "290 us (90 and 200)", us(with), "-".into());
    measured.notes.push(
        "without scheduler: message taken, policed and cut, packets put into the scheduler's queues; with it: and \
         each picked, its header written and its payload copied into the device's frame"
            .into(),
    );
    measured.plot = Some(plot(costs));
    measured
}

fn plot(costs: &[Cost]) -> Plot {
    let curve = |name: &str, colour, dashed, value: fn(&Cost) -> f64| {
        Series::new(
            name,
            colour,
            costs.iter().map(|cost| (f64::from(cost.fragments * FRAGMENT_BYTES) / 1_024.0, value(cost))),
        )
        .dashed(dashed)
    };
    Plot::new(
        "HARTS figure 5: protocol processing on a null device, fragments of 2 KB",
        Axis::logarithmic("message, KB"),
        Axis::logarithmic("median cost of a message, us"),
        vec![
            curve("with scheduler", 0, false, |cost| cost.with.p50_us),
            curve("without scheduler", 1, true, |cost| cost.without.p50_us),
        ],
    )
}
