//! HARTS figure 5: what protocol processing of a message costs by its number of fragments on a null device, without
//! and with the link scheduler.

use punctual_os::clock::now;
use punctual_proto::config::RunPolicy;
use serde_json::json;

use super::{Conditions, Measured, judged};
use crate::measure::{Moments, Sample, Side};
use crate::report::{Plot, Series};
use crate::testbed::Nodes;

/// The paper's.
const FRAGMENT_BYTES: u32 = 2_048;
const FRAGMENTS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The paper's costs in us: a packet without and with scheduler, and each further fragment.
const PAPER_US: [f64; 2] = [100.0, 250.0];
const PAPER_FURTHER_US: [f64; 2] = [90.0, 290.0];

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
    judged(witness, |excuses| {
        let costs = measurements.iter().map(|(fragments, [without, with])| Cost {
            fragments: *fragments,
            without: without.figures(excuses).clean,
            with: with.figures(excuses).clean,
        });
        let mut measured = judge(&costs.collect::<Vec<_>>());
        measurements.iter().for_each(|(_, [_, with])| {
            measured.count(with, excuses);
        });
        Ok(measured)
    })
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
    Ok(sides.map(Side::of))
}

fn judge(costs: &[Cost]) -> Measured {
    let columns = "fragments, message_kb, scheduler, p50_us, mean_us, p99_us, us_per_packet, mbyte_s";
    let mut measured = Measured::new("fragments of a message", columns);
    for Cost { fragments, without, with } in costs {
        let bytes = f64::from(fragments * FRAGMENT_BYTES);
        for (scheduler, cost) in [(false, without), (true, with)] {
            let per_packet = cost.p50_us / f64::from(*fragments);
            measured.add([
                json!({ "fragments": fragments, "message_kb": bytes / 1_024.0, "scheduler": scheduler }),
                json!(cost),
                json!({ "us_per_packet": per_packet, "mbyte_s": bytes / cost.p50_us }),
            ]);
        }
    }
    let [first, last] = [&costs[0], &costs[costs.len() - 1]];
    let more = f64::from(last.fragments - first.fragments);
    let further = |curve: fn(&Cost) -> f64| (curve(last) - curve(first)) / more;
    let (with, without) = (further(|cost| cost.with.p50_us), further(|cost| cost.without.p50_us));
    let [of_first, of_first_with] = [first.without.p50_us, first.with.p50_us];
    // The machines are 25 years apart: this compares the additional cost of the scheduler and of a fragment,
    // not microseconds.
    for (what, found, limit) in [
        ("a packet with scheduler against without", of_first_with / of_first, PAPER_US[1] / PAPER_US[0]),
        (
            "a further fragment with scheduler against without",
            with / without,
            PAPER_FURTHER_US[1] / PAPER_FURTHER_US[0],
        ),
        (
            "a further fragment without scheduler against the first packet",
            without / of_first,
            PAPER_FURTHER_US[0] / PAPER_US[0],
        ),
    ] {
        measured.at_most(format!("{what} (limit: the paper's)"), found, limit);
    }
    for (what, paper, found) in [
        ("a packet without scheduler", "100 us", of_first),
        ("a packet with scheduler", "250 us", of_first_with),
        ("each further fragment without scheduler", "90 us", without),
        ("each further fragment with scheduler", "290 us (90 and 200)", with),
    ] {
        measured.compare(what, paper, format!("{found:.2} us"), "-");
    }
    measured.note(
        "without scheduler: message taken, policed and cut, packets put into the scheduler's queues; with it: and \
         each picked, its header written and its payload copied into the device's frame",
    );
    let curve = |name: &str, colour, value: fn(&Cost) -> f64| {
        let kb = |cost: &Cost| f64::from(cost.fragments * FRAGMENT_BYTES) / 1_024.0;
        Series::new(name, colour, costs.iter().map(|cost| (kb(cost), value(cost))))
    };
    let series = [
        curve("with scheduler", 0, |cost| cost.with.p50_us),
        curve("without scheduler", 1, |cost| cost.without.p50_us).dashed(true),
    ];
    let title = "HARTS figure 5: protocol processing on a null device, fragments of 2 KB";
    measured.plot = Some(Plot::log_log(title, "message, KB", "median cost of a message, us", series));
    measured
}
