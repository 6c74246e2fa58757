//! HARTS figure 4: throughput of the bare adapter and medium access latency, by packet size and pipeline depth.
//!
//! The adapter is the driver with the emulated link behind it, which completes a packet when it is on the wire; a
//! packet's access latency is the time from handing it over to its completion. No node, no scheduler.

use anyhow::Context;
use punctual::{BitRate, Nanos};
use punctual_link::Link;
use serde_json::json;

use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::measure::laps::rate_of;
use crate::measure::{Side, Statistic, compare_rounds};
use crate::report::{Plot, Series};
use crate::testbed::adapter::{self, LAP_BYTES};
use crate::testbed::{LinkSpec, Options, Pair, PairSetup};

const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(20);
/// Ethernet's packet.
const MTU: u32 = 1_500;
const HEADERS: u32 = 28;
const DEPTHS: [usize; 4] = [1, 2, 4, 8];
/// The default of `pipeline_depth`: deeper pipelines gained the paper nothing.
const DEPTH: usize = 2;
const SIZES: [usize; 4] = [64, 256, 1_024, 1_464];
/// Message sizes with kernel sockets: the paper's, up to 8 KB.
const LONG_SIZES: [usize; 5] = [64, 1_024, 2_048, 4_096, 8_192];
const LONG_MTU: u32 = 9_000;
/// Time for one size and depth in a round.
const SLICE: Nanos = Nanos::from_millis(60);

/// The results at one size and depth.
#[derive(Default)]
struct Found {
    bytes: usize,
    depth: usize,
    access: Side,
    /// The times of equally many bytes.
    laps: Side,
    lost: u64,
}

impl Found {
    fn mbyte_s(&self, excuses: &Excuses) -> f64 {
        rate_of(LAP_BYTES, self.laps.figures(excuses).clean.mean_us) / 1e6
    }
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let (sizes, mtu): (&[usize], _) = match conditions.driver.bypasses_kernel() {
        true => (&SIZES, MTU),
        false => (&LONG_SIZES, LONG_MTU),
    };
    let setup = PairSetup { link: LinkSpec::new(LINK, QUEUE).with_mtu(mtu).paced(), pinned: true };
    let pair = Pair::create(&setup, conditions)?;
    let options = Options {
        driver: conditions.driver,
        link: format!("packet = \"{}B\"\n", (mtu - HEADERS).min(8_192)),
        ..Options::default()
    };
    let (mut source, mut sink) = pair.adapters(&options)?;
    let witness = conditions.witness()?;
    let found =
        pair.place.on_cpu(Class::Ordinary, || sweep(source.as_mut(), sink.as_mut(), sizes, conditions))?;
    judged(witness, |excuses| judge(&found, excuses))
}

/// All sizes and depths in turns; at the end [`DEPTH`] again for the longest packets: A/A.
fn sweep(
    source: &mut dyn Link,
    sink: &mut dyn Link,
    sizes: &[usize],
    conditions: &Conditions,
) -> anyhow::Result<Vec<Found>> {
    let longest = sizes.iter().copied().max().unwrap_or_default();
    let points = sizes.iter().flat_map(|&bytes| DEPTHS.map(|depth| (bytes, depth))).chain([(longest, DEPTH)]);
    let mut found: Vec<Found> =
        points.map(|(bytes, depth)| Found { bytes, depth, ..Found::default() }).collect();
    let rounds = conditions.rounds((10, 0), (60, 0)).0;
    conditions.in_turns("", rounds, &mut found, |_, one| {
        let flow = adapter::drive(source, sink, one.bytes, one.depth, SLICE)?;
        one.access.push(flow.access);
        one.laps.push(flow.laps);
        one.lost += flow.lost;
        Ok(())
    })?;
    Ok(found)
}

fn judge(found: &[Found], excuses: &Excuses) -> anyhow::Result<Measured> {
    let (again, found) = found.split_last().context("nothing was measured")?;
    let columns = "bytes, depth, mbyte_s, lost, samples, p50_us, mean_us, p99_us, max_us, excused";
    let mut measured = Measured::new("packet, B", columns);
    for one in found {
        let Found { bytes, depth, lost, .. } = *one;
        let mbyte_s = one.mbyte_s(excuses);
        let first = json!({ "bytes": bytes, "depth": depth, "mbyte_s": mbyte_s, "lost": lost });
        measured.add_side(first, &one.access, excuses, |_| json!({}));
    }
    let longest: Vec<&Found> = found.iter().filter(|one| one.bytes == again.bytes).collect();
    let at = |depth| longest.iter().find(|one| one.depth == depth);
    let default = at(DEPTH).with_context(|| format!("depth {DEPTH} was not measured"))?;
    for deeper in longest.iter().filter(|one| one.depth > DEPTH) {
        let ratio = compare_rounds(&default.laps, &deeper.laps, &again.laps, Statistic::Mean, excuses);
        let name = format!(
            "time of the longest packets at depth {} against depth {DEPTH}: no gain (limit 1 less the A/A half-width \
             {:.4})",
            deeper.depth, ratio.half_width
        );
        measured.at_least(name, ratio.ratio, 1.0 - ratio.half_width);
    }
    let access: Vec<f64> = longest.iter().map(|one| one.access.figures(excuses).clean.p50_us).collect();
    let steps = access.windows(2).map(|pair| pair[1] / pair[0]).fold(f64::INFINITY, f64::min);
    let name = "access latency of the longest packets grows with each depth: least step";
    measured.at_least(name, steps, 1.0);
    let carries = LINK.0 as f64 / 8e6 * again.bytes as f64 / (again.bytes + adapter::OVERHEAD_BYTES) as f64;
    let shown = format!("{:.2} of {carries:.2} MB/s", default.mbyte_s(excuses));
    let what = "longest packets at depth 2, of what the link carries";
    measured.compare(what, "2.7 MB/s (16 KB)", shown, "-");
    let shown = access.iter().map(|us| format!("{us:.0}")).collect::<Vec<_>>().join(", ");
    let what = "access latency of the longest packets by depth, us (median)";
    measured.compare(what, "grows with both", shown, "-");
    let series = DEPTHS.into_iter().enumerate().map(|(colour, depth)| {
        let of_depth = found.iter().filter(|one| one.depth == depth);
        let points = of_depth.map(|one| (one.bytes as f64, one.mbyte_s(excuses)));
        Series::new(format!("pipeline depth {depth}"), colour, points)
    });
    let title = "HARTS figure 4: throughput of the bare adapter";
    measured.plot = Some(Plot::log_x(title, "packet, B", "MB/s", series));
    Ok(measured)
}
