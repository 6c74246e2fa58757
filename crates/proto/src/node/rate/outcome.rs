//! Evaluation of a measurement, and its effect on a link that measures itself.

use alloc::string::String;
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Instant, Ppm};

use super::Own;
use crate::api::{MeasuredRate, RateRefusal, RateStatus};
use crate::config::KernelTraffic;
use crate::ids::LinkId;
use crate::limits::{RATE_FULL_TIMES, RATE_PROOF_AGAIN};
use crate::memory::Memory;
use crate::node::Node;
use crate::rate_sample::RateSample;

/// More than this part of the offered packets must be missing for the link to count as filled.
const OFFERED: Ppm = Ppm(20_000);
/// The most by which a shaper of ours limits the link below its rate, because of bytes that the shaper does
/// not count (ADR 0027).
const SHAPED: Ppm = Ppm(16_000);

/// Evidence whether a measurement has filled its link.
#[derive(Clone, Copy, Debug)]
struct Filling {
    /// The rate at which packets came through.
    through: BitRate,
    /// The rate at which they were sent.
    offered: BitRate,
    /// The rate that a shaper of ours limits the link to; `None` if it has none.
    shaped: Option<BitRate>,
    /// Number of times that the driver had no room.
    full_times: u32,
}

impl Filling {
    /// Whether no more packets could have come through: `false` if so few are missing that this host may not
    /// have sent enough.
    fn is_complete(&self, error: Ppm) -> bool {
        let missing = Ppm(error.0.max(OFFERED.0));
        let is_less = |rate: BitRate| self.through < rate.less(missing);
        let is_filled = is_less(self.offered) || self.full_times >= RATE_FULL_TIMES;
        is_filled && self.shaped.is_none_or(is_less)
    }
}

impl<M: Memory> Node<M> {
    /// The link of this name.
    ///
    /// # Errors
    /// The existing names.
    pub fn link_named(&self, name: &str) -> Result<LinkId, Vec<String>> {
        let names = || self.plane.config().links.iter().map(|link| &link.name);
        match names().position(|known| known == name) {
            Some(index) => Ok(LinkId(index as u16)),
            None => Err(names().cloned().collect()),
        }
    }

    /// A link's name, empty if there is no such link.
    pub fn link_name(&self, link: LinkId) -> &str {
        self.plane.config().links.get(usize::from(link.0)).map_or("", |link| &link.name)
    }

    /// The status of a link's rate.
    pub fn rate_status(&self, link: LinkId) -> RateStatus {
        let (rate, config) = (&self.rates.links[usize::from(link.0)], &self.plane.link_state(link).config());
        RateStatus {
            rate: config.rate,
            error: config.rate_error,
            auto: config.rate_auto,
            measured: rate.measured.map(|(measured, _)| measured),
            observed: rate.watch.observed(),
            refused: rate.refused,
        }
    }

    /// The drain rate of a link if a measurement found it to be below the rate that admission assumes, and no
    /// faster rate was observed since.
    pub(in crate::node) fn measured_slow(&self, link: LinkId) -> Option<BitRate> {
        let (rate, config) = (&self.rates.links[usize::from(link.0)], &self.plane.link_state(link).config());
        let (measured, _) = rate.measured.filter(|_| !config.rate_auto)?;
        let most = measured.at_most();
        let seen = rate.watch.observed().filter(|seen| seen.at > measured.at);
        let is_slow = !measured.at_least && most < config.rate.less(config.rate_error);
        (is_slow && seen.is_none_or(|seen| seen.rate <= most)).then_some(measured.rate)
    }

    /// Measures a link before it counts as healed. Returns whether the measurement has begun.
    pub(in crate::node) fn proves_rate(&mut self, link: LinkId, now: Instant) -> bool {
        let rate = &mut self.rates.links[usize::from(link.0)];
        rate.again_at = now + RATE_PROOF_AGAIN;
        self.measure_rate(link, now).is_ok()
    }

    pub(in crate::node) fn measures_rate(&self, link: LinkId) -> bool {
        self.rates.links[usize::from(link.0)].own != Own::Idle
    }

    /// Evaluates the neighbour's count.
    pub(super) fn judge_rate(&self, link: LinkId, counted: &RateSample, now: Instant) -> MeasuredRate {
        let (state, rate) = (self.plane.link_state(link), &self.rates.links[usize::from(link.0)]);
        let wire_bytes = state.filler_wire_bytes();
        // A neighbour cannot report more than was tried.
        let tried = state.config().rate_ceiling.unwrap_or(state.config().rate).max(state.config().rate);
        let through = counted.rate(wire_bytes).min(tried);
        // The receiver's clock against ours: each within the domain's tolerance.
        let clocks = self.plane.config().clock_tolerance.0.saturating_mul(2);
        let error = Ppm(counted.error(wire_bytes).0.saturating_add(clocks).min(Ppm::ONE.0));
        let is_shaped = state.config().kernel_traffic == KernelTraffic::Behind;
        let filling = Filling {
            through,
            offered: counted.offered_rate(wire_bytes),
            shaped: is_shaped.then(|| state.config().rate.less(state.config().rate_error).less(SHAPED)),
            full_times: rate.full_times,
        };
        MeasuredRate { rate: through, error, at_least: !filling.is_complete(error), at: now }
    }

    /// Sets the rate of a link that measures itself.
    pub(super) fn use_rate(
        &mut self,
        link: LinkId,
        measured: MeasuredRate,
    ) -> Result<MeasuredRate, RateRefusal> {
        if !self.plane.link_state(link).config().rate_auto {
            return Ok(measured);
        }
        let error = Ppm(measured.error.0.max(self.rates.errors[usize::from(link.0)].0));
        if measured.rate == BitRate(0) || !self.plane.set_link_rate(link, measured.rate, error) {
            return Err(RateRefusal::TooSlow);
        }
        self.signalling.set_link_rate(link, measured.rate, error);
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED_RATE: BitRate = BitRate(1_000_000);
    const EVEN: Filling =
        Filling { through: BitRate(0), offered: OFFERED_RATE, shaped: None, full_times: RATE_FULL_TIMES - 1 };

    /// A link on which exactly the tolerated part is missing counts as not filled, tested to the bit.
    #[test]
    fn a_link_is_filled_only_if_more_is_missing_than_may_be() {
        for (error, least) in [(0, 980_000), (20_000, 980_000), (30_000, 970_000)] {
            let is_filled = |through| Filling { through, ..EVEN }.is_complete(Ppm(error));
            let seen = [least - 1, least, OFFERED_RATE.0].map(|through| is_filled(BitRate(through)));
            assert_eq!(seen, [true, false, false], "error {error}");
        }
    }

    /// A driver that was full often enough has filled the link, however much came through.
    #[test]
    fn a_driver_that_is_full_often_enough_has_filled_the_link() {
        let filling = |full_times| Filling { through: OFFERED_RATE, full_times, ..EVEN };
        let times = [RATE_FULL_TIMES - 1, RATE_FULL_TIMES, RATE_FULL_TIMES + 1];
        assert_eq!(times.map(|times| filling(times).is_complete(Ppm(0))), [false, true, true]);
    }

    /// Packets that a shaper of ours holds back are no evidence about the link behind it.
    #[test]
    fn a_link_that_is_shaped_here_is_filled_only_below_what_the_shaper_lets_through() {
        for full_times in [0, RATE_FULL_TIMES] {
            let shaped = Some(BitRate(500_000));
            let filled = |through| Filling { through, shaped, full_times, ..EVEN }.is_complete(Ppm(0));
            assert_eq!([489_999, 490_000, 500_000].map(|bits| filled(BitRate(bits))), [true, false, false]);
        }
    }
}
