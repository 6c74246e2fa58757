//! Construction of a data plane.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hashbrown::HashMap;
use punctual_analysis::arrival::LogicalArrivals;
use punctual_analysis::{Instant, Nanos, Rate};

use super::backlog::Backlog;
use super::best_effort::Arrivals;
use super::leftovers::Leftovers;
use super::outgoing::Messages;
use super::processor::best_effort_parameters;
use super::rtu::Rtus;
use super::shaper::Shaper;
use super::{
    BestEffort, Channels, Context, Frames, LinkState, Links, Measuring, Owner, PendingOutput, Plane,
    Processor, SignalPort, Waiters, Watches,
};
use crate::api::{ChannelCounters, DropCounters};
use crate::breach::Watch;
use crate::config::{LinkConfig, NodeConfig, NodeConfigError};
use crate::ids::LinkId;
use crate::interned::Interned;
use crate::limits::{FRAMES_BEST_EFFORT_DIVISOR, IN_FLIGHT_PACKETS_MAX, SIGNALS_WAITING_MAX};
use crate::linksched::{LinkParameters, LinkScheduler};
use crate::memory::Memory;
use crate::node::neighbour_clock::NeighbourClock;
use crate::node::stages::{Stages, signal_rate};
use crate::sched::{Budget, Class, HandlerId, HandlerParameters, Trigger};
use crate::slab::Slab;
use crate::table::{Paths, Table};

impl<M: Memory> Plane<M> {
    pub fn new(config: NodeConfig) -> Result<Self, NodeConfigError> {
        let rate = signal_rate(&config)?;
        let stages = Stages::new(&config)?;
        let mut processor = Processor::new(&config);
        let arrivals_handler = processor.add_handler(Owner::Arrivals, best_effort_parameters(&config));
        let background = HandlerParameters { class: Class::Background, ..best_effort_parameters(&config) };
        let backlog = Backlog::new(processor.add_handler(Owner::Backlog, background));
        let mut states = Vec::with_capacity(config.links.len());
        for (index, link) in config.links.iter().enumerate() {
            let owner = Owner::Signals(LinkId(index as u16));
            let handler = processor.add_handler(owner, signals_parameters(rate));
            states.push(link_state(link, rate, &stages, index, handler));
        }
        let mut plane = Self {
            stages,
            channels: Channels::new(),
            best_effort: BestEffort {
                flows: HashMap::new(),
                bindings: HashMap::new(),
                bound: HashMap::new(),
                arrivals: Arrivals::new(config.cpu.best_effort_flow_cpu_cap),
                arrivals_handler,
            },
            context: Context {
                links: Links { follows: states.iter().any(|state| state.shaper.is_some()), states },
                processor,
                messages: Messages::new(),
                waiting: Slab::new(),
                news: PendingOutput::new(),
            },
            backlog,
            leftovers: Leftovers::default(),
            rtus: Rtus::default(),
            drops: DropCounters::default(),
            config,
        };
        plane.divide_rests();
        Ok(plane)
    }
}

impl<M: Memory> Channels<M> {
    fn new() -> Self {
        Self {
            clips: Table::default(),
            soft: 0,
            paths: Paths::default(),
            arrival_terms: Interned::new(),
            counted_gone: ChannelCounters::default(),
        }
    }
}

impl PendingOutput {
    fn new() -> Self {
        Self {
            notices: VecDeque::new(),
            touched: Vec::new(),
            filters: VecDeque::new(),
            drained: VecDeque::new(),
            fitted: Vec::new(),
            first_data: None,
            stirred: false,
        }
    }
}

/// Signalling on the processor: one packet in each of the intervals that admission assumes. Packets beyond
/// that rate, a flood, wait for all other work; but the head is served in the next interval, whatever best
/// effort does.
fn signals_parameters(rate: Rate) -> HandlerParameters {
    HandlerParameters {
        class: Class::Signalling,
        level: 0,
        period: Nanos::ZERO,
        place: 0,
        quantum_packets: 1,
        budget: Some(Budget {
            packets: 1,
            // A neighbour with a fast clock is still within this interval (I').
            period: rate.policed_interval(),
            deadline: Nanos::ZERO,
        }),
        trigger: Trigger::Refilled,
    }
}

fn link_state<M: Memory>(
    link: &LinkConfig,
    rate: Rate,
    stages: &Stages,
    index: usize,
    handler: HandlerId,
) -> LinkState<M> {
    let mut scheduler = LinkScheduler::new(LinkParameters::of(link));
    let (model, signalling) = stages.link(index);
    let signals = SignalPort {
        flow: scheduler.add_channel(2, Nanos::ZERO),
        regulator: LogicalArrivals::new(rate.interval(), 1),
        bound: stages.signal_bound(index),
        is_queued: false,
        packets: 0,
        waiting: VecDeque::with_capacity(SIGNALS_WAITING_MAX),
        handler,
    };
    let mut state = LinkState {
        config: link.clone(),
        scheduler,
        signals,
        neighbour: NeighbourClock::default(),
        bytes_in: 0,
        packets_foreign: 0,
        watches: Watches { full_at: Instant::ZERO, departures: Watch::default(), arrivals: Watch::default() },
        measuring: Measuring { filler: None, counting: None },
        frames: Frames {
            best_effort_max: link.frames / FRAMES_BEST_EFFORT_DIVISOR,
            best_effort: 0,
            pooled: 0,
        },
        waiters: Waiters {
            blocked: VecDeque::new(),
            sources: Vec::new(),
            left: Vec::with_capacity(IN_FLIGHT_PACKETS_MAX),
        },
        shaper: Shaper::of(link, model, signalling),
    };
    if state.shaper.is_some() {
        state.set_pace_beside(link.interference.rho, Instant::ZERO);
    }
    state
}
