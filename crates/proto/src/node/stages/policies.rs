//! The admission policies of all stages, and the questions to them.
//!
//! With thousands of channels a decision may take milliseconds, and no packet may wait for it. So the
//! policies are one value that can be taken out of the node, queried in another thread, and put back with the
//! answers. An answer needs nothing else, and no packet needs the policies.
//!
//! Invariant: questions are answered in their order, each on the state that the previous one left.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::{AdmissionPolicy, Demand, Explanation, Nanos, Ppm, Refusal, RefusalReason, StageKey};

use super::planned::planned_bound;
use super::rtu_places::{RtuPlace, RtuStageRequests};
use super::{HeldStage, Policies, counts_early};
use crate::api::{RefuseCause, RtuId, RtuRefusal, StageKind};
use crate::ids::{ChannelId, LinkId};
use crate::signalling::{CommitTerms, LocalChannel};

/// The demand of a channel for the outgoing link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkRequest {
    pub link: LinkId,
    /// `early` is unknown until the processor's bound is known.
    pub demand: Demand,
    pub propagation_max: Nanos,
}

/// The demand of a channel for the stages here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StagesRequest {
    /// Kind of the processor's stage, for its refusal.
    pub kind: StageKind,
    /// The demand for the processor. It has no bound yet, unless it is planned.
    pub cpu: HeldStage,
    pub link: Option<LinkRequest>,
    /// Limit of all stages together.
    pub limit: Nanos,
    /// True for a dry run: nothing is held.
    pub dry: bool,
}

/// The final bounds that a channel requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Final {
    pub cpu: HeldStage,
    pub link: Option<(LinkId, HeldStage)>,
    pub wanted: Vec<Nanos>,
    pub terms: CommitTerms,
    /// How early it is served without a request, which no policy need take into account.
    pub unasked: Nanos,
}

/// The final reservation that a channel without one asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub request: StagesRequest,
    /// `None`: the offered bounds.
    pub wanted: Option<Vec<Nanos>>,
    pub terms: CommitTerms,
    /// How early the channel is served without a request, as in [`Final`].
    pub unasked: Nanos,
}

/// A question to the policies about one channel or handler.
#[derive(Debug)]
pub(super) enum Question {
    Hold(Arc<LocalChannel>, Box<StagesRequest>),
    /// The stages are tried: nothing is held after the answer.
    Try(Arc<LocalChannel>, Box<Trial>),
    /// The answer to a try that is refused without asking the policies.
    Untried(Arc<LocalChannel>, RefuseCause),
    /// The channel was refused without asking the policies. The answer keeps its place in the order all the
    /// same.
    Refused(Arc<LocalChannel>, RefuseCause),
    Relax(ChannelId, Box<Final>),
    Release(ChannelId, Option<LinkId>),
    /// A program's handler requests a place on the processor, and on the link that it sends on.
    HoldRtu(RtuId, RtuStageRequests),
    /// Releases the places of a program's handler.
    ReleaseRtu(RtuId, Option<LinkId>),
}

impl Question {
    /// Channel that the question is about; `None` if it is about a program's handler.
    pub fn channel(&self) -> Option<ChannelId> {
        Some(match self {
            Self::Hold(local, _)
            | Self::Try(local, _)
            | Self::Refused(local, _)
            | Self::Untried(local, _) => local.channel,
            Self::Relax(channel, _) | Self::Release(channel, _) => *channel,
            Self::HoldRtu(..) | Self::ReleaseRtu(..) => return None,
        })
    }
}

/// A link's part of an offer: stage, terms of its bound, utilisation before.
pub(super) type LinkOffer = (LinkId, HeldStage, Explanation, Ppm);

/// The offer of the stages, which they hold unless the question was dry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offered {
    pub cpu: HeldStage,
    pub cpu_made_of: Explanation,
    pub cpu_utilisation: Ppm,
    pub link: Option<LinkOffer>,
    pub dry: bool,
}

/// Bounds of a channel that are final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Relaxed {
    pub(super) cpu: HeldStage,
    pub(super) link: Option<HeldStage>,
    /// The bounds of the stages.
    pub bounds: Vec<Nanos>,
    /// The previous bounds: the smallest that were offered.
    pub offered: Vec<Nanos>,
    /// Fixed-priority level on the processor, 0 the most urgent; 0 under other orders.
    pub rank: u8,
    /// Whether the processor serves it after all hard channels, and whether the link does.
    pub soft: (bool, bool),
}

/// The answer to one question.
#[derive(Debug)]
pub(super) enum Answer {
    Held(Arc<LocalChannel>, Result<Offered, RefuseCause>),
    Relaxed(ChannelId, Relaxed),
    /// The reservation and terms of a tried channel, or the refusal.
    Tried(Arc<LocalChannel>, Result<Box<(Relaxed, CommitTerms)>, RefuseCause>),
    Released,
    /// The places that a program's handler was granted, or the refusal.
    Rtu(RtuId, Result<RtuPlace, RtuRefusal>),
    /// The places of a program's handler are released.
    RtuReleased(RtuId),
}

impl Policies {
    pub fn link(&mut self, link: LinkId) -> &mut dyn AdmissionPolicy {
        self.links[usize::from(link.0)].as_mut()
    }

    /// Answers one question.
    pub fn answer(&mut self, question: Question) -> Answer {
        match question {
            Question::Hold(local, request) => {
                let answer = self.hold(local.channel, &request);
                Answer::Held(local, answer)
            }
            Question::Refused(local, cause) => Answer::Held(local, Err(cause)),
            Question::Relax(channel, last) => Answer::Relaxed(channel, self.relax(channel, *last)),
            Question::Try(local, trial) => {
                let tried = self.try_final(local.channel, *trial);
                Answer::Tried(local, tried.map(Box::new))
            }
            Question::Untried(local, cause) => Answer::Tried(local, Err(cause)),
            Question::Release(channel, link) => {
                self.release(channel, link);
                Answer::Released
            }
            Question::HoldRtu(id, requests) => Answer::Rtu(id, self.hold_rtu(id, &requests)),
            Question::ReleaseRtu(id, link) => {
                self.release_rtu(id, link);
                Answer::RtuReleased(id)
            }
        }
    }

    /// Tests the stages, each with its smallest bound, together within the limit; holds them unless `dry`.
    fn hold(&mut self, channel: ChannelId, request: &StagesRequest) -> Result<Offered, RefuseCause> {
        let refused = |refusal| RefuseCause::Stage { kind: request.kind, refusal };
        let cpu = self.offer_cpu(request).map_err(refused)?;
        let link = request.link.map(|link| self.offer_link(&link, &cpu, request.limit)).transpose()?;
        // Explain before the stages are held: afterwards each would count the channel itself among the
        // others.
        let cpu_made_of = self.explain_cpu(&cpu, request.limit);
        let mut offered = Offered {
            cpu,
            cpu_made_of,
            cpu_utilisation: Ppm(0),
            link: link.map(|(link, stage, left)| {
                let made_of = self.link(link).explain(&stage.demand, left).unwrap_or_default();
                (link, stage, made_of, Ppm(0))
            }),
            dry: request.dry,
        };
        self.take(channel, &offered).map_err(|cause| match cause {
            RefusedBy::Cpu(refusal) => refused(refusal),
            RefusedBy::Link(refusal) => refused_by_link(refusal),
        })?;
        offered.cpu_utilisation = self.cpu.utilisation();
        if let Some((link, .., utilisation)) = &mut offered.link {
            *utilisation = self.link(*link).utilisation();
        }
        // The report is the same in both cases: the rest of D is shared later in proportion to the reserved
        // utilisations.
        if request.dry {
            self.release(channel, request.link.map(|request| request.link));
        }
        Ok(offered)
    }

    /// Holds, relaxes and releases in one call, without another question in between.
    fn try_final(&mut self, channel: ChannelId, trial: Trial) -> Result<(Relaxed, CommitTerms), RefuseCause> {
        let Trial { request, wanted, terms, unasked } = trial;
        let Offered { cpu, link, .. } = self.hold(channel, &request)?;
        let link = link.map(|(link, stage, ..)| (link, stage));
        let offered = || core::iter::once(cpu.bound).chain(link.map(|(_, stage)| stage.bound)).collect();
        let wanted = wanted.unwrap_or_else(offered);
        let relaxed = self.relax(channel, Final { cpu, link, wanted, terms: terms.clone(), unasked });
        self.release(channel, link.map(|(link, _)| link));
        Ok((relaxed, terms))
    }

    fn release(&mut self, channel: ChannelId, link: Option<LinkId>) {
        self.cpu.release(StageKey(channel.0));
        link.map(|link| self.link(link).release(StageKey(channel.0)));
    }

    /// The processor's offer, including the wait for a timer.
    fn offer_cpu(&mut self, request: &StagesRequest) -> Result<HeldStage, Refusal> {
        let stage = request.cpu;
        if stage.planned.is_some() {
            return Ok(stage);
        }
        let wait = stage.wait;
        match self.cpu.offer(&stage.demand, (stage.bound_max - wait).min(request.limit - wait)) {
            Ok(offer) => Ok(HeldStage { bound: wait + offer.bound, ..stage }),
            Err(refusal) if stage.service.is_none() => Err(refusal),
            Err(refusal) => Err(after_timer(refusal, wait)),
        }
    }

    /// The outgoing link's offer within what the processor leaves of `limit`; also returns that limit.
    fn offer_link(
        &mut self,
        request: &LinkRequest,
        cpu: &HeldStage,
        limit: Nanos,
    ) -> Result<(LinkId, HeldStage, Nanos), RefuseCause> {
        let demand = Demand { early: cpu.bound, ..request.demand };
        let left = limit - cpu.bound - request.propagation_max;
        let offer = self.link(request.link).offer(&demand, left).map_err(refused_by_link)?;
        Ok((request.link, HeldStage::new(demand, offer.bound), left))
    }

    /// The terms of the processor's offer of `stage` within `limit`; call it before the stage is held.
    fn explain_cpu(&mut self, stage: &HeldStage, limit: Nanos) -> Explanation {
        let mut made_of = match stage.planned {
            None => self.cpu.explain(&stage.demand, limit - stage.wait).unwrap_or_default(),
            Some(_) => planned_bound(stage),
        };
        made_of.release_latency += stage.wait;
        made_of
    }

    /// Holds what was offered; nothing is held if that fails.
    fn take(&mut self, channel: ChannelId, offered: &Offered) -> Result<(), RefusedBy> {
        let key = StageKey(channel.0);
        if let Some((link, stage, ..)) = &offered.link {
            self.link(*link).hold(key, &stage.demand, stage.bound).map_err(RefusedBy::Link)?;
        }
        let cpu = &offered.cpu;
        if cpu.planned.is_some() {
            return Ok(());
        }
        self.cpu.hold(key, &cpu.demand, cpu.work_bound()).map_err(|refusal| {
            offered.link.map(|(link, ..)| self.link(link).release(key));
            RefusedBy::Cpu(refusal)
        })
    }

    /// Moves the held bounds to at most the wanted ones, each only if its stage still meets all other bounds.
    fn relax(&mut self, channel: ChannelId, last: Final) -> Relaxed {
        let Final { mut cpu, link, wanted, terms, unasked } = last;
        let key = StageKey(channel.0);
        let (on, mut link) = (link.map(|(link, _)| link), link.map(|(_, stage)| stage));
        let offered = core::iter::once(cpu.bound).chain(link.map(|stage| stage.bound)).collect();
        let mut bounds = Vec::from([cpu.bound]);
        // Relax from the last stage on: a horizon depends on what is upstream of it.
        if let Some((on, stage)) = on.zip(link.as_mut()) {
            let wanted = wanted.get(1).copied().unwrap_or(stage.bound);
            relax_stage(self.link(on), key, stage, wanted);
            bounds.push(stage.bound);
        }
        let wanted = wanted.first().copied().unwrap_or(cpu.bound);
        relax_stage(self.cpu.as_mut(), key, &mut cpu, wanted);
        bounds[0] = cpu.bound;
        rehold(self.cpu.as_mut(), key, &mut cpu, terms.horizon(0, &bounds) - unasked);
        if let Some((on, stage)) = on.zip(link.as_mut()) {
            rehold(self.link(on), key, stage, terms.horizon(1, &bounds) - unasked);
        }
        let rank = self.cpu.rank(key).map_or(0, |rank| rank.min(usize::from(u8::MAX)) as u8);
        let soft = (self.cpu.is_soft(key), on.is_some_and(|on| self.link(on).is_soft(key)));
        Relaxed { cpu, link, bounds, offered, rank, soft }
    }
}

/// The stage that refuses to hold what it has offered, and why.
enum RefusedBy {
    Cpu(Refusal),
    Link(Refusal),
}

/// Number of leading bits that relaxed bounds keep. They lose less than 1/64 by the rounding. Channels of one
/// contract then have one of few bounds instead of each its own: a stage stores equal ones once, and decides
/// faster (docs/PERFORMANCE.md).
const BOUND_BITS: u32 = 7;

/// `bound` rounded down to one of few values ([`BOUND_BITS`]).
pub(super) const fn rounded(bound: Nanos) -> Nanos {
    let spare = u64::BITS.saturating_sub(bound.0.leading_zeros()).saturating_sub(BOUND_BITS);
    Nanos(bound.0 >> spare << spare)
}

/// Moves one held bound. If its stage refuses, the bound stays and the share is passed to the next stage.
pub(super) fn relax_stage(
    policy: &mut dyn AdmissionPolicy,
    key: StageKey,
    stage: &mut HeldStage,
    wanted: Nanos,
) {
    let wanted = rounded(wanted).min(stage.bound_max);
    if wanted > stage.bound && policy.relax(key, wanted - stage.wait).is_ok() {
        stage.bound = wanted;
    }
}

/// Reports to a policy that counts early arrivals how early they may be now. If that breaks a bound, they may
/// not be early.
pub(super) fn rehold(policy: &mut dyn AdmissionPolicy, key: StageKey, stage: &mut HeldStage, early: Nanos) {
    if stage.demand.early == early || !counts_early(policy.admission(), stage) {
        return;
    }
    let demand = Demand { early, ..stage.demand };
    // In place: after a release, the same reservation need not be feasible again.
    if policy.hold(key, &demand, stage.work_bound()).is_ok() {
        stage.demand = demand;
    }
}

/// Adapts a refusal of a stage that serves by a timer or a budget. Its bounds include the wait. The rate that
/// would fit is that of the budget, which is no offer for the contract.
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
