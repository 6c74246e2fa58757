//! What applications and signalling are told of what is held.

use alloc::vec::Vec;

use punctual_analysis::{CostParts, Explanation, Nanos, Ppm};

use super::super::api::{Role, StageGrant, StageKind};
use super::super::config;
use super::models::path_costs;
use super::planned::planned_bound;
use super::{HeldStage, Stages};
use crate::ids::{LinkId, NodeId};
use crate::signalling::LocalChannel;

impl Stages {
    /// The grants of what is held now.
    pub fn grants(&mut self, local: &LocalChannel, offered: &[Nanos]) -> Vec<StageGrant> {
        let Some(held) = self.held.get(&local.channel).cloned() else { return Vec::new() };
        // Kept as long as the channel: no room for more than it needs.
        let mut grants = Vec::with_capacity(2);
        grants.push(self.cpu_grant(local, &held.cpu, held.cpu.bound));
        if let Some((link, stage)) = &held.link {
            grants.push(self.link_grant(local, *link, stage, stage.bound));
        }
        for (grant, offered) in grants.iter_mut().zip(offered) {
            grant.offered = *offered;
        }
        if let Some(last) = grants.last_mut() {
            last.buffer_bytes = held.buffers.bytes;
        }
        grants
    }

    pub(super) fn cpu_grant(&mut self, local: &LocalChannel, stage: &HeldStage, limit: Nanos) -> StageGrant {
        let (contract, fragment) = (&local.contract, local.fragment_bytes);
        let mut made_of = match stage.planned {
            None => self.cpu.explain(&stage.demand, limit - stage.wait).unwrap_or_default(),
            Some(_) => planned_bound(stage),
        };
        made_of.release_latency += stage.wait;
        let costs = path_costs(&self.costs, local.role);
        let parts = contract
            .service(fragment)
            .map(|service| self.cpu_model.cost_parts_of(contract, &service, fragment, &costs));
        StageGrant {
            cost_parts: parts.unwrap_or_default(),
            costs_from: self.costs_from,
            utilisation: self.cpu.utilisation(),
            ..grant(self.node, cpu_kind(local.role), stage, made_of)
        }
    }

    pub(super) fn link_grant(
        &mut self,
        local: &LocalChannel,
        link: LinkId,
        stage: &HeldStage,
        limit: Nanos,
    ) -> StageGrant {
        let on = &mut self.links[usize::from(link.0)];
        let made_of = on.policy.explain(&stage.demand, limit).unwrap_or_default();
        StageGrant {
            cost_parts: on.model.cost_parts(&local.contract, local.fragment_bytes),
            propagation_max: on.propagation_max,
            utilisation: on.policy.utilisation(),
            ..grant(self.node, StageKind::Link, stage, made_of)
        }
    }
}

/// What every grant says; the stage itself adds the rest.
fn grant(node: NodeId, kind: StageKind, stage: &HeldStage, made_of: Explanation) -> StageGrant {
    StageGrant {
        node,
        kind,
        offered: stage.bound,
        bound: stage.bound,
        propagation_max: Nanos::ZERO,
        cost: stage.demand.cost,
        made_of,
        cost_parts: CostParts::default(),
        costs_from: config::CostSource::Configured,
        utilisation: Ppm(0),
        buffer_bytes: 0,
    }
}

pub(super) const fn cpu_kind(role: Role) -> StageKind {
    match role {
        Role::Source => StageKind::SourceCpu,
        Role::Forwarder => StageKind::ForwardCpu,
        Role::Sink => StageKind::SinkCpu,
    }
}
