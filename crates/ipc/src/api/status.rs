//! What `status` says of a host.

use punctual_analysis::Nanos;
use punctual_proto::api::NodeStatus;
use punctual_proto::ids::LinkId;
use serde::{Deserialize, Serialize};

use super::{EngineStatus, Quotas, UserStatus};

/// All of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The node.
    pub node: NodeStatus,
    /// The API.
    pub api: ApiStatus,
    /// What every user may take.
    pub quotas: Quotas,
    /// What they have taken, in order of their ids.
    pub users: Vec<UserStatus>,
    /// One packet has no room for all of them: those behind the last one are to be asked for ([`Request::Users`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_users: bool,
    /// How long the daemon has been up.
    pub uptime: Nanos,
    /// The processor's thread, and the drivers of its links.
    pub engine: EngineStatus,
    /// Counts compared with what there is; only for root and the daemon's own user, and where few channels are here.
    #[serde(default)]
    pub books: Option<Books>,
}

/// What a host counts, compared with what there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// How many counts were compared.
    pub compared: u32,
    /// Those that are wrong: of what is counted there something is held by nobody, or something is held that was not counted.
    pub wrong: Vec<WrongCount>,
    /// What waits for an answer, of somebody else or of this host's own stages. Nothing does where nobody wants anything.
    pub waiting: Vec<Waiting>,
}

/// A count that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongCount {
    /// Of what.
    pub what: String,
    /// On which link, where it is a link's.
    pub link: Option<LinkId>,
    /// The count.
    pub counted: u64,
    /// The sum over those that hold something of it.
    pub held: u64,
}

/// What waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// What.
    pub what: String,
    /// How many.
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
    /// Connections cut since what they sent was no request.
    pub malformed: u64,
    /// Connections or requests over a quota.
    pub over_quota: u64,
    /// Connections closed without a word, since their users had connected more than their share allows.
    #[serde(default)]
    pub turned_away: u64,
    /// Connections cut since they did not read what they were sent.
    pub not_reading: u64,
    /// Channels closed since the application broke their ring.
    pub broken_rings: u64,
    /// Descriptors that the daemon may have open.
    pub descriptors_max: u64,
    /// Those that it needs where all users take what their quotas give them; zero: there are no quotas.
    pub descriptors_needed: u64,
}
