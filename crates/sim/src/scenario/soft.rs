//! Soft channels beside hard ones, on stages that admit them by the probability of a miss (`Class::Soft`).

use punctual_analysis::{Activation, Nanos, Ppb, Ppm, Rate, Statistical};
use punctual_proto::config::{Admission, RunPolicy};

use super::channels::CHANNELS_MAX;
use super::{ChannelPlan, HostPlan};
use crate::dice::{Dice, Draw};
use crate::topology::Arrivals;

/// Makes stages admit by probability and channels soft. Dice of its own.
pub(super) fn make_soft(seed: u64, hosts: &mut [HostPlan], channels: &mut Vec<ChannelPlan>) {
    let mut dice = Dice::of(seed, Draw::Soft);
    for host in hosts {
        if host.config.cpu.run == RunPolicy::Edf && dice.chance(Ppm(700_000)) {
            host.config.cpu.admission = Admission::STATISTICAL;
        }
        for link in &mut host.config.links {
            if dice.chance(Ppm(700_000)) {
                link.admission = Admission::STATISTICAL;
            }
        }
    }
    // Sources that start together are not independent: then only hard channels have a promise.
    let independent = dice.chance(Ppm(750_000));
    for number in 0..channels.len() {
        if !dice.chance(Ppm(500_000)) {
            continue;
        }
        let plan = soft(&channels[number], independent, &mut dice);
        channels[number] = plan;
        for _ in 1..dice.between(1, 4) {
            let opens_at = plan.opens_at + Nanos(dice.between(0, 50_000_000));
            if (channels.len() as u64) < CHANNELS_MAX {
                channels.push(ChannelPlan { opens_at, closes_at: None, ..plan });
            }
        }
    }
}

/// `plan` with a mean from its peak down to a tenth of it, and a share of messages that may miss.
fn soft(plan: &ChannelPlan, independent: bool, dice: &mut Dice) -> ChannelPlan {
    let interval = plan.contract.interval();
    let mean = Nanos(interval.0 * dice.between(10, 100) / 10);
    let mean_over = Nanos(dice.log_between(interval.0.max(mean.0), 1_000_000_000)).max(mean);
    let miss_ratio = Ppb::new(dice.pick(&[1_000_000, 10_000_000, 50_000_000]));
    let mut contract = plan.contract;
    contract.activation = Activation::Deadline;
    contract.statistical = Rate::every(mean).zip(miss_ratio).map(|(mean_rate, miss_ratio)| Statistical {
        mean_rate,
        mean_over,
        miss_ratio,
    });
    let arrivals = if independent { Arrivals::Independent } else { plan.arrivals };
    ChannelPlan { contract, arrivals, ..*plan }
}
