//! The reservation of a channel here. Only a few numbers per stage are stored; the rest follows from the
//! contract and the configuration.

use alloc::boxed::Box;

use punctual_analysis::{Activation, Admission, Demand, Nanos, PathCosts, Service};

use super::reserved::{Pooled, Reserved};
use super::{Stages, counts_early};
use crate::api::Role;
use crate::config::path_costs;
use crate::ids::{ChannelId, LinkId};
use crate::signalling::LocalChannel;
use crate::table::OfChannel;

/// The reservation of a channel in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct HeldStage {
    pub demand: Demand,
    /// Part of the bound that the stage does not work: waiting for a timer.
    pub wait: Nanos,
    /// Largest value that the bound may be relaxed to: a timer's work is done before its next expiry.
    pub bound_max: Nanos,
    /// d: the wait and the bound that the stage's admission holds.
    pub bound: Nanos,
    /// How a processor serves the channel, if the channel has a budget.
    pub service: Option<Service>,
    /// The flow of this host's plan whose reservation it has.
    pub(super) planned: Option<usize>,
}

impl HeldStage {
    /// The reservation of a channel without a timer in a stage.
    pub(super) fn new(demand: Demand, bound: Nanos) -> Self {
        Self { demand, wait: Nanos::ZERO, bound_max: Nanos::MAX, bound, service: None, planned: None }
    }
    /// Part of the bound that the stage's admission holds.
    pub fn work_bound(&self) -> Nanos {
        self.bound - self.wait
    }
    /// The same stage with another bound and another time that it may be early.
    fn with(self, bound: Nanos, early: Nanos) -> Self {
        Self { bound, demand: Demand { early, ..self.demand }, ..self }
    }
}

/// Properties that only few channels have. They are kept apart to save memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RareProperties {
    /// How early a message may be served, if the stage's admission takes that into account: processor and
    /// link.
    early: (Nanos, Nanos),
    /// The flow of this host's plan whose reservation of the processor it has.
    planned: Option<u32>,
    /// See [`Reserved`].
    pooled: Option<Pooled>,
}

/// The reservation of a channel here: d of the stages. The rest follows from the contract.
#[derive(Debug)]
pub(in crate::node) struct Held {
    channel: ChannelId,
    cpu: Nanos,
    link_out: Option<LinkId>,
    /// Bound of the outgoing link. It has no meaning if there is no outgoing link.
    link: Nanos,
    special: Option<Box<RareProperties>>,
    buffer_bytes: u64,
    frames: Option<(LinkId, u32)>,
}

impl OfChannel for Held {
    fn channel(&self) -> ChannelId {
        self.channel
    }
}

impl Held {
    /// The bound of the processor.
    pub const fn cpu(&self) -> Nanos {
        self.cpu
    }
    /// The outgoing link and its bound.
    pub fn link(&self) -> Option<(LinkId, Nanos)> {
        self.link_out.map(|link| (link, self.link))
    }

    /// Sets the bounds that are held from now on.
    pub(super) fn set_bounds(&mut self, cpu: Nanos, link: Option<Nanos>) {
        (self.cpu, self.link) = (cpu, link.unwrap_or_default());
    }

    /// The flow of this host's plan whose reservation of the processor it has.
    pub(super) fn planned(&self) -> Option<usize> {
        self.special.as_ref()?.planned.map(|index| index as usize)
    }

    /// Buffers that the channel has reserved on this host.
    pub(super) fn buffers(&self) -> Reserved {
        Reserved { bytes: self.buffer_bytes, frames: self.frames, pooled: self.special().pooled }
    }

    /// Reserves other buffers; returns those that the channel had.
    pub(super) fn replace_buffers(&mut self, Reserved { bytes, frames, pooled }: Reserved) -> Reserved {
        let had = self.buffers();
        (self.buffer_bytes, self.frames) = (bytes, frames);
        self.set_special(RareProperties { pooled, ..self.special() });
        had
    }

    fn early(&self) -> (Nanos, Nanos) {
        self.special().early
    }

    pub(super) fn set_early(&mut self, cpu: Nanos, link: Nanos) {
        self.set_special(RareProperties { early: (cpu, link), ..self.special() });
    }

    fn special(&self) -> RareProperties {
        self.special.as_deref().copied().unwrap_or_default()
    }

    fn set_special(&mut self, special: RareProperties) {
        self.special = (special != RareProperties::default()).then(|| Box::new(special));
    }
}

impl Stages {
    pub(super) fn insert(&mut self, channel: ChannelId, cpu: &HeldStage, link: Option<(LinkId, &HeldStage)>) {
        let early = |admission: Admission, stage: &HeldStage| {
            if counts_early(admission, stage) { stage.demand.early } else { Nanos::ZERO }
        };
        let link_early = link.map(|(link, stage)| early(self.links[usize::from(link.0)].admission, stage));
        let mut held = Held {
            channel,
            cpu: cpu.bound,
            link_out: link.map(|(link, _)| link),
            link: link.map_or(Nanos::ZERO, |(_, stage)| stage.bound),
            special: None,
            buffer_bytes: 0,
            frames: None,
        };
        held.set_special(RareProperties {
            early: (early(self.cpu.admission, cpu), link_early.unwrap_or_default()),
            planned: cpu.planned.map(|index| index as u32),
            pooled: None,
        });
        self.held.insert(Box::new(held));
    }

    /// The reservation of a channel on the processor.
    pub(in crate::node) fn cpu_stage(&self, local: &LocalChannel) -> Option<HeldStage> {
        let held = self.held(local.channel)?;
        let stage = match held.planned() {
            Some(index) => self.stage_of_plan(local, index)?,
            None => {
                let service = local.contract.service(local.fragment_bytes).ok()?;
                self.stage_of_cpu(local, service)
            }
        };
        Some(stage.with(held.cpu, held.early().0))
    }

    /// The reservation of a channel on the outgoing link.
    pub(in crate::node) fn link_stage(&self, local: &LocalChannel) -> Option<(LinkId, HeldStage)> {
        let held = self.held(local.channel)?;
        let (link, bound) = held.link()?;
        let stage = HeldStage::new(self.link_demand(local, link, held.early().1), bound);
        Some((link, stage))
    }

    /// The demand of a channel for the processor, without a bound yet.
    pub(super) fn stage_of_cpu(&self, local: &LocalChannel, service: Service) -> HeldStage {
        let (contract, fragment) = (&local.contract, local.fragment_bytes);
        let costs = self.cpu_costs(local);
        let demand = self.cpu.model.demand_of(contract, &service, fragment, &costs, self.cpu.release_latency);
        let demand = Demand { soft: local.soft.as_deref().copied(), ..demand };
        // Incoming packets may be served one by one, though a quantum would hold all of a message.
        let apart = local.role != Role::Source && contract.packets_max(fragment) > 1;
        let demand = if apart && self.cpu.admission.has_fixed_order { demand.in_pieces() } else { demand };
        let wait = service.wait;
        let work_max = if wait > Nanos::ZERO { service.period } else { Nanos::MAX };
        let service = (contract.activation != Activation::Deadline).then_some(service);
        HeldStage { demand, wait, bound_max: wait + work_max, bound: Nanos::ZERO, service, planned: None }
    }

    /// What a channel costs the processor, with what its program has declared for a direct handler.
    pub(super) fn cpu_costs(&self, local: &LocalChannel) -> PathCosts {
        let mut costs = path_costs(&self.cpu.costs, local.role);
        costs.message += local.handler_time;
        costs
    }

    pub(super) fn link_demand(&self, local: &LocalChannel, link: LinkId, early: Nanos) -> Demand {
        let model = &self.links[usize::from(link.0)].model;
        let demand = model.demand(&local.contract, local.fragment_bytes, self.cpu.release_latency, early);
        Demand { soft: local.soft.as_deref().copied(), ..demand }
    }
}
