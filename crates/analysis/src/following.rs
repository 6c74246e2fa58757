//! The share of a link that kernel traffic may have beside the admitted channels, if the host can change that
//! share (ADR 0028).
//!
//! Admission assumes that the kernel has its least share f. At a larger share k our packets are paced at (1 -
//! k) of the rate, in the order of their deadlines. In whatever order the adapter sends, kernel packets delay
//! their departure by at most sigma / (1 - k). With D' = min(d - r, I') the demand of a channel in any time t
//! is at most C·t/D', and zero before d - r; so every bound holds while
//!
//! > (1 - f)/(1 - k) · (sum of C/D' + (sigma/(1 - f) + blocking) / min of (d - r)) <= 1 - best_effort_share_min
//!
//! with C and blocking at (1 - f) of the rate: times that depend on the rate scale with it, and the others do
//! not grow. Sums of densities also hold over a change of k or of the channels, which the exact test of EDF
//! does not.

use alloc::boxed::Box;

use crate::policy::Demand;
use crate::units::{Nanos, Ppm};

const WHOLE: u128 = 1_000_000;
const FRACTION_BITS: u32 = 32;
/// Four classes of d - r in each power of two.
const SPANS: usize = 256;
/// Shares are reported to the kernel in steps of a per mille.
const STEP: u32 = 1_000;

/// Constants of a link whose kernel traffic follows admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// f: the share that admission assumes for the kernel.
    pub least: Ppm,
    /// The most that the kernel may have.
    pub most: Ppm,
    /// The kernel's burst, in the time of a link without kernel traffic.
    pub sigma: Nanos,
    /// Longest time that less urgent packets block an urgent one, at (1 - f) of the rate.
    pub blocking: Nanos,
    /// Share that channels may reserve: the rest is for best effort.
    pub utilisation_limit: Ppm,
}

/// The contribution of one channel to a [`Load`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// C/D', in 2^-32.
    density: u64,
    span: u8,
}

/// The sum over all channels of a link. Adding and removing a channel takes constant time.
#[derive(Clone, Debug)]
pub struct Load {
    density: u128,
    spans: Box<[u32; SPANS]>,
}

impl Default for Load {
    fn default() -> Self {
        Self { density: 0, spans: Box::new([0; SPANS]) }
    }
}

impl Load {
    /// Adds a channel that holds `bound`; returns the value to remove it with.
    pub fn add(&mut self, demand: &Demand, bound: Nanos) -> Part {
        let span = bound - demand.release_latency;
        let shortest = span.min(demand.period).0.max(1);
        let density = (u128::from(demand.cost.0) << FRACTION_BITS).div_ceil(shortest.into());
        let part = Part { density: u64::try_from(density).unwrap_or(u64::MAX), span: class_of(span) };
        self.density += u128::from(part.density);
        self.spans[usize::from(part.span)] += 1;
        part
    }

    /// Removes a part that [`Load::add`] has returned.
    pub fn remove(&mut self, part: Part) {
        self.density -= u128::from(part.density);
        self.spans[usize::from(part.span)] -= 1;
    }

    /// The largest share of the kernel at which all bounds hold; `None` if the test finds none at or above
    /// `sharing.least`.
    pub fn share_max(&self, sharing: &Sharing) -> Option<Ppm> {
        let used = WHOLE - u128::from(sharing.least.0.min(999_999));
        let sigma = (u128::from(sharing.sigma.0) * WHOLE).div_ceil(used);
        let once = sigma + u128::from(sharing.blocking.0);
        let span = self.spans.iter().position(|channels| *channels > 0).map_or(u64::MAX, shortest_of);
        let load = self.density + (once << FRACTION_BITS).div_ceil(u128::from(span.max(1)));
        let limit = u128::from(sharing.utilisation_limit.0.max(1)) << FRACTION_BITS;
        let kept = used.saturating_mul(load).saturating_mul(WHOLE).div_ceil(limit);
        let share = WHOLE.checked_sub(kept)? as u32;
        // Rounding must not exclude the least share itself.
        let rounded = Ppm(share - share % STEP).min(sharing.most).max(sharing.least);
        (share >= sharing.least.0).then_some(rounded)
    }
}

/// The class of a span: its leading bit and the two behind it.
fn class_of(span: Nanos) -> u8 {
    let bits = u64::BITS - span.0.leading_zeros();
    match bits {
        0..=2 => span.0 as u8,
        _ => ((bits - 2) * 4 + (span.0 >> (bits - 3)) as u32 % 4) as u8,
    }
}

/// The shortest span of a class.
fn shortest_of(class: usize) -> u64 {
    let class = class as u64;
    match class / 4 {
        0 => class,
        power => (4 + class % 4) << (power - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    use crate::Soft;
    use crate::policy::{Class, Urgency};
    use proptest::prelude::*;

    fn demand(cost: u64, period: u64, release: u64) -> Demand {
        Demand {
            cost: Nanos(cost),
            unit_cost_max: Nanos(cost),
            period: Nanos(period),
            release_latency: Nanos(release),
            early: Nanos::ZERO,
            urgency: Urgency::of_period(Class::Guaranteed, Nanos(period)),
            soft: None::<Soft>,
        }
    }

    const SHARING: Sharing = Sharing {
        least: Ppm(100_000),
        most: Ppm(950_000),
        sigma: Nanos(9_000),
        blocking: Nanos(20_000),
        utilisation_limit: Ppm(950_000),
    };

    #[test]
    fn a_loose_channel_leaves_the_kernel_nearly_all_and_a_tight_one_little() {
        let mut load = Load::default();
        assert_eq!(load.share_max(&SHARING), Some(Ppm(950_000)), "nothing is held");
        let loose = load.add(&demand(1_000, 10_000_000, 0), Nanos(10_000_000));
        assert_eq!(load.share_max(&SHARING), Some(Ppm(950_000)));
        // (10 + 20 + 10) / 160 of 0.9, and 0.05 that best effort keeps: 0.237 are for channels.
        let tight = load.add(&demand(10_000, 10_000_000, 0), Nanos(1 << 17));
        let share = load.share_max(&SHARING).expect("it holds");
        assert!((700_000..=715_000).contains(&share.0), "{share:?}");
        let tighter = load.add(&demand(1_000, 10_000_000, 5_000), Nanos(35_000));
        assert_eq!(load.share_max(&SHARING), None, "30 us are gone before it is served");
        load.remove(tighter);
        assert_eq!(load.share_max(&SHARING), Some(share));
        load.remove(tight);
        load.remove(loose);
        assert_eq!(load.density, 0);
    }

    proptest! {
        #[test]
        fn a_class_is_at_most_a_quarter_below_its_spans(span in any::<u64>()) {
            let shortest = shortest_of(usize::from(class_of(Nanos(span))));
            prop_assert!(shortest <= span && span - shortest <= span / 5 + 1, "{} {}", shortest, span);
        }

        /// The time before a message is released is no part of the time in which it may be served.
        #[test]
        fn a_channel_counts_with_what_its_release_leaves_of_its_bound(
            cost in 1_u64..20_000, period in 20_000_u64..4_000_000, bound in 2_u64..4_000_000, gone_percent in 0_u64..100,
        ) {
            let release = bound * gone_percent / 100;
            let [mut late, mut at_once] = [Load::default(), Load::default()];
            let part = late.add(&demand(cost, period, release), Nanos(bound));
            prop_assert_eq!(part, at_once.add(&demand(cost, period, 0), Nanos(bound - release)));
            prop_assert_eq!(late.share_max(&SHARING), at_once.share_max(&SHARING));
        }

        /// If the test accepts, the demand of every time is served: channels at their worst, kernel and
        /// blocking first.
        #[test]
        fn what_it_opens_serves_all_demand(
            channels in prop::collection::vec((1_u64..20_000, 20_000_u64..4_000_000, 0_u64..95, 5_u64..300), 1..12),
        ) {
            let mut load = Load::default();
            let channels: Vec<_> = channels
                .into_iter()
                .map(|(cost, period, gone_percent, percent)| {
                    let bound = period * percent / 100;
                    (demand(cost, period, bound * gone_percent / 100), bound)
                })
                .collect();
            for (demand, bound) in &channels {
                load.add(demand, Nanos(*bound));
            }
            if let Some(share) = load.share_max(&SHARING) {
                let slower = |ns: u64| u128::from(ns) * 900_000 / u128::from(1_000_000 - share.0);
                let first = u128::from(SHARING.sigma.0) * 1_000_000 / u128::from(1_000_000 - share.0)
                    + slower(SHARING.blocking.0);
                for (own, bound) in &channels {
                    for n in 0..20 {
                        let t = bound - own.release_latency.0 + n * own.period.0;
                        let due = channels.iter().map(|(demand, bound)| {
                            let span = bound - demand.release_latency.0;
                            let messages = if t < span { 0 } else { (t - span) / demand.period.0 + 1 };
                            slower(demand.cost.0) * u128::from(messages)
                        });
                        let due = due.sum::<u128>() + first;
                        prop_assert!(due <= u128::from(t), "{} of {}", due, t);
                    }
                }
            }
        }
    }

    /// Each class begins where the one before it ends, and is no longer than a quarter of its spans.
    #[test]
    fn classes_lie_one_behind_the_other() {
        for class in 4..=class_of(Nanos::MAX) {
            let first = shortest_of(class.into());
            assert_eq!((class_of(Nanos(first)), class_of(Nanos(first - 1))), (class, class - 1));
            let next =
                if class < class_of(Nanos::MAX) { shortest_of(usize::from(class) + 1) } else { u64::MAX };
            assert!(next - first <= first.div_ceil(4), "{class}: {first} to {next}");
        }
        assert_eq!([0, 1, 2, 3].map(|span| class_of(Nanos(span))), [0, 1, 2, 3]);
    }
}
