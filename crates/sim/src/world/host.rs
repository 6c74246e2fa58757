//! One host: a real node with a clock, a processor, drivers and adapters.

use std::collections::VecDeque;

use punctual_analysis::{BitRate, Instant, Nanos};
use punctual_proto::api::{Port, Work};
use punctual_proto::config::NodeConfigError;
use punctual_proto::ids::{ChannelId, LinkId, ListenerId};
use punctual_proto::node::{Decided, Node};

use super::backlog::Backlog;
use super::call::Call;
use super::rtu::Bodies;
use super::tcp::TcpHost;
use crate::adapter::Adapter;
use crate::dice::{Dice, Draw};
use crate::faults::{Lie, Moment};
use crate::filters::{Filters, Held};
use crate::memory::{Delivered, Deliveries, FramePool, SimFrame, SimMemory};
use crate::options::Sabotage;
use crate::processor::Processor;
use crate::scenario::HostPlan;
use crate::time::{HostClock, SimTime};

/// A frame at the driver.
pub(super) struct Arrived {
    pub link: LinkId,
    pub port: Port,
    pub received: Instant,
    pub frame: SimFrame,
}

/// Activity of the processor.
#[derive(Debug, Default)]
pub(super) enum Activity {
    /// The processor sleeps.
    #[default]
    Idle,
    /// It has been woken and will run.
    Waking,
    /// It is working on a unit, which is not pre-empted.
    Working(Work),
}

/// One host.
pub(super) struct Host {
    pub node: Node<SimMemory>,
    pub clock: HostClock,
    pub processor: Processor,
    pub adapters: Vec<Adapter>,
    pub activity: Activity,
    pub arrived: VecDeque<Arrived>,
    pub sent: VecDeque<(LinkId, u32)>,
    /// Shapers that have changed their rate.
    pub shaped: VecDeque<(LinkId, BitRate)>,
    /// Reaction times of shapers.
    pub shaper_dice: Dice,
    /// Decisions that admission has made outside the processor's thread.
    pub decided: VecDeque<Decided>,
    /// Durations of decisions; `None` if each decision is made within its request.
    pub decision_dice: Option<Dice>,
    pub calls: VecDeque<Call>,
    /// Its programs' handlers.
    pub bodies: Bodies,
    /// Its TCP, if the plan has any.
    pub tcp: Option<Box<TcpHost>>,
    /// The only valid timer event; others are stale.
    pub timer: Option<SimTime>,
    pub delivered: Deliveries,
    pub frames: FramePool,
    /// By link: received frames that the node holds.
    pub taken: Vec<Held>,
    /// By link: received frames that its adapter sends on and holds until they have left.
    pub sending: Vec<VecDeque<(SimTime, SimFrame)>>,
    pub filters: Filters,
    /// Listener for channels to it.
    pub listener: Option<ListenerId>,
    /// Handle of the node's best-effort receiver.
    pub receiver: Option<ChannelId>,
    /// Number of its starts; events for an earlier life are dropped.
    pub life: u32,
    /// Whether it is running.
    pub is_up: bool,
    /// Time until which its processor is stopped.
    pub paused_until: SimTime,
    /// A pending crash.
    pub armed: Option<Armed>,
    /// True if it uses another version of the protocol.
    pub is_foreign: bool,
    /// Time since which it uses its present version.
    pub version_since: SimTime,
    /// Values that it forges.
    pub lies: Option<Lie>,
    /// Time by which its drivers' receive stamps are too early.
    pub stamps_early: Nanos,
    /// True if its applications do not read.
    pub is_deaf: bool,
    /// Messages that they have not read.
    pub hoard: Vec<Delivered>,
    /// Fault state of its links.
    pub wires: Vec<Wire>,
    /// Guaranteed service of best effort on its links.
    pub backlogs: Vec<Backlog>,
    /// Time until which its processor or clock is disturbed.
    pub unwell_until: SimTime,
    /// Time until which its clock is disturbed (it has jumped, stopped, drifted, or its stamps were wrong):
    /// reports by it may be wrong.
    pub clock_odd_until: SimTime,
}

/// A crash that waits for its moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Armed {
    pub moment: Moment,
    pub lasts: Nanos,
}

/// State of an outgoing link under faults.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Number of partitions that cut it.
    pub cuts: u32,
    /// Time until which sent packets are held back.
    pub heap_until: Option<SimTime>,
    /// Recorded frames: signalling, and the last one of data.
    pub signals: VecDeque<Vec<u8>>,
    pub data: Vec<u8>,
    /// Signalling packets that an insider has inserted between the host's own, which have had higher numbers
    /// since.
    pub insertions: u64,
}

impl Host {
    /// Host `number` of the run `seed`, at virtual time zero.
    pub fn new(
        plan: &HostPlan,
        number: u64,
        seed: u64,
        sabotage: &Sabotage,
    ) -> Result<Self, NodeConfigError> {
        let node_seed = Dice::of(seed, Draw::Node(number)).bits();
        let mut node = Node::new(plan.config.clone(), node_seed, plan.clock.read(SimTime(0)))?;
        // Engines decide outside their processors' threads; the other half of the seeds shows that this
        // changes no answer.
        let decision_dice = (seed % 2 == 1).then(|| Dice::of(seed, Draw::Decisions(number)));
        if decision_dice.is_some() {
            node.decide_elsewhere();
        }
        let dice = Dice::of(seed, Draw::Processor(number));
        let processor = Processor::new(&plan.config.cpu, plan.wake_max, sabotage.cpu_cost_percent, dice)
            .at_its_slowest(plan.slow);
        let signals = plan.config.signalling.packets_per_second;
        let adapters = (plan.links.iter().zip(&plan.config.links).enumerate())
            .map(|(index, (link, config))| {
                let dice = Dice::of(seed, Draw::Adapter(number, index as u64));
                Adapter::new(link, config, sabotage.link_rate_percent, dice)
            })
            .collect();
        Ok(Self {
            node,
            clock: plan.clock,
            processor,
            adapters,
            activity: Activity::Idle,
            arrived: VecDeque::new(),
            sent: VecDeque::new(),
            shaped: VecDeque::new(),
            shaper_dice: Dice::of(seed, Draw::Shaper(number)),
            decided: VecDeque::new(),
            decision_dice,
            calls: VecDeque::new(),
            bodies: Bodies::new(seed, number),
            tcp: None,
            timer: None,
            delivered: Deliveries::default(),
            frames: FramePool::default(),
            taken: plan.links.iter().map(|_| Held::default()).collect(),
            sending: plan.links.iter().map(|_| VecDeque::new()).collect(),
            filters: Filters::new(sabotage.burst_percent),
            listener: None,
            receiver: None,
            life: 0,
            is_up: true,
            paused_until: SimTime(0),
            armed: None,
            is_foreign: false,
            version_since: SimTime(0),
            lies: None,
            stamps_early: Nanos::ZERO,
            is_deaf: false,
            hoard: Vec::new(),
            wires: plan.links.iter().map(|_| Wire::default()).collect(),
            backlogs: plan.config.links.iter().map(|link| Backlog::new(link, signals)).collect(),
            unwell_until: SimTime(0),
            clock_odd_until: SimTime(0),
        })
    }

    /// Whether its processor and its clock have not been disturbed so far.
    pub fn has_been_well(&self) -> bool {
        self.unwell_until == SimTime(0) && self.clock_odd_until == SimTime(0)
    }

    /// Returns to their drivers the buffers of frames that have left by `now`.
    pub fn give_back_sent(&mut self, now: SimTime) {
        for sending in &mut self.sending {
            while sending.front().is_some_and(|(departs, _)| *departs <= now) {
                sending.pop_front();
            }
        }
    }

    /// A node of the next life at `now`; all packets in progress here are lost. Adapters drain their queues.
    pub fn renew(
        &mut self,
        plan: &HostPlan,
        number: u64,
        seed: u64,
        now: SimTime,
    ) -> Result<(), NodeConfigError> {
        let node_seed = Dice::of(seed ^ (u64::from(self.life) << 32), Draw::Node(number)).bits();
        self.node = Node::new(plan.config.clone(), node_seed, self.clock.read(now))?;
        if self.decision_dice.is_some() {
            self.node.decide_elsewhere();
        }
        self.activity = Activity::Idle;
        self.decided.clear();
        self.arrived.clear();
        self.sent.clear();
        self.sending.iter_mut().for_each(VecDeque::clear);
        self.shaped.clear();
        // Its host sets shapers up again before it begins.
        for (adapter, link) in self.adapters.iter_mut().zip(&plan.config.links) {
            adapter.shape(now, link.interference.rho);
        }
        self.calls.clear();
        self.timer = None;
        drop(self.delivered.take());
        self.hoard.clear();
        self.filters.forget();
        self.receiver = None;
        Ok(())
    }
}
