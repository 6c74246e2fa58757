//! Soft guarantees: the state says that they are soft, and no channel misses more than its contract bears.

use punctual_analysis::{Guarantee, Ppb};
use punctual_proto::api::{ChannelStatus, NodeStatus};

use super::World;

/// Bad luck that is none: so many standard deviations of a fair count, and one.
const DEVIATIONS: f64 = 4.0;

impl World {
    /// Every hop says how firm the promise is.
    pub(super) fn compare_guarantees(
        &mut self,
        host: usize,
        status: &NodeStatus,
        channels: &[ChannelStatus],
    ) {
        for told in channels {
            let Some(&number) = self.paths.get(&told.path) else { continue };
            let wanted = self.channels[number].plan.contract.guarantee();
            // While a stage is broken, and until it has healed, nothing is guaranteed.
            let is_degraded = told.guarantee == Guarantee::Degraded && !told.broken.is_empty();
            let may_be = self.is_broken()
                || told.broken.iter().all(|stage| self.was_disturbed(&stage.host, stage.towards.as_deref()));
            if told.guarantee != wanted && !(is_degraded && may_be) {
                self.violate(&format!(
                    "channel {number}: host {host} calls its guarantee {:?}, it is {wanted:?}",
                    told.guarantee
                ));
            }
        }
        // A soft channel over a broken stage is degraded, and soft by its contract.
        let is_soft = |told: &&ChannelStatus| match told.guarantee {
            Guarantee::Degraded => told.contract.guarantee() == Guarantee::Soft,
            guarantee => guarantee == Guarantee::Soft,
        };
        let soft = channels.iter().filter(is_soft).count();
        if status.channels_soft as usize != soft {
            let what = format!("host {host} counts {} soft channels, it lists {soft}", status.channels_soft);
            self.violate(&what);
        }
    }

    /// What a soft channel has missed, once all of it is due. Independent sources keep their ratio; what a fault touched
    /// does not count.
    pub(super) fn judge_soft(&mut self, number: usize) {
        let soft = self.channels[number].plan.contract.statistical;
        let Some(soft) = soft.filter(|_| self.scenario.is_independent()) else { return };
        let (judged, missed) = self.channels[number].ledger.borne();
        self.outcome.soft_messages += judged;
        self.outcome.soft_misses += missed;
        self.outcome.soft_borne_milli += judged * u64::from(soft.miss_ratio.parts()) / 1_000_000;
        if missed > most(judged, soft.miss_ratio) {
            let channel = self.describe(number);
            self.violate(&format!(
                "{channel} misses {missed} of {judged} messages, its contract bears {}",
                soft.miss_ratio
            ));
        }
    }
}

/// Misses of `judged` messages that a channel of this ratio may be unlucky enough to have.
fn most(judged: u64, ratio: Ppb) -> u64 {
    let mean = judged as f64 * ratio.as_f64();
    (mean + DEVIATIONS * mean.sqrt()) as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_luck_has_an_end() {
        let percent = Ppb::new(10_000_000).expect("not zero");
        assert_eq!(most(0, percent), 1);
        assert_eq!(most(10_000, percent), 141);
    }
}
