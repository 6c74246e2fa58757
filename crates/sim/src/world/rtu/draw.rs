//! Draws programs' handlers and their work: as much at once as allowed, and sometimes more.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{RtuClass, RtuCost, RtuEvent, RtuId, RtuTerms};
use punctual_proto::config::RunPolicy;

use super::sending::Sends;
use super::{Bodies, Body};
use crate::world::call::Call;
use crate::world::{Act, Event, World};

/// Most handlers of a host.
const HANDLERS_MAX: u64 = 6;

impl Bodies {
    fn draw(&mut self, run: RunPolicy) -> RtuTerms {
        let dice = &mut self.dice;
        let period = Nanos(dice.between(1, 40) * 500_000);
        let units = dice.between(1, 8) as u32;
        let priority = (run == RunPolicy::Rmdp && dice.between(0, 2) == 0).then(|| dice.between(0, 63) as u8);
        let class = match dice.between(0, 4) {
            0 | 1 => RtuClass::LowDelay { interval: period, units, priority },
            2 => RtuClass::periodic(period, units),
            3 => RtuClass::periodic(period, units).sporadic(),
            _ => RtuClass::BestEffort,
        };
        let deadline = (dice.between(0, 3) == 0).then(|| Nanos(dice.between(period.0 / 2, period.0)));
        // A small part of the processor, so that channels are admitted, too.
        let unit = dice.between(500, (period.0 / 50 / u64::from(units)).clamp(1_000, 20_000));
        let cost = RtuCost { run: Nanos(dice.between(0, 2_000)), unit: Nanos(unit) };
        RtuTerms { class, deadline, quantum: dice.between(1, 8) as u32, cost }
    }
}

impl World {
    /// Registers the handlers of a host that starts. Admission decides at once: the idle state is compared
    /// with it later.
    pub(in crate::world) fn register_handlers(&mut self, host: usize) {
        if !self.options.handlers {
            return;
        }
        let now = self.hosts[host].clock.read(self.now);
        let run = self.scenario.hosts[host].config.cpu.run;
        self.hosts[host].bodies.forget();
        let mut next = 0;
        for _ in 0..self.hosts[host].bodies.dice.between(1, HANDLERS_MAX) {
            let bodies = &mut self.hosts[host].bodies;
            let (terms, sends) = (bodies.draw(run), bodies.draw_sending());
            // Names are given in the order of asking.
            let sending = sends.and_then(|sends| self.sending_of(host, sends, RtuId(next)));
            let member = &mut self.hosts[host];
            let asked = match &sending {
                Some((sending, outbox)) => member.node.register_sender(terms, sending, outbox.clone(), now),
                None => member.node.register_handler(terms, now),
            };
            let Ok(id) = asked else { continue };
            next = id.0 + 1;
            let sends = sends.zip(sending).map(|(sends, (_, outbox))| Sends::new(host, id, sends, outbox));
            while let Some(decision) = member.node.poll_decision() {
                member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
            }
            match member.node.poll_rtu() {
                Some(RtuEvent::Granted(_, grant)) => {
                    member.bodies.bodies.insert(id, Body::new(terms, grant.bound, sends));
                    self.outcome.handlers += 1;
                }
                Some(_) => {}
                None => member.bodies.unanswered.push(id),
            }
        }
        let (ids, life) =
            (self.hosts[host].bodies.bodies.keys().copied().collect::<Vec<_>>(), self.hosts[host].life);
        let begins = self.now.max(self.scenario.times.opens);
        ids.into_iter()
            .for_each(|id| self.queue.schedule(begins, Event::Act(Act::Prompt { host, id, life })));
    }

    /// PDUs arrive for a handler, and the next arrival is planned: all PDUs of its budget at once and
    /// sometimes more, as often as allowed or more rarely.
    pub(in crate::world) fn prompt(&mut self, host: usize, id: RtuId, life: u32) {
        if self.hosts[host].life != life || self.now >= self.scenario.times.stops {
            return;
        }
        let bodies = &mut self.hosts[host].bodies;
        let Some(terms) = bodies.bodies.get(&id).map(|body| body.terms) else { return };
        let (units, period) = terms.budget().unwrap_or((4, Nanos::from_millis(2)));
        let dice = &mut bodies.dice;
        let count = match dice.between(0, 3) {
            0 => dice.between(1, u64::from(units)),
            1 => u64::from(units) + dice.between(0, 2),
            _ => u64::from(units),
        };
        let wait = match dice.between(0, 2) {
            0 => dice.span(period, period * 2),
            1 => dice.span(Nanos(1), period),
            _ => period,
        };
        self.call(host, Call::Prompt { id, count });
        self.queue.schedule(self.now + wait, Event::Act(Act::Prompt { host, id, life }));
    }
}
