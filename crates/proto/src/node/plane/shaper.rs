//! The kernel's share of a link follows admission (ADR 0028).
//!
//! Admission assumes that kernel traffic has its least share. If the admitted channels meet their bounds at a
//! larger share too, the host's shaper gives the kernel that share. Invariants:
//! - `level` is never below what the shaper lets through. To raise it, our pace changes before the request to
//!   the shaper, which is sent once all packets that were stamped before have left. To lower it, our pace
//!   changes after the shaper has confirmed.
//! - A channel sends only once the level is one at which its bound and all others hold; its grant waits for
//!   that.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_analysis::following::{Load, Part, Sharing};
use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::ordered::Ordered;
use punctual_analysis::{BitRate, Demand, Instant, Link, Nanos, Ppm};

use super::{LinkState, Plane};
use crate::api::KernelShare;
use crate::config::LinkConfig;
use crate::ids::{ChannelId, LinkId};
use crate::limits::{
    SHAPER_CONTENTION, SHAPER_CONTENTION_KEPT, SHAPER_GROWS_AFTER, SHAPER_RETRY, SHAPER_STEP_PPM,
};
use crate::memory::Memory;
use crate::node::Node;
use crate::signalling::LocalChannel;
use crate::times::earliest;

/// State of the shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The shaper has applied the last request.
    Steady,
    /// The request for more is sent at `at`, when everything that was stamped for `from` has left.
    Rising { from: Ppm, at: Instant },
    /// The shaper was requested to apply this share and has not confirmed it.
    Asked(Ppm),
}

/// Demand of our best effort for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contention {
    None,
    /// Best effort waits. Until this time the wait may be short.
    Suspected(Instant),
    /// The kernel has its least share in favour of best effort, until this time at least.
    Kept(Instant),
}

/// A larger share that has been possible for some time.
#[derive(Clone, Copy, Debug)]
struct Growth {
    at: Instant,
    to: Ppm,
}

/// The share of one link.
#[derive(Debug)]
pub(super) struct Shaper {
    sharing: Sharing,
    drained: BitRate,
    load: Load,
    parts: Ordered<ChannelId, Part>,
    level: Ppm,
    phase: Phase,
    /// True if queue 1 was empty at the least share since the share was confirmed. The line then has no
    /// packets of a larger share, and the exact test of admission holds.
    settled: bool,
    growth: Option<Growth>,
    contention: Contention,
    /// Channels whose stages are held and that must not send yet.
    waiting: VecDeque<ChannelId>,
    /// Share to request from the host.
    request: Option<Ppm>,
    /// True if the set of admitted channels, or the shaper, has changed.
    stirred: bool,
    /// Time of the next check.
    next: Option<Instant>,
}

impl Shaper {
    /// Creates the shaper of a link whose kernel traffic follows admission; `None` for other links. The
    /// link's signalling is part of its load from the start.
    pub fn of(link: &LinkConfig, model: &Link, signal: (&Demand, Nanos)) -> Option<Box<Self>> {
        let largest = model.cost_of(u64::from(model.mtu_wire_bytes));
        let sharing = Sharing {
            least: link.interference.rho,
            most: link.kernel_share_max,
            sigma: link.interference.sigma,
            blocking: model.pipeline_time().max(largest),
            utilisation_limit: model.model().utilisation_limit,
        };
        let mut load = Load::default();
        load.add(signal.0, signal.1);
        link.follows().then(|| {
            Box::new(Self {
                sharing,
                drained: link.rate.less(link.rate_error),
                load,
                parts: Ordered::default(),
                level: sharing.least,
                phase: Phase::Steady,
                settled: true,
                growth: None,
                contention: Contention::None,
                waiting: VecDeque::new(),
                request: None,
                stirred: true,
                next: None,
            })
        })
    }

    /// A channel is final; whether it may send at once. Else it waits.
    pub(super) fn add(&mut self, channel: ChannelId, demand: &Demand, bound: Nanos) -> bool {
        let part = self.load.add(demand, bound);
        if let Some(before) = self.parts.insert(channel, part) {
            self.load.remove(before);
        }
        self.stirred = true;
        let fits = self.fits();
        if !fits {
            self.waiting.push_back(channel);
        }
        fits
    }

    fn remove(&mut self, channel: ChannelId) {
        if let Some(part) = self.parts.remove(&channel) {
            self.load.remove(part);
            self.waiting.retain(|waiting| *waiting != channel);
            self.stirred = true;
        }
    }

    /// Whether every bound of the link's channels holds at the level.
    fn fits(&self) -> bool {
        let holds = self.load.share_max(&self.sharing).is_some_and(|share| share >= self.level);
        let exact = self.level == self.sharing.least && self.settled;
        holds || exact || active(Mutation::GrantBeforeShaper)
    }

    /// The share that the kernel should have.
    fn target(&self) -> Ppm {
        match self.contention {
            Contention::Kept(_) => self.sharing.least,
            _ => self.load.share_max(&self.sharing).unwrap_or(self.sharing.least),
        }
    }

    fn rate_of(&self, share: Ppm) -> BitRate {
        BitRate((u128::from(self.drained.0) * u128::from(share.0) / 1_000_000) as u64)
    }

    /// Time of the next check, given whether best effort waits.
    fn due(&self, best_effort_waits: bool) -> Option<Instant> {
        let news =
            best_effort_waits && self.contention == Contention::None && self.level > self.sharing.least;
        if self.stirred || news { Some(Instant::ZERO) } else { self.next }
    }

    /// Updates the contention after a check of best effort.
    fn check_best_effort(&mut self, waits: bool, now: Instant) {
        self.contention = match self.contention {
            Contention::None if waits && self.level > self.sharing.least => {
                Contention::Suspected(now + SHAPER_CONTENTION)
            }
            Contention::Suspected(until) if until <= now => match waits {
                true => Contention::Kept(now + SHAPER_CONTENTION_KEPT),
                false => Contention::None,
            },
            Contention::Kept(until) if until <= now => match waits {
                true => Contention::Kept(now + SHAPER_CONTENTION_KEPT),
                false => Contention::None,
            },
            contention => contention,
        };
    }

    /// Notes that the shaper has confirmed a rate. Returns the share if our pace must change now.
    fn confirmed(&mut self, rate: BitRate) -> Option<Ppm> {
        let Phase::Asked(share) = self.phase else { return None };
        if self.rate_of(share) != rate {
            return None;
        }
        self.phase = Phase::Steady;
        self.stirred = true;
        let shrunk = share < self.level;
        self.level = share;
        shrunk.then_some(share)
    }

    /// Requests a smaller share, or a larger one once that has been possible for long enough. Returns the new
    /// level if our pace must change now.
    fn decide(&mut self, is_served: bool, now: Instant) -> Option<Ppm> {
        let target = self.target();
        match self.phase {
            // The share was not requested yet: the shaper is still at the previous one.
            Phase::Rising { from, .. } if target < self.level => {
                (self.phase, self.level) = (Phase::Steady, from);
                self.stirred = true;
                Some(from)
            }
            Phase::Rising { at, .. } => {
                if at <= now {
                    self.ask(self.level);
                }
                None
            }
            Phase::Asked(_) => None,
            Phase::Steady if target < self.level => {
                self.growth = None;
                self.ask(target);
                None
            }
            Phase::Steady => self.grow(target, is_served, now),
        }
    }

    fn ask(&mut self, share: Ppm) {
        (self.phase, self.request) = (Phase::Asked(share), Some(share));
    }

    fn grow(&mut self, target: Ppm, is_served: bool, now: Instant) -> Option<Ppm> {
        if target.0 < self.level.0.saturating_add(SHAPER_STEP_PPM) {
            self.growth = None;
            return None;
        }
        let growth = self.growth.get_or_insert(Growth { at: now + SHAPER_GROWS_AFTER, to: target });
        growth.to = growth.to.min(target);
        let Growth { at, to } = *growth;
        // A busy period that began under the exact test must end under it.
        if at > now || !is_served {
            return None;
        }
        self.growth = None;
        self.phase = Phase::Rising { from: self.level, at: now };
        (self.level, self.settled) = (to, false);
        Some(to)
    }

    /// Plans the next check that is due by time.
    fn plan(&mut self, now: Instant) {
        let rises = match self.phase {
            Phase::Rising { at, .. } => Some(at),
            _ => None,
        };
        let contention = match self.contention {
            Contention::None => None,
            Contention::Suspected(until) | Contention::Kept(until) => Some(until),
        };
        let grows = self.growth.map(|growth| growth.at.max(now + SHAPER_RETRY));
        let settles = (!self.settled && !self.waiting.is_empty()).then(|| now + SHAPER_RETRY);
        self.next = earliest(earliest(rises, contention), earliest(grows, settles));
    }

    fn shown(&self) -> KernelShare {
        // The larger share that was requested is not in effect yet.
        let now = match self.phase {
            Phase::Rising { from, .. } => from,
            _ => self.level,
        };
        KernelShare {
            now_bps: self.rate_of(now),
            least_bps: self.rate_of(self.sharing.least),
            most_bps: self.rate_of(self.sharing.most),
            waiting: self.waiting.len() as u32,
        }
    }
}

impl<M: Memory> LinkState<M> {
    /// The kernel's part of the link, if it follows admission.
    pub fn kernel_share(&self) -> Option<KernelShare> {
        self.shaper.as_ref().map(|shaper| shaper.shown())
    }

    /// Sets the pace beside kernel traffic of that share. Returns the time at which all packets that were
    /// stamped before have left.
    pub fn set_pace_beside(&mut self, share: Ppm, now: Instant) -> Instant {
        let (rate, delay) = (self.config.paced_beside(share), self.config.delay_beside(share));
        self.scheduler.set_pace(rate, delay, now)
    }

    /// Checks what is admitted and best effort. Returns the channels that may send from now on.
    fn follow(&mut self, now: Instant) -> Vec<ChannelId> {
        let (waits, is_served) = (self.scheduler.best_effort_waits(), self.scheduler.is_served(now));
        let Some(mut shaper) = self.shaper.take() else { return Vec::new() };
        shaper.stirred = false;
        shaper.check_best_effort(waits, now);
        if let Some(share) = shaper.decide(is_served, now) {
            let left = self.set_pace_beside(share, now);
            if let Phase::Rising { ref mut at, .. } = shaper.phase {
                *at = left;
            }
        }
        shaper.settled |= shaper.level == shaper.sharing.least && is_served;
        let fit = if shaper.fits() { shaper.waiting.drain(..).collect() } else { Vec::new() };
        shaper.plan(now);
        self.shaper = Some(shaper);
        fit
    }
}

impl<M: Memory> Plane<M> {
    /// Adds a channel whose stages are final. If its outgoing link does not meet their bounds yet, its grant
    /// waits.
    pub(super) fn share_with(&mut self, local: &LocalChannel) {
        let Some((link, stage)) = self.stages.link_stage(local) else { return };
        if let Some(shaper) = self.link_state_mut(link).shaper.as_mut() {
            shaper.add(local.channel, &stage.demand, stage.bound);
        }
    }

    /// Notes that a channel has ended.
    pub(super) fn share_without(&mut self, link: Option<LinkId>, channel: ChannelId) {
        let shaper = link.and_then(|link| self.link_state_mut(link).shaper.as_mut());
        if let Some(shaper) = shaper {
            shaper.remove(channel);
        }
    }

    /// Whether a channel's grant waits.
    pub(super) fn awaits_shaper(&self, local: &LocalChannel) -> bool {
        let shaper = local.link_out.and_then(|link| self.link_state(link).shaper.as_ref());
        shaper.is_some_and(|shaper| shaper.waiting.contains(&local.channel))
    }

    /// Time of the next check of a shaper; `None` if no check is planned.
    pub(in crate::node) fn shapers_due(&self) -> Option<Instant> {
        if !self.context.links.follows {
            return None;
        }
        let due = |state: &LinkState<M>| state.shaper.as_ref()?.due(state.scheduler.best_effort_waits());
        self.context.links.states.iter().fold(None, |first, state| earliest(first, due(state)))
    }

    /// Checks every shaper. Channels that may send from now on are in `fitted`.
    pub(in crate::node) fn follow(&mut self, now: Instant) {
        for state in &mut self.context.links.states {
            self.context.news.fitted.extend(state.follow(now));
        }
    }
}

impl<M: Memory> Node<M> {
    /// Whether the kernel's share of any link follows admission. [`Node::poll_shaper`] returns `None`
    /// otherwise.
    pub fn follows(&self) -> bool {
        self.plane.context.links.follows
    }

    /// The rate that kernel traffic of a link is to be held to from now on, in bits of the wire a second. The
    /// last value replaces earlier ones. Confirm it with [`Node::handle_shaped`].
    pub fn poll_shaper(&mut self) -> Option<(LinkId, BitRate)> {
        let follows = self.plane.context.links.follows;
        let states = self.plane.context.links.states.iter_mut().enumerate().filter(|_| follows);
        states.into_iter().find_map(|(index, state)| {
            let shaper = state.shaper.as_mut()?;
            let share = shaper.request.take()?;
            Some((LinkId(index as u16), shaper.rate_of(share)))
        })
    }

    /// Confirms that kernel traffic of a link is limited to `rate` now, and was limited to the larger of this
    /// and the previous rate since the request. No effect if `rate` is not the last that was requested.
    pub fn handle_shaped(&mut self, link: LinkId, rate: BitRate, now: Instant) {
        let state = self.plane.link_state_mut(link);
        if let Some(shrunk) = state.shaper.as_mut().and_then(|shaper| shaper.confirmed(rate)) {
            state.set_pace_beside(shrunk, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::{Contract, Rate};

    use super::*;
    use crate::config::Interference;
    use crate::config::link_model;
    use crate::ids::NodeId;

    /// A lightly loaded link of 95 Mbit/s whose kernel share is between a tenth and 95 %.
    fn shaper() -> Shaper {
        let link = LinkConfig {
            interference: Interference { sigma: Nanos::from_micros(500), rho: LEAST },
            kernel_share_max: MOST,
            ..LinkConfig::new("l", NodeId(2), BitRate(95_000_000))
        };
        let model = link_model(&link);
        let rate = Rate::per_second(20).expect("a rate");
        let contract = Contract::new(500, rate, 1, Nanos::from_millis(500)).expect("valid");
        let demand = model.demand(&contract, 500, Nanos::ZERO, Nanos::ZERO);
        let mut shaper = *Shaper::of(&link, &model, (&demand, Nanos::from_millis(500))).expect("it follows");
        shaper.stirred = false;
        shaper
    }

    const LEAST: Ppm = Ppm(100_000);
    const MOST: Ppm = Ppm(950_000);
    const NOW: Instant = Instant(5_000_000_000);
    const LATER: Instant = Instant(5_000_000_001);

    /// Waiting best effort is suspected for a moment. Then the kernel gives way for a while, and again while
    /// best effort waits.
    #[test]
    fn best_effort_takes_from_the_kernel_what_it_waits_for() {
        let suspected = Contention::Suspected(NOW + SHAPER_CONTENTION);
        let kept = Contention::Kept(NOW + SHAPER_CONTENTION_KEPT);
        for (level, before, waits, after) in [
            (MOST, Contention::None, false, Contention::None),
            (MOST, Contention::None, true, suspected),
            (LEAST, Contention::None, true, Contention::None),
            (MOST, Contention::Suspected(LATER), true, Contention::Suspected(LATER)),
            (MOST, Contention::Suspected(LATER), false, Contention::Suspected(LATER)),
            (MOST, Contention::Suspected(NOW), true, kept),
            (MOST, Contention::Suspected(NOW), false, Contention::None),
            (LEAST, Contention::Kept(LATER), false, Contention::Kept(LATER)),
            (LEAST, Contention::Kept(LATER), true, Contention::Kept(LATER)),
            (LEAST, Contention::Kept(NOW), true, kept),
            (LEAST, Contention::Kept(NOW), false, Contention::None),
        ] {
            let mut shaper = shaper();
            (shaper.level, shaper.contention) = (level, before);
            shaper.check_best_effort(waits, NOW);
            assert_eq!(shaper.contention, after, "{level:?} {before:?} {waits}");
        }
    }

    /// Down: the request to the shaper is first. Up: our pace changes first, after the share was possible for
    /// long enough, in steps of a minimum size, and while queue 1 is empty.
    #[test]
    fn a_share_goes_down_through_the_shaper_and_up_after_a_while() {
        let mut shaper = shaper();
        assert_eq!((shaper.target(), shaper.level), (MOST, LEAST));
        assert_eq!((shaper.decide(true, NOW), shaper.phase), (None, Phase::Steady), "it is open since now");
        let open = NOW + SHAPER_GROWS_AFTER;
        assert_eq!(shaper.decide(true, Instant(open.0 - 1)), None);
        assert_eq!(shaper.decide(false, open), None, "queue 1 is not empty");
        assert_eq!(shaper.decide(true, open), Some(MOST));
        assert_eq!((shaper.phase, shaper.level), (Phase::Rising { from: LEAST, at: open }, MOST));
        assert!(!shaper.settled && shaper.request.is_none());
        assert_eq!(shaper.shown().now_bps, shaper.rate_of(LEAST), "what is asked for more is not there yet");
        shaper.phase = Phase::Rising { from: LEAST, at: LATER };
        assert_eq!((shaper.decide(true, NOW), shaper.request), (None, None), "what was stamped has not left");
        assert_eq!((shaper.decide(true, LATER), shaper.request), (None, Some(MOST)));
        assert_eq!((shaper.phase, shaper.decide(true, LATER)), (Phase::Asked(MOST), None));
        assert_eq!(shaper.confirmed(shaper.rate_of(LEAST)), None, "nobody asked for that");
        assert_eq!(shaper.phase, Phase::Asked(MOST));
        assert_eq!((shaper.confirmed(shaper.rate_of(MOST)), shaper.phase), (None, Phase::Steady));
        assert!(core::mem::take(&mut shaper.stirred));
        assert_eq!(shaper.confirmed(shaper.rate_of(MOST)), None, "once");
        assert!(!shaper.stirred && shaper.shown().now_bps == shaper.rate_of(MOST));
        // Best effort needs the share again.
        shaper.contention = Contention::Kept(LATER);
        assert_eq!((shaper.target(), shaper.decide(true, LATER)), (LEAST, None));
        assert_eq!((shaper.phase, shaper.level, shaper.request), (Phase::Asked(LEAST), MOST, Some(LEAST)));
        assert_eq!((shaper.confirmed(shaper.rate_of(LEAST)), shaper.level), (Some(LEAST), LEAST));
        // A share that was not requested yet is withdrawn at once.
        (shaper.phase, shaper.level, shaper.stirred) =
            (Phase::Rising { from: LEAST, at: LATER }, MOST, false);
        assert_eq!(
            (shaper.decide(true, NOW), shaper.phase, shaper.stirred),
            (Some(LEAST), Phase::Steady, true)
        );
        assert_eq!(shaper.level, LEAST);
    }

    /// A growth below one step is not applied. The smallest share that was possible in the whole time counts.
    #[test]
    fn a_share_grows_by_a_step_at_least_and_to_the_least_that_was_open() {
        for (level, grows) in [(MOST.0 - SHAPER_STEP_PPM, true), (MOST.0 - SHAPER_STEP_PPM + 1, false)] {
            let mut shaper = shaper();
            shaper.level = Ppm(level);
            assert_eq!(shaper.decide(true, NOW), None);
            assert_eq!(shaper.growth.is_some(), grows, "{level}");
        }
        let mut shaper = shaper();
        let open = NOW + SHAPER_GROWS_AFTER;
        assert_eq!(shaper.grow(Ppm(400_000), true, NOW), None);
        assert_eq!(shaper.grow(Ppm(300_000), true, NOW), None);
        assert_eq!(shaper.grow(Ppm(900_000), true, open), Some(Ppm(300_000)));
        assert!(shaper.growth.is_none());
        (shaper.level, shaper.phase) = (LEAST, Phase::Steady);
        assert_eq!(shaper.grow(Ppm(400_000), true, NOW), None);
        assert_eq!(
            (shaper.grow(LEAST, true, open), shaper.growth.is_none()),
            (None, true),
            "it is open no more"
        );
        assert_eq!(shaper.grow(Ppm(400_000), true, open), None, "it begins anew");
    }

    /// A shaper is checked when something changes or is due: the shaper itself, best effort, a larger share,
    /// and channels that wait for a settled share.
    #[test]
    fn a_shaper_is_checked_when_something_is_due() {
        let planned = |change: fn(&mut Shaper)| {
            let mut shaper = shaper();
            change(&mut shaper);
            shaper.plan(NOW);
            shaper.next
        };
        let retry = NOW + SHAPER_RETRY;
        assert_eq!(planned(|_| ()), None);
        assert_eq!(planned(|shaper| shaper.phase = Phase::Rising { from: LEAST, at: LATER }), Some(LATER));
        assert_eq!(planned(|shaper| shaper.contention = Contention::Suspected(LATER)), Some(LATER));
        assert_eq!(planned(|shaper| shaper.contention = Contention::Kept(LATER)), Some(LATER));
        assert_eq!(
            planned(|shaper| shaper.growth = Some(Growth { at: LATER, to: MOST })),
            Some(retry),
            "not at once"
        );
        let far = |shaper: &mut Shaper| shaper.growth = Some(Growth { at: NOW + SHAPER_RETRY * 5, to: MOST });
        assert_eq!(planned(far), Some(NOW + SHAPER_RETRY * 5));
        assert_eq!(planned(|shaper| shaper.settled = false), None, "nobody waits");
        assert_eq!(planned(|shaper| shaper.waiting.push_back(ChannelId(1))), None, "it is settled");
        let waits = |shaper: &mut Shaper| {
            shaper.settled = false;
            shaper.waiting.push_back(ChannelId(1));
        };
        assert_eq!(planned(waits), Some(retry));
        let mut shaper = shaper();
        shaper.next = Some(LATER);
        assert_eq!(
            (shaper.due(false), shaper.due(true)),
            (Some(LATER), Some(LATER)),
            "there is nothing to take"
        );
        shaper.level = MOST;
        assert_eq!((shaper.due(false), shaper.due(true)), (Some(LATER), Some(Instant::ZERO)));
        shaper.contention = Contention::Suspected(LATER);
        assert_eq!(shaper.due(true), Some(LATER), "it is known");
        shaper.stirred = true;
        assert_eq!(shaper.due(false), Some(Instant::ZERO));
    }

    /// A channel that does not fit at the level waits, once. A channel that is removed waits no more and its
    /// load is removed. Of two calls for one channel, the last one counts.
    #[test]
    fn a_channel_that_does_not_fit_waits_until_it_does() {
        let link = LinkConfig::new("l", NodeId(2), BitRate(95_000_000));
        let rate = Rate::per_second(100).expect("a rate");
        let contract = Contract::new(1_000, rate, 1, Nanos::from_millis(9)).expect("valid");
        let demand = link_model(&link).demand(&contract, 1_000, Nanos::ZERO, Nanos::ZERO);
        let mut shaper = shaper();
        shaper.level = MOST;
        let before = shaper.load.share_max(&shaper.sharing);
        assert!(!shaper.add(ChannelId(1), &demand, Nanos::from_millis(3)), "too tight beside so much");
        assert!(core::mem::take(&mut shaper.stirred) && !shaper.fits());
        assert_eq!((shaper.shown().waiting, shaper.target() < MOST), (1, true));
        shaper.remove(ChannelId(7));
        assert!(!shaper.stirred && shaper.waiting.len() == 1, "nobody's");
        shaper.remove(ChannelId(1));
        assert!(shaper.stirred && shaper.waiting.is_empty() && shaper.fits());
        assert_eq!(shaper.load.share_max(&shaper.sharing), before);
        assert!(!shaper.add(ChannelId(1), &demand, Nanos::from_millis(3)));
        assert!(shaper.add(ChannelId(1), &demand, Nanos::from_secs(2)), "its last word is loose");
        shaper.remove(ChannelId(1));
        assert_eq!(shaper.load.share_max(&shaper.sharing), before);
        // Those that wait have waited longest in front.
        let waiting = [5, 3, 4].map(ChannelId);
        for channel in waiting {
            assert!(!shaper.add(channel, &demand, Nanos::from_millis(3)));
        }
        assert!(shaper.waiting.iter().eq(&waiting));
        waiting.into_iter().for_each(|channel| shaper.remove(channel));
        // At the least share the exact test of admission holds, once it is settled.
        shaper.level = LEAST;
        for (settled, fits) in [(true, true), (false, false)] {
            shaper.settled = settled;
            assert_eq!(shaper.add(ChannelId(2), &demand, Nanos(1)), fits);
            shaper.remove(ChannelId(2));
        }
    }

    /// A share is settled once queue 1 is empty at the least share. At a larger one it never is.
    #[test]
    fn a_share_is_settled_at_the_least_one_alone() {
        for (level, settles) in [(LEAST, true), (MOST, false)] {
            let mut node = crate::node::tests::node();
            let state = node.plane.link_state_mut(LinkId(0));
            state.shaper = Some(Box::new(Shaper { level, settled: false, ..shaper() }));
            state.follow(NOW);
            assert_eq!(state.shaper.as_ref().map(|shaper| shaper.settled), Some(settles), "{level:?}");
        }
    }

    /// A busy period that began under the exact test must end under it: the share grows once queue 1 is
    /// empty, which is checked again soon.
    #[test]
    fn a_busy_link_is_checked_again_soon() {
        let link = LinkConfig {
            interference: Interference { sigma: Nanos::from_micros(500), rho: Ppm(100_000) },
            kernel_share_max: Ppm(950_000),
            ..LinkConfig::new("l", NodeId(2), BitRate(95_000_000))
        };
        let model = link_model(&link);
        let rate = Rate::per_second(20).expect("a rate");
        let contract = Contract::new(500, rate, 1, Nanos::from_millis(500)).expect("valid");
        let demand = model.demand(&contract, 500, Nanos::ZERO, Nanos::ZERO);
        let mut shaper = Shaper::of(&link, &model, (&demand, Nanos::from_millis(500))).expect("it follows");
        shaper.stirred = false;
        let begin = Instant(1_000_000_000);
        let (look, mut at) = (
            |shaper: &mut Shaper, is_served, now| {
                let grown = shaper.decide(is_served, now);
                shaper.plan(now);
                (grown.is_some(), shaper.due(false))
            },
            begin,
        );
        assert_eq!(look(&mut shaper, true, at), (false, Some(begin + SHAPER_GROWS_AFTER)));
        at = begin + SHAPER_GROWS_AFTER;
        for _ in 0..5 {
            let again = at + SHAPER_RETRY;
            assert_eq!(look(&mut shaper, false, at), (false, Some(again)));
            at = again;
        }
        assert!(look(&mut shaper, true, at).0, "it is free now");
    }
}
