//! Requests of applications, and why a request cannot be tried.

use punctual_analysis::{Contract, ContractError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::UserId;
use crate::ids::{Address, ChannelId, ListenerId, Name};

/// A request that cannot even be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RequestError {
    /// The contract is out of range.
    #[error("contract: {0}")]
    Contract(#[from] ContractError),
    /// The host is not in the directory.
    #[error("host \"{0}\" is not in the directory: add it to [[host]] in the configuration")]
    UnknownHost(Name),
    /// The host is not in the directory, but another one with a similar name is.
    #[error(
        "host \"{asked}\" is not in the directory: did you mean \"{like}\"? Else add it to [[host]] in the configuration"
    )]
    UnknownHostLike {
        /// The name that was given.
        asked: Name,
        /// The similar name that the directory has.
        like: Name,
    },
    /// A channel from a host to itself.
    #[error("\"{0}\" is this host: a channel needs another host; open it there, or name another host")]
    Itself(Name),
    /// There is no route to the host.
    #[error("no route to \"{0}\": add a [[route]] or a link to it")]
    NoRoute(Name),
    /// The name has a listener already.
    #[error("\"{0}\" already has a listener: choose another name or close it")]
    NameTaken(Name),
    /// No such channel or listener, or not in a state for this.
    #[error("no such channel or listener")]
    Unknown,
    /// The messages are too long for the link: they would need too many packets.
    #[error("messages of {bytes} B are too long: at most {bytes_max} B can be sent over the link at once")]
    TooLong {
        /// Length of a longest message in bytes.
        bytes: u32,
        /// Longest message that the link's packets can carry, in bytes.
        bytes_max: u32,
    },
    /// Table space is used up.
    #[error("no room for another channel: close one")]
    Exhausted,
    /// This user's requests have used up their share of the table.
    #[error("too many requests of this user wait for their answers: wait for some of them, then try again")]
    Crowded,
}

/// A request to open a channel from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The listener.
    pub to: Address,
    /// Traffic and requirements.
    pub contract: Contract,
    /// User on whose behalf the channel is opened.
    pub user: UserId,
    /// A probe: only asks what would be offered, holds nothing, asks no application.
    pub probe: bool,
    /// Set if this replies to a receiver's request (see [`super::Event::Requested`]): that request's token.
    pub token: Option<u64>,
}

/// The request that the receiver's agent must consent to (CLIPS 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The channel's handle here.
    pub channel: ChannelId,
    /// The listener that the channel leads to.
    pub listener: ListenerId,
    /// The source host.
    pub from: Name,
    /// User at the source host on whose behalf the channel is opened.
    pub user: UserId,
    /// Contract of the channel.
    pub contract: Contract,
    /// Messages that the receiver's ring must hold to keep the promise.
    pub inbox_messages: u32,
    /// The token of our own request, if this replies to one.
    pub token: Option<u64>,
}
