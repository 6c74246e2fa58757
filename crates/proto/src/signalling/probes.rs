//! Probes: a test whether a channel could be opened, which checks all that an open checks and holds nothing.
//!
//! On the way forward the stages are asked without holding. On the way back they are tested once more, as for
//! an ACCEPT: whether they could get the bounds that the rest of D allows, and whether there are buffers for
//! that. No hop stores a probe, so its reply carries the route back and all that the test needs.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use punctual_analysis::{Instant, Nanos};

use super::message::{Create, Message, Route};
use super::pending_decisions::NextStep;
use super::resources::{LocalChannel, Resources};
use super::source_turns::Source;
use super::states::Input;
use super::transitions::InputDetails;
use super::{PendingDecision, Signalling, budget};
use crate::api::{ChannelRefusal, RefuseCause, StageGrant, UserId};
use crate::ids::{ChannelId, LinkId, NodeId, PathId};

/// The result of a probe: the probe with its stages, or the refusal.
pub type Probed = Result<Box<Create>, ChannelRefusal>;

impl Signalling {
    pub(super) fn answer_probe(&mut self, create: &Create, answer: Probed) {
        self.pass_probed(create.path, create.route.back(), create.user, answer);
    }
    /// `route` as its next receiver sees it.
    pub(super) fn pass_probed(&mut self, path: PathId, route: Route, user: UserId, answer: Probed) {
        let link = self.link_along(&route);
        let source = Source { node: path.node, user };
        self.answer(link, source, &Message::Probed { path, route, user, answer });
    }
    pub(super) fn on_probed(
        &mut self,
        link: LinkId,
        path: PathId,
        route: &Route,
        (user, answer): (UserId, Probed),
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
            return;
        }
        match answer {
            Ok(create) if create.path != path || create.user != user => self.counters.unexpected += 1,
            Ok(create) => {
                let create = Create { route: route.back(), ..*create };
                self.test_probe(link, create, now, resources);
            }
            Err(no) if route.next().is_some() => self.pass_probed(path, route.advanced(), user, Err(no)),
            Err(no) => self.apply_to_path(path, Input::Refuse, InputDetails::refusal(no), now, resources),
        }
    }

    /// Handles a probe that came back over the outgoing link with a positive reply. While a reply is under
    /// decision, another reply to the same probe is ignored: one of them is forged.
    fn test_probe(
        &mut self,
        link_out: LinkId,
        mut create: Create,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        create.route.position = create.route.position.saturating_sub(1);
        let added = self.link_config(link_out).map_or(Nanos::ZERO, budget::arrival_error_of);
        create.arrival_error_fixed = create.arrival_error_fixed - added;
        let local = match create.route.before() {
            None => match self.channels.of_path(create.path).map(|channel| &channel.local) {
                Some(own) if own.link_out == Some(link_out) && !self.deciding.has(own.channel) => {
                    Ok(own.clone())
                }
                // The probe was given up meanwhile.
                _ => return self.counters.unexpected += 1,
            },
            Some(_) if self.deciding.knows(create.path) => return self.counters.unexpected += 1,
            Some(before) => self.local_of_probe(before, &create, now, resources),
        };
        match local.and_then(|local| self.try_probe(local, create.clone(), resources)) {
            Ok(()) => self.settle(now, resources),
            Err(cause) => self.probe_refused(&create, cause, now, resources),
        }
    }

    fn local_of_probe(
        &mut self,
        before: NodeId,
        create: &Create,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<Arc<LocalChannel>, RefuseCause> {
        let link_in = self.link_to(before).ok_or_else(|| self.unreachable(before))?;
        self.make_room_half_open(link_in, create.source(), now, resources)?;
        let id = self.next_channel_id();
        Ok(Arc::new(self.local_channel(id, Some(link_in), create)?))
    }

    /// Asks the local stages whether a probe's channel could be made final. `create`: with its stages, those
    /// behind tested.
    ///
    /// # Errors
    /// If the reply to the probe contradicts the earlier promises. The stages are not asked then.
    pub(super) fn try_probe(
        &mut self,
        local: Arc<LocalChannel>,
        create: Create,
        resources: &mut dyn Resources,
    ) -> Result<(), RefuseCause> {
        let own = self.own_stages(&create);
        if own.is_empty() || budget::spent(&create.stages, create.drift) > local.contract.deadline {
            return Err(RefuseCause::Unsuitable("the reply to a probe contradicts the stages before".into()));
        }
        let declared: Nanos =
            create.stages.iter().skip(own.start).take(own.len()).map(|stage| stage.bound).sum();
        let limit = declared + self.propagation_max(local.link_out);
        let (role, fixed) = (local.role, create.arrival_error_fixed);
        let terms = budget::terms(&local.contract, &create.stages, own, role, fixed, create.drift);
        resources.try_final(&local, &terms, limit);
        self.deciding.insert(PendingDecision {
            local,
            create,
            refused: None,
            closed: None,
            then: NextStep::Test,
        });
        Ok(())
    }

    /// The range of this node's stages among all of a route's.
    fn own_stages(&self, create: &Create) -> Range<usize> {
        let is_own = |stage: &StageGrant| stage.node == self.config.id;
        let start = create.stages.iter().position(is_own).unwrap_or(create.stages.len());
        let len = create.stages.iter().skip(start).take_while(|stage| is_own(stage)).count();
        start..start + len
    }

    /// Handles the local stages' reply whether a probe's channel could be made final.
    pub(super) fn probe_tested(
        &mut self,
        id: ChannelId,
        answer: Result<Vec<StageGrant>, RefuseCause>,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(PendingDecision { create: mut probe, .. }) = self.deciding.take_test(id) else { return };
        let own = self.own_stages(&probe);
        match answer {
            Ok(grants) if grants.len() == own.len() => {
                for (stage, grant) in probe.stages[own].iter_mut().zip(&grants) {
                    let StageGrant { offered, made_of, cold_start, .. } = *stage;
                    *stage = StageGrant { offered, made_of, cold_start, ..*grant };
                }
                if probe.route.before().is_none() {
                    return self.probe_granted(probe, now, resources);
                }
                let (path, back, user) = (probe.path, probe.route.back(), probe.user);
                self.pass_probed(path, back, user, Ok(Box::new(probe)));
            }
            Ok(_) => self.counters.unexpected += 1,
            Err(cause) => self.probe_refused(&probe, cause, now, resources),
        }
    }

    /// Handles the positive result of a probe of this node.
    fn probe_granted(&mut self, probe: Create, now: Instant, resources: &mut dyn Resources) {
        let Some(id) = self.channels.of_path(probe.path).map(|channel| channel.local.channel) else { return };
        let own = self.own_stages(&probe);
        self.channels.change(id, |channel| channel.setup_mut().stages = probe.stages[own].to_vec());
        let what = InputDetails { drift: probe.drift, ..InputDetails::stages(probe.stages) };
        self.apply(id, Input::Probed, what, now, resources);
    }

    fn probe_refused(
        &mut self,
        probe: &Create,
        cause: RefuseCause,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let refusal = self.refusal_of(cause, None, probe);
        if probe.route.before().is_some() {
            return self.answer_probe(probe, Err(refusal));
        }
        self.apply_to_path(probe.path, Input::Refuse, InputDetails::refusal(refusal), now, resources);
    }
}
