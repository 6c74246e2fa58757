//! Admission of this node's own stages, the processor and the outgoing links, and their reservations.
//!
//! Invariant: `held` lists exactly what the policies hold, and `buffer_bytes` is the sum of its buffers.

mod accounts;
mod buffers;
mod decision;
mod grants;
mod held;
mod link_stage;
mod models;
mod planned;
mod policies;
mod reserved;
mod rtu;
mod rtu_places;
mod suitability;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::{
    ActivationError, AdmissionPolicy, Class, Contract, Cpu, Demand, Link, Nanos, PathCosts, Ppm, StageKey,
    Urgency,
};

use crate::api::{Breach, RateRefusal, RefuseCause, RtuId, StageKind};
use crate::config::NodeConfigError;
use crate::config::plan::PlannedFlow;
use crate::config::{self, Admission, Degraded, NodeConfig};
use crate::ids::{ChannelId, LinkId, NodeId};
use crate::limits::SIGNAL_BYTES_MAX;
use crate::signalling::{Answer, CommitTerms, LocalChannel};
use crate::table::Table;

use self::buffers::Pool;
pub use self::decision::{Decided, Decision};
pub(super) use self::held::{Held, HeldStage};
use self::link_stage::{link_admission, link_stage};
pub(super) use self::models::signal_rate;
use self::models::{fragment_bytes_max, hold_signalling, signal_contract};
use self::planned::hold_plan;
pub(super) use self::policies::Relaxed;
use self::policies::{Final, LinkRequest, Question, StagesRequest, Trial};
pub(super) use self::reserved::{Pooled, Reserved};
pub(super) use self::rtu::{RtuAnswer, RtuPackets};
pub(super) use self::rtu_places::RtuPlace;
use crate::config::cpu_model;

/// The implicit signalling channel's place in each stage: no channel has this handle.
const SIGNALLING_KEY: StageKey = StageKey(u64::MAX);

/// Initial capacity for questions and answers: a host that opens and closes channels occasionally allocates
/// no memory for them.
const QUESTIONS_ROOM: usize = 16;

/// Admission state of one link, without its policy.
struct LinkStage {
    model: Link,
    admission: Admission,
    /// Reserved utilisation, as of the last time that the policies were here.
    utilisation: Ppm,
    propagation_max: Nanos,
    packet_bytes_max: u32,
    packet_best_effort_bytes_max: u32,
    signal_bound: Nanos,
    signal_demand: Demand,
    /// Why its bounds are no guarantees.
    degraded: Option<Degraded>,
    /// Frames that channels may reserve, and frames that are reserved.
    frames_max: u32,
    frames: u32,
    pool: Pool,
    /// The breach, if the link breaks its promise.
    breach: Option<Breach>,
    /// Why the drain rate of the link is unknown; `None` if it is known.
    rate_unknown: Option<RateRefusal>,
}

/// Admission of one link, which already holds the link's signalling.
struct LinkAdmission {
    model: Link,
    policy: Box<dyn AdmissionPolicy>,
    signal_demand: Demand,
    signal_bound: Nanos,
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
    cpu: CpuStage,
    links: Vec<LinkStage>,
    asking: PolicyQueries,
    while_broken: config::WhileBroken,
    plan: Vec<PlannedStage>,
    /// The reservation of each channel. It is not accessed per packet.
    held: Table<Held>,
    /// Programs' handlers that hold a place on the processor, and the link that they hold one of.
    rtus: BTreeMap<RtuId, Option<LinkId>>,
    buffer_bytes: u64,
    buffer_bytes_max: u64,
}

/// The processor, but for the policy.
struct CpuStage {
    model: Cpu,
    admission: Admission,
    /// Reserved utilisation, as of the last time that the policies were here.
    utilisation: Ppm,
    costs: config::CpuCosts,
    costs_from: config::CostSource,
    release_latency: Nanos,
    /// Why its bounds are no guarantees.
    degraded: Option<Degraded>,
    /// The breach, if the processor breaks its promise.
    breach: Option<Breach>,
}

/// Questions to the policies, and their answers.
struct PolicyQueries {
    /// `None` while another thread has them.
    policies: Option<Policies>,
    /// Questions that the policies have not been asked yet.
    questions: VecDeque<Question>,
    /// Whether another thread answers ([`Decision`]), or the node at once.
    elsewhere: bool,
    /// Answers that were not taken yet.
    answers: VecDeque<Answer>,
    /// Answers about programs' handlers that were not taken yet.
    rtus: VecDeque<RtuAnswer>,
    /// Channels that can be made final, and the bounds that they would have then.
    relaxed: Vec<(ChannelId, Relaxed)>,
    /// Probed channels that could be made final but hold nothing, with the bounds that they would have and
    /// their terms.
    tried: Vec<(Arc<LocalChannel>, Relaxed, CommitTerms)>,
    /// Links whose rate has changed while the policies were away, and their new policies.
    replaced: Vec<(LinkId, Box<dyn AdmissionPolicy>)>,
}

/// The policies of the processor and of each link.
#[derive(Debug)]
struct Policies {
    cpu: Box<dyn AdmissionPolicy>,
    links: Vec<Box<dyn AdmissionPolicy>>,
}

impl Stages {
    /// The empty stages of a node; only its signalling is held.
    ///
    /// # Errors
    /// If a stage cannot even carry its own signalling.
    pub fn new(config: &NodeConfig) -> Result<Self, NodeConfigError> {
        let cpu_model = cpu_model(&config.cpu, fragment_bytes_max(config));
        let mut cpu = (config.cpu.admission.build)(cpu_model.model());
        let signal = signal_contract(config)?;
        let admissions =
            config.links.iter().map(|link| link_admission(link, &signal, config.cpu.release_latency));
        let admissions = admissions.collect::<Result<Vec<_>, _>>()?;
        if let Some(demand) = signalling_of_cpu(config, &cpu_model, &signal) {
            hold_signalling(cpu.as_mut(), &demand, 1, "the processor")?;
        }
        let plan = hold_plan(cpu.as_mut(), config)?;
        let links = config.links.iter().zip(admissions).map(|(link, admission)| link_stage(link, admission));
        let (policies, links) = links.unzip();
        let mut stages = Self {
            node: config.id,
            cpu: CpuStage {
                model: cpu_model,
                admission: config.cpu.admission,
                utilisation: Ppm(0),
                costs: config.cpu.costs,
                costs_from: config.cpu.costs_from,
                release_latency: config.cpu.release_latency,
                degraded: config.cpu.degraded(),
                breach: None,
            },
            links,
            asking: PolicyQueries {
                policies: None,
                questions: VecDeque::with_capacity(QUESTIONS_ROOM),
                elsewhere: false,
                answers: VecDeque::with_capacity(QUESTIONS_ROOM),
                rtus: VecDeque::new(),
                relaxed: Vec::with_capacity(QUESTIONS_ROOM),
                tried: Vec::new(),
                replaced: Vec::new(),
            },
            while_broken: config.signalling.while_broken,
            plan,
            held: Table::default(),
            rtus: BTreeMap::new(),
            buffer_bytes: 0,
            buffer_bytes_max: config.buffer_bytes_max,
        };
        stages.put_back(Policies { cpu, links: policies });
        Ok(stages)
    }

    /// The bound of the implicit signalling channel of a link.
    pub fn signal_bound(&self, link: usize) -> Nanos {
        self.links[link].signal_bound
    }
    /// The model of a link for admission, and its signalling there.
    pub fn link(&self, link: usize) -> (&Link, (&Demand, Nanos)) {
        let LinkStage { model, signal_demand, signal_bound, .. } = &self.links[link];
        (model, (signal_demand, *signal_bound))
    }
    /// Reserved utilisation of the processor, as last known.
    pub const fn cpu_utilisation(&self) -> Ppm {
        self.cpu.utilisation
    }
    /// Reserved utilisation of a link, as last known.
    pub fn link_utilisation(&self, link: LinkId) -> Ppm {
        self.links[usize::from(link.0)].utilisation
    }
    /// Bytes of buffers that are reserved.
    pub const fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }
    /// The reservation of a channel in the stages of this host; `None` if it has none.
    pub fn held(&self, channel: ChannelId) -> Option<&Held> {
        self.held.get(channel)
    }

    /// Asks the local stages, each for its smallest bound, all within `limit`; they hold it unless `dry`. The
    /// answer follows ([`Self::poll_answer`]).
    pub fn ask(&mut self, local: &Arc<LocalChannel>, limit: Nanos, dry: bool) {
        let question = match self.request(local, limit, dry) {
            Ok(request) => {
                if let Some(planned) = request.cpu.planned.filter(|_| !dry) {
                    self.plan[planned].taken = Some(local.channel);
                }
                Question::Hold(local.clone(), Box::new(request))
            }
            Err(cause) => Question::Refused(local.clone(), cause),
        };
        self.put(question);
    }

    fn request(&self, local: &LocalChannel, limit: Nanos, dry: bool) -> Result<StagesRequest, RefuseCause> {
        self.check_suitable(local)?;
        self.check_broken(local)?;
        self.check_rate(local)?;
        let kind = StageKind::cpu(local.role);
        let link = local.link_out.map(|link| LinkRequest {
            link,
            demand: self.link_demand(local, link, Nanos::ZERO),
            propagation_max: self.links[usize::from(link.0)].propagation_max,
        });
        Ok(StagesRequest { kind, cpu: self.cpu_request(local, limit)?, link, limit, dry })
    }

    /// Sets or clears the breach of the processor.
    pub const fn set_cpu_breach(&mut self, breach: Option<Breach>) {
        self.cpu.breach = breach;
    }
    /// Sets or clears the breach of a link.
    pub fn set_link_breach(&mut self, link: LinkId, breach: Option<Breach>) {
        self.links[usize::from(link.0)].breach = breach;
    }

    /// Sets why the drain rate of a link is unknown; `None` if it is known again.
    pub fn set_rate_unknown(&mut self, link: LinkId, why: Option<RateRefusal>) {
        self.links[usize::from(link.0)].rate_unknown = why;
    }

    /// Changes the configuration of an unused link to `config`. Returns `false` and changes nothing if the
    /// link could not carry its own signalling then.
    pub fn set_link(&mut self, link: LinkId, config: &config::LinkConfig, node: &NodeConfig) -> bool {
        let changed = signal_contract(node)
            .and_then(|signal| link_admission(config, &signal, self.cpu.release_latency));
        let Ok(LinkAdmission { model, policy, signal_demand, signal_bound }) = changed else { return false };
        match &mut self.asking.policies {
            Some(policies) => policies.links[usize::from(link.0)] = policy,
            None => self.asking.replaced.push((link, policy)),
        }
        let stage = &mut self.links[usize::from(link.0)];
        stage.model = model;
        (stage.signal_demand, stage.signal_bound) = (signal_demand, signal_bound);
        stage.rate_unknown = None;
        self.note_utilisation();
        true
    }

    /// Requests to move a held channel's bounds to at most the `wanted` ones (processor, link), each only if
    /// its stage still meets all other bounds.
    pub fn ask_final(&mut self, local: &LocalChannel, wanted: &[Nanos], terms: &CommitTerms) {
        let Some(cpu) = self.cpu_stage(local) else { return };
        let unasked = unasked(local);
        let link = self.link_stage(local);
        let last = Final { cpu, link, wanted: wanted.to_vec(), terms: terms.clone(), unasked };
        self.put(Question::Relax(local.channel, Box::new(last)));
    }

    /// Requests what [`Self::ask`] and [`Self::ask_final`] do together, for a channel that holds nothing and
    /// holds nothing after. `wanted`: `None` for the offered bounds.
    pub fn try_final(
        &mut self,
        local: &Arc<LocalChannel>,
        wanted: Option<Vec<Nanos>>,
        terms: &CommitTerms,
        limit: Nanos,
    ) {
        let trial = |request| Trial { request, wanted, terms: terms.clone(), unasked: unasked(local) };
        self.put(match self.request(local, limit, false) {
            Ok(request) => Question::Try(local.clone(), Box::new(trial(request))),
            Err(cause) => Question::Untried(local.clone(), cause),
        });
    }

    /// Releases the reservation.
    pub fn release(&mut self, channel: ChannelId) {
        self.take_relaxed(channel);
        let Some(held) = self.held.remove(channel) else { return };
        if let Some(index) = held.planned() {
            self.plan[index].taken = None;
        }
        self.count_buffers(channel, &held.buffers(), &Reserved::default());
        self.put(Question::Release(channel, held.link().map(|(link, _)| link)));
    }

    /// The demand of a channel for the processor; a flow of the host's plan is reserved already.
    fn cpu_request(&self, local: &LocalChannel, limit: Nanos) -> Result<HeldStage, RefuseCause> {
        if let Some(index) = self.planned(local)? {
            return self.offer_planned(local, index, limit);
        }
        let service = local.contract.service(local.fragment_bytes).map_err(unsuitable)?;
        Ok(self.stage_of_cpu(local, service))
    }

    /// How early a channel's packets may be processed, where its buffers allow `wanted`. Under a run order in
    /// which early work is jitter, it is no more than was admitted.
    pub fn cpu_early(&self, local: &LocalChannel, wanted: Nanos) -> Nanos {
        match self.cpu_stage(local) {
            Some(cpu) if counts_early(self.cpu.admission, &cpu) => wanted.min(cpu.demand.early),
            _ => wanted,
        }
    }

    /// How early a channel's packets may be sent on the outgoing link, where its buffers allow `wanted`: see
    /// [`Self::cpu_early`].
    pub fn link_early(&self, local: &LocalChannel, wanted: Nanos) -> Nanos {
        match self.link_stage(local) {
            Some((link, stage)) if counts_early(self.links[usize::from(link.0)].admission, &stage) => {
                wanted.min(stage.demand.early)
            }
            _ => wanted,
        }
    }
}

/// The demand of the implicit signalling of all links for the processor; `None` if there is no link.
fn signalling_of_cpu(config: &NodeConfig, cpu: &Cpu, signal: &Contract) -> Option<Demand> {
    let costs = PathCosts::one_by_one(Nanos::ZERO, config.cpu.costs.receive_packet, Nanos::ZERO);
    let bytes = SIGNAL_BYTES_MAX as u32;
    let one = cpu.demand(signal, bytes, &costs, config.cpu.release_latency, Nanos::ZERO);
    // At run time no other work is served before signalling.
    let urgency = Urgency { class: Class::LowLatency, ..one.urgency };
    let cost = config.links.iter().map(|_| one.cost).sum();
    (!config.links.is_empty()).then_some(Demand { cost, urgency, ..one })
}

/// How early a channel is served without a request. A policy that counts early service treats it as jitter,
/// which costs other channels: a channel is served early only if it has requested that.
fn unasked(local: &LocalChannel) -> Nanos {
    if local.contract.jitter.is_none() { local.contract.early_service() } else { Nanos::ZERO }
}

/// Whether a policy takes early arrivals of a reservation into account. EDF does not, because the deadline
/// stays the same; a timer holds early packets back.
fn counts_early(admission: Admission, stage: &HeldStage) -> bool {
    stage.wait == Nanos::ZERO && admission.counts_early
}

fn unsuitable(error: ActivationError) -> RefuseCause {
    RefuseCause::Unsuitable(error.to_string().into())
}

#[cfg(test)]
mod tests;
