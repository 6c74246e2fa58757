//! The link scheduler against a naive model: every queue a list that is searched from its start.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use punctual_proto::linksched::{
    BestEffortKey, FlowIndex, Guaranteed, LinkParameters, LinkScheduler, Overflow, OverflowReason,
};
use punctual_proto::node::config::{Interference, Pace};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

const MTU: u32 = 1_000;
const DEPTH: u32 = 2;
const FLOW_BYTES_MAX: u32 = 3_000;
const PACKETS_MAX: u32 = 16;

#[derive(Clone, Debug)]
enum Step {
    Add { slots: u32, horizon: u64, soft: bool },
    Remove { channel: usize },
    Enqueue { channel: usize, early: u64, bound: u64, bytes: u32 },
    BestEffort { key: u64, bytes: u32 },
    Wait { span: u64 },
    Poll,
    Complete { bytes: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..5u32, 0..40u64, any::<bool>())
            .prop_map(|(slots, horizon, soft)| Step::Add { slots, horizon, soft }),
        1 => (0..8usize).prop_map(|channel| Step::Remove { channel }),
        6 => (0..8usize, 0..60u64, 0..100u64, 1..=MTU)
            .prop_map(|(channel, early, bound, bytes)| Step::Enqueue { channel, early, bound, bytes }),
        3 => (0..4u64, 1..=MTU).prop_map(|(key, bytes)| Step::BestEffort { key, bytes }),
        3 => (0..30u64).prop_map(|span| Step::Wait { span }),
        8 => Just(Step::Poll),
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
    in_flight: usize,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    channels: Vec<Channel>,
    /// The round: key, deficit, whether its turn has begun, packets.
    flows: VecDeque<(u64, u32, bool, VecDeque<Queued>)>,
    in_flight: VecDeque<(Option<FlowIndex>, u32)>,
    credit: u32,
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
        if channel.queued.len() + channel.in_flight >= channel.slots {
            return false;
        }
        if let Some(last) = channel.queued.back() {
            queued.effective = queued.effective.max(last.effective);
            queued.deadline = queued.deadline.max(last.deadline);
        }
        channel.queued.push_back(queued);
        true
    }

    fn enqueue_best_effort(&mut self, key: u64, queued: Queued) -> bool {
        let total: usize = self.flows.iter().map(|flow| flow.3.len()).sum();
        let own = self.flows.iter().find(|flow| flow.0 == key);
        let (packets, bytes) =
            own.map_or((0, 0), |flow| (flow.3.len(), flow.3.iter().map(|queued| queued.bytes).sum()));
        if bytes + queued.bytes > FLOW_BYTES_MAX || packets >= PACKETS_MAX as usize - total {
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
            (head.effective.saturating_sub(channel.horizon) <= self.now).then_some((
                channel.soft,
                head.deadline,
                channel.index,
            ))
        });
        current.min().map(|(_, _, index)| index)
    }

    fn poll(&mut self) -> Option<u32> {
        if let Some(index) = self.head() {
            let bytes = self.channel_mut(index)?.queued.front()?.bytes;
            if !self.fits(bytes) {
                return None;
            }
            let channel = self.channel_mut(index)?;
            let queued = channel.queued.pop_front()?;
            channel.in_flight += 1;
            self.in_flight.push_back((Some(index), bytes));
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
        let releases = self.channels.iter().filter_map(|channel| {
            Some(channel.queued.front()?.effective.saturating_sub(channel.horizon))
                .filter(|at| *at > self.now)
        });
        releases.min()
    }
}

fn link() -> LinkScheduler<u32> {
    LinkScheduler::new(LinkParameters {
        rate: BitRate(8_000_000_000),
        mtu_wire_bytes: MTU,
        best_effort_wire_bytes: MTU,
        pipeline_depth: DEPTH,
        pace: Pace::Completion,
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
    model.channels.push(Channel { index, slots, horizon, soft, queued, in_flight: 0 });
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
        let used = channel.queued.len() + channel.in_flight;
        assert_eq!(link.occupancy(channel.index).slots_used as usize, used);
        assert_eq!(link.slots_free(channel.index) as usize, channel.slots - used);
    }
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
            let space = link.best_effort_space(now, BestEffortKey(key), bytes);
            let refused = reason(link.enqueue_best_effort(now, BestEffortKey(key), bytes, packet));
            let queued = Queued { packet, effective: 0, deadline: 0, bytes };
            let taken = model.enqueue_best_effort(key, queued);
            assert_eq!((space, refused), (taken, (!taken).then_some(OverflowReason::FlowFull)));
        }
        Step::Wait { span } => model.now += span,
        Step::Poll => {
            let expected = model.poll();
            assert_eq!(link.poll(now).map(|scheduled| scheduled.packet), expected);
            if let Some(release) = model.release_next() {
                assert!(link.next_timeout().is_some_and(|at| at.0 <= release), "release at {release}");
            }
        }
        Step::Complete { bytes } => {
            link.complete(bytes, now);
            model.complete(bytes);
        }
        Step::Add { .. } | Step::Remove { .. } | Step::Enqueue { .. } => {}
    }
}

/// Does what `steps` say, to both.
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
