//! The promises of programs' handlers, judged by an account of their PDUs that is independent of the node.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{RtuClass, RtuEvent, RtuId, Work, WorkKind};
use punctual_proto::config::RunPolicy;

use super::{Body, Period};
use crate::world::World;

impl Body {
    /// The budget may have been used up by `now`: for work from then on.
    pub(in crate::world) fn use_up(&mut self, now: Instant) {
        if let Some((_, units)) = self.terms.class.windows() {
            self.releases = (0..units).map(|_| now).collect();
        }
        if let Some((period, _)) = self.terms.class.periods() {
            self.period.begin = Instant(now.0 - now.0 % period.0);
        }
    }

    /// A call without a PDU used a unit of a budget of windows, no later than `now`.
    pub(in crate::world) fn use_one(&mut self, now: Instant) {
        let Some((interval, units)) = self.terms.class.windows() else { return };
        let full = self.releases.len() >= units as usize;
        let oldest = if full { self.releases.pop_front() } else { None };
        self.releases.push_back(oldest.map_or(now, |oldest| now.max(oldest + interval)));
    }

    /// The node was notified of one more PDU.
    pub(in crate::world) fn came(&mut self, now: Instant) {
        self.waiting.push_back(now);
    }

    /// Release of the last data unit that was done.
    pub(super) fn released(&self) -> Option<Instant> {
        match self.terms.class {
            RtuClass::BestEffort => None,
            class if class.periods().is_some() => Some(self.period.begin),
            _ => self.releases.back().copied(),
        }
    }

    /// e of the PDU at the head, with all before it counted.
    fn release(&self) -> Option<Instant> {
        let (interval, units) = self.terms.class.windows()?;
        let full = self.releases.len() >= units as usize;
        let oldest = self.releases.front().filter(|_| full).map(|oldest| *oldest + interval);
        self.waiting.front().map(|came| oldest.map_or(*came, |oldest| oldest.max(*came)))
    }

    /// Whether work within the budget waits.
    fn is_pending(&mut self, now: Instant) -> bool {
        let _ = self.roll(now);
        match self.terms.class {
            _ if self.bound.is_none() => false,
            RtuClass::BestEffort => false,
            class if class.periods().is_some() => self.period.done < self.period.due,
            _ => self.release().is_some_and(|release| release <= now),
        }
    }

    /// Advances to the period of `now`; returns the unmet guarantee of the previous ones.
    pub(in crate::world) fn roll(&mut self, now: Instant) -> Option<String> {
        let ((period, units), bound) = (self.terms.class.periods()?, self.bound?);
        let mut wrong = None;
        while self.period.begin + period <= now {
            let Period { begin, due, in_time, .. } = self.period;
            if in_time < due {
                wrong = Some(format!("has {in_time} of {due} PDUs within {bound} of {begin:?}"));
            }
            let begin = begin + period;
            let there = self.waiting.iter().filter(|came| **came <= begin).count();
            self.period = Period { begin, due: there.min(units as usize), in_time: 0, done: 0 };
            if there == 0 && begin + period <= now {
                // No guarantee is open up to now: advance there at once.
                let skipped = Instant(now.0 - now.0 % period.0);
                let there = self.waiting.iter().filter(|came| **came <= skipped).count();
                self.period = Period { begin: skipped, due: there.min(units as usize), in_time: 0, done: 0 };
            }
        }
        wrong
    }

    /// A PDU is done; returns a violation.
    pub(in crate::world) fn finish_unit(&mut self, now: Instant) -> Option<String> {
        let release = self.release();
        let came = self.waiting.pop_front()?;
        let bound = self.bound?;
        match (self.terms.class.windows(), self.terms.class.periods()) {
            (Some((_, units)), _) => {
                let release = release?;
                if self.releases.len() >= units as usize {
                    self.releases.pop_front();
                }
                self.releases.push_back(release);
                (now > release + bound).then(|| {
                    format!(
                        "is done at {now:?} with what came at {came:?}, released {release:?}, bound {bound}"
                    )
                })
            }
            (_, Some((_, units))) => {
                self.period.done += 1;
                self.period.in_time += usize::from(now <= self.period.begin + bound);
                (self.period.done > units as usize)
                    .then(|| format!("has {} PDUs in a period of {units}", self.period.done))
            }
            (None, None) => None,
        }
    }
}

impl World {
    /// A unit begins that occupies the processor for `cost`: checks that it is the most urgent.
    pub(in crate::world) fn begin_upcall(&mut self, host: usize, work: &Work, cost: Nanos, now: Instant) {
        if self.hosts[host].bodies.bodies.is_empty() {
            return;
        }
        let member = &mut self.hosts[host];
        let id = member.node.upcall(work);
        let dispatch = member.node.costs().dispatch();
        let class = id.and_then(|id| member.bodies.bodies.get(&id)).map(|body| body.terms.class);
        if let Some(running) = &mut member.bodies.running {
            running.took = cost - dispatch - running.sending;
        }
        let run = self.scenario.hosts[host].config.cpu.run;
        let of_best_effort = work.kind == WorkKind::BestEffort || class == Some(RtuClass::BestEffort);
        let timed = matches!(class, Some(RtuClass::Guaranteed { .. })) && run == RunPolicy::Rmdp;
        if !of_best_effort && !timed {
            return;
        }
        let pending = member.bodies.bodies.iter_mut().find_map(|(id, body)| {
            let may_wait = timed && !matches!(body.terms.class, RtuClass::LowDelay { .. });
            (!may_wait && body.is_pending(now)).then_some(*id)
        });
        let wrong = pending.map(|_| "waits for what is less urgent than it".to_owned());
        self.judge_handler(host, pending.unwrap_or(RtuId(0)), wrong);
    }

    /// An event of a handler that belongs to a program of this host.
    pub(in crate::world) fn handle_rtu_event(&mut self, host: usize, event: &RtuEvent) {
        let (RtuEvent::Refused(id, _) | RtuEvent::Demoted(id, _)) = *event else { return };
        self.judge_handler(host, id, Some(format!("is honest, and the node says {event:?}")));
        // It has no promise any more.
        if let Some(body) = self.hosts[host].bodies.bodies.get_mut(&id) {
            body.bound = None;
        }
    }

    /// Records a violation by a handler, unless its host was disturbed.
    pub(super) fn judge_handler(&mut self, host: usize, id: RtuId, wrong: Option<String>) {
        let Some(wrong) = wrong.filter(|_| self.hosts[host].has_been_well()) else { return };
        let Some(body) = self.hosts[host].bodies.bodies.get(&id) else { return };
        let what = format!("host {host}: handler {} ({:?}) {wrong}", id.0, body.terms);
        self.violate(&what);
    }

    /// At the end of the run: no handler was found to misbehave, and removal leaves no state.
    pub(in crate::world) fn dismiss_handlers(&mut self) {
        for host in 0..self.hosts.len() {
            let bodies = &self.hosts[host].bodies;
            let ids: Vec<RtuId> = bodies.bodies.keys().chain(&bodies.unanswered).copied().collect();
            if ids.is_empty() || !self.hosts[host].is_up {
                continue;
            }
            let counted: Vec<_> = self.hosts[host].node.handlers().collect();
            for status in counted {
                let odd =
                    status.counters.overruns + status.counters.yields_ignored + status.counters.late > 0;
                let wrong = odd.then(|| format!("has {:?}", status.counters));
                self.judge_handler(host, status.id, wrong);
            }
            let (member, now) = (&mut self.hosts[host], Instant(u64::MAX / 4));
            ids.iter().for_each(|id| member.node.remove_handler(*id, now));
            while let Some(decision) = member.node.poll_decision() {
                member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
            }
            let left =
                member.node.accounts().into_iter().find(|account| account.what == "places of handlers");
            if left.is_some_and(|left| (left.counted, left.held) != (0, 0)) {
                self.violate(&format!("host {host}: {left:?} after its handlers are gone"));
            }
        }
    }
}
