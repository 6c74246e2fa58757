//! The link scheduler against a naive model: every queue a list that is searched from its start.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use punctual_proto::config::{Interference, Pacing};
use punctual_proto::linksched::{
    BestEffortKey, FlowIndex, Guaranteed, LinkParameters, LinkScheduler, Overflow, OverflowReason,
};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

const MTU: u32 = 1_000;
const DEPTH: u32 = 2;
const FLOW_BYTES_MAX: u32 = 3_000;
const PACKETS_MAX: u32 = 16;

#[derive(Clone, Debug)]
enum Step {
    Add {
        slots: u32,
        horizon: u64,
        soft: bool,
    },
    Remove {
        channel: usize,
    },
    Set {
        channel: usize,
        slots: u32,
        horizon: u64,
    },
    Enqueue {
        channel: usize,
        early: u64,
        bound: u64,
        bytes: u32,
    },
    BestEffort {
        key: u64,
        bytes: u32,
    },
    RemoveBestEffort {
        key: u64,
    },
    Wait {
        span: u64,
    },
    Poll,
    /// And the adapter does not take what is given.
    PollInVain,
    Complete {
        bytes: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..5u32, 0..40u64, any::<bool>())
            .prop_map(|(slots, horizon, soft)| Step::Add { slots, horizon, soft }),
        1 => (0..8usize).prop_map(|channel| Step::Remove { channel }),
        1 => (0..8usize, 0..5u32, 0..40u64)
            .prop_map(|(channel, slots, horizon)| Step::Set { channel, slots, horizon }),
        6 => (0..8usize, 0..60u64, 0..100u64, 1..=MTU)
            .prop_map(|(channel, early, bound, bytes)| Step::Enqueue { channel, early, bound, bytes }),
        3 => (0..4u64, 1..=MTU).prop_map(|(key, bytes)| Step::BestEffort { key, bytes }),
        1 => (0..4u64).prop_map(|key| Step::RemoveBestEffort { key }),
        3 => (0..30u64).prop_map(|span| Step::Wait { span }),
        8 => Just(Step::Poll),
        1 => Just(Step::PollInVain),
        4 => (1..1_500u32).prop_map(|bytes| Step::Complete { bytes }),
    ]
}

#[derive(Debug)]
struct Queued {
    packet: u32,
    effective: u64,
    deadline: u64,
    bytes: u32,
}

#[derive(Debug)]
struct Channel {
    index: FlowIndex,
    slots: usize,
    horizon: u64,
    /// Behind all that are not.
    soft: bool,
    queued: VecDeque<Queued>,
    /// When the first of them becomes current: by the horizon that was when it became the first.
    released: u64,
    in_flight: usize,
    used_max: usize,
}

impl Channel {
    fn used(&self) -> usize {
        self.queued.len() + self.in_flight
    }

    fn set_head(&mut self) {
        self.released = self.queued.front().map_or(0, |head| head.effective.saturating_sub(self.horizon));
    }
}

/// Passed packets and bytes: guaranteed, best effort, and the refused of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Passed {
    guaranteed: [u64; 2],
    best_effort: [u64; 2],
    overflows: [u64; 2],
    late: u64,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    channels: Vec<Channel>,
    /// The round: key, deficit, whether its turn has begun, packets.
    flows: VecDeque<(u64, u32, bool, VecDeque<Queued>)>,
    in_flight: VecDeque<(Option<FlowIndex>, u32)>,
    credit: u32,
    passed: Passed,
    /// Before the last poll.
    passed_before: Passed,
}

impl Model {
    fn channel_mut(&mut self, index: FlowIndex) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|channel| channel.index == index)
    }

    fn outstanding(&self) -> u32 {
        self.in_flight.iter().map(|(_, bytes)| bytes).sum()
    }

    fn fits(&self, bytes: u32) -> bool {
        self.outstanding() + bytes <= DEPTH * MTU
    }

    fn enqueue(&mut self, channel: usize, mut queued: Queued) -> bool {
        let channel = &mut self.channels[channel];
        if channel.used() >= channel.slots {
            self.passed.overflows[0] += 1;
            return false;
        }
        if let Some(last) = channel.queued.back() {
            queued.effective = queued.effective.max(last.effective);
            queued.deadline = queued.deadline.max(last.deadline);
        }
        channel.queued.push_back(queued);
        channel.used_max = channel.used_max.max(channel.used());
        if channel.queued.len() == 1 {
            channel.set_head();
        }
        true
    }

    fn enqueue_best_effort(&mut self, key: u64, queued: Queued) -> bool {
        let total: usize = self.flows.iter().map(|flow| flow.3.len()).sum();
        let own = self.flows.iter().find(|flow| flow.0 == key);
        let (packets, bytes) =
            own.map_or((0, 0), |flow| (flow.3.len(), flow.3.iter().map(|queued| queued.bytes).sum()));
        if bytes + queued.bytes > FLOW_BYTES_MAX || packets >= PACKETS_MAX as usize - total {
            self.passed.overflows[1] += 1;
            return false;
        }
        match self.flows.iter_mut().find(|flow| flow.0 == key) {
            Some(flow) => flow.3.push_back(queued),
            None => self.flows.push_back((key, 0, false, VecDeque::from([queued]))),
        }
        true
    }

    /// The channel whose head is current and most urgent; soft ones only where there is no other.
    fn head(&self) -> Option<FlowIndex> {
        let current = self.channels.iter().filter_map(|channel| {
            let head = channel.queued.front()?;
            (channel.released <= self.now).then_some((channel.soft, head.deadline, channel.index))
        });
        current.min().map(|(_, _, index)| index)
    }

    fn poll(&mut self) -> Option<u32> {
        self.passed_before = self.passed;
        if let Some(index) = self.head() {
            let bytes = self.channel_mut(index)?.queued.front()?.bytes;
            if !self.fits(bytes) {
                return None;
            }
            let channel = self.channel_mut(index)?;
            let queued = channel.queued.pop_front()?;
            channel.set_head();
            channel.in_flight += 1;
            self.in_flight.push_back((Some(index), bytes));
            self.passed.guaranteed[0] += 1;
            self.passed.guaranteed[1] += u64::from(bytes);
            // A byte takes a nanosecond.
            self.passed.late += u64::from(self.now + u64::from(self.outstanding()) > queued.deadline);
            return Some(queued.packet);
        }
        self.poll_best_effort()
    }

    fn poll_best_effort(&mut self) -> Option<u32> {
        loop {
            let (_, deficit, begun, packets) = self.flows.front_mut()?;
            if !*begun {
                (*begun, *deficit) = (true, *deficit + MTU);
            }
            let bytes = packets.front()?.bytes;
            if bytes <= *deficit {
                if self.outstanding() + bytes > DEPTH * MTU {
                    return None;
                }
                let (_, deficit, _, packets) = self.flows.front_mut()?;
                *deficit -= bytes;
                let queued = packets.pop_front()?;
                if packets.is_empty() {
                    self.flows.pop_front();
                }
                self.in_flight.push_back((None, bytes));
                self.passed.best_effort[0] += 1;
                self.passed.best_effort[1] += u64::from(bytes);
                return Some(queued.packet);
            }
            *begun = false;
            self.flows.rotate_left(1);
        }
    }

    fn complete(&mut self, bytes: u32) {
        self.credit = (self.credit + bytes).min(self.outstanding());
        while let Some((flow, bytes)) = self.in_flight.front().copied().filter(|first| first.1 <= self.credit)
        {
            self.credit -= bytes;
            self.in_flight.pop_front();
            if let Some(channel) = flow.and_then(|index| self.channel_mut(index)) {
                channel.in_flight -= 1;
            }
        }
    }

    fn release_next(&self) -> Option<u64> {
        let waiting = self.channels.iter().filter(|channel| !channel.queued.is_empty());
        waiting.map(|channel| channel.released).filter(|at| *at > self.now).min()
    }

    /// The packet that was polled last is not sent and not counted.
    fn retract(&mut self) {
        self.passed = self.passed_before;
        if let Some((Some(index), _)) = self.in_flight.pop_back()
            && let Some(channel) = self.channel_mut(index)
        {
            channel.in_flight -= 1;
        }
    }

    /// All queued packets.
    fn queued(&self) -> Vec<u32> {
        let channels = self.channels.iter().flat_map(|channel| &channel.queued);
        let mut queued: Vec<_> =
            channels.chain(self.flows.iter().flat_map(|flow| &flow.3)).map(|queued| queued.packet).collect();
        queued.sort_unstable();
        queued
    }
}

fn link() -> LinkScheduler<u32> {
    LinkScheduler::new(LinkParameters {
        rate: BitRate(8_000_000_000),
        mtu_wire_bytes: MTU,
        best_effort_wire_bytes: MTU,
        pipeline_depth: DEPTH,
        pace: Pacing::Completion,
        interference: Interference::default(),
        best_effort_flow_cap: Ppm::ONE,
        best_effort_cap: Ppm::ONE,
        best_effort_flow_bytes_max: FLOW_BYTES_MAX,
        best_effort_flows_max: 4,
        best_effort_packets_max: PACKETS_MAX,
    })
}

fn add(model: &mut Model, link: &mut LinkScheduler<u32>, slots: u32, horizon: u64, soft: bool) {
    let index = match soft {
        true => link.add_soft_channel(slots, Nanos(horizon)),
        false => link.add_channel(slots, Nanos(horizon)),
    };
    assert!(model.channel_mut(index).is_none(), "{index:?} is in use");
    assert!(model.in_flight.iter().all(|(flow, _)| *flow != Some(index)), "{index:?} is in flight");
    let (queued, slots) = (VecDeque::new(), slots as usize);
    let (released, in_flight, used_max) = (0, 0, 0);
    model.channels.push(Channel { index, slots, horizon, soft, queued, released, in_flight, used_max });
}

fn remove(model: &mut Model, link: &mut LinkScheduler<u32>, channel: usize) {
    let channel = model.channels.remove(channel % model.channels.len());
    let mut drained = Vec::new();
    link.remove_channel(channel.index, |packet| drained.push(packet));
    assert_eq!(drained, channel.queued.iter().map(|queued| queued.packet).collect::<Vec<_>>());
}

fn reason(result: Result<(), Overflow<u32>>) -> Option<OverflowReason> {
    result.err().map(|overflow| overflow.reason)
}

fn check(model: &Model, link: &LinkScheduler<u32>) {
    assert_eq!(link.outstanding(Instant(model.now)), u64::from(model.outstanding() - model.credit));
    for channel in &model.channels {
        let (used, occupancy) = (channel.used(), link.occupancy(channel.index));
        let known = [occupancy.slots_used, occupancy.slots_used_max, occupancy.slots].map(|n| n as usize);
        assert_eq!(known, [used, channel.used_max, channel.slots]);
        assert_eq!(link.slots_free(channel.index) as usize, channel.slots.saturating_sub(used));
    }
    let slots: usize = model.channels.iter().map(|channel| channel.slots).sum();
    let best_effort: usize = model.flows.iter().map(|flow| flow.3.len()).sum();
    assert_eq!(link.accounts(), [[slots; 2], [best_effort; 2]]);
    assert_eq!(link.channels(), model.channels.len());
    let mut queued: Vec<_> = link.queued().copied().collect();
    queued.sort_unstable();
    assert_eq!(queued, model.queued());
    assert!(!link.is_empty() || queued.is_empty());
    assert_eq!(link.best_effort_waits(), best_effort > 0);
    assert!(!link.is_served(Instant(model.now)) || model.head().is_none());
    let counters = link.counters();
    let passed = Passed {
        guaranteed: [counters.guaranteed_packets, counters.guaranteed_bytes],
        best_effort: [counters.best_effort_packets, counters.best_effort_bytes],
        overflows: [counters.guaranteed_overflows, counters.best_effort_overflows],
        late: counters.late_packets,
    };
    assert_eq!(passed, model.passed);
}

/// Takes what both give, and compares it.
fn poll(model: &mut Model, link: &mut LinkScheduler<u32>) -> bool {
    let now = Instant(model.now);
    let expected = model.poll();
    let scheduled = link.poll(now);
    assert_eq!(scheduled.map(|scheduled| scheduled.packet), expected);
    if let Some(scheduled) = scheduled {
        let departure = now + Nanos(u64::from(model.outstanding()));
        assert_eq!(scheduled.departure_latest, departure);
        assert_eq!(Some(scheduled.wire_bytes), model.in_flight.back().map(|(_, bytes)| *bytes));
    } else {
        assert_eq!(link.is_served(now), model.head().is_none());
    }
    if let Some(release) = model.release_next() {
        assert!(link.next_timeout().is_some_and(|at| at.0 <= release), "release at {release}");
    } else if model.queued().is_empty() {
        assert!(link.next_timeout().is_none() || !link.is_empty(), "nothing waits, and it asks to be polled");
    }
    expected.is_some()
}

fn apply(model: &mut Model, link: &mut LinkScheduler<u32>, packet: u32, step: &Step) {
    let now = Instant(model.now);
    match *step {
        Step::Add { slots, horizon, soft } if model.channels.len() < 8 => {
            add(model, link, slots, horizon, soft)
        }
        Step::Remove { channel } if !model.channels.is_empty() => remove(model, link, channel),
        Step::Enqueue { channel, early, bound, bytes } if !model.channels.is_empty() => {
            let channel = channel % model.channels.len();
            let (effective, deadline) = (model.now + early, model.now + early + bound);
            let key =
                Guaranteed { effective: Instant(effective), deadline: Instant(deadline), wire_bytes: bytes };
            let refused = reason(link.enqueue(now, model.channels[channel].index, key, packet));
            let taken = model.enqueue(channel, Queued { packet, effective, deadline, bytes });
            assert_eq!(refused, (!taken).then_some(OverflowReason::Slots));
        }
        Step::BestEffort { key, bytes } => {
            let space = link.best_effort_space(BestEffortKey(key), bytes);
            let refused = reason(link.enqueue_best_effort(now, BestEffortKey(key), bytes, packet));
            let queued = Queued { packet, effective: 0, deadline: 0, bytes };
            let taken = model.enqueue_best_effort(key, queued);
            assert_eq!((space, refused), (taken, (!taken).then_some(OverflowReason::FlowFull)));
        }
        Step::Wait { span } => model.now += span,
        Step::Poll => {
            poll(model, link);
        }
        Step::PollInVain => {
            if poll(model, link) {
                model.retract();
                link.retract();
            }
        }
        Step::Set { channel, slots, horizon } if !model.channels.is_empty() => {
            let count = model.channels.len();
            let channel = &mut model.channels[channel % count];
            link.set_channel(channel.index, slots, Nanos(horizon));
            (channel.slots, channel.horizon) = (slots as usize, horizon);
        }
        Step::RemoveBestEffort { key } => {
            let mut drained = Vec::new();
            link.remove_best_effort(BestEffortKey(key), |packet| drained.push(packet));
            let gone = model.flows.iter().position(|flow| flow.0 == key);
            let gone = gone.and_then(|index| model.flows.remove(index)).map(|flow| flow.3);
            assert_eq!(
                drained,
                gone.unwrap_or_default().iter().map(|queued| queued.packet).collect::<Vec<_>>()
            );
        }
        Step::Complete { bytes } => {
            link.complete(bytes, now);
            model.complete(bytes);
        }
        Step::Add { .. } | Step::Remove { .. } | Step::Set { .. } | Step::Enqueue { .. } => {}
    }
}

/// Applies `steps` to both.
fn compare(steps: &[Step]) {
    let (mut model, mut link) = (Model::default(), link());
    add(&mut model, &mut link, 3, 0, false);
    for (packet, step) in steps.iter().enumerate() {
        apply(&mut model, &mut link, packet as u32, step);
        check(&model, &link);
    }
}

/// Steps of a seed; panics where the scheduler does not do what the model does.
pub fn differs(seed: u64) -> Option<String> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4));
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let steps = proptest::collection::vec(step(), 1..300).new_tree(&mut runner);
    steps.map_or_else(
        |reason| Some(reason.to_string()),
        |steps| {
            compare(&steps.current());
            None
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000, rng_seed: proptest::test_runner::RngSeed::Fixed(8), failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn the_scheduler_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..300)) {
        compare(&steps);
    }
}
