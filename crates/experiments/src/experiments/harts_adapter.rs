//! HARTS figure 4: throughput of the bare adapter and medium access latency, by packet size and pipeline depth.
//!
//! The adapter is the driver with the emulated link behind it; a packet's access latency is the time from handing it
//! over to its completion. No node, no scheduler.

use punctual::{BitRate, Nanos};
use serde::Serialize;

use super::{Conditions, Measured};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::measure::{Figures, Side};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::{Bed, Pair, adapter};
use crate::testbed::configuration::Driver;
use crate::testbed::{LinkSpec, Options};
use crate::witness::Witness;

const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(20);
/// Ethernet's packet: the longest that an AF_XDP frame of a page holds.
const MTU: u32 = 1_500;
const HEADERS: u32 = 28;
const DEPTHS: [usize; 4] = [1, 2, 4, 8];
const SIZES: [usize; 4] = [64, 256, 1_024, 1_464];
/// With kernel sockets: the paper's, up to 8 KB.
const LONG_SIZES: [usize; 5] = [64, 1_024, 2_048, 4_096, 8_192];
const LONG_MTU: u32 = 9_000;

#[derive(Serialize)]
struct Point {
    bytes: usize,
    depth: usize,
    mbyte_s: f64,
    #[serde(flatten)]
    access: Figures,
}

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let (sizes, mtu): (&[usize], _) = match conditions.driver {
        Driver::Xdp => (&SIZES, MTU),
        _ => (&LONG_SIZES, LONG_MTU),
    };
    let bed = Bed { link: LinkSpec::new(LINK, QUEUE).with_mtu(mtu), pinned: false };
    let pair = Pair::create(&bed, conditions)?;
    let options = Options {
        driver: conditions.driver,
        link: format!("packet = \"{}B\"\n", (mtu - HEADERS).min(8_192)),
        ..Options::default()
    };
    let (mut source, mut sink) = pair.adapters(&options)?;
    let witness = conditions.witness()?;
    let length = Nanos::from_millis(if conditions.quick { 1_200 } else { 6_000 });
    let mut found = Vec::new();
    for &bytes in sizes {
        for depth in DEPTHS {
            conditions.progress(format_args!("{bytes} B, depth {depth}"));
            let flow = adapter::drive(source.as_mut(), sink.as_mut(), bytes, depth, length)?;
            let mut side = Side::default();
            side.push(flow.access);
            found.push((bytes, depth, flow.bytes_per_s, side));
        }
    }
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, punctual::Ppm(0));
    let mut measured = Measured::new(
        "packet, B",
        &["bytes", "depth", "mbyte_s", "samples", "p50_us", "mean_us", "p99_us", "max_us", "excused"],
    );
    for (bytes, depth, rate, side) in &found {
        let access = side.figures(&excuses);
        measured.samples += access.with_holes.samples as u64;
        measured.excused += access.excused;
        measured.add(&Point { bytes: *bytes, depth: *depth, mbyte_s: rate / 1e6, access });
    }
    measured.testimony = testimony;
    judge(&mut measured, &found, &excuses);
    Ok(measured)
}

type Found = (usize, usize, f64, Side);

fn judge(measured: &mut Measured, found: &[Found], excuses: &Excuses) {
    let longest = found.iter().map(|one| one.0).max().unwrap_or_default();
    let at = |depth: usize| found.iter().find(|one| one.0 == longest && one.1 == depth);
    let access = |depth| at(depth).map_or(0.0, |one| one.3.figures(excuses).clean.p50_us);
    let most = found.iter().map(|one| one.2).fold(0.0, f64::max);
    measured.checks.extend([
        // Depth 2 is the default: deeper pipelines must not be needed to fill the link.
        Check::at_least(
            "throughput of the longest packets at depth 2 against the most of all".into(),
            at(2).map_or(0.0, |one| one.2) / most,
            0.9,
        ),
        Check::at_least(
            "access latency of the longest packets at depth 8 against depth 1: what a deep pipeline costs"
                .into(),
            access(8) / access(1).max(f64::MIN_POSITIVE),
            1.0,
        ),
    ]);
    let shown = format!("{:.1} MB/s", most / 1e6);
    measured.compare("most throughput", "2.7 MB/s (16 KB)", shown, "-".into());
    let shown = format!("{:.0} to {:.0} us", access(1), access(8));
    measured.compare(
        "access latency of the longest packets, depth 1 to 8",
        "grows with both",
        shown,
        "-".into(),
    );
    measured.plot = Some(plot(found));
}

fn plot(found: &[Found]) -> Plot {
    let series = DEPTHS.into_iter().enumerate().map(|(colour, depth)| Series {
        name: format!("pipeline depth {depth}"),
        colour,
        dashed: false,
        dots: true,
        points: found.iter().filter(|one| one.1 == depth).map(|one| (one.0 as f64, one.2 / 1e6)).collect(),
    });
    Plot {
        title: "HARTS figure 4: throughput of the bare adapter".into(),
        x: Axis::logarithmic("packet, B"),
        y: Axis::linear("MB/s"),
        series: series.collect(),
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
