//! What applications and signalling are told of what is held.

use alloc::vec::Vec;

use punctual_analysis::{CostParts, Demand, Explanation, Nanos, Ppm};

use super::super::api::{Role, StageGrant, StageKind};
use super::super::config;
use super::models::path_costs;
use super::planned::planned_bound;
use super::{HeldStage, Stages};
use crate::ids::LinkId;
use crate::signalling::LocalChannel;

impl Stages {
    /// The grants of what is held now.
    pub fn grants(&mut self, local: &LocalChannel, offered: &[Nanos]) -> Vec<StageGrant> {
        let stages = self.cpu_stage(local).zip(self.held(local.channel));
        let Some((cpu, buffer_bytes)) = stages.map(|(cpu, held)| (cpu, held.buffers.bytes)) else {
            return Vec::new();
        };
        let mut grants = Vec::from([self.cpu_grant(local, &cpu, cpu.bound)]);
        if let Some((link, stage)) = self.link_stage(local) {
            grants.push(self.link_grant(local, link, &stage, stage.bound));
        }
        for (grant, offered) in grants.iter_mut().zip(offered) {
            grant.offered = *offered;
        }
        if let Some(last) = grants.last_mut() {
            last.buffer_bytes = buffer_bytes;
        }
        grants
    }

    /// What is held now, without what was said when it was granted: what a bound was made of, and the smallest one.
    pub fn holding(&self, local: &LocalChannel) -> Vec<StageGrant> {
        let Some((held, cpu)) = self.held(local.channel).zip(self.cpu_stage(local)) else {
            return Vec::new();
        };
        let mut holding = Vec::from([StageGrant {
            cost_parts: self.cpu_cost_parts(local),
            costs_from: self.costs_from,
            utilisation: self.cpu_utilisation(),
            ..self.grant(cpu_kind(local.role), &cpu)
        }]);
        if let Some((link, stage)) = self.link_stage(local) {
            let on = &self.links[usize::from(link.0)];
            holding.push(StageGrant {
                cost_parts: on.model.cost_parts(&local.contract, local.fragment_bytes),
                propagation_max: on.propagation_max,
                utilisation: on.policy.utilisation(),
                ..self.grant(StageKind::Link, &stage)
            });
        }
        for stage in &mut holding {
            stage.made_of = Explanation::default();
        }
        if let Some(last) = holding.last_mut() {
            last.buffer_bytes = held.buffers.bytes;
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

    pub(super) fn cpu_grant(&mut self, local: &LocalChannel, stage: &HeldStage, limit: Nanos) -> StageGrant {
        let mut made_of = match stage.planned {
            None => self.cpu.explain(&stage.demand, limit - stage.wait).unwrap_or_default(),
            Some(_) => planned_bound(stage),
        };
        made_of.release_latency += stage.wait;
        StageGrant {
            made_of,
            cold_start: self.costs.cold_start.min(made_of.interference),
            cost_parts: self.cpu_cost_parts(local),
            costs_from: self.costs_from,
            utilisation: self.cpu.utilisation(),
            ..self.grant(cpu_kind(local.role), stage)
        }
    }

    pub(super) fn link_grant(
        &mut self,
        local: &LocalChannel,
        link: LinkId,
        stage: &HeldStage,
        limit: Nanos,
    ) -> StageGrant {
        let own = self.grant(StageKind::Link, stage);
        let on = &mut self.links[usize::from(link.0)];
        let made_of = on.policy.explain(&stage.demand, limit).unwrap_or_default();
        StageGrant {
            cost_parts: on.model.cost_parts(&local.contract, local.fragment_bytes),
            propagation_max: on.propagation_max,
            utilisation: on.policy.utilisation(),
            made_of,
            ..own
        }
    }

    /// What every grant says; the stage itself adds the rest.
    fn grant(&self, kind: StageKind, stage: &HeldStage) -> StageGrant {
        let Demand { release_latency, cost: own, .. } = stage.demand;
        StageGrant {
            node: self.node,
            kind,
            offered: stage.bound,
            bound: stage.bound,
            propagation_max: Nanos::ZERO,
            cost: stage.demand.cost,
            made_of: Explanation { release_latency, own, ..Explanation::default() },
            cold_start: Nanos::ZERO,
            cost_parts: CostParts::default(),
            costs_from: config::CostSource::Configured,
            utilisation: Ppm(0),
            buffer_bytes: 0,
            degraded: self.degraded,
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
