//! What client and daemon say to one another: JSON, one value a packet of a `SOCK_SEQPACKET` socket.
//!
//! The client speaks first ([`Request::Hello`] with the version). Every [`Call`] gets exactly one
//! [`FromDaemon::Answer`] with its number, possibly much later (`Open` waits for the network); pushes come in
//! between. Descriptors travel with the answers that carry a [`RingShape`].

mod engine;

use punctual_analysis::{Contract, Nanos, Ppm};
use punctual_proto::api::{
    BrokenStage, ChannelRefusal, ChannelStatus, CloseReason, Grant, NodeStatus, Notice, RateRefusal,
    RateStatus, Receipt, RequestError, UserId,
};
use punctual_proto::ids::{Address, ChannelId, LinkId, ListenerId, Name, NodeId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ring::{RingError, RingShape};

pub use engine::{ClassStatus, DriverDrops, DriverStatus, EngineStatus, Facts, ProfileStatus};

/// Version of this API; the first thing that a client says. 2: why a channel ended in more words, and what its sink has.
/// 3: latencies by the hosts' clocks, and which stage broke its promise; entries of incoming rings have their clock error.
/// 4: what links drain. 5: pages of channels say where they end; what waits for a client and what its requests take are
/// within quotas; rings of two files, one for each writer, which programs seal; doorbells are sockets. 6: what a channel has
/// counted stands in the daemon's file of its ring. 7: descriptors are within quotas.
pub const VERSION: u32 = 7;
/// Largest packet either way.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Most descriptors with a packet.
pub const DESCRIPTORS_MAX: usize = 4;
/// Descriptors that a daemon needs beside what users and links take, on the safe side: it has some 30, and keeps up to 32
/// connections that were refused until they have read why.
const DESCRIPTORS_OWN: u64 = 128;
/// Of a link, on the safe side: one over `xdp` has three for each queue, and a dozen for its device and classifier.
const DESCRIPTORS_PER_LINK: u64 = 64;
/// Where the daemon listens unless told otherwise.
pub const SOCKET_DEFAULT: &str = "/run/punctual/api.sock";
/// Longest text in a request (a reason, a program's name), in bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// A numbered request; the number comes back with the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Chosen by the client, unique among its open calls.
    pub id: u64,
    /// What is asked.
    pub request: Request,
}

/// What a client asks. The papers' routine stands beside each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// First of all (rtcInit).
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program, for `status`.
        program: String,
    },
    /// Takes a name (rtcRegisterPort).
    Listen {
        /// The name.
        port: Name,
        /// What an embedding program declares for handling each message on the processor. A daemon, which runs no handlers of
        /// programs, refuses all but zero.
        #[serde(default)]
        handler_time: Nanos,
    },
    /// Gives it back; open channels stay (rtcUnRegisterPort).
    Unlisten {
        /// Which.
        listener: ListenerId,
    },
    /// Opens a channel (rtcCreateConnection). Answered when the network has.
    Open {
        /// To whom.
        to: Address,
        /// With what traffic.
        contract: Contract,
        /// From [`Push::Requested`], where this answers a receiver's request.
        token: Option<u64>,
    },
    /// What would be offered; holds nothing.
    Probe {
        /// To whom.
        to: Address,
        /// With what traffic.
        contract: Contract,
    },
    /// Asks a source for a channel to our listener `reply_to`.
    Ask {
        /// The source's listener.
        source: Address,
        /// Where it is to open the channel to: a listener of this client.
        reply_to: Name,
        /// With what traffic.
        contract: Contract,
    },
    /// Says no to a receiver's request.
    RefuseAsk {
        /// Which.
        token: u64,
        /// Why.
        why: String,
    },
    /// Says yes to [`Push::Incoming`].
    Consent {
        /// Which.
        channel: ChannelId,
        /// How long the program may take no message without losing one; `None`: what the daemon gives unasked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stall: Option<Nanos>,
    },
    /// Says no to [`Push::Incoming`].
    Refuse {
        /// Which.
        channel: ChannelId,
        /// Why.
        why: String,
    },
    /// Ends a channel (rtcDestroyConnection).
    Close {
        /// Which.
        channel: ChannelId,
    },
    /// Gives a thread of this client, which takes the messages of a channel, the priority of that channel.
    CoSchedule {
        /// Which channel; it ends here.
        channel: ChannelId,
        /// The thread's id, as the kernel has it.
        thread: u32,
    },
    /// The client has mapped and sealed what it writes of a channel's ring. Before this the daemon does not look at it.
    Attached {
        /// Which.
        channel: ChannelId,
    },
    /// From now on a channel that ends here gives a message only when the one before is taken.
    Alternate {
        /// Which.
        channel: ChannelId,
    },
    /// A flow without promises (rdata_send).
    OpenBestEffort {
        /// To whom.
        to: Address,
        /// Ring of this end.
        ring: RingShape,
    },
    /// Receives flows without promises (rdata_recv).
    BindBestEffort {
        /// The name.
        port: Name,
        /// Ring of this end.
        ring: RingShape,
    },
    /// Whether the host's directory has another host.
    Resolve {
        /// Which.
        host: Name,
    },
    /// Measures what a link drains towards its neighbour; for root and the daemon's own user. Answered when it is done.
    MeasureRate {
        /// The link's name.
        link: String,
    },
    /// State of the host.
    Status,
    /// Users of the host behind one, as many as fit, where a status says that there are more than it has.
    Users {
        /// The last one that is known.
        after: Option<UserId>,
    },
    /// Channels of the host after a handle, as many as fit.
    Channels {
        /// Where the page before has ended.
        after: Option<ChannelId>,
    },
    /// State of one channel (rtcGetParameter).
    Channel {
        /// Which.
        channel: ChannelId,
    },
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromDaemon {
    /// To a call.
    Answer {
        /// Its number; 0 where it could not even be read.
        id: u64,
        /// The answer.
        result: Result<Answer, ApiError>,
    },
    /// Unasked.
    Push(Push),
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To `Hello`.
    Hello {
        /// This node.
        node: NodeId,
        /// Its name.
        name: Name,
    },
    /// To requests that have nothing to say but yes.
    Done,
    /// To `Listen`.
    Listening {
        /// The handle.
        listener: ListenerId,
    },
    /// To `Open`; with the outgoing ring.
    Opened {
        /// The handle.
        channel: ChannelId,
        /// What is promised.
        grant: Grant,
        /// The ring.
        ring: RingShape,
    },
    /// To `Probe`.
    Probed {
        /// What would be granted, or why not.
        answer: Result<Grant, ChannelRefusal>,
    },
    /// To `Ask`: it is on its way.
    Asked {
        /// Comes back with `Incoming` or `AskFailed`.
        token: u64,
    },
    /// To `CoSchedule`.
    CoScheduled {
        /// The thread's `SCHED_FIFO` priority now.
        priority: u8,
    },
    /// To `Alternate`; with the doorbell.
    Alternates,
    /// To `Consent`, `OpenBestEffort`, `BindBestEffort`; with the ring.
    Ring {
        /// The handle.
        channel: ChannelId,
        /// The ring.
        ring: RingShape,
    },
    /// To `Resolve`.
    Resolved {
        /// Its number.
        node: NodeId,
    },
    /// To `MeasureRate`: what is known now.
    Rate(RateStatus),
    /// To `Status`.
    Status(Box<HostStatus>),
    /// To `Users`.
    Users {
        /// In order of their ids.
        users: Vec<UserStatus>,
        /// Whether there are more behind the last one.
        more: bool,
    },
    /// To `Channels`.
    Channels {
        /// In order of their handles.
        channels: Vec<ChannelStatus>,
        /// The last handle that was looked at, of a channel that lives or not: the next page begins behind it.
        seen: Option<ChannelId>,
        /// Whether there are more behind that.
        more: bool,
    },
    /// To `Channel`.
    Channel(Box<ChannelStatus>),
}

/// What a client is told unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Push {
    /// Somebody wants to open a channel to a listener: `Consent` or `Refuse`.
    Incoming {
        /// The handle.
        channel: ChannelId,
        /// To which listener.
        listener: ListenerId,
        /// From which host.
        from: Name,
        /// On whose behalf there.
        user: UserId,
        /// With what traffic.
        contract: Contract,
        /// Answers our own request.
        token: Option<u64>,
    },
    /// An incoming channel stands.
    Established {
        /// Which.
        channel: ChannelId,
    },
    /// A receiver wants a channel from here: `Open` with the token, or `RefuseAsk`.
    Requested {
        /// Which listener it asked.
        listener: ListenerId,
        /// Where to open the channel to.
        to: Address,
        /// With what traffic.
        contract: Contract,
        /// On whose behalf there.
        user: UserId,
        /// To be given back.
        token: u64,
    },
    /// A request to a source came to nothing.
    AskFailed {
        /// Which.
        token: u64,
        /// Why.
        refusal: ChannelRefusal,
    },
    /// A channel is gone.
    Closed {
        /// Which.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
        /// At the source: what the sink has of it; `None` where that was not to be learnt.
        receipt: Option<Receipt>,
    },
    /// A stage on a channel's way breaks its promise, or keeps it again.
    Stage {
        /// Which channel.
        channel: ChannelId,
        /// Which stage, and the likely cause.
        stage: BrokenStage,
        /// It has kept its promise for a lease.
        healed: bool,
    },
    /// Something to know about a channel.
    Notice {
        /// Which.
        channel: ChannelId,
        /// What.
        notice: Notice,
    },
}

/// What a request came to instead. One clear line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "kebab-case")]
pub enum ApiError {
    /// The network said no.
    #[error("refused: {0}")]
    Refused(ChannelRefusal),
    /// It cannot even be tried.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The user has used up a share of this host.
    #[error("quota: {used} of {limit} {what} are in use: close some or {} in the configuration", .what.fix())]
    Quota {
        /// Of what.
        what: Resource,
        /// In use, or wanted where that alone is too much.
        used: u64,
        /// Allowed.
        limit: u64,
    },
    /// Not a request of this API.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// Another version.
    #[error(
        "this daemon speaks version {ours} of the API, the client {theirs}: install the same release of both"
    )]
    Version {
        /// The daemon's.
        ours: u32,
        /// The client's.
        theirs: u32,
    },
    /// Memory or descriptors are short.
    #[error("{0}")]
    Ring(String),
    /// A thread does not get its channel's priority.
    #[error("not co-scheduled: {0}")]
    CoSchedule(String),
    /// A link was not measured.
    #[error("link {link} is not measured: {why}")]
    MeasureRate {
        /// Its name.
        link: String,
        /// Why not.
        why: RateRefusal,
    },
    /// Somebody else may ask for this.
    #[error("{0}")]
    Forbidden(String),
    /// The daemon is going down.
    #[error("the daemon is shutting down")]
    ShuttingDown,
}

impl From<RingError> for ApiError {
    fn from(error: RingError) -> Self {
        Self::Ring(error.to_string())
    }
}

/// What quotas count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Users at the same time.
    Users,
    /// Connections of programs.
    Clients,
    /// Listeners.
    Listeners,
    /// Those of all users together; the rest of what a host has is kept for root and the daemon's own user.
    AllListeners,
    /// Ends of channels and best-effort flows.
    Channels,
    /// Bytes of message rings.
    BufferBytes,
    /// Bytes of answers and news that programs have not read.
    UnreadBytes,
    /// Descriptors that the daemon holds for it.
    Descriptors,
}

impl Resource {
    /// What the operator can do about it.
    const fn fix(self) -> &'static str {
        match self {
            Self::AllListeners => "lower listeners_per_user_max of [daemon]",
            _ => "raise [daemon] quotas",
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Users => "users",
            Self::Clients => "clients",
            Self::Listeners => "listeners",
            Self::AllListeners => "listeners of all users together",
            Self::Channels => "channels",
            Self::BufferBytes => "bytes of buffers",
            Self::UnreadBytes => "bytes of unread answers",
            Self::Descriptors => "descriptors",
        })
    }
}

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

/// What each user may take of a host, and how many users there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Users with anything at the same time (all of them together).
    pub users: u64,
    /// Connected programs.
    pub clients: u64,
    /// Listeners.
    pub listeners: u64,
    /// Ends of channels and best-effort flows.
    pub channels: u64,
    /// Bytes of message rings, and of all that this host has for their slots, messages and packets.
    pub buffer_bytes: u64,
    /// Bytes of answers and news that its programs have not read, beside what their sockets hold.
    pub unread_bytes: u64,
    /// Descriptors that the daemon holds for its connections and rings.
    pub descriptors: u64,
    /// What its requests may take of the processor's time in the long run; a million: no bound.
    pub request_share: Ppm,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            users: 1_024,
            clients: 256,
            listeners: 1_024,
            channels: 16_384,
            buffer_bytes: 2 << 30,
            unread_bytes: 4 << 20,
            descriptors: 131_072,
            request_share: Ppm(5_000),
        }
    }
}

impl Quotas {
    /// Descriptors that a daemon with so many links needs where as many users as there may be, and root and the daemon's own
    /// beside them, take all that is theirs; zero where there is no bound.
    pub const fn descriptors_needed(&self, links: usize) -> u64 {
        if self.descriptors == u64::MAX {
            return 0;
        }
        let users = self.users.saturating_add(2);
        // One for what wakes the user's ringer.
        let of_users = users.saturating_mul(self.descriptors.saturating_add(1));
        of_users.saturating_add(DESCRIPTORS_OWN + links as u64 * DESCRIPTORS_PER_LINK)
    }

    /// No bounds: an embedding program has only itself.
    pub const UNLIMITED: Self = Self {
        users: u64::MAX,
        clients: u64::MAX,
        listeners: u64::MAX,
        channels: u64::MAX,
        buffer_bytes: u64::MAX,
        unread_bytes: u64::MAX,
        descriptors: u64::MAX,
        request_share: Ppm(1_000_000),
    };
}

/// What a user has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user's id on this host.
    pub user: UserId,
    /// Connected programs.
    pub clients: u64,
    /// Listeners.
    pub listeners: u64,
    /// Ends of channels and best-effort flows.
    pub channels: u64,
    /// As in [`Quotas`].
    pub buffer_bytes: u64,
    /// Bytes of answers and news that its programs have not read, beside what their sockets hold.
    pub unread_bytes: u64,
    /// Descriptors that the daemon holds for its connections and rings, counted on the safe side.
    pub descriptors: u64,
}
