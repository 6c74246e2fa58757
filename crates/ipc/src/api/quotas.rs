//! What each user may take of a host, and has taken.

use punctual_analysis::Ppm;
use punctual_proto::api::UserId;
use serde::{Deserialize, Serialize};

/// Descriptors that a daemon needs beside what users and links take, on the safe side: it has some 30, and keeps up to 32
/// connections that were refused until they have read why.
const DESCRIPTORS_OWN: u64 = 128;
/// Descriptors that one link takes, on the safe side: a link over `xdp` has three for each queue, and a dozen
/// for its device and classifier.
const DESCRIPTORS_PER_LINK: u64 = 64;

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
    /// Listeners of all users together. The rest of a host's listeners is reserved for root and the daemon's
    /// own user.
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
    /// What the operator can change in the configuration if the quota is reached.
    pub(super) const fn fix(self) -> &'static str {
        match self {
            Self::Users => "raise users_max of [daemon]",
            Self::Clients => "raise connections_per_user_max of [daemon]",
            Self::Listeners => "raise listeners_per_user_max of [daemon]",
            Self::AllListeners => "lower listeners_per_user_max of [daemon]",
            Self::Channels => "raise channels_per_user_max of [daemon]",
            Self::BufferBytes => "raise buffers_per_user_max of [daemon]",
            Self::UnreadBytes => "raise unread_per_user_max of [daemon]",
            Self::Descriptors => "raise descriptors_per_user_max of [daemon]",
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
    /// Descriptors that a daemon with this many links needs if as many users as there may be, and root and
    /// the daemon's own user as well, take everything that they may. Zero if there is no bound.
    pub const fn descriptors_needed(&self, links: usize) -> u64 {
        if self.descriptors == u64::MAX {
            return 0;
        }
        let users = self.users.saturating_add(2);
        // Add one descriptor for what wakes the user's ringer.
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

/// The resources that a user has taken.
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
    /// Bytes of message rings, as [`Quotas`] counts them.
    pub buffer_bytes: u64,
    /// Bytes of answers and news that its programs have not read, beside what their sockets hold.
    pub unread_bytes: u64,
    /// Descriptors that the daemon holds for its connections and rings, counted on the safe side.
    pub descriptors: u64,
}
