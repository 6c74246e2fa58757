//! One host: a real node, and around it a clock, a processor, drivers and adapters.

use std::collections::VecDeque;

use punctual_analysis::{BitRate, Instant, Nanos};
use punctual_proto::api::{Port, RtuId, Work};
use punctual_proto::config::NodeConfigError;
use punctual_proto::ids::{ChannelId, LinkId, ListenerId};
use punctual_proto::node::{Decided, Node};

use super::backlog::Backlog;
use super::rtu::Bodies;
use crate::adapter::Adapter;
use crate::dice::{Dice, Draw};
use crate::faults::{Lie, Moment};
use crate::filters::{Filters, Held};
use crate::memory::{Delivered, Deliveries, FramePool, SimFrame, SimMemory};
use crate::options::Sabotage;
use crate::processor::Processor;
use crate::scenario::HostPlan;
use crate::time::{HostClock, SimTime};

/// What applications ask of a node, once its processor looks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// Open the attempt's channel.
    Ask(usize),
    /// Consent to the attempt, or refuse it.
    Answer(usize),
    /// The attempt's source has sent something.
    Doorbell(usize),
    /// Close one end of the attempt.
    Close { channel: usize, at_sink: bool },
    /// Ask for a channel that comes here: which request.
    Request(usize),
    /// Say no to a receiver's request: its token.
    Decline(u64),
    /// Begin a best-effort transfer.
    StartFlood(usize),
    /// It has sent something.
    FloodDoorbell(usize),
    /// End it.
    StopFlood(usize),
    /// PDUs have come for a program's handler.
    Prompt { id: RtuId, count: u64 },
    /// Find out what a link drains.
    Measure(LinkId),
    /// Tear all down.
    Shutdown,
}

/// A frame at the driver.
pub(super) struct Arrived {
    pub link: LinkId,
    pub port: Port,
    pub received: Instant,
    pub frame: SimFrame,
}

/// What the processor does.
#[derive(Debug, Default)]
pub(super) enum Activity {
    /// It sleeps.
    #[default]
    Idle,
    /// It has been woken and will look.
    Waking,
    /// It is in the middle of a unit, which nothing pre-empts.
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
    /// How long a shaper takes.
    pub shaper_dice: Dice,
    /// What admission has decided beside the processor.
    pub decided: VecDeque<Decided>,
    /// How long that takes; nothing if each decision is made where it is asked for.
    pub decision_dice: Option<Dice>,
    pub calls: VecDeque<Call>,
    /// Its programs' handlers.
    pub bodies: Bodies,
    /// The only timer event that counts; others are stale.
    pub timer: Option<SimTime>,
    pub delivered: Deliveries,
    pub frames: FramePool,
    /// By link: received frames that the node has.
    pub taken: Vec<Held>,
    /// By link: received frames that its adapter sends on, which it has until they have left.
    pub sending: Vec<VecDeque<(SimTime, SimFrame)>>,
    pub filters: Filters,
    /// Where channels to it are listened for.
    pub listener: Option<ListenerId>,
    /// Handle of the node's best-effort receiver.
    pub receiver: Option<ChannelId>,
    /// Counts its starts; what is meant for an earlier life does not reach it.
    pub life: u32,
    /// Whether it runs at all.
    pub is_up: bool,
    /// Its processor stands still until then.
    pub paused_until: SimTime,
    /// It is to crash in the middle of something.
    pub armed: Option<Armed>,
    /// It speaks another version of the protocol.
    pub is_foreign: bool,
    /// Since when it speaks what it speaks now.
    pub version_since: SimTime,
    /// What it lies about.
    pub lies: Option<Lie>,
    /// By how much its drivers stamp too early.
    pub stamps_early: Nanos,
    /// Its applications do not read.
    pub is_deaf: bool,
    /// What they have not read.
    pub hoard: Vec<Delivered>,
    /// What happens on its links.
    pub wires: Vec<Wire>,
    /// What best effort is owed on its links.
    pub backlogs: Vec<Backlog>,
    /// Its processor or clock does not go on as it should.
    pub unwell_until: SimTime,
    /// Its clock has jumped, stood still, drifted, or its stamps were wrong: what is reported by it may be wrong until then.
    pub clock_odd_until: SimTime,
}

/// A crash that waits for its moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Armed {
    pub moment: Moment,
    pub lasts: Nanos,
}

/// The way out by one link, as far as faults have changed it.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Partitions that cut it.
    pub cuts: u32,
    /// What is sent is kept back until then.
    pub heap_until: Option<SimTime>,
    /// The frames that somebody recorded: signalling, and the last one of data.
    pub signals: VecDeque<Vec<u8>>,
    pub data: Vec<u8>,
    /// Signalling packets that an insider has put between the host's own, which leave under higher numbers since.
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
        // Engines decide beside their processors; the other half of the seeds shows that this changes no answer.
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

    /// Whether its processor and its clock have gone on as they should so far.
    pub fn has_been_well(&self) -> bool {
        self.unwell_until == SimTime(0) && self.clock_odd_until == SimTime(0)
    }

    /// Frames that have left by `now` are buffers of their drivers again.
    pub fn give_back_sent(&mut self, now: SimTime) {
        for sending in &mut self.sending {
            while sending.front().is_some_and(|(departs, _)| *departs <= now) {
                sending.pop_front();
            }
        }
    }

    /// A node of the next life at `now`; whatever was under way here is lost. Adapters drain what they have.
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
        // Its host puts shapers up anew before it begins.
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
