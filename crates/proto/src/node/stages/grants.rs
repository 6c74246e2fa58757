//! What applications and signalling are told of what is held.

use alloc::vec::Vec;

use punctual_analysis::{CostParts, Explanation, Nanos, Ppm};

use super::super::api::{Role, StageGrant, StageKind};
use super::super::config::{self, Degraded};
use super::models::path_costs;
use super::planned::planned_bound;
use super::{HeldStage, Stages};
use crate::ids::LinkId;
use crate::signalling::LocalChannel;

impl Stages {
    /// What is held now, without what was said when it was offered: what a bound is made of, and the smallest one.
    pub fn holding(&self, local: &LocalChannel) -> Vec<StageGrant> {
        let Some((held, cpu)) = self.held(local.channel).zip(self.cpu_stage(local)) else {
            return Vec::new();
        };
        let mut holding = Vec::from([self.cpu_part(local, &cpu)]);
        if let Some((link, stage)) = self.link_stage(local) {
            holding.push(self.link_part(local, link, &stage));
        }
        if let Some(last) = holding.last_mut() {
            last.buffer_bytes = held.buffers().bytes;
        }
        holding
    }

    fn cpu_cost_parts(&self, local: &LocalChannel) -> CostParts {
        let (contract, fragment) = (&local.contract, local.fragment_bytes);
        let costs = path_costs(&self.costs, local.role);
        let parts = contract
            .service(fragment)
            .map(|service| self.cpu_model.cost_parts_of(contract, &service, fragment, &costs));
        parts.unwrap_or_default()
    }

    /// What the processor's offer of `stage` within `limit` is made of; asked before it is held.
    pub(super) fn explain_cpu(&mut self, stage: &HeldStage, limit: Nanos) -> Explanation {
        let mut made_of = match stage.planned {
            None => self.cpu.explain(&stage.demand, limit - stage.wait).unwrap_or_default(),
            Some(_) => planned_bound(stage),
        };
        made_of.release_latency += stage.wait;
        made_of
    }

    /// The same of a link.
    pub(super) fn explain_link(&mut self, link: LinkId, stage: &HeldStage, limit: Nanos) -> Explanation {
        let policy = &mut self.links[usize::from(link.0)].policy;
        policy.explain(&stage.demand, limit).unwrap_or_default()
    }

    /// Of what a processor's bound is made of, what cold caches take.
    pub(super) fn cold_start_of(&self, made_of: &Explanation) -> Nanos {
        self.costs.cold_start.min(made_of.interference)
    }

    /// A processor's part of a grant, without what its bound is made of.
    pub(super) fn cpu_part(&self, local: &LocalChannel, stage: &HeldStage) -> StageGrant {
        StageGrant {
            cost_parts: self.cpu_cost_parts(local),
            costs_from: self.costs_from,
            utilisation: self.cpu.utilisation(),
            degraded: self.degraded.or(self.cpu_breach.map(|_| Degraded::Broken)),
            ..self.part(cpu_kind(local.role), stage)
        }
    }

    /// The same of the link out.
    pub(super) fn link_part(&self, local: &LocalChannel, link: LinkId, stage: &HeldStage) -> StageGrant {
        let on = &self.links[usize::from(link.0)];
        StageGrant {
            cost_parts: on.model.cost_parts(&local.contract, local.fragment_bytes),
            propagation_max: on.propagation_max,
            utilisation: on.policy.utilisation(),
            degraded: on.degraded.or(on.breach.map(|_| Degraded::Broken)),
            ..self.part(StageKind::Link, stage)
        }
    }

    /// What every part says; the stage itself adds the rest.
    fn part(&self, kind: StageKind, stage: &HeldStage) -> StageGrant {
        StageGrant {
            node: self.node,
            kind,
            offered: stage.bound,
            bound: stage.bound,
            propagation_max: Nanos::ZERO,
            cost: stage.demand.cost,
            made_of: Explanation::default(),
            cold_start: Nanos::ZERO,
            cost_parts: CostParts::default(),
            costs_from: config::CostSource::Configured,
            utilisation: Ppm(0),
            buffer_bytes: 0,
            degraded: None,
        }
    }
}

pub(super) const fn cpu_kind(role: Role) -> StageKind {
    match role {
        Role::Source => StageKind::SourceCpu,
        Role::Forwarder => StageKind::ForwardCpu,
        Role::Sink => StageKind::SinkCpu,
    }
}
