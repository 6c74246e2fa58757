//! Flows of a plan: held from the host's start on, taken over by the channels that name them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use punctual_analysis::{AdmissionPolicy, Demand, Explanation, Nanos, Refusal, RefusalReason, Service};

use super::{HeldStage, PlannedStage, Stages, planned_key};
use crate::api::{RefuseCause, Role, StageKind};
use crate::config::NodeConfig;
use crate::config::NodeConfigError;
use crate::config::path_costs;
use crate::config::plan::PlannedFlow;
use crate::signalling::LocalChannel;

impl Stages {
    /// The flow of this host's plan that a channel names. Only the source must have it in its plan.
    pub(super) fn planned(&self, local: &LocalChannel) -> Result<Option<usize>, RefuseCause> {
        let Some(name) = local.contract.flow else { return Ok(None) };
        let index = self.plan.iter().position(|planned| planned.flow.name == name);
        if index.is_none() && local.role == Role::Source {
            let text = format!("no flow \"{name}\" in this host's plan: add it with 'punctual plan'");
            return Err(RefuseCause::Unsuitable(text.into()));
        }
        Ok(index)
    }

    /// The reservation of a planned flow, for a channel that stays within it.
    pub(super) fn offer_planned(
        &self,
        local: &LocalChannel,
        index: usize,
        limit: Nanos,
    ) -> Result<HeldStage, RefuseCause> {
        let PlannedStage { flow, demand, taken } = &self.plan[index];
        let no = |why: String| {
            RefuseCause::Unsuitable(format!("flow \"{}\" of the plan: {why}", flow.name).into())
        };
        if taken.is_some() {
            return Err(no("another channel has it: close that or plan another flow".into()));
        }
        let (contract, fragment) = (flow.serving(&local.contract), local.fragment_bytes);
        let service = contract.service(fragment).map_err(|error| no(error.to_string()))?;
        let costs = path_costs(&self.cpu.costs, local.role);
        let own = self.cpu.model.demand_of(&contract, &service, fragment, &costs, self.cpu.release_latency);
        if own.cost > demand.cost || own.unit_cost_max > demand.unit_cost_max {
            return Err(no(format!(
                "it has {} of the processor a period, {} at once; the contract costs {}, {}: plan it again",
                demand.cost, demand.unit_cost_max, own.cost, own.unit_cost_max
            )));
        }
        let bound = service.wait + flow.deadline();
        if bound > limit {
            let reason = RefusalReason::Bound { possible: bound, limit };
            let refusal = Refusal { reason, bound_possible: Some(bound), period_possible: None };
            return Err(RefuseCause::Stage { kind: StageKind::cpu(local.role), refusal });
        }
        Ok(planned_stage(&self.plan[index], service, index))
    }

    /// The reservation of a channel that uses the planned flow `index`.
    pub(super) fn stage_of_plan(&self, local: &LocalChannel, index: usize) -> Option<HeldStage> {
        let planned = self.plan.get(index)?;
        let service = planned.flow.serving(&local.contract).service(local.fragment_bytes).ok()?;
        Some(planned_stage(planned, service, index))
    }
}

fn planned_stage(planned: &PlannedStage, service: Service, index: usize) -> HeldStage {
    let bound = service.wait + planned.flow.deadline();
    let (demand, wait, planned) = (planned.demand, service.wait, Some(index));
    HeldStage { demand, wait, bound_max: bound, bound, service: Some(service), planned }
}

/// Holds every flow of the plan.
pub(super) fn hold_plan(
    policy: &mut dyn AdmissionPolicy,
    config: &NodeConfig,
) -> Result<Vec<PlannedStage>, NodeConfigError> {
    let hold = |(index, flow): (usize, &PlannedFlow)| {
        let demand = flow.demand(config.cpu.release_latency);
        let refused = |refusal: Refusal| NodeConfigError {
            what: format!(
                "the plan cannot be scheduled here: flow \"{}\": {refusal}: make it again with 'punctual plan' and \
                 this host's configuration",
                flow.name
            ),
        };
        policy.hold(planned_key(index), &demand, flow.deadline()).map_err(refused)?;
        Ok(PlannedStage { flow: *flow, demand, taken: None })
    };
    config.cpu.plan.iter().enumerate().map(hold).collect()
}

/// The terms of a planned flow's bound, as far as the plan has them.
pub(super) fn planned_bound(stage: &HeldStage) -> Explanation {
    let Demand { release_latency, cost: own, .. } = stage.demand;
    let others = stage.work_bound() - release_latency - own;
    Explanation { release_latency, own, others, ..Explanation::default() }
}
