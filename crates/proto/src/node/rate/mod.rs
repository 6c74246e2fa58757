//! Measures the drain rate of links, with the neighbour's help, while no guaranteed channel uses them (ADR
//! 0030).
//!
//! The host at the beginning of the link requests a measurement (ASK). The neighbour checks whether channels
//! use the link there, prepares to count and replies GO. The first host fills the link with best effort for
//! [`RATE_TIME`] and sends DONE behind it. The neighbour reports what arrived. DONE has passed every queue
//! that the packets before it waited in, so when the report arrives the link is empty again. From ASK to the
//! report both ends delay requests for channels over the link; none is refused because of the measurement. A
//! host measures one link at a time, its own direction or a neighbour's, because two measurements would share
//! its processor.

pub(super) mod arrivals;
mod outcome;
mod watch;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Ppm};

use self::watch::{DrainWatch, LinkSample};
use super::Node;
use crate::api::{Event, MeasuredRate, RateRefusal};
use crate::config::LinkConfig;
use crate::ids::{Cookie, LinkId};
use crate::limits::{
    RATE_AGAIN, RATE_ANSWER_TIME, RATE_ATTEMPTS_MAX, RATE_DRAIN_TIME, RATE_ERROR_GOOD, RATE_ERROR_MAX,
    RATE_PROOF_AGAIN, RATE_STEP, RATE_TIME,
};
use crate::memory::Memory;
use crate::rate_sample::RateSample;
use crate::signalling::RateWord;
use crate::times::earliest;

/// Progress of the measurement of this host's own direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Own {
    #[default]
    Idle,
    /// The neighbour was asked.
    Asked { token: Cookie, until: Instant },
    /// The link is being filled; packets that are left are handed over from `until` on.
    Filling { token: Cookie, until: Instant },
    /// Everything has left this host.
    Waiting { token: Cookie, until: Instant },
}

impl Own {
    const fn due(self) -> Option<Instant> {
        match self {
            Self::Idle => None,
            Self::Asked { until, .. } | Self::Filling { until, .. } | Self::Waiting { until, .. } => {
                Some(until)
            }
        }
    }
}

/// Measurements of one link.
#[derive(Clone, Copy, Debug, Default)]
struct LinkRate {
    own: Own,
    /// The neighbour fills its direction: its token, and the time at which the measurement is given up.
    theirs: Option<(Cookie, Instant)>,
    /// Best result of the present attempts.
    best: Option<MeasuredRate>,
    attempts: u8,
    /// Number of times that the driver was full in the present attempt.
    full_times: u32,
    /// Life of the neighbour to which the present attempt belongs.
    life: u32,
    /// The last measurement, and the life of the neighbour in which it was made.
    measured: Option<(MeasuredRate, u32)>,
    refused: Option<RateRefusal>,
    /// Observed drain rate of the link in use.
    watch: DrainWatch,
    /// Earliest time of the next attempt of a link that measures itself.
    again_at: Instant,
}

impl LinkRate {
    fn is_busy(&self) -> bool {
        self.own != Own::Idle || self.theirs.is_some()
    }
}

/// The measurements of all links of a node.
#[derive(Debug)]
pub(super) struct Rates {
    links: Vec<LinkRate>,
    /// Rate error of each link as configured: the error of a measured rate is never taken to be smaller.
    errors: Vec<Ppm>,
    events: VecDeque<Event>,
    /// Time of the next due action; read in each turn.
    due: Option<Instant>,
}

impl Rates {
    pub fn new(links: &[LinkConfig]) -> Self {
        let errors = links.iter().map(|link| link.rate_error).collect();
        Self { links: vec![LinkRate::default(); links.len()], errors, events: VecDeque::new(), due: None }
    }

    /// Time of the next due action; `None` if there is none.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The next event: a measurement that has ended.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Computes the next due time. Call it when the state of a link may have changed.
    fn settle_due(&mut self) {
        let of = |link: &LinkRate| earliest(link.own.due(), link.theirs.map(|(_, until)| until));
        self.due = self.links.iter().map(of).fold(None, earliest);
    }

    fn is_busy(&self) -> bool {
        self.links.iter().any(LinkRate::is_busy)
    }
}

impl<M: Memory> Node<M> {
    /// Channels and programs' handlers that have something of a link: while there are some its rate cannot be measured.
    pub(super) fn users_of(&self, link: LinkId) -> u32 {
        self.signalling.channels_on(link) + self.plane.senders_on(link)
    }

    /// Whether a link is being measured, in either direction.
    pub(super) fn is_measured(&self, link: LinkId) -> bool {
        self.rates.links[usize::from(link.0)].is_busy()
    }

    /// Begins to measure a link's drain rate in this host's direction; `Rate` follows. No channel is
    /// affected: a link that a guaranteed channel uses is not measured, and requests for channels meanwhile
    /// wait, less than a second if the link's queue is not deep.
    ///
    /// # Errors
    /// Why the link cannot be measured now.
    pub fn measure_rate(&mut self, link: LinkId, now: Instant) -> Result<(), RateRefusal> {
        let channels = self.users_of(link);
        if !self.signalling.neighbour(link, now).alive {
            return Err(RateRefusal::NoNeighbour);
        }
        if channels > 0 {
            return Err(RateRefusal::InUse { channels, there: false });
        }
        if self.rates.is_busy() {
            return Err(RateRefusal::Busy);
        }
        let rate = &mut self.rates.links[usize::from(link.0)];
        (rate.best, rate.attempts) = (None, 0);
        self.ask_rate(link, now);
        Ok(())
    }

    fn ask_rate(&mut self, link: LinkId, now: Instant) {
        let (token, life) = (self.signalling.rate_token(), self.signalling.neighbour(link, now).lives);
        let rate = &mut self.rates.links[usize::from(link.0)];
        rate.attempts += 1;
        rate.life = life;
        rate.own = Own::Asked { token, until: now + RATE_ANSWER_TIME };
        self.signalling.close_link(link);
        self.signalling.send_rate(link, RateWord::Ask { token });
        self.rates.settle_due();
    }

    /// Handles neighbours' messages, and starts the measurement of a link that needs one. Called after each
    /// signalling packet.
    pub(super) fn tend_rate(&mut self, link: LinkId, now: Instant) {
        while let Some((link, word)) = self.signalling.poll_rate_word() {
            self.on_rate_word(link, word, now);
        }
        let neighbour = self.signalling.neighbour(link, now);
        let state = self.plane.link_state(link);
        let sent = state.handed_bytes();
        let (configured, packet) = (state.config().rate, state.wire_bytes(state.config().packet_bytes_max));
        let drift = Ppm(self.plane.config().clock_tolerance.0.saturating_mul(2));
        if let Some((bytes, at)) = neighbour.their_received {
            let was_slow = self.measured_slow(link).is_some();
            let seen = LinkSample { sent, received: bytes, at, now };
            self.rates.links[usize::from(link.0)].watch.observe(seen, configured, packet, drift);
            if was_slow != self.measured_slow(link).is_some() {
                self.plane.request_check();
            }
        }
        let is_slow = self.measured_slow(link).is_some();
        let rate = &mut self.rates.links[usize::from(link.0)];
        if rate.is_busy() && (!neighbour.alive || rate.life != neighbour.lives) {
            self.drop_rate(link, RateRefusal::NoNeighbour, now);
        }
        let users = self.users_of(link);
        let rate = &mut self.rates.links[usize::from(link.0)];
        let is_known = rate.measured.is_some_and(|(_, life)| life == neighbour.lives);
        // An unused link that was slow may be as configured again: it is checked without waiting for a request.
        let proves = is_slow && users == 0;
        let wants = self.plane.link_state(link).config().rate_auto && !is_known || proves;
        if wants
            && rate.again_at <= now
            && neighbour.alive
            && !rate.is_busy()
            && !self.signalling.is_leaving()
        {
            rate.again_at = now + if proves { RATE_PROOF_AGAIN } else { RATE_AGAIN };
            // If another link is measured now, this one is tried after the next HELLO.
            if let Err(refusal) = self.measure_rate(link, now) {
                self.note_refused(link, refusal);
            }
        }
        self.rates.settle_due();
    }

    fn note_refused(&mut self, link: LinkId, refusal: RateRefusal) {
        let rate = &mut self.rates.links[usize::from(link.0)];
        rate.refused = Some(refusal);
        if rate.measured.is_none() && self.plane.link_state(link).config().rate_auto {
            self.plane.stages_mut().set_rate_unknown(link, Some(refusal));
        }
    }

    fn on_rate_word(&mut self, link: LinkId, word: RateWord, now: Instant) {
        let own = self.rates.links[usize::from(link.0)].own;
        match (word, own) {
            (RateWord::Ask { token }, _) => self.on_rate_asked(link, token, now),
            (RateWord::Go { token }, Own::Asked { token: asked, .. }) if token == asked => {
                self.plane.start_filling(link, token, now);
                let until = now + RATE_TIME;
                self.rates.links[usize::from(link.0)].own = Own::Filling { token, until };
            }
            (RateWord::Busy { token, channels }, Own::Asked { token: asked, .. }) if token == asked => {
                let in_use = RateRefusal::InUse { channels, there: true };
                self.conclude_rate(link, if channels > 0 { in_use } else { RateRefusal::Busy }, now);
            }
            (RateWord::Done { token }, _) => self.on_rate_done(link, token, now),
            (RateWord::Report { token, counted }, Own::Waiting { token: asked, .. }) if token == asked => {
                self.on_rate_report(link, counted, now);
            }
            // The message belongs to a measurement that was given up.
            (RateWord::Go { .. } | RateWord::Busy { .. } | RateWord::Report { .. }, _) => {}
        }
    }

    /// The neighbour requests to fill the link. If two hosts request it from each other at the same time, the
    /// one with the lower id is first.
    fn on_rate_asked(&mut self, link: LinkId, token: Cookie, now: Instant) {
        let yields = matches!(self.rates.links[usize::from(link.0)].own, Own::Asked { .. })
            && self.plane.link_state(link).config().neighbour < self.plane.config().id;
        if yields {
            self.end_rate(link, Err(RateRefusal::Busy), now);
        }
        // Its earlier request is over; requests that have waited for that one are served first.
        if self.rates.links[usize::from(link.0)].theirs.take().is_some() {
            self.plane.link_state_mut(link).end_counting();
            self.signalling.open_link(link, now, &mut self.plane);
        }
        let channels = self.users_of(link);
        if channels > 0 || self.rates.is_busy() || self.signalling.is_leaving() {
            return self.signalling.send_rate(link, RateWord::Busy { token, channels });
        }
        let life = self.signalling.neighbour(link, now).lives;
        let rate = &mut self.rates.links[usize::from(link.0)];
        let until = now + RATE_TIME + RATE_DRAIN_TIME;
        (rate.theirs, rate.life) = (Some((token, until)), life);
        self.plane.link_state_mut(link).begin_counting(token);
        self.signalling.close_link(link);
        self.signalling.send_rate(link, RateWord::Go { token });
    }

    fn on_rate_done(&mut self, link: LinkId, token: Cookie, now: Instant) {
        let rate = &mut self.rates.links[usize::from(link.0)];
        if rate.theirs.is_none_or(|(asked, _)| asked != token) {
            return;
        }
        rate.theirs = None;
        let counting = self.plane.link_state_mut(link).end_counting();
        let counted = counting.and_then(|counting| counting.counted());
        self.signalling.send_rate(link, RateWord::Report { token, counted });
        self.signalling.open_link(link, now, &mut self.plane);
    }

    fn on_rate_report(&mut self, link: LinkId, counted: Option<RateSample>, now: Instant) {
        let result = counted.ok_or(RateRefusal::TooFew).map(|counted| self.judge_rate(link, &counted, now));
        let rate = &mut self.rates.links[usize::from(link.0)];
        if let Ok(measured) = result
            && rate.best.is_none_or(|best| measured.error < best.error)
        {
            rate.best = Some(measured);
        }
        let is_good = rate.best.is_some_and(|best| best.error <= RATE_ERROR_GOOD);
        // A waiting channel is not delayed for a smaller error.
        if !is_good && rate.attempts < RATE_ATTEMPTS_MAX && !self.signalling.has_waiting(link) {
            rate.own = Own::Idle;
            return self.ask_rate(link, now);
        }
        self.conclude_rate(link, RateRefusal::TooFew, now);
    }

    /// Ends the measurement with the best attempt, or with `otherwise` if there was none.
    fn conclude_rate(&mut self, link: LinkId, otherwise: RateRefusal, now: Instant) {
        let best = self.rates.links[usize::from(link.0)].best.ok_or(otherwise);
        let even = best.and_then(|best| match best.error <= RATE_ERROR_MAX {
            true => Ok(best),
            false => Err(RateRefusal::Uneven { error: best.error }),
        });
        self.end_rate(link, even, now);
    }

    /// Ends a measurement: the link is open for channels again, and waiting requests continue.
    fn end_rate(&mut self, link: LinkId, result: Result<MeasuredRate, RateRefusal>, now: Instant) {
        self.plane.end_filling(link);
        self.rates.links[usize::from(link.0)].own = Own::Idle;
        let result = result.and_then(|measured| self.use_rate(link, measured));
        match result {
            Ok(measured) => {
                let rate = &mut self.rates.links[usize::from(link.0)];
                (rate.measured, rate.refused) = (Some((measured, rate.life)), None);
            }
            Err(refusal) => self.note_refused(link, refusal),
        }
        // The result may show that a stage breaks its promise, or that it keeps it.
        self.plane.request_check();
        self.rates.events.push_back(Event::Rate { link, result });
        self.signalling.open_link(link, now, &mut self.plane);
    }

    /// The neighbour is down, or did not reply in time.
    fn drop_rate(&mut self, link: LinkId, why: RateRefusal, now: Instant) {
        let rate = &mut self.rates.links[usize::from(link.0)];
        if rate.theirs.take().is_some() {
            self.plane.link_state_mut(link).end_counting();
        }
        if self.rates.links[usize::from(link.0)].own == Own::Idle {
            return self.signalling.open_link(link, now, &mut self.plane);
        }
        self.end_rate(link, Err(why), now);
    }

    /// Handles what is due.
    pub(super) fn handle_rates(&mut self, now: Instant) {
        for index in 0..self.rates.links.len() {
            let link = LinkId(index as u16);
            let LinkRate { own, theirs, .. } = self.rates.links[index];
            if theirs.is_some_and(|(_, until)| until <= now) {
                self.drop_rate(link, RateRefusal::NoAnswer, now);
            }
            if own.due().is_none_or(|until| until > now) {
                continue;
            }
            match own {
                Own::Filling { token, .. } => self.finish_filling(link, token, now),
                Own::Asked { .. } | Own::Waiting { .. } => self.drop_rate(link, RateRefusal::NoAnswer, now),
                Own::Idle => {}
            }
        }
        self.rates.settle_due();
    }

    /// The time is over: sends DONE once the last packet is handed over.
    fn finish_filling(&mut self, link: LinkId, token: Cookie, now: Instant) {
        let rate = &mut self.rates.links[usize::from(link.0)];
        if !self.plane.stop_filling(link, now) {
            rate.own = Own::Filling { token, until: now + RATE_STEP };
            return;
        }
        rate.full_times = self.plane.end_filling(link);
        rate.own = Own::Waiting { token, until: now + RATE_DRAIN_TIME };
        self.signalling.send_rate(link, RateWord::Done { token });
    }
}

#[cfg(test)]
mod tests;
