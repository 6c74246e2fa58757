//! A day in a network: the plan of a seed, stretched. Applications send slowly; channels are opened and
//! closed all the time, so that leaked resources accumulate until they are detected.

use punctual_analysis::contract::SPAN_MAX;
use punctual_analysis::{Contract, Nanos, Rate};

use crate::dice::Dice;
use crate::scenario::{ChannelPlan, Scenario};

/// Interval between two messages of a channel.
const INTERVAL: (Nanos, Nanos) = (Nanos::from_millis(500), Nanos::from_secs(20));
/// Time for which a channel stays open, and time until it is requested again.
const STAYS: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(1_200));
const RESTS: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(300));
/// Interval between two messages of best effort.
const FLOOD_INTERVAL: Nanos = Nanos::from_secs(2);

/// Stretches the traffic of `plan` to `span`.
pub fn stretch(plan: &mut Scenario, span: Nanos, dice: &mut Dice) {
    plan.times.set_traffic(span);
    let drawn = std::mem::take(&mut plan.channels);
    for channel in drawn {
        lives(channel, plan, dice);
    }
    plan.times.add_drain(plan.drain_max());
    for flood in &mut plan.floods {
        flood.interval = flood.interval.max(FLOOD_INTERVAL);
    }
}

/// Opens and closes one channel repeatedly.
fn lives(mut channel: ChannelPlan, plan: &mut Scenario, dice: &mut Dice) {
    let within = |dice: &mut Dice, (least, most): (Nanos, Nanos)| Nanos(dice.log_between(least.0, most.0));
    slow_down(&mut channel.contract, within(dice, INTERVAL));
    channel.reopens = false;
    while channel.opens_at < plan.times.stops {
        let closes_at = channel.opens_at + within(dice, STAYS);
        let last = closes_at >= plan.times.stops;
        plan.channels.push(ChannelPlan { closes_at: (!last).then_some(closes_at), ..channel });
        channel.opens_at = closes_at + within(dice, RESTS);
    }
}

/// Slows messages down to one per `interval` at most; a mean rate and its span keep their ratio to the peak.
fn slow_down(contract: &mut Contract, interval: Nanos) {
    let (before, interval) = (contract.interval(), interval.max(contract.interval()));
    let stretched = |span: Nanos| {
        let span = u128::from(span.0) * u128::from(interval.0) / u128::from(before.0);
        Nanos(span as u64).clamp(interval, SPAN_MAX)
    };
    contract.rate_max = Rate::every(interval).unwrap_or(contract.rate_max);
    if let Some(soft) = &mut contract.statistical {
        soft.mean_rate = Rate::every(stretched(soft.mean_rate.interval())).unwrap_or(contract.rate_max);
        soft.mean_over = stretched(soft.mean_over);
    }
}
