//! Refusals: the place on the route, the reason, and an offer; hosts by name.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use punctual_analysis::{Contract, Nanos, Refusal, RefusalReason};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::host_name::{HostName, name_of};
use super::{Breach, RateRefusal, StageGrant, StageKind};
use crate::ids::{Name, NodeId};
use crate::text::Foreign;

/// Why a channel was refused at one place of the route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RefuseCause {
    /// A stage's admission refused.
    #[error("{kind}: {refusal}")]
    Stage {
        /// The kind of resource that refuses.
        kind: StageKind,
        /// The reason of the stage and its nearest offer.
        refusal: Refusal,
    },
    /// Buffer memory of the node is used up.
    #[error("buffers: {0}")]
    Buffers(RefusalReason),
    /// A stage breaks its promise, and the operator has configured that nothing is admitted across it
    /// meanwhile.
    #[error("{}", broken_text(*kind, breach))]
    Broken {
        /// The kind of resource that is broken.
        kind: StageKind,
        /// How the stage breaks its promise.
        breach: Breach,
    },
    /// No application listens on the port.
    #[error("no program listens on \"{0}\"")]
    NoListener(Name),
    /// The receiving application refused.
    #[error("the receiver refused: {0}")]
    Receiver(Foreign),
    /// The receiving application did not reply.
    #[error("the receiver did not answer in time")]
    ReceiverSilent,
    /// The next hop is down or not a neighbour.
    #[error("node {0} cannot be reached from here")]
    Unreachable(NodeId),
    /// The sum of the smallest bounds is beyond the deadline.
    #[error("the route needs {} up to here, of a deadline of {wanted}", possible.at_least())]
    Deadline {
        /// The smallest possible bound.
        possible: Nanos,
        /// The requested deadline.
        wanted: Nanos,
    },
    /// Channel numbers or table space are used up.
    #[error("no room for another channel")]
    Exhausted,
    /// The contract cannot be carried (too many fragments, packet larger than a link's).
    #[error("the contract cannot be carried here: {0}")]
    Unsuitable(Foreign),
    /// Signalling timed out.
    #[error("no answer from the network")]
    Timeout,
    /// The next hop uses another version of RTCOP: no channel can be agreed with it.
    #[error("node {node} uses version {theirs} of RTCOP, not {ours}: run the same release on both hosts")]
    Version {
        /// The next hop.
        node: NodeId,
        /// Version of RTCOP that the next hop speaks.
        theirs: u8,
        /// Version of RTCOP that the refusing node speaks.
        ours: u8,
    },
    /// The drain rate of the link must be measured first.
    #[error("link: its rate is not known yet (rate = \"auto\"): {0}")]
    RateUnknown(RateRefusal),
    /// Messages to the next hop wait for their turn on the link. This one has waited for too long, or too
    /// many messages of its user wait already.
    #[error("{}", busy_text(&of_host(&[], *.0)))]
    Busy(NodeId),
    /// The waiting channels and requests of this user of that host have used up their share of the places.
    #[error(
        "too many channels or requests of this user wait for an answer here: wait for some of them, then try \
         again"
    )]
    Crowded,
}

/// A refusal: the hop, the reason, and its offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{}: {}", of_host(&self.hosts, *.node), self.cause_named())]
pub struct ChannelRefusal {
    /// The hop.
    pub node: NodeId,
    /// Why the channel was refused.
    pub cause: RefuseCause,
    /// The nearest contract that the same route would have accepted a moment ago, if any. On its way to the
    /// source: the refusing hop's estimate of that.
    pub offer: Option<Contract>,
    /// The stages that have accepted the offer, in a report to the application.
    #[serde(default)]
    pub stages: Vec<StageGrant>,
    /// Names of the hosts that are mentioned, in a report to the application.
    #[serde(default)]
    pub hosts: Vec<HostName>,
}

impl ChannelRefusal {
    /// The cause, with hosts by name if the names are known.
    fn cause_named(&self) -> String {
        match &self.cause {
            RefuseCause::Unreachable(node) => {
                alloc::format!("{} cannot be reached from here", of_host(&self.hosts, *node))
            }
            RefuseCause::Busy(node) => busy_text(&of_host(&self.hosts, *node)),
            RefuseCause::Version { node, theirs, ours } => alloc::format!(
                "{} uses version {theirs} of RTCOP, not {ours}: run the same release on both hosts",
                of_host(&self.hosts, *node)
            ),
            cause => cause.to_string(),
        }
    }
}

fn broken_text(kind: StageKind, breach: &Breach) -> String {
    alloc::format!("{kind}: it {breach}: try again when it has kept its promise for a lease")
}

fn busy_text(next: &str) -> String {
    alloc::format!("its signalling to {next} is busy: open fewer channels at once, or try again in a moment")
}

fn of_host(hosts: &[HostName], node: NodeId) -> String {
    let is_known = hosts.iter().any(|host| host.node == node);
    alloc::format!("{}{}", if is_known { "host " } else { "" }, name_of(hosts, node))
}
