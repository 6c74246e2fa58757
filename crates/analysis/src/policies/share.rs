//! The reserved share of a stage, with enough precision for ten thousand small channels.

use crate::policy::{Demand, Refusal, RefusalReason};
use crate::stage::StageModel;
use crate::units::{Nanos, Ppm};

const PARTS_PER_PPM: u128 = 1_000_000;

/// A sum of C/I' in parts per 10^12, each rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share(u128);

impl Share {
    pub(super) fn of(demand: &Demand) -> Self {
        Self(
            (u128::from(demand.cost.0) * 1_000_000 * PARTS_PER_PPM)
                .div_ceil(u128::from(demand.period.0.max(1))),
        )
    }

    pub(super) fn add(&mut self, demand: &Demand) {
        self.0 += Self::of(demand).0;
    }

    pub(super) fn remove(&mut self, demand: &Demand) {
        self.0 -= Self::of(demand).0;
    }

    pub(super) fn with_interference(self, rho: Ppm) -> Ppm {
        Ppm(u32::try_from(self.0.div_ceil(PARTS_PER_PPM)).unwrap_or(u32::MAX).saturating_add(rho.0))
    }

    /// The share of a stage that is left, in parts per 10^12, after this and `rho`: zero or less means none.
    pub(super) fn left_over(self, rho: Ppm) -> i128 {
        (1_000_000 - i128::from(rho.0)) * PARTS_PER_PPM as i128 - i128::try_from(self.0).unwrap_or(i128::MAX)
    }

    /// Refuses a newcomer that would exceed the share that may be reserved, with the period that would fit.
    pub(super) fn check(self, newcomer: &Demand, model: &StageModel) -> Result<(), Refusal> {
        let wanted = Self(self.0 + Self::of(newcomer).0).with_interference(model.interference.rho);
        if wanted <= model.utilisation_limit {
            return Ok(());
        }
        let reason =
            RefusalReason::Utilisation { wanted_ppm: wanted.0, limit_ppm: model.utilisation_limit.0 };
        Err(Refusal { reason, bound_possible: None, period_possible: self.period_min(newcomer, model) })
    }

    /// The shortest period at which the newcomer's share is free.
    pub(super) fn period_min(self, newcomer: &Demand, model: &StageModel) -> Option<Nanos> {
        let limit =
            u128::from(model.utilisation_limit.0.saturating_sub(model.interference.rho.0)) * PARTS_PER_PPM;
        let free = limit.checked_sub(self.0).filter(|&free| free > 0)?;
        let period = (u128::from(newcomer.cost.0) * 1_000_000 * PARTS_PER_PPM).div_ceil(free);
        u64::try_from(period).ok().map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::testing::demand;
    use crate::stage::{Blocking, Interference};

    /// A whole stage, in parts.
    const WHOLE: u128 = 1_000_000 * PARTS_PER_PPM;

    fn model(limit: u32, rho: u32) -> StageModel {
        let interference = Interference { sigma: Nanos::ZERO, rho: Ppm(rho) };
        StageModel { blocking: Blocking::Pipeline(Nanos::ZERO), interference, utilisation_limit: Ppm(limit) }
    }

    /// A share is the least number of parts that is no less than C/I': one part less would be less. A period
    /// of zero counts as a nanosecond.
    #[test]
    fn a_share_is_rounded_up_to_a_part_of_ten_to_the_twelfth() {
        for (cost, period) in [
            (0, 1),
            (1, 0),
            (7, 0),
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 3),
            (7, 3),
            (1, 1 << 40),
            (999, 1_001),
            (u64::MAX, 1),
        ] {
            let (share, period_counted) = (Share::of(&demand(cost, period)).0, u128::from(period.max(1)));
            let wanted = u128::from(cost) * WHOLE;
            assert!(share * period_counted >= wanted, "{cost} of {period}: {share}");
            assert!(share == 0 || (share - 1) * period_counted < wanted, "{cost} of {period}: {share}");
        }
    }

    /// What is added is the sum of the shares, each rounded, and what is removed is as much.
    #[test]
    fn shares_add_up_and_are_given_back() {
        let mut used = Share::default();
        // 3·ceil(10^12/3) + ceil(10^12/7)
        let all = [demand(1, 3), demand(1, 3), demand(1, 3), demand(1, 7)];
        all.iter().for_each(|demand| used.add(demand));
        assert_eq!(used, Share(3 * 333_333_333_334 + 142_857_142_858));
        used.remove(&all[0]);
        assert_eq!(used, Share(2 * 333_333_333_334 + 142_857_142_858));
        all[1..].iter().for_each(|demand| used.remove(demand));
        assert_eq!(used, Share(0));
    }

    /// In ppm it is rounded up, and interference is added; what no number of ppm can say is the largest.
    #[test]
    fn a_share_in_ppm_is_rounded_up_and_includes_interference() {
        let ppm = |parts: u128, rho: u32| Share(parts).with_interference(Ppm(rho)).0;
        for (parts, expected) in [
            (0, 0),
            (1, 1),
            (PARTS_PER_PPM - 1, 1),
            (PARTS_PER_PPM, 1),
            (PARTS_PER_PPM + 1, 2),
            (WHOLE, 1_000_000),
        ] {
            assert_eq!(ppm(parts, 0), expected, "{parts}");
            assert_eq!(ppm(parts, 30_000), expected + 30_000, "{parts}");
        }
        let most = u128::from(u32::MAX) * PARTS_PER_PPM;
        assert_eq!([ppm(most, 0), ppm(most + 1, 0), ppm(most, 1), ppm(u128::MAX, 7)], [u32::MAX; 4]);
        assert_eq!(ppm(most - PARTS_PER_PPM, 0), u32::MAX - 1);
    }

    /// What is left over is the stage without interference and without what is used, and may be less than
    /// nothing.
    #[test]
    fn what_is_left_over_may_be_less_than_nothing() {
        for (parts, rho, left) in [
            (0, 0, 1_000_000_000_000),
            (0, 1, 999_999_000_000),
            (1, 0, 999_999_999_999),
            (WHOLE, 0, 0),
            (WHOLE, 1, -1_000_000),
            (WHOLE + 1, 0, -1),
            (5, 250_000, 749_999_999_995),
        ] {
            assert_eq!(Share(parts).left_over(Ppm(rho)), left, "{parts} {rho}");
        }
    }

    /// A newcomer may bring the stage just to its limit, and not a part beyond. A refusal states what would
    /// be reserved, and the shortest period with which it would not be refused.
    #[test]
    fn a_newcomer_may_fill_the_stage_to_its_limit_and_no_part_more() {
        let (mut refused, mut without) = (0, 0);
        for (limit, rho) in [(1_000_000, 0), (900_000, 0), (900_000, 100_000), (30, 10), (10, 10), (10, 11)] {
            let model = model(limit, rho);
            let room = u128::from(limit.saturating_sub(rho)) * PARTS_PER_PPM;
            for used in [0, 1, PARTS_PER_PPM - 1, room / 3, room.saturating_sub(1), room, room + 1].map(Share)
            {
                for (cost, period) in
                    [(1, 1), (1, 2), (1, 3), (9, 10), (19, 1_000_000), (20, 1_000_000), (7, u64::MAX)]
                {
                    let newcomer = demand(cost, period);
                    let wanted = used.0 + Share::of(&newcomer).0;
                    // The limit and interference are whole ppm, so that rounding up to ppm changes nothing.
                    let fits = rho <= limit && wanted <= room;
                    let checked = used.check(&newcomer, &model);
                    assert_eq!(checked.is_ok(), fits, "{used:?} {cost} {period} {limit} {rho}");
                    let Err(refusal) = checked else { continue };
                    refused += 1;
                    let wanted_ppm = wanted.div_ceil(PARTS_PER_PPM) as u32 + rho;
                    let reason = RefusalReason::Utilisation { wanted_ppm, limit_ppm: limit };
                    assert_eq!((refusal.reason, refusal.bound_possible), (reason, None));
                    let Some(period) = refusal.period_possible else {
                        // Nothing is free, so that no period is long enough.
                        assert!(used.0 >= room, "{used:?} {cost} {limit} {rho}");
                        without += 1;
                        continue;
                    };
                    let of_period = |period| used.check(&demand(cost, period), &model).is_ok();
                    assert!(of_period(period.0) && !of_period(period.0 - 1), "{period} {used:?} {cost}");
                }
            }
        }
        assert!(refused > 100 && without > 50, "{refused} {without}");
    }

    /// Where a part of the stage is free, the shortest period is as long as its cost takes in that part; one
    /// that is longer than any time is none.
    #[test]
    fn the_shortest_period_is_that_in_which_the_free_share_is_the_cost() {
        let least = |used: u128, cost: u64, limit: u32, rho: u32| {
            Share(used).period_min(&demand(cost, 1), &model(limit, rho)).map(|period| period.0)
        };
        assert_eq!(least(0, 9, 1_000_000, 0), Some(9), "all of it");
        assert_eq!(least(0, 9, 900_000, 400_000), Some(18), "a half");
        assert_eq!(least(WHOLE / 4, 9, 900_000, 400_000), Some(36), "a quarter");
        assert_eq!(least(WHOLE - 3, 1, 1_000_000, 0), Some(333_333_333_334), "three parts");
        assert_eq!(least(WHOLE - 1, 1, 1_000_000, 0), Some(1_000_000_000_000), "one part");
        assert_eq!([least(WHOLE, 1, 1_000_000, 0), least(WHOLE + 1, 1, 1_000_000, 0)], [None; 2], "nothing");
        assert_eq!([least(0, 1, 400_000, 400_000), least(0, 1, 400_000, 400_001)], [None; 2], "nothing");
        // 2^64 ns are 18,446,744.07 times 10^12 ns.
        assert_eq!(least(WHOLE - 1, 18_446_744, 1_000_000, 0), Some(18_446_744_000_000_000_000));
        assert_eq!(least(WHOLE - 1, 18_446_745, 1_000_000, 0), None);
    }
}
