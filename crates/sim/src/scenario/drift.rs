//! Hours at full rate between clocks that part as fast as they may: whatever adds up by drift adds up here.

use punctual_analysis::Nanos;

use crate::dice::Dice;
use crate::scenario::Scenario;
use crate::time::HostClock;
use crate::topology::Arrivals;

/// How fast or slow a clock may run: two of them part by 200 ppm.
const DRIFT_PPB: i64 = 100_000;
/// Channels that send: what they cost is what a run costs.
const CHANNELS: usize = 8;
/// Between two messages of best effort.
const FLOOD_INTERVAL: Nanos = Nanos::from_millis(100);

/// Stretches the traffic of `plan` to `span`: a few channels that stay, all at full rate. Clocks run fast and slow by
/// turns along the hosts, so that channels meet both signs of drift on their way.
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
