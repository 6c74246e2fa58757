//! The status of a host.

use punctual_analysis::Nanos;
use punctual_proto::api::{NodeStatus, RtuStatus, UserId};
use punctual_proto::ids::LinkId;
use serde::{Deserialize, Serialize};

use super::{EngineStatus, Quotas, UserStatus};

/// Everything that `status` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The node.
    pub node: NodeStatus,
    /// The API.
    pub api: ApiStatus,
    /// Quotas of every user.
    pub quotas: Quotas,
    /// The resources that users have taken, in order of their ids.
    pub users: Vec<UserStatus>,
    /// True if the users do not all fit into one packet: the client must request those after the last one
    /// ([`super::Request::Users`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_users: bool,
    /// Time for which the daemon has been up.
    pub uptime: Nanos,
    /// The processor's thread, and the drivers of its links.
    pub engine: EngineStatus,
    /// Programs' handlers. The daemon's answer has none: the client requests them.
    #[serde(default)]
    pub handlers: Vec<HandlerStatus>,
    /// True if there are handlers that the client must request ([`super::Request::Handlers`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_handlers: bool,
    /// Counts compared with what there is; only for root and the daemon's own user, and where few channels are here.
    // Daemons of earlier versions answer with the key `books`.
    #[serde(default, alias = "books")]
    pub audit: Option<Audit>,
}

/// A program's handler on the processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerStatus {
    /// User whose program it is; `None` if it is the engine's own program.
    pub user: Option<UserId>,
    /// What it asked for, what it is promised, and what it has done.
    #[serde(flatten)]
    pub handler: RtuStatus,
}

/// The host's counters, compared with what is actually held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Number of counts that were compared.
    pub compared: u32,
    /// Counters that are wrong: they count something that is not held, or do not count something that is
    /// held.
    pub wrong: Vec<WrongCount>,
    /// Requests that wait for an answer, of another host or of this host's own stages. Empty if no request is
    /// open.
    pub waiting: Vec<Waiting>,
}

/// A count that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongCount {
    /// What the count counts: a short phrase.
    pub what: String,
    /// Link that the count belongs to; `None` for a count of the whole host.
    pub link: Option<LinkId>,
    /// Value of the count.
    pub counted: u64,
    /// Sum over everything that holds a part of it.
    pub held: u64,
}

/// One kind of item that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// What waits: a short phrase.
    pub what: String,
    /// Number of items that wait.
    pub count: u64,
}

/// Counters of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiStatus {
    /// Connected programs.
    pub clients: u32,
    /// Requests answered.
    pub requests: u64,
    /// Requests that came to an error.
    pub errors: u64,
    /// Connections cut because they sent an invalid request.
    pub malformed: u64,
    /// Connections or requests over a quota.
    pub over_quota: u64,
    /// Connections closed without a word, since their users had connected more than their share allows.
    #[serde(default)]
    pub turned_away: u64,
    /// Connections cut because they did not read their answers.
    pub not_reading: u64,
    /// Channels closed since the application broke their ring.
    pub broken_rings: u64,
    /// Descriptors that the daemon may have open.
    pub descriptors_max: u64,
    /// Descriptors that the daemon needs if all users take what their quotas give them; 0 if there are no
    /// quotas.
    pub descriptors_needed: u64,
}
