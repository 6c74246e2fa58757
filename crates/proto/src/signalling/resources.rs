//! What signalling asks of its node: admission of the node's own stages.
//!
//! Signalling owns the protocol and the arithmetic of the end-to-end deadline; the node behind
//! [`Resources`] owns its stages, buffers and path tables.

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
    /// Link over which the channel goes out; `None` at the sink.
    pub link_out: Option<LinkId>,
    /// Traffic and wish; the same for all channels with equal ones.
    pub contract: Arc<Contract>,
    /// Payload of each packet but a message's last, in bytes; the source chose it.
    pub fragment_bytes: u32,
    /// What a soft channel asks of each stage here; `None` if it is hard.
    pub soft: Option<Box<Soft>>,
    /// What the receiving application declares for handling a message on the processor; zero elsewhere.
    pub handler_time: Nanos,
}

/// The final word on a channel's local stages (the reverse phase).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitTerms {
    /// Most that each local stage's bound may become, in the order in which `hold` gave the stages; never
    /// below what it offered.
    pub bounds: Vec<Nanos>,
    /// D less all final bounds and propagation behind this node's stages (its own link's included).
    pub budget: Nanos,
    /// The least that all bounds before this node can sum up to: the smallest that were offered.
    pub upstream_min: Nanos,
    /// How early stages may serve ahead of logical arrivals.
    pub horizon: Horizon,
    /// What of that the source begins with: its jitter allowance, none if hops hold to the logical arrival.
    pub early: Nanos,
    /// The part of J that does not depend on bounds.
    pub arrival_error_fixed: Nanos,
    /// rho: twice the tolerance of one clock.
    pub drift: Ppm,
    /// Role of this node for the channel.
    pub role: Role,
}

impl CommitTerms {
    /// h(k) of the local stage `index`, given the bounds that the stages really took.
    pub fn horizon(&self, index: usize, bounds: &[Nanos]) -> Nanos {
        match self.horizon {
            Horizon::Regulated => Nanos::ZERO,
            Horizon::Cumulative => self.early + self.upstream(index, bounds),
        }
    }
    /// J of this node, given the bounds that its stages really took.
    pub fn arrival_error(&self, bounds: &[Nanos]) -> Nanos {
        let ignored = active(Mutation::ArrivalErrorWithoutDrift);
        let drift = if ignored { Ppm(0) } else { self.drift };
        self.arrival_error_fixed + drift.of(self.upstream(0, bounds))
    }
    /// The most that all bounds before the local stage `index` can sum up to. The source knows it.
    pub fn upstream(&self, index: usize, bounds: &[Nanos]) -> Nanos {
        match self.role {
            Role::Source => bounds.iter().take(index).copied().sum(),
            Role::Forwarder | Role::Sink => self.budget - bounds.iter().skip(index).copied().sum(),
        }
    }
}

/// What the stages of a channel have answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer to [`Resources::ask`]: what each stage offers, and holds unless it was asked dry. Or why
    /// not; then nothing is held.
    Held(ChannelId, Result<Vec<StageGrant>, RefuseCause>),
    /// The answer to [`Resources::ask_final`]: the channel can be committed. There is no answer if it was
    /// released meanwhile.
    Final(ChannelId),
    /// The answer to [`Resources::try_final`]: what would be held, or why not.
    Tried(ChannelId, Result<Vec<StageGrant>, RefuseCause>),
}

impl Answer {
    /// The channel whose stages have answered.
    pub const fn channel(&self) -> ChannelId {
        match self {
            Self::Held(channel, _) | Self::Final(channel) | Self::Tried(channel, _) => *channel,
        }
    }
}

/// The node's side of a channel's establishment and end.
pub trait Resources {
    /// Asks the local stages: each for the smallest bound that it can promise, all of them together within `limit`. Source:
    /// CPU, link out; forwarder: CPU, link out; sink: CPU. In that order. They HOLD it unless `dry`. The answer follows
    /// ([`Self::poll_answer`]), at once or later.
    fn ask(&mut self, local: &Arc<LocalChannel>, limit: Nanos, dry: bool);

    /// Asks for a held channel's bounds to be moved, each to at most its limit in `terms` if that is feasible. The answer
    /// follows; [`Self::commit`] may be called then.
    fn ask_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms);

    /// Asks whether a channel that holds nothing could be made final: its stages promise its bounds within `limit`, all of them
    /// together, as before, then become what `terms` say, and there are buffers for that. Nothing is held. The answer follows.
    fn try_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms, limit: Nanos);

    /// What the stages have answered, in the order of asking.
    fn poll_answer(&mut self) -> Option<Answer>;

    /// Makes a channel final whose stages have just said so: horizons and buffers taken from the bounds that were really
    /// taken (the rest of `terms` is handed on upstream), data path ready. What is held now, in the order of `ask`: what a
    /// bound is made of, and the smallest one, was computed there.
    ///
    /// # Errors
    /// Why not (buffers, mostly); the channel stays held and signalling releases it.
    fn commit(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &CommitTerms,
    ) -> Result<Vec<StageGrant>, RefuseCause>;

    /// Whether a channel that was made final may send at once: the host may first have to take back what it had lent of the
    /// link out. Then `Signalling::fitted` follows.
    fn fits(&self, local: &LocalChannel) -> bool;

    /// What the application of a channel that ends here was given so far.
    fn receipt(&self, channel: ChannelId) -> Receipt;

    /// What of the channel has passed here so far.
    fn passed(&self, channel: ChannelId) -> Passed;

    /// What a channel that starts here has sent so far.
    fn sent(&self, channel: ChannelId) -> Tally;

    /// All that will come of a channel that passes or ends here: when that has passed, or been taken in, the node says so to
    /// `Signalling::drained`, at once or later. Nothing follows where some of it is lost.
    fn await_last(&mut self, channel: ChannelId, sent: Tally);

    /// What is reported of the channel has changed, beside what it counts: its state, its stages, who degrades it.
    fn outdate(&mut self, channel: ChannelId);

    /// Gives back all that the channel holds or has committed; does nothing if that is nothing.
    fn release(&mut self, channel: ChannelId);
}
