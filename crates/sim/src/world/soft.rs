//! Soft guarantees: the status reports them as soft, and no channel misses more than its contract permits.

use punctual_analysis::{Guarantee, Ppb};
use punctual_proto::api::{ChannelStatus, NodeStatus};

use super::World;

/// Tolerated bad luck: this many standard deviations of a fair count, and one.
const DEVIATIONS: f64 = 4.0;

impl World {
    /// Checks that every hop reports the strength of the guarantee.
    pub(super) fn compare_guarantees(
        &mut self,
        host: usize,
        status: &NodeStatus,
        channels: &[ChannelStatus],
    ) {
        for reported in channels {
            let Some(&number) = self.paths.get(&reported.path) else { continue };
            let wanted = self.channels[number].plan.contract.guarantee();
            // While a stage is broken, and until it has healed, nothing is guaranteed.
            let is_degraded = reported.guarantee == Guarantee::Degraded && !reported.broken.is_empty();
            let may_be = self.is_broken()
                || reported
                    .broken
                    .iter()
                    .all(|stage| self.was_disturbed(&stage.host, stage.towards.as_deref()));
            if reported.guarantee != wanted && !(is_degraded && may_be) {
                self.violate(&format!(
                    "channel {number}: host {host} calls its guarantee {:?}, it is {wanted:?}",
                    reported.guarantee
                ));
            }
        }
        // A soft channel over a broken stage is degraded, and soft by its contract.
        let is_soft = |reported: &&ChannelStatus| match reported.guarantee {
            Guarantee::Degraded => reported.contract.guarantee() == Guarantee::Soft,
            guarantee => guarantee == Guarantee::Soft,
        };
        let soft = channels.iter().filter(is_soft).count();
        if status.channels_soft as usize != soft {
            let what = format!("host {host} counts {} soft channels, it lists {soft}", status.channels_soft);
            self.violate(&what);
        }
    }

    /// Judges the misses of a soft channel, once all its messages are due. Independent sources keep their
    /// ratio; messages touched by a fault do not count.
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

/// Misses of `judged` messages that are within the tolerated bad luck of a channel of this ratio.
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
