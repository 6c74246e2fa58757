//! What applications and signalling are told of what is held.

use alloc::vec::Vec;

use punctual_analysis::{CostParts, Demand, Explanation, Nanos, Ppm};

use super::super::api::{Role, StageGrant, StageKind};
use super::super::config;
use super::models::path_costs;
use super::planned::planned_bound;
use super::{HeldStage, Stages};
use crate::ids::{ChannelId, LinkId};
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
        self.keep(local.channel, &grants);
        debug_assert_eq!(self.granted(local), grants, "what is kept says what was granted");
        grants
    }

    /// Keeps what was granted for [`Self::granted`].
    pub(super) fn keep(&mut self, channel: ChannelId, grants: &[StageGrant]) {
        let Some(held) = self.held.get_mut(&channel) else { return };
        let stages = core::iter::once(&mut held.cpu).chain(held.link.as_mut().map(|(_, stage)| stage));
        for (stage, grant) in stages.zip(grants) {
            stage.granted = Granted::of(grant);
        }
    }

    /// What was granted last of what is held.
    pub fn granted(&self, local: &LocalChannel) -> Vec<StageGrant> {
        let Some((held, cpu)) = self.held(local.channel).zip(self.cpu_stage(local)) else {
            return Vec::new();
        };
        let costs_from = self.costs_from;
        let own = StageGrant { costs_from, ..self.grant(cpu_kind(local.role), &cpu) };
        let mut grants = Vec::from([held.cpu.granted.complete(own, cpu.wait)]);
        grants[0].cost_parts = self.cpu_cost_parts(local);
        if let Some(((link, stage), (_, kept))) = self.link_stage(local).zip(held.link.as_ref()) {
            let on = &self.links[usize::from(link.0)];
            let own = StageGrant {
                cost_parts: on.model.cost_parts(&local.contract, local.fragment_bytes),
                propagation_max: on.propagation_max,
                ..self.grant(StageKind::Link, &stage)
            };
            grants.push(kept.granted.complete(own, Nanos::ZERO));
        }
        if let Some(last) = grants.last_mut() {
            last.buffer_bytes = held.buffers.bytes;
        }
        grants
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
            cost_parts: CostParts::default(),
            costs_from: config::CostSource::Configured,
            utilisation: Ppm(0),
            buffer_bytes: 0,
            degraded: self.degraded,
        }
    }
}

/// What a grant said that what is held does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct Granted {
    offered: Nanos,
    blocking: Nanos,
    interference: Nanos,
    others: Nanos,
    utilisation: Ppm,
    /// Whether it was said what the bound is made of.
    explained: bool,
}

impl Granted {
    fn of(grant: &StageGrant) -> Self {
        let StageGrant { offered, utilisation, made_of, .. } = *grant;
        let Explanation { blocking, interference, others, own, .. } = made_of;
        Self { offered, blocking, interference, others, utilisation, explained: own > Nanos::ZERO }
    }

    /// The grant, of which `own` is known; a bound includes `wait`.
    fn complete(self, own: StageGrant, wait: Nanos) -> StageGrant {
        let Self { offered, blocking, interference, others, utilisation, explained } = self;
        let parts = if explained { own.made_of } else { Explanation::default() };
        let release_latency = parts.release_latency + wait;
        let made_of = Explanation { blocking, interference, others, release_latency, ..parts };
        StageGrant { offered, utilisation, made_of, ..own }
    }
}

pub(super) const fn cpu_kind(role: Role) -> StageKind {
    match role {
        Role::Source => StageKind::SourceCpu,
        Role::Forwarder => StageKind::ForwardCpu,
        Role::Sink => StageKind::SinkCpu,
    }
}
