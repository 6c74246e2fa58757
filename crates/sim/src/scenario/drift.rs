//! Hours at full rate between clocks that drift apart as fast as allowed: accumulating errors become visible.

use punctual_analysis::Nanos;

use crate::dice::Dice;
use crate::scenario::Scenario;
use crate::time::HostClock;
use crate::topology::Arrivals;

/// Drift of a clock: two of them part by 200 ppm.
const DRIFT_PPB: i64 = 100_000;
/// Channels that send; their number determines the cost of a run.
const CHANNELS: usize = 8;
/// Interval between two messages of best effort.
const FLOOD_INTERVAL: Nanos = Nanos::from_millis(100);

/// Stretches the traffic of `plan` to `span`: a few permanent channels, all at full rate. Clocks run fast and
/// slow by turns along the hosts, so that routes have both signs of drift.
pub fn stretch(plan: &mut Scenario, span: Nanos, dice: &mut Dice) {
    plan.times.set_traffic(span);
    let first = dice.between(0, 1);
    for (number, host) in plan.hosts.iter_mut().enumerate() {
        let sign = if (number as u64 + first).is_multiple_of(2) { 1 } else { -1 };
        host.clock = HostClock::new(host.clock.offset_ns, DRIFT_PPB * sign);
    }
    plan.channels.truncate(CHANNELS);
    for channel in &mut plan.channels {
        channel.arrivals =
            dice.pick(&[Arrivals::Greedy, Arrivals::Periodic, Arrivals::Synchronous, Arrivals::Bursts]);
        (channel.consents, channel.silent, channel.closes_at) = (true, false, None);
        (channel.vanishes_at, channel.reopens) = (None, false);
    }
    for flood in &mut plan.floods {
        flood.interval = flood.interval.max(FLOOD_INTERVAL);
    }
}
