//! One host: a real node, and around it a clock, a processor, drivers and adapters.

use std::collections::VecDeque;

use punctual_analysis::Instant;
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::node::api::{Port, Work};
use punctual_proto::node::{Node, NodeConfigError};

use crate::adapter::Adapter;
use crate::dice::Dice;
use crate::filters::Filters;
use crate::memory::{DeliveredList, FramePool, SimFrame, SimMemory};
use crate::options::Sabotage;
use crate::processor::Processor;
use crate::scenario::HostPlan;
use crate::time::{HostClock, SimTime};

/// Streams of dice of a host; its number comes on top.
const DRAW_PROCESSOR: u64 = 1 << 20;
const DRAW_ADAPTER: u64 = 1 << 21;

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
    /// Begin a best-effort transfer.
    StartFlood(usize),
    /// It has sent something.
    FloodDoorbell(usize),
    /// End it.
    StopFlood(usize),
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
    pub calls: VecDeque<Call>,
    /// The only timer event that counts; others are stale.
    pub timer: Option<SimTime>,
    pub delivered: DeliveredList,
    pub frames: FramePool,
    pub filters: Filters,
    /// Handle of the node's best-effort receiver.
    pub receiver: Option<ChannelId>,
}

impl Host {
    /// Host `number` of the run `seed`, at virtual time zero.
    pub fn new(
        plan: &HostPlan,
        number: u64,
        seed: u64,
        sabotage: &Sabotage,
    ) -> Result<Self, NodeConfigError> {
        let node_seed = Dice::new(seed, number).bits();
        let node = Node::new(plan.config.clone(), node_seed, plan.clock.read(SimTime(0)))?;
        let dice = Dice::new(seed, DRAW_PROCESSOR + number);
        let processor = Processor::new(&plan.config.cpu, plan.wake_max, sabotage.cpu_cost_percent, dice)
            .at_its_slowest(plan.slow);
        let adapters = (plan.links.iter().zip(&plan.config.links).enumerate())
            .map(|(index, (link, config))| {
                let dice = Dice::new(seed, DRAW_ADAPTER + (number << 8) + index as u64);
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
            calls: VecDeque::new(),
            timer: None,
            delivered: DeliveredList::default(),
            frames: FramePool::default(),
            filters: Filters::new(sabotage.burst_percent),
            receiver: None,
        })
    }
}
