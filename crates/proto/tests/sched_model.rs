//! The executor against a naive model: a list of handlers, searched for the most urgent at each pick.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use punctual_proto::config::RunPolicy;
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use punctual_proto::{Instant, Nanos};

#[derive(Clone, Debug)]
enum Step {
    Add(HandlerParameters),
    Remove {
        handler: usize,
    },
    Ready {
        handler: usize,
        early: u64,
        bound: u64,
    },
    Idle {
        handler: usize,
    },
    Block {
        handler: usize,
    },
    Unblock {
        handler: usize,
    },
    /// The most urgent handler begins, whatever runs then.
    Pick,
    /// What runs has done so many packets.
    Finish {
        packets: u32,
        more: bool,
    },
    Run {
        packets: u32,
        more: bool,
    },
    Wait {
        span: u64,
    },
    /// Whatever can be asked has the same answer in both.
    Ask,
}

fn parameters() -> impl Strategy<Value = HandlerParameters> {
    let class = prop_oneof![
        1 => Just(Class::Signalling),
        1 => Just(Class::LowLatency),
        3 => Just(Class::Guaranteed),
        1 => Just(Class::Soft),
        1 => Just(Class::BestEffort),
        1 => Just(Class::Background),
    ];
    let period = prop_oneof![3 => 1..50u64, 1 => 0..4u64];
    let budget = proptest::option::of((0..4u32, period, 1..50u64));
    let order = (0..40u8, 0..4u64, 0..3u8);
    let trigger = prop_oneof![Just(Trigger::Periodic), Just(Trigger::Reactive), Just(Trigger::Refilled)];
    (class, order, 0..4u32, budget, trigger).prop_map(
        |(class, (level, period, place), quantum_packets, budget, trigger)| {
            let budget = budget.map(|(packets, period, deadline)| {
                let (period, deadline) = (Nanos(period), Nanos(deadline));
                Budget { packets, period, deadline }
            });
            HandlerParameters { class, level, period: Nanos(period), place, quantum_packets, budget, trigger }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => parameters().prop_map(Step::Add),
        1 => (0..8usize).prop_map(|handler| Step::Remove { handler }),
        6 => (0..8usize, 0..40u64, 0..60u64)
            .prop_map(|(handler, early, bound)| Step::Ready { handler, early, bound }),
        1 => (0..8usize).prop_map(|handler| Step::Idle { handler }),
        1 => (0..8usize).prop_map(|handler| Step::Block { handler }),
        2 => (0..8usize).prop_map(|handler| Step::Unblock { handler }),
        2 => Just(Step::Pick),
        1 => (0..3u32, any::<bool>()).prop_map(|(packets, more)| Step::Finish { packets, more }),
        8 => (1..3u32, any::<bool>()).prop_map(|(packets, more)| Step::Run { packets, more }),
        3 => prop_oneof![0..30u64, 1..3u64].prop_map(|span| Step::Wait { span }),
        3 => Just(Step::Ask),
    ]
}

/// No period is shorter than a nanosecond.
fn period_of(budget: &Budget) -> u64 {
    budget.period.0.max(1)
}

#[derive(Debug)]
struct Handler {
    id: HandlerId,
    parameters: HandlerParameters,
    head: Option<Activation>,
    blocked: bool,
    ticket: u64,
    turn: u32,
    began: Option<u64>,
    left: u32,
}

impl Handler {
    /// When its work may begin; `None` if there is none, or it is blocked.
    fn release(&self) -> Option<u64> {
        let eligible = self.head.filter(|_| !self.blocked)?.eligible.0;
        match (self.parameters.trigger, self.parameters.budget) {
            (Trigger::Periodic, Some(budget)) => {
                Some(eligible.div_ceil(period_of(&budget)) * period_of(&budget))
            }
            _ => Some(eligible),
        }
    }

    /// Whether it may run now; renews the budget where its time has come.
    fn eligible(&mut self, now: u64) -> bool {
        if self.release().is_none_or(|release| release > now) {
            return false;
        }
        let Some((head, budget)) = self.head.zip(self.parameters.budget) else { return true };
        let period = period_of(&budget);
        let begins = match self.parameters.trigger {
            Trigger::Periodic => now / period * period,
            Trigger::Refilled => now,
            Trigger::Reactive => head.eligible.0,
        };
        if self.began.is_none_or(|began| begins >= began + period) {
            (self.began, self.left) = (Some(begins), budget.packets);
        }
        true
    }

    fn spent(&self) -> bool {
        self.parameters.budget.is_some() && self.began.is_some() && self.left == 0
    }

    fn takes_turns(&self) -> bool {
        self.spent() || matches!(self.parameters.class, Class::BestEffort | Class::Background)
    }

    fn due(&self, head: Activation) -> u64 {
        match (self.parameters.trigger, self.parameters.budget, self.began) {
            (Trigger::Periodic, Some(budget), Some(began)) => head.deadline.0.min(began + budget.deadline.0),
            _ => head.deadline.0,
        }
    }

    fn urgency(&self, policy: RunPolicy) -> (u8, u64, u8, u64, HandlerId) {
        let class = if self.spent() { Class::Background } else { self.parameters.class };
        let head = self.head.expect("only of one with work");
        let HandlerParameters { level, period, place, .. } = self.parameters;
        let (band, period, place, order) = match (policy, class) {
            (RunPolicy::Fifo, _) => (0, 0, 0, head.eligible.0),
            (RunPolicy::Edf, Class::LowLatency | Class::Guaranteed) => (1, 0, 0, self.due(head)),
            (RunPolicy::Rmdp, Class::LowLatency) => (1, period.0, place, self.ticket),
            (RunPolicy::Edf, Class::Soft) => (2, 0, 0, self.due(head)),
            (RunPolicy::Rmdp, Class::Guaranteed) => (2, period.0, place, self.ticket),
            (RunPolicy::Rmdp, Class::Soft) => (3, period.0, place, self.ticket),
            (RunPolicy::FixedPriority, Class::LowLatency | Class::Guaranteed | Class::Soft) => {
                (1 + level.min(29), 0, 0, self.ticket)
            }
            (_, Class::Signalling) => (0, 0, 0, self.ticket),
            (_, Class::BestEffort) => (31, 0, 0, self.ticket),
            (_, Class::Background) => (32, 0, 0, self.ticket),
        };
        (band, period, place, order, self.id)
    }
}

#[derive(Debug)]
struct Model {
    policy: RunPolicy,
    now: u64,
    handlers: Vec<Handler>,
    running: Option<HandlerId>,
    tickets: u64,
}

impl Model {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn ready(&mut self, handler: usize, head: Activation) {
        let ticket = self.ticket();
        let handler = &mut self.handlers[handler];
        let runs = self.running == Some(handler.id);
        if handler.head.is_none() || (!handler.takes_turns() && handler.head != Some(head)) {
            (handler.ticket, handler.turn) = (ticket, 0);
        }
        handler.head = Some(head);
        // For what runs it counts when that is finished.
        if !runs {
            handler.eligible(self.now);
        }
    }

    fn unblock(&mut self, handler: usize) {
        let ticket = self.ticket();
        let handler = &mut self.handlers[handler];
        if handler.blocked {
            (handler.blocked, handler.ticket, handler.turn) = (false, ticket, 0);
            if self.running != Some(handler.id) {
                handler.eligible(self.now);
            }
        }
    }

    /// Place of the running handler among the others.
    fn running(&self) -> Option<usize> {
        self.handlers.iter().position(|handler| self.running == Some(handler.id))
    }

    /// The most urgent of those that may run and do not.
    fn next(&mut self) -> Option<usize> {
        let (now, policy, running) = (self.now, self.policy, self.running());
        let others = (0..self.handlers.len()).filter(|at| running != Some(*at));
        let eligible: Vec<usize> = others.filter(|at| self.handlers[*at].eligible(now)).collect();
        eligible.into_iter().min_by_key(|at| self.handlers[*at].urgency(policy))
    }

    fn pick(&mut self) -> Option<usize> {
        if let Some(running) = self.running() {
            self.finished(running, 0);
        }
        let picked = self.next();
        self.running = picked.map(|at| self.handlers[at].id);
        picked
    }

    /// Whether one is more urgent than what runs; that has no place if it has no work.
    fn yields(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        // Of equal ones none is more urgent, whatever its number.
        let urgency = |handler: &Handler| {
            let (band, period, place, order, _) = handler.urgency(self.policy);
            (band, period, place, order)
        };
        let running = self.running().map(|at| &self.handlers[at]);
        let running = running.filter(|handler| handler.head.is_some());
        running.is_none_or(|running| urgency(&self.handlers[next]) < urgency(running))
    }

    fn finished(&mut self, handler: usize, packets: u32) {
        let ticket = self.ticket();
        let handler = &mut self.handlers[handler];
        self.running = self.running.filter(|running| *running != handler.id);
        handler.left = handler.left.saturating_sub(packets);
        handler.turn += packets;
        if handler.takes_turns() && handler.turn >= handler.parameters.quantum_packets.max(1) {
            (handler.ticket, handler.turn) = (ticket, 0);
        }
        handler.eligible(self.now);
    }
}

fn pick(model: &mut Model, executor: &mut Executor) {
    let expected = model.pick();
    let id = executor.pick(Instant(model.now));
    assert_eq!(id, expected.map(|handler| model.handlers[handler].id));
    assert!(!executor.yield_request(Instant(model.now)), "it was the most urgent");
}

fn finish(model: &mut Model, executor: &mut Executor, packets: u32, more: bool) {
    let Some(handler) = model.running() else { return };
    let id = model.handlers[handler].id;
    if !more {
        executor.idle(id);
        model.handlers[handler].head = None;
    }
    executor.finished(id, packets, Instant(model.now));
    model.finished(handler, packets);
}

fn ask(model: &mut Model, executor: &mut Executor) {
    let now = model.now;
    assert_eq!(executor.yield_request(Instant(now)), model.yields());
    let next = model.next();
    assert_eq!(executor.has_ready(), next.is_some());
    assert_eq!(executor.has_urgent(), next.is_some_and(|at| !model.handlers[at].takes_turns()));
    let waiting = model.handlers.iter().filter(|handler| model.running != Some(handler.id));
    let release = waiting.filter_map(Handler::release).filter(|release| *release > now).min();
    assert_eq!(executor.next_timeout(), release.map(Instant));
    for handler in &model.handlers {
        assert_eq!(executor.is_running(handler.id), model.running == Some(handler.id));
        let HandlerParameters { quantum_packets, budget, class, .. } = handler.parameters;
        // What is spent goes on in the background, a budget at a time; and so does one that has not begun.
        let left = |budget: Budget| if handler.left > 0 { handler.left } else { budget.packets };
        let most = budget.map_or(quantum_packets, |budget| quantum_packets.min(left(budget)));
        assert_eq!(executor.unit_packets(handler.id), most.max(1));
        assert_eq!(executor.is_soft(handler.id), class == Class::Soft);
    }
}

fn apply(model: &mut Model, executor: &mut Executor, step: &Step) {
    let now = Instant(model.now);
    let count = model.handlers.len();
    match *step {
        Step::Add(parameters) if count < 8 => {
            let id = executor.add(parameters);
            assert!(model.handlers.iter().all(|handler| handler.id != id), "{id:?} is in use");
            let (head, blocked, ticket, turn, began, left) = (None, false, 0, 0, None, 0);
            model.handlers.push(Handler { id, parameters, head, blocked, ticket, turn, began, left });
        }
        Step::Ask => ask(model, executor),
        Step::Pick => pick(model, executor),
        Step::Finish { packets, more } => finish(model, executor, packets, more),
        Step::Run { packets, more } => {
            pick(model, executor);
            finish(model, executor, packets, more);
        }
        Step::Wait { span } => model.now += span,
        _ if count == 0 => {}
        Step::Remove { handler } => {
            let Handler { id, .. } = model.handlers.remove(handler % count);
            model.running = model.running.filter(|running| *running != id);
            executor.remove(id);
        }
        Step::Ready { handler, early, bound } => {
            let eligible = now + Nanos(early);
            let head = Activation { eligible, deadline: eligible + Nanos(bound) };
            executor.ready(model.handlers[handler % count].id, head, now);
            model.ready(handler % count, head);
        }
        Step::Idle { handler } => {
            executor.idle(model.handlers[handler % count].id);
            model.handlers[handler % count].head = None;
        }
        Step::Block { handler } => {
            executor.block(model.handlers[handler % count].id);
            model.handlers[handler % count].blocked = true;
        }
        Step::Unblock { handler } => {
            executor.unblock(model.handlers[handler % count].id, now);
            model.unblock(handler % count);
        }
        Step::Add(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn the_executor_does_what_the_model_does(
        policy in prop_oneof![
            Just(RunPolicy::Edf), Just(RunPolicy::FixedPriority), Just(RunPolicy::Rmdp), Just(RunPolicy::Fifo)
        ],
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut executor = Executor::new(policy);
        let mut model = Model { policy, now: 0, handlers: Vec::new(), running: None, tickets: 0 };
        for step in &steps {
            apply(&mut model, &mut executor, step);
        }
    }
}
