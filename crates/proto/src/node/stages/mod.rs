//! Admission of this node's own stages, the processor and the links out: what is held for whom.
//!
//! Invariant: `held` names exactly what the policies hold, and `buffer_bytes` is the sum of its buffers.

mod buffers;
mod grants;
mod held;
mod models;
mod planned;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::{
    Activation, ActivationError, AdmissionPolicy, Class, Contract, Cpu, Demand, Link, Nanos, PathCosts,
    Policing, Ppm, Refusal, RefusalReason, StageKey, Urgency, policy_by_name,
};

use super::api::{Breach, RateRefusal, RefuseCause, StageGrant, StageKind};
use super::check::NodeConfigError;
use super::config::{self, Admission, Degraded, NodeConfig};
use super::plan::PlannedFlow;
use crate::ids::{ChannelId, LinkId, NodeId};
use crate::limits::{
    FRAGMENT_BYTES_MAX, FRAMES_GUARANTEED_DIVISOR, HEADER_BYTES, SIGNAL_BYTES_MAX,
    SIGNAL_PERIODS_BESIDE_KERNEL,
};
use crate::signalling::LocalChannel;
use crate::table::Table;

use self::buffers::Pool;
pub(super) use self::buffers::{Pooled, Reserved};
use self::grants::cpu_kind;
pub(super) use self::held::{Held, HeldStage};
pub(crate) use self::models::link_model;
pub(super) use self::models::{cpu_model, path_costs, signal_rate};
use self::models::{fragment_bytes_max, hold_signalling, signal_contract};
use self::planned::hold_plan;

/// The name under which the analysis knows an admission.
const fn name_of(admission: Admission) -> &'static str {
    match admission {
        Admission::Edf => "edf",
        Admission::DOrder => "d-order",
        Admission::FixedPriority => "fixed-priority",
        Admission::Rmdp => "rmdp",
        Admission::Statistical => "statistical",
        Admission::Fifo => "fifo",
    }
}

/// The implicit signalling channel's place in each stage: no channel has this handle.
const SIGNALLING_KEY: StageKey = StageKey(u64::MAX);

/// One link's admission.
struct LinkStage {
    model: Link,
    policy: Box<dyn AdmissionPolicy>,
    propagation_max: Nanos,
    packet_bytes_max: u32,
    packet_best_effort_bytes_max: u32,
    signal_bound: Nanos,
    signal_demand: Demand,
    /// Why its bounds are no guarantees.
    degraded: Option<Degraded>,
    /// Frames that channels may reserve, and those that they have.
    frames_max: u32,
    frames: u32,
    pool: Pool,
    /// It breaks its promise.
    breach: Option<Breach>,
    /// Why nobody knows what it drains.
    rate_unknown: Option<RateRefusal>,
}

/// A flow of this host's plan; admission holds it from the start on.
struct PlannedStage {
    flow: PlannedFlow,
    demand: Demand,
    taken: Option<ChannelId>,
}

/// The place of a planned flow in the processor's admission: no channel has this handle.
const fn planned_key(index: usize) -> StageKey {
    StageKey(SIGNALLING_KEY.0 - 1 - index as u64)
}

/// Admission of all stages.
pub(super) struct Stages {
    node: NodeId,
    cpu_model: Cpu,
    cpu: Box<dyn AdmissionPolicy>,
    costs: config::CpuCosts,
    costs_from: config::CostSource,
    /// Why the processor's bounds are no guarantees.
    degraded: Option<Degraded>,
    /// What is known of this node's own stages, and what that means for who wants to cross them.
    cpu_breach: Option<Breach>,
    while_broken: config::WhileBroken,
    release_latency: Nanos,
    plan: Vec<PlannedStage>,
    links: Vec<LinkStage>,
    /// None of this is needed for a packet.
    held: Table<Held>,
    buffer_bytes: u64,
    buffer_bytes_max: u64,
}

impl Stages {
    /// The empty stages of a node; only its signalling is held.
    ///
    /// # Errors
    /// Where a stage cannot even carry its own signalling.
    pub fn new(config: &NodeConfig) -> Result<Self, NodeConfigError> {
        let cpu_model = cpu_model(&config.cpu, fragment_bytes_max(config));
        let unknown = |error: punctual_analysis::UnknownPolicy| NodeConfigError { what: error.to_string() };
        let mut cpu = policy_by_name(name_of(config.cpu.admission), cpu_model.model()).map_err(unknown)?;
        let signal = signal_contract(config)?;
        let costs = PathCosts::one_by_one(Nanos::ZERO, config.cpu.costs.receive_packet, Nanos::ZERO);
        let mut links = Vec::with_capacity(config.links.len());
        let mut cpu_demand: Option<Demand> = None;
        for link in &config.links {
            let LinkAdmission { model, policy, signal_demand, signal_bound } =
                link_admission(link, &signal, config.cpu.release_latency)?;
            let one = cpu_model.demand(
                &signal,
                SIGNAL_BYTES_MAX as u32,
                &costs,
                config.cpu.release_latency,
                Nanos::ZERO,
            );
            let sum = cpu_demand.map_or(Nanos::ZERO, |demand| demand.cost);
            // At run time nothing goes before signalling.
            cpu_demand = Some(Demand {
                cost: sum + one.cost,
                urgency: Urgency { class: Class::LowLatency, ..one.urgency },
                ..one
            });
            let (propagation_max, packet_bytes_max) = (link.propagation_max, link.packet_bytes_max);
            let frames_max = link.frames / FRAMES_GUARANTEED_DIVISOR;
            links.push(LinkStage {
                model,
                policy,
                propagation_max,
                packet_bytes_max,
                packet_best_effort_bytes_max: link.best_effort_bytes_max(),
                signal_bound,
                signal_demand,
                degraded: link.degraded(),
                frames_max,
                frames: 0,
                pool: Pool::default(),
                breach: None,
                rate_unknown: link.rate_auto.then_some(RateRefusal::NoNeighbour),
            });
        }
        if let Some(demand) = cpu_demand {
            hold_signalling(cpu.as_mut(), &demand, 1, "the processor")?;
        }
        let plan = hold_plan(cpu.as_mut(), config)?;
        Ok(Self {
            node: config.id,
            cpu_model,
            cpu,
            costs: config.cpu.costs,
            costs_from: config.cpu.costs_from,
            degraded: config.cpu.degraded(),
            cpu_breach: None,
            while_broken: config.signalling.while_broken,
            release_latency: config.cpu.release_latency,
            plan,
            links,
            held: Table::default(),
            buffer_bytes: 0,
            buffer_bytes_max: config.buffer_bytes_max,
        })
    }

    /// The bound of the implicit signalling channel of a link.
    pub fn signal_bound(&self, link: usize) -> Nanos {
        self.links[link].signal_bound
    }
    /// A link as admission sees it, and its signalling there.
    pub fn link(&self, link: usize) -> (&Link, (&Demand, Nanos)) {
        let LinkStage { model, signal_demand, signal_bound, .. } = &self.links[link];
        (model, (signal_demand, *signal_bound))
    }
    /// A channel's fixed-priority level on the processor (0 the most urgent); 0 under other orders.
    pub fn cpu_rank(&self, channel: ChannelId) -> u8 {
        self.cpu.rank(StageKey(channel.0)).map_or(0, |rank| rank.min(usize::from(u8::MAX)) as u8)
    }
    /// Given away of the processor.
    pub fn cpu_utilisation(&self) -> Ppm {
        self.cpu.utilisation()
    }
    /// Given away of a link.
    pub fn link_utilisation(&self, link: LinkId) -> Ppm {
        self.links[usize::from(link.0)].policy.utilisation()
    }
    /// Bytes of buffers that are reserved.
    pub const fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }
    /// What a channel holds.
    pub fn held(&self, channel: ChannelId) -> Option<&Held> {
        self.held.get(channel)
    }

    /// Tests the local stages, each with its smallest bound, together within `limit`; holds them unless `dry`.
    ///
    /// # Errors
    /// The first stage that says no; nothing is held then.
    pub fn hold(
        &mut self,
        local: &LocalChannel,
        limit: Nanos,
        dry: bool,
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        self.check_suitable(local)?;
        self.check_broken(local)?;
        self.check_rate(local)?;
        let refuse = |refusal| RefuseCause::Stage { kind: cpu_kind(local.role), refusal };
        let cpu = self.offer_cpu(local, limit)?.map_err(refuse)?;
        let out = local.link_out.map(|link| self.offer_link(local, link, &cpu, limit)).transpose()?;
        // Before the stages are held: then each would count the channel itself among the others.
        let cpu_made_of = self.explain_cpu(&cpu, limit);
        let out = out.map(|(link, stage, left)| (link, stage, self.explain_link(link, &stage, left)));
        if !dry {
            if let Some((link, stage, _)) = &out {
                self.hold_link(local.channel, *link, stage)?;
            }
            if let Err(refusal) = self.hold_cpu(local.channel, &cpu) {
                if let Some((link, ..)) = out {
                    self.links[usize::from(link.0)].policy.release(StageKey(local.channel.0));
                }
                return Err(refuse(refusal));
            }
            self.insert(local.channel, &cpu, out.as_ref().map(|(link, stage, _)| (*link, stage)));
        }
        let cold_start = self.cold_start_of(&cpu_made_of);
        let cpu = StageGrant { made_of: cpu_made_of, cold_start, ..self.cpu_part(local, &cpu) };
        let out =
            out.map(|(link, stage, made_of)| StageGrant { made_of, ..self.link_part(local, link, &stage) });
        Ok(core::iter::once(cpu).chain(out).collect())
    }

    /// The processor breaks its promise, or keeps it again.
    pub const fn set_cpu_breach(&mut self, breach: Option<Breach>) {
        self.cpu_breach = breach;
    }
    /// A link does.
    pub fn set_link_breach(&mut self, link: LinkId, breach: Option<Breach>) {
        self.links[usize::from(link.0)].breach = breach;
    }

    /// Refuses what would cross a broken stage, where the operator wants that.
    fn check_broken(&self, local: &LocalChannel) -> Result<(), RefuseCause> {
        if self.while_broken == config::WhileBroken::Degrade {
            return Ok(());
        }
        let link = local.link_out.and_then(|link| self.links[usize::from(link.0)].breach);
        let cpu = self.cpu_breach.map(|breach| (cpu_kind(local.role), breach));
        match cpu.or(link.map(|breach| (StageKind::Link, breach))) {
            Some((kind, breach)) => Err(RefuseCause::Broken { kind, breach }),
            None => Ok(()),
        }
    }

    /// What a link drains is not known, or is again.
    pub fn set_rate_unknown(&mut self, link: LinkId, why: Option<RateRefusal>) {
        self.links[usize::from(link.0)].rate_unknown = why;
    }

    /// A link that nobody uses is as `config` says from now on; `false`, with nothing changed, where it cannot carry its own
    /// signalling then.
    pub fn set_link(&mut self, link: LinkId, config: &config::LinkConfig, node: &NodeConfig) -> bool {
        let changed =
            signal_contract(node).and_then(|signal| link_admission(config, &signal, self.release_latency));
        let Ok(LinkAdmission { model, policy, signal_demand, signal_bound }) = changed else { return false };
        let stage = &mut self.links[usize::from(link.0)];
        (stage.model, stage.policy) = (model, policy);
        (stage.signal_demand, stage.signal_bound) = (signal_demand, signal_bound);
        stage.rate_unknown = None;
        true
    }

    /// Refuses what would cross a link whose rate is to be measured and was not yet.
    fn check_rate(&self, local: &LocalChannel) -> Result<(), RefuseCause> {
        let why = local.link_out.and_then(|link| self.links[usize::from(link.0)].rate_unknown);
        why.map_or(Ok(()), |why| Err(RefuseCause::RateUnknown(why)))
    }

    /// Moves the held bounds to at most `bounds` (CPU, link), each where its stage still keeps everybody's;
    /// returns the bounds that are held now.
    pub fn relax(
        &mut self,
        local: &LocalChannel,
        bounds: &[Nanos],
        horizons: impl Fn(usize, &[Nanos]) -> Nanos,
    ) -> Option<Vec<Nanos>> {
        let (mut cpu, mut out) = (self.cpu_stage(local)?, self.link_stage(local));
        let key = StageKey(local.channel.0);
        let mut taken = Vec::from([cpu.bound]);
        // From the last stage on: a horizon counts what is upstream of it.
        if let Some((link, stage)) = &mut out {
            let wanted = bounds.get(1).copied().unwrap_or(stage.bound);
            relax_stage(self.links[usize::from(link.0)].policy.as_mut(), key, stage, wanted);
            taken.push(stage.bound);
        }
        let wanted = bounds.first().copied().unwrap_or(cpu.bound);
        relax_stage(self.cpu.as_mut(), key, &mut cpu, wanted);
        taken[0] = cpu.bound;
        // To a policy that counts it early service is jitter, which costs others: nobody gets that without having asked.
        let unasked =
            if local.contract.jitter.is_none() { local.contract.early_service() } else { Nanos::ZERO };
        rehold(self.cpu.as_mut(), key, &mut cpu, horizons(0, &taken) - unasked);
        if let Some((link, stage)) = &mut out {
            let policy = self.links[usize::from(link.0)].policy.as_mut();
            rehold(policy, key, stage, horizons(1, &taken) - unasked);
        }
        let held = self.held.get_mut(local.channel)?;
        held.set_bounds(cpu.bound, out.map(|(_, stage)| stage.bound));
        held.set_early(cpu.demand.early, out.map_or(Nanos::ZERO, |(_, stage)| stage.demand.early));
        Some(taken)
    }

    /// Gives everything back.
    pub fn release(&mut self, channel: ChannelId) {
        let Some(held) = self.held.remove(channel) else { return };
        match held.planned() {
            Some(index) => self.plan[index].taken = None,
            None => drop(self.cpu.release(StageKey(channel.0))),
        }
        if let Some((link, _)) = held.link() {
            self.links[usize::from(link.0)].policy.release(StageKey(channel.0));
        }
        self.count_buffers(channel, &held.buffers(), &Reserved::default());
    }

    fn check_suitable(&self, local: &LocalChannel) -> Result<(), RefuseCause> {
        let fragment = local.fragment_bytes;
        let packets = local.contract.packets_max(fragment);
        if fragment == 0 || fragment > FRAGMENT_BYTES_MAX || packets > u32::from(u16::MAX) {
            let text = format!("{packets} packets of {fragment} B a message; at most {} packets", u16::MAX);
            return Err(RefuseCause::Unsuitable(text.into()));
        }
        let Some(link) = local.link_out else { return Ok(()) };
        let stage = &self.links[usize::from(link.0)];
        let needed = fragment.min(local.contract.message_bytes_max) + HEADER_BYTES as u32;
        if needed > stage.packet_bytes_max {
            let room = stage.packet_bytes_max;
            return Err(RefuseCause::Unsuitable(
                format!("packets of {needed} B, the link takes {room} B").into(),
            ));
        }
        // What the contract asks to be sent as best effort must not be lost for its size.
        let room = stage.packet_best_effort_bytes_max;
        if needed > room && local.contract.policing == Policing::Demote {
            let text = format!(
                "policing \"demote\" with packets of {needed} B, the link takes {room} B as best effort: choose \
                 another policing or smaller fragments"
            );
            return Err(RefuseCause::Unsuitable(text.into()));
        }
        Ok(())
    }

    /// What the processor could promise, the wait for a timer included.
    fn offer_cpu(
        &mut self,
        local: &LocalChannel,
        limit: Nanos,
    ) -> Result<Result<HeldStage, Refusal>, RefuseCause> {
        if let Some(index) = self.planned(local)? {
            return self.offer_planned(local, index, limit);
        }
        let (contract, fragment) = (&local.contract, local.fragment_bytes);
        let service = contract.service(fragment).map_err(unsuitable)?;
        let stage = self.stage_of_cpu(local, service);
        let wait = stage.wait;
        let answer = match self.cpu.offer(&stage.demand, (stage.bound_max - wait).min(limit - wait)) {
            Ok(offer) => Ok(HeldStage { bound: wait + offer.bound, ..stage }),
            Err(refusal) if contract.activation == Activation::Deadline => Err(refusal),
            Err(refusal) => Err(after_timer(refusal, wait)),
        };
        Ok(answer)
    }

    /// What the link out could promise, with what the processor leaves of `limit`; and how much that is.
    fn offer_link(
        &mut self,
        local: &LocalChannel,
        link: LinkId,
        cpu: &HeldStage,
        limit: Nanos,
    ) -> Result<(LinkId, HeldStage, Nanos), RefuseCause> {
        let demand = self.link_demand(local, link, cpu.bound);
        let on = &mut self.links[usize::from(link.0)];
        let left = limit - cpu.bound - on.propagation_max;
        let offer = on.policy.offer(&demand, left).map_err(refused_by_link)?;
        Ok((link, HeldStage::new(demand, offer.bound), left))
    }

    fn hold_link(&mut self, channel: ChannelId, link: LinkId, stage: &HeldStage) -> Result<(), RefuseCause> {
        let policy = &mut self.links[usize::from(link.0)].policy;
        policy.hold(StageKey(channel.0), &stage.demand, stage.bound).map_err(refused_by_link)
    }

    fn hold_cpu(&mut self, channel: ChannelId, stage: &HeldStage) -> Result<(), Refusal> {
        match stage.planned {
            Some(index) => self.plan[index].taken = Some(channel),
            None => self.cpu.hold(StageKey(channel.0), &stage.demand, stage.work_bound())?,
        }
        Ok(())
    }

    /// How early a channel's packets may be processed where `wanted` is what its buffers allow: under an order
    /// to which early work is jitter, no more than was admitted.
    pub fn cpu_early(&self, local: &LocalChannel, wanted: Nanos) -> Nanos {
        match self.cpu_stage(local) {
            Some(cpu) if counts_early(self.cpu.as_ref(), &cpu) => wanted.min(cpu.demand.early),
            _ => wanted,
        }
    }

    /// The same for the link out.
    pub fn link_early(&self, local: &LocalChannel, wanted: Nanos) -> Nanos {
        match self.link_stage(local) {
            Some((link, stage)) if counts_early(self.links[usize::from(link.0)].policy.as_ref(), &stage) => {
                wanted.min(stage.demand.early)
            }
            _ => wanted,
        }
    }

    /// Whether the processor serves a channel behind all that are hard.
    pub fn cpu_is_soft(&self, channel: ChannelId) -> bool {
        self.cpu.is_soft(StageKey(channel.0))
    }

    /// Whether the link does.
    pub fn link_is_soft(&self, link: LinkId, channel: ChannelId) -> bool {
        self.links[usize::from(link.0)].policy.is_soft(StageKey(channel.0))
    }
}

/// One link's admission, which holds its signalling.
struct LinkAdmission {
    model: Link,
    policy: Box<dyn AdmissionPolicy>,
    signal_demand: Demand,
    signal_bound: Nanos,
}

fn link_admission(
    link: &config::LinkConfig,
    signal: &Contract,
    release_latency: Nanos,
) -> Result<LinkAdmission, NodeConfigError> {
    let unknown = |error: punctual_analysis::UnknownPolicy| NodeConfigError { what: error.to_string() };
    let model = link_model(link);
    let mut policy = policy_by_name(name_of(link.admission), model.model()).map_err(unknown)?;
    let bytes = link.signal_bytes_max();
    let of_link = Contract { message_bytes_max: bytes, ..*signal };
    let signal_demand = model.demand(&of_link, bytes, release_latency, Nanos::ZERO);
    // Where the kernel's share follows, the shortest bound says how much it may have.
    let periods = if link.follows() { SIGNAL_PERIODS_BESIDE_KERNEL } else { 1 };
    let name = format!("link {}", link.name);
    let signal_bound = hold_signalling(policy.as_mut(), &signal_demand, periods, &name)?;
    Ok(LinkAdmission { model, policy, signal_demand, signal_bound })
}

/// Relaxed bounds keep so many of their leading bits, and lose less than 1/64 by that. Channels of one contract then
/// hold one of few bounds, not each its own: a stage keeps equal ones as one, and decides faster (docs/PERFORMANCE.md).
const BOUND_BITS: u32 = 7;

/// The largest bound with few different ones beside it that is not longer than `bound`.
const fn rounded(bound: Nanos) -> Nanos {
    let spare = u64::BITS.saturating_sub(bound.0.leading_zeros()).saturating_sub(BOUND_BITS);
    Nanos(bound.0 >> spare << spare)
}

/// Moves one held bound; where its stage refuses, it stays and the share is handed on.
fn relax_stage(policy: &mut dyn AdmissionPolicy, key: StageKey, stage: &mut HeldStage, wanted: Nanos) {
    let wanted = rounded(wanted).min(stage.bound_max);
    if wanted > stage.bound && policy.relax(key, wanted - stage.wait).is_ok() {
        stage.bound = wanted;
    }
}

/// Whether a policy counts early arrivals of what is held. EDF does not ask how early: the deadline
/// stays the same; a timer keeps early packets back.
fn counts_early(policy: &dyn AdmissionPolicy, stage: &HeldStage) -> bool {
    stage.wait == Nanos::ZERO && !matches!(policy.name(), "edf" | "d-order" | "fifo")
}

/// Tells a policy that counts early arrivals how early they may be now; where that breaks a bound they may not.
fn rehold(policy: &mut dyn AdmissionPolicy, key: StageKey, stage: &mut HeldStage, early: Nanos) {
    if stage.demand.early == early || !counts_early(policy, stage) {
        return;
    }
    let demand = Demand { early, ..stage.demand };
    // In place: what is held need not be feasible again once it is given up.
    if policy.hold(key, &demand, stage.work_bound()).is_ok() {
        stage.demand = demand;
    }
}

/// A refusal of a stage that serves by a timer or a budget: bounds include the wait; the rate that would fit is
/// that of the budget, which is no offer to the contract.
fn after_timer(refusal: Refusal, wait: Nanos) -> Refusal {
    let reason = match refusal.reason {
        RefusalReason::Bound { possible, limit } => {
            RefusalReason::Bound { possible: possible + wait, limit: limit + wait }
        }
        reason => reason,
    };
    let bound_possible = refusal.bound_possible.map(|possible| possible + wait);
    Refusal { reason, bound_possible, period_possible: None }
}

const fn refused_by_link(refusal: Refusal) -> RefuseCause {
    RefuseCause::Stage { kind: StageKind::Link, refusal }
}

fn unsuitable(error: ActivationError) -> RefuseCause {
    RefuseCause::Unsuitable(error.to_string().into())
}
