//! Reports of reservations to applications and signalling.

use alloc::vec::Vec;

use punctual_analysis::{CostParts, Explanation, Nanos, Ppm};

use super::policies::{Offered, Relaxed};
use super::{HeldStage, Stages};
use crate::api::{StageGrant, StageKind};
use crate::config::{self, Degraded};
use crate::ids::LinkId;
use crate::signalling::LocalChannel;

impl Stages {
    /// The present reservation, without the details of the offer: the terms of a bound, and the smallest
    /// bound.
    pub fn holding(&self, local: &LocalChannel) -> Vec<StageGrant> {
        let Some((held, cpu)) = self.held(local.channel).zip(self.cpu_stage(local)) else {
            return Vec::new();
        };
        let link = self.link_stage(local).map(|(link, stage)| self.link_part(local, link, &stage));
        with_buffers(self.cpu_part(local, &cpu), link, held.buffers().bytes)
    }

    /// The reservation that a channel would have with the bounds `relaxed` and these buffers.
    pub fn would_hold(&self, local: &LocalChannel, relaxed: &Relaxed, buffer_bytes: u64) -> Vec<StageGrant> {
        let link = local.link_out.zip(relaxed.link.as_ref());
        let link = link.map(|(link, stage)| self.link_part(local, link, stage));
        with_buffers(self.cpu_part(local, &relaxed.cpu), link, buffer_bytes)
    }

    fn cpu_cost_parts(&self, local: &LocalChannel) -> CostParts {
        let (contract, fragment) = (&local.contract, local.fragment_bytes);
        let costs = self.cpu_costs(local);
        let parts = contract
            .service(fragment)
            .map(|service| self.cpu.model.cost_parts_of(contract, &service, fragment, &costs));
        parts.unwrap_or_default()
    }

    /// The report of an offer: each stage's part.
    pub(super) fn offered(&self, local: &LocalChannel, offered: &Offered) -> Vec<StageGrant> {
        let Offered { cpu, cpu_made_of: made_of, cpu_utilisation: utilisation, link, .. } = offered;
        let cold_start = self.cold_start_of(made_of);
        let cpu = StageGrant {
            made_of: *made_of,
            cold_start,
            utilisation: *utilisation,
            ..self.cpu_part(local, cpu)
        };
        let link = link.map(|(link, stage, made_of, utilisation)| StageGrant {
            made_of,
            utilisation,
            ..self.link_part(local, link, &stage)
        });
        core::iter::once(cpu).chain(link).collect()
    }

    /// Part of a processor's bound that cold caches take.
    pub(super) fn cold_start_of(&self, made_of: &Explanation) -> Nanos {
        self.cpu.costs.cold_start.min(made_of.interference)
    }

    /// A processor's part of a grant, without the terms of its bound.
    pub(super) fn cpu_part(&self, local: &LocalChannel, stage: &HeldStage) -> StageGrant {
        StageGrant {
            cost_parts: self.cpu_cost_parts(local),
            costs_from: self.cpu.costs_from,
            utilisation: self.cpu.utilisation,
            degraded: self.cpu.degraded.or(self.cpu.breach.map(|_| Degraded::Broken)),
            ..self.part(StageKind::cpu(local.role), stage)
        }
    }

    /// The link's part of a grant, without the terms of its bound.
    pub(super) fn link_part(&self, local: &LocalChannel, link: LinkId, stage: &HeldStage) -> StageGrant {
        let on = &self.links[usize::from(link.0)];
        StageGrant {
            cost_parts: on.model.cost_parts(&local.contract, local.fragment_bytes),
            propagation_max: on.propagation_max,
            utilisation: on.utilisation,
            degraded: on.degraded.or(on.breach.map(|_| Degraded::Broken)),
            ..self.part(StageKind::Link, stage)
        }
    }

    /// The common fields of every part; the stage adds the rest.
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

/// The parts of a grant; the last stage's part has the channel's buffers here.
fn with_buffers(cpu: StageGrant, link: Option<StageGrant>, buffer_bytes: u64) -> Vec<StageGrant> {
    match link {
        Some(link) => Vec::from([cpu, StageGrant { buffer_bytes, ..link }]),
        None => Vec::from([StageGrant { buffer_bytes, ..cpu }]),
    }
}
