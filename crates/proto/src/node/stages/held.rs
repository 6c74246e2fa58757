//! What a channel holds here: a few numbers a stage are kept, the rest follows from the contract and the configuration.

use alloc::boxed::Box;

use punctual_analysis::{Activation, Demand, Nanos, Service};

use super::Stages;
use super::buffers::Reserved;
use super::grants::Granted;
use super::models::path_costs;
use crate::ids::{ChannelId, LinkId};
use crate::signalling::LocalChannel;

/// What a channel holds in one stage.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct HeldStage {
    pub demand: Demand,
    /// Part of the bound that is no work of the stage: waiting for a timer.
    pub wait: Nanos,
    /// Most that the bound may be relaxed to: a timer's work is done before its next expiry.
    pub bound_max: Nanos,
    /// d: the wait and what the stage's admission holds.
    pub bound: Nanos,
    /// How a processor serves it, where it has a budget.
    pub service: Option<Service>,
    /// The flow of this host's plan whose reservation it has.
    pub(super) planned: Option<usize>,
}

impl HeldStage {
    /// Without a timer.
    pub(super) fn new(demand: Demand, bound: Nanos) -> Self {
        Self { demand, wait: Nanos::ZERO, bound_max: Nanos::MAX, bound, service: None, planned: None }
    }
    /// What the stage's admission holds.
    pub fn work_bound(&self) -> Nanos {
        self.bound - self.wait
    }
    fn kept(&self) -> Kept {
        Kept { bound: self.bound, early: self.demand.early, granted: Granted::default() }
    }
    /// As it is now.
    fn with(self, kept: &Kept) -> Self {
        Self { bound: kept.bound, demand: Demand { early: kept.early, ..self.demand }, ..self }
    }
}

/// What is kept of a held stage: the rest follows from the contract.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Kept {
    pub bound: Nanos,
    /// How early a message may be served, where the stage's admission counts that.
    pub(super) early: Nanos,
    pub(super) granted: Granted,
}

/// What a channel holds here.
#[derive(Debug)]
pub(in crate::node) struct Held {
    pub cpu: Kept,
    pub link: Option<(LinkId, Kept)>,
    /// The flow of this host's plan whose reservation it has of the processor.
    pub(super) planned: Option<u32>,
    pub buffers: Reserved,
}

impl Stages {
    pub(super) fn insert(&mut self, channel: ChannelId, cpu: &HeldStage, link: Option<(LinkId, &HeldStage)>) {
        let held = Held {
            cpu: cpu.kept(),
            link: link.map(|(link, stage)| (link, stage.kept())),
            planned: cpu.planned.map(|index| index as u32),
            buffers: Reserved::default(),
        };
        self.held.insert(channel, Box::new(held));
    }

    /// What a channel holds of the processor.
    pub(in crate::node) fn cpu_stage(&self, local: &LocalChannel) -> Option<HeldStage> {
        let held = self.held(local.channel)?;
        let stage = match held.planned {
            Some(index) => self.stage_of_plan(local, index as usize)?,
            None => {
                let service = local.contract.service(local.fragment_bytes).ok()?;
                self.stage_of_cpu(local, service)
            }
        };
        Some(stage.with(&held.cpu))
    }

    /// What a channel holds of the link out.
    pub(super) fn link_stage(&self, local: &LocalChannel) -> Option<(LinkId, HeldStage)> {
        let (link, kept) = self.held(local.channel)?.link.as_ref()?;
        let stage = HeldStage::new(self.link_demand(local, *link, kept.early), kept.bound);
        Some((*link, stage))
    }

    /// What a channel asks of the processor, without a bound yet.
    pub(super) fn stage_of_cpu(&self, local: &LocalChannel, service: Service) -> HeldStage {
        let (contract, fragment) = (&local.contract, local.fragment_bytes);
        let mut costs = path_costs(&self.costs, local.role);
        costs.message += local.handler_time;
        let demand = self.cpu_model.demand_of(contract, &service, fragment, &costs, self.release_latency);
        let demand = Demand { soft: local.soft.as_deref().copied(), ..demand };
        let wait = service.wait;
        let work_max = if wait > Nanos::ZERO { service.period } else { Nanos::MAX };
        let service = (contract.activation != Activation::Deadline).then_some(service);
        HeldStage { demand, wait, bound_max: wait + work_max, bound: Nanos::ZERO, service, planned: None }
    }

    pub(super) fn link_demand(&self, local: &LocalChannel, link: LinkId, early: Nanos) -> Demand {
        let model = &self.links[usize::from(link.0)].model;
        let demand = model.demand(&local.contract, local.fragment_bytes, self.release_latency, early);
        Demand { soft: local.soft.as_deref().copied(), ..demand }
    }
}
