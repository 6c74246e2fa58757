//! The executor against a naive model: a list of handlers, searched for the most urgent at each pick.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use punctual_proto::config::RunPolicy;
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use punctual_proto::{Instant, Nanos};

#[derive(Clone, Debug)]
enum Step {
    Add(HandlerParameters),
    Remove { handler: usize },
    Ready { handler: usize, early: u64, bound: u64 },
    Idle { handler: usize },
    Block { handler: usize },
    Unblock { handler: usize },
    Run { packets: u32, more: bool },
    Wait { span: u64 },
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
    let budget = proptest::option::of((0..4u32, 1..50u64, 1..50u64));
    let order = (0..40u8, 0..4u64, 0..3u8);
    (class, order, 1..4u32, budget, any::<bool>()).prop_map(
        |(class, (level, period, place), quantum_packets, budget, timer)| {
            let budget = budget.map(|(packets, period, deadline)| {
                let (period, deadline) = (Nanos(period), Nanos(deadline));
                Budget { packets, period, deadline }
            });
            let trigger = if timer { Trigger::Periodic } else { Trigger::Reactive };
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
        8 => (1..3u32, any::<bool>()).prop_map(|(packets, more)| Step::Run { packets, more }),
        3 => (0..30u64).prop_map(|span| Step::Wait { span }),
    ]
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
    /// Whether it may run now; renews the budget where its time has come.
    fn eligible(&mut self, now: u64) -> bool {
        let Some(head) = self.head.filter(|_| !self.blocked) else { return false };
        let timer = self.parameters.trigger == Trigger::Periodic;
        let Some(budget) = self.parameters.budget else { return head.eligible.0 <= now };
        let period = budget.period.0;
        let release = if timer { head.eligible.0.div_ceil(period) * period } else { head.eligible.0 };
        if release > now {
            return false;
        }
        let begins = if timer { now / period * period } else { head.eligible.0 };
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
        if handler.head.is_none() || (!handler.takes_turns() && handler.head != Some(head)) {
            (handler.ticket, handler.turn) = (ticket, 0);
        }
        handler.head = Some(head);
        handler.eligible(self.now);
    }

    fn unblock(&mut self, handler: usize) {
        let ticket = self.ticket();
        let handler = &mut self.handlers[handler];
        if handler.blocked {
            (handler.blocked, handler.ticket, handler.turn) = (false, ticket, 0);
            handler.eligible(self.now);
        }
    }

    fn pick(&mut self) -> Option<usize> {
        let (now, policy) = (self.now, self.policy);
        let eligible: Vec<usize> =
            (0..self.handlers.len()).filter(|at| self.handlers[*at].eligible(now)).collect();
        eligible.into_iter().min_by_key(|at| self.handlers[*at].urgency(policy))
    }

    fn finished(&mut self, handler: usize, packets: u32) {
        let ticket = self.ticket();
        let handler = &mut self.handlers[handler];
        handler.left = handler.left.saturating_sub(packets);
        handler.turn += packets;
        if handler.takes_turns() && handler.turn >= handler.parameters.quantum_packets {
            (handler.ticket, handler.turn) = (ticket, 0);
        }
        handler.eligible(self.now);
    }
}

fn run(model: &mut Model, executor: &mut Executor, packets: u32, more: bool) {
    let now = Instant(model.now);
    let expected = model.pick();
    let id = executor.pick(now);
    assert_eq!(id, expected.map(|handler| model.handlers[handler].id));
    let (Some(handler), Some(id)) = (expected, id) else { return };
    assert!(!executor.yield_request(now), "it was the most urgent");
    if !more {
        executor.idle(id);
        model.handlers[handler].head = None;
    }
    executor.finished(id, packets, now);
    model.finished(handler, packets);
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
        Step::Run { packets, more } => run(model, executor, packets, more),
        Step::Wait { span } => model.now += span,
        _ if count == 0 => {}
        Step::Remove { handler } => executor.remove(model.handlers.remove(handler % count).id),
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
        let mut model = Model { policy, now: 0, handlers: Vec::new(), tickets: 0 };
        for step in &steps {
            apply(&mut model, &mut executor, step);
        }
    }
}
