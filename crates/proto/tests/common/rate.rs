//! Whether a measured rate is true: over wires of any rate, with any bucket that is empty in time, that are
//! stopped once.

use punctual_proto::api::{Event, MeasuredRate, RateRefusal};
use punctual_proto::ids::LinkId;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Nanos};

use punctual_rig::{Slow, World};

const LINK: LinkId = LinkId(0);
/// The largest rate that is tried.
pub const TRIED: BitRate = BitRate(95_000_000);

/// Waits for the end of a measurement at `node`.
pub fn measured(world: &mut World, node: usize) -> Result<MeasuredRate, RateRefusal> {
    for _ in 0..10_000 {
        world.run_for(Nanos::from_millis(1));
        while let Some(event) = world.events[node].pop_front() {
            if let Event::Rate { link: LINK, result } = event {
                return result;
            }
        }
    }
    panic!("no word about the measurement within ten seconds");
}

/// Whether the truth is within the stated range.
pub fn is_right(measured: MeasuredRate, truth: BitRate) -> bool {
    let error = u128::from(measured.rate.0) * u128::from(measured.error.0) / 1_000_000;
    u128::from(measured.rate.0.abs_diff(truth.0)) <= error
}

/// The violation in the measurement of `seed`.
pub fn wrong(seed: u64) -> Option<String> {
    let mut random = SplitMix64::new(seed);
    let mut world = World::line(2, TRIED);
    let truth = BitRate(2_000_000 + random.below(55_000_000));
    let mut slow = Slow::new(0, truth);
    slow.burst = Nanos(random.below(50_000_000));
    slow.wait_max = Nanos::from_millis(10 + random.below(150));
    world.slow = Some(slow);
    world.run_for(Nanos::from_secs(3));
    let from = world.now + Nanos(random.below(400_000_000));
    world.slow.as_mut()?.stall = (from, from + Nanos(random.below(15_000_000)));
    world.nodes[0].measure_rate(LINK, world.now).expect("nobody uses it");
    match measured(&mut world, 0) {
        Ok(found) if found.at_least && found.lower_bound() <= truth => None,
        Ok(found) if !found.at_least && is_right(found, truth) => None,
        found => Some(format!("a link that drains {} bit/s: {found:?}", truth.0)),
    }
}
