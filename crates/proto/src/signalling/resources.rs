//! The interface through which signalling uses its node: admission of the node's own stages.
//!
//! Signalling owns the protocol and the arithmetic of the end-to-end deadline; the node behind [`Resources`]
//! owns its stages, buffers and path tables.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Contract, Horizon, Nanos, Ppm, Soft};

use crate::api::{Passed, Receipt, RefuseCause, Role, StageGrant, Tally};
use crate::ids::{ChannelId, Cookie, LinkId, PathId};

/// A channel as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalChannel {
    /// Local handle. Stays the same over candidate routes at the source.
    pub channel: ChannelId,
    /// Name on every hop. A new one for each candidate route.
    pub path: PathId,
    /// Cookie that the channel's data packets carry.
    pub cookie: Cookie,
    /// Role of this node for the channel.
    pub role: Role,
    /// Link over which the channel comes in; `None` at the source.
    pub link_in: Option<LinkId>,
    /// Link over which the channel leaves; `None` at the sink.
    pub link_out: Option<LinkId>,
    /// Traffic and requirements; shared by all channels with equal ones.
    pub contract: Arc<Contract>,
    /// Payload of each packet but a message's last, in bytes; the source chose it.
    pub fragment_bytes: u32,
    /// Requirements of a soft channel for each stage here; `None` if it is hard.
    pub soft: Option<Box<Soft>>,
    /// The time that the receiving application declares for handling a message on the processor; zero
    /// elsewhere.
    pub handler_time: Nanos,
}

/// The final terms of a channel's local stages (the reverse phase).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitTerms {
    /// Largest final bound of each local stage, in the order in which `hold` gave the stages; never below its
    /// offer.
    pub bounds: Vec<Nanos>,
    /// D less all final bounds and propagation behind this node's stages (its own link's included).
    pub budget: Nanos,
    /// The smallest sum of all bounds before this node: the smallest that were offered.
    pub upstream_min: Nanos,
    /// How early stages may serve ahead of logical arrivals.
    pub horizon: Horizon,
    /// The source's part of that: its jitter allowance, or zero if hops hold to the logical arrival.
    pub early: Nanos,
    /// The part of J that does not depend on bounds.
    pub arrival_error_fixed: Nanos,
    /// rho: twice the tolerance of one clock.
    pub drift: Ppm,
    /// Role of this node for the channel.
    pub role: Role,
}

impl CommitTerms {
    /// h(k) of the local stage `index`, given the bounds that the stages took.
    pub fn horizon(&self, index: usize, bounds: &[Nanos]) -> Nanos {
        match self.horizon {
            Horizon::Regulated => Nanos::ZERO,
            Horizon::Cumulative => self.early + self.upstream(index, bounds),
        }
    }
    /// J of this node, given the bounds that its stages took.
    pub fn arrival_error(&self, bounds: &[Nanos]) -> Nanos {
        let ignored = active(Mutation::ArrivalErrorWithoutDrift);
        let drift = if ignored { Ppm(0) } else { self.drift };
        self.arrival_error_fixed + drift.of(self.upstream(0, bounds))
    }
    /// The largest sum of all bounds before the local stage `index`. The source knows it exactly.
    pub fn upstream(&self, index: usize, bounds: &[Nanos]) -> Nanos {
        match self.role {
            Role::Source => bounds.iter().take(index).copied().sum(),
            Role::Forwarder | Role::Sink => self.budget - bounds.iter().skip(index).copied().sum(),
        }
    }
}

/// Reply of the stages of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The reply to [`Resources::ask`]: the offer of each stage, which the stage holds unless `dry`; or the
    /// refusal, after which nothing is held.
    Held(ChannelId, Result<Vec<StageGrant>, RefuseCause>),
    /// The reply to [`Resources::ask_final`]: the channel can be committed. There is no reply if it was
    /// released meanwhile.
    Final(ChannelId),
    /// The reply to [`Resources::try_final`]: what would be held, or the refusal.
    Tried(ChannelId, Result<Vec<StageGrant>, RefuseCause>),
}

impl Answer {
    /// The channel whose stages have replied.
    pub const fn channel(&self) -> ChannelId {
        match self {
            Self::Held(channel, _) | Self::Final(channel) | Self::Tried(channel, _) => *channel,
        }
    }
}

/// The node's side of a channel's establishment and end.
pub trait Resources {
    /// Asks the local stages: each for the smallest bound that it can promise, all of them together within
    /// `limit`. Source: CPU, link out; forwarder: CPU, link out; sink: CPU. In that order. They HOLD it
    /// unless `dry`. The reply follows ([`Self::poll_answer`]), at once or later.
    fn ask(&mut self, local: &Arc<LocalChannel>, limit: Nanos, dry: bool);

    /// Requests to relax a held channel's bounds, each to at most its limit in `terms` as far as feasible.
    /// The reply follows; [`Self::commit`] may be called then.
    fn ask_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms);

    /// Asks whether a channel that holds nothing could be made final: its stages promise its bounds within
    /// `limit` in all, as before, then take the bounds in `terms`, and there are buffers for that. Nothing is
    /// held. The reply follows.
    fn try_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms, limit: Nanos);

    /// The next reply of the stages, in the order of the calls.
    fn poll_answer(&mut self) -> Option<Answer>;

    /// Makes a channel final after [`Answer::Final`]: computes horizons and buffers from the bounds that the
    /// stages took (the rest of `terms` is handed on upstream), and prepares the data path. Returns what is
    /// held now, in the order of `ask`. The parts of a bound and the smallest bound were computed by `ask`.
    ///
    /// # Errors
    /// The refusal (mostly because of buffers); the channel stays held and signalling releases it.
    fn commit(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &CommitTerms,
    ) -> Result<Vec<StageGrant>, RefuseCause>;

    /// Whether a channel that was made final may send at once. The host may first have to take back a part of
    /// the outgoing link from the kernel. Then `Signalling::fitted` follows.
    fn fits(&self, local: &LocalChannel) -> bool;

    /// Counts of what the application of a channel that ends here has received so far.
    fn receipt(&self, channel: ChannelId) -> Receipt;

    /// Counts of what has passed here of the channel so far.
    fn passed(&self, channel: ChannelId) -> Passed;

    /// Counts of what a channel that starts here has sent so far.
    fn sent(&self, channel: ChannelId) -> Tally;

    /// Sets the total of packets that will come of a channel that passes or ends here. When they have passed
    /// or were received, the node calls `Signalling::drained`, at once or later. It does not if some are
    /// lost.
    fn await_last(&mut self, channel: ChannelId, sent: Tally);

    /// The channel's status beside its counters has changed: its state, its stages, or the degraded hosts.
    fn outdate(&mut self, channel: ChannelId);

    /// Releases all that the channel holds or has committed; no effect if that is nothing.
    fn release(&mut self, channel: ChannelId);
}
