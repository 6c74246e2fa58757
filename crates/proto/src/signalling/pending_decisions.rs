//! The table of channels that wait for the decision of this host's own stages.
//!
//! Invariant: a channel that waits here is in no other table, except a probe at its source
//! ([`NextStep::Test`]). All that the stages hold for it is in their reply.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::message::Create;
use super::offer_search::Offering;
use super::resources::LocalChannel;
use super::source_turns::Places;
use super::{Attempt, Channel, PendingDecision};
use crate::api::{CloseReason, OpenRequest, StageGrant};
use crate::ids::{ChannelId, LinkId, NodeId, PathId};

/// What to do when the stages have replied.
#[derive(Debug)]
pub enum NextStep {
    /// CREATE along a candidate route of a channel that starts here.
    Try { request: Box<OpenRequest>, attempt: Attempt, via: Vec<NodeId> },
    /// A probe for what a refusal offers.
    Offer { request: Box<OpenRequest>, attempt: Attempt, offering: Box<Offering> },
    /// A CREATE that came over a link: forward it, or ask its receiver.
    PassOn(LinkId),
    /// The stages of a channel that ends here become final; then its receiver is asked.
    AskReceiver(LinkId, Box<Channel>, Vec<StageGrant>),
    /// A probe that all nodes behind have accepted is sent back. At its source it is also in the table of
    /// channels.
    Test,
}

/// Channels whose stages were asked.
#[derive(Debug, Default)]
pub struct Decisions {
    waiting: BTreeMap<ChannelId, PendingDecision>,
    /// Channels of CREATEs that came over a link, by path.
    by_path: BTreeMap<PathId, ChannelId>,
}

impl Decisions {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    pub fn insert(&mut self, deciding: PendingDecision) {
        let local = &deciding.local;
        if local.link_in.is_some() {
            self.by_path.insert(local.path, local.channel);
        }
        self.waiting.insert(local.channel, deciding);
    }
    pub fn remove(&mut self, id: ChannelId) -> Option<PendingDecision> {
        let deciding = self.waiting.remove(&id)?;
        self.by_path.remove(&deciding.local.path);
        Some(deciding)
    }
    /// Removes a probe whose stages have sent the second reply; `None` if it was given up.
    pub fn take_test(&mut self, id: ChannelId) -> Option<PendingDecision> {
        let is_test = self.waiting.get(&id).is_some_and(|deciding| matches!(deciding.then, NextStep::Test));
        if is_test { self.remove(id) } else { None }
    }
    /// A channel that ends here, whose stages are final: its CREATE, the link that this came over, and the route's stages.
    pub fn take_final(&mut self, id: ChannelId) -> Option<(Create, LinkId, Box<Channel>, Vec<StageGrant>)> {
        let PendingDecision { create, then, .. } = self.remove(id)?;
        match then {
            NextStep::AskReceiver(link, channel, stages) => Some((create, link, channel, stages)),
            _ => None,
        }
    }
    /// A channel that starts here and is to be held, or asked for: why it was closed, if it was, and its attempt.
    pub fn begun_here(&mut self, id: ChannelId) -> Option<(&mut Option<CloseReason>, &mut Attempt)> {
        let PendingDecision { closed, then, .. } = self.waiting.get_mut(&id)?;
        match then {
            NextStep::Try { attempt, .. } | NextStep::Offer { attempt, .. } => Some((closed, attempt)),
            _ => None,
        }
    }
    /// Whether the channel of a path that came over a link is under decision.
    pub fn knows(&self, path: PathId) -> bool {
        self.by_path.contains_key(&path)
    }
    /// Users who own the channels under decision that came over `link`.
    pub fn from(&self, link: LinkId) -> Places {
        let mut places = Places::default();
        let from = self.waiting.iter().filter(|(_, waiting)| waiting.local.link_in == Some(link));
        from.for_each(|(id, waiting)| places.add(waiting.create.source(), id.0));
        places
    }
    /// Number of channels under decision that came over `link`.
    pub fn count_from(&self, link: LinkId) -> usize {
        self.waiting.values().filter(|waiting| waiting.local.link_in == Some(link)).count()
    }
    /// Number of channels under decision that use `link`, in either direction.
    pub fn count_on(&self, link: LinkId) -> usize {
        let uses = |local: &LocalChannel| [local.link_in, local.link_out].contains(&Some(link));
        self.waiting.values().filter(|waiting| uses(&waiting.local)).count()
    }
    /// Whether the stages of a channel were asked.
    pub fn has(&self, id: ChannelId) -> bool {
        self.waiting.contains_key(&id)
    }
    /// The number of channels that are indexed by path, and the number that came over a link. The two must be
    /// equal.
    pub fn accounts(&self) -> [usize; 2] {
        let from_links = self.waiting.values().filter(|waiting| waiting.local.link_in.is_some()).count();
        [self.by_path.len(), from_links]
    }
    /// Removes a channel that came over `link` and that its source has ended before it was decided.
    pub fn forget(&mut self, path: PathId, link: LinkId) {
        let came =
            |id: &ChannelId| self.waiting.get(id).is_some_and(|waiting| waiting.local.link_in == Some(link));
        if let Some(id) = self.by_path.get(&path).copied().filter(came) {
            self.remove(id);
        }
    }
    /// Removes all channels that came over a link, because its neighbour has lost its state.
    pub fn forget_from(&mut self, link: LinkId) {
        self.waiting.retain(|_, waiting| waiting.local.link_in != Some(link));
        let Self { waiting, by_path } = self;
        by_path.retain(|_, id| waiting.contains_key(id));
    }
}
