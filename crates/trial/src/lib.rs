//! Defences of a host that can be disabled for a trial, to show that the attacks of docs/SECURITY.md would
//! succeed without them.
//!
//! Without the feature `trials`, which no release enables, [`holds`] is a constant `true`, and no defence can
//! be disabled. With it, daemon and command line disable the defences that `PUNCTUAL_WITHOUT` in their
//! environment names (`make trials`).
#![no_std]
#![forbid(unsafe_code)]

macro_rules! defences {
    ($($(#[$doc:meta])* $defence:ident $name:literal,)*) => {
        /// A defence against an attack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Defence { $($(#[$doc])* $defence,)* }

        impl Defence {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$defence,)*];

            /// The name in `PUNCTUAL_WITHOUT`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$defence => $name,)* }
            }
        }
    };
}

defences! {
    /// Bells are rung, and rings closed, by a thread of their user, not by the processor.
    Ringer "ringer",
    /// Bells are eventfds: a reader of an eventfd holds no lock that its writer waits for, as a reader of a
    /// pipe does.
    EventfdBells "eventfd-bells",
    /// Files of rings are sealed against holes and other writers.
    SealedRings "sealed-rings",
    /// A page of each 2 MiB of a ring is held, so that no huge page takes its place.
    HeldPages "held-pages",
    /// A ring's positions and lengths are checked.
    CheckedRings "checked-rings",
    /// Connections, listeners, channels and memory of a user have quotas.
    Quotas "quotas",
    /// Threads of programs stay below the processor's priority.
    BelowProcessor "below-processor",
    /// Packets of channels carry a cookie.
    Cookies "cookies",
    /// Signalling without a seal has a budget of its own in the driver.
    Seals "seals",
    /// ICMP messages about a path's MTU are ignored.
    DeviceMtu "device-mtu",
    /// Packets of signalling are authentic.
    Authentication "authentication",
    /// Each packet number of signalling is accepted once in a life.
    ReplayWindow "replay-window",
    /// Signalling to a neighbour has turns by host and user.
    SignallingTurns "signalling-turns",
    /// If no place is left, the requester with the most places loses one.
    GivingWay "giving-way",
    /// Text that came from elsewhere is made harmless.
    HarmlessText "harmless-text",
    /// The processor has a heap of its own.
    OwnHeap "own-heap",
    /// All doorbells of a user have one allowance.
    DoorbellAllowance "doorbell-allowance",
    /// A key is in a file of the daemon's user or of root that no other user can read or write.
    PrivateKeys "private-keys",
    /// A key is in a regular file, and opening another kind of file does not block.
    KeyFiles "key-files",
    /// Channels, listeners and requests are their owners'.
    Owners "owners",
    /// Requests of a user have a share of the processor's time.
    RequestShare "request-share",
    /// The service's time for a user is charged to the user's share.
    ServiceCharge "service-charge",
    /// The number and the time of a user's requests in a turn of the service are limited.
    ServiceTurns "service-turns",
    /// What takes long to send goes to a user once a turn of the service, at its expense; the last news have their time.
    SendingTurns "sending-turns",
    /// What programs leave behind is ended in slices.
    SlicedEnds "sliced-ends",
    /// Descriptors of a user have a quota.
    DescriptorQuota "descriptor-quota",
    /// Some listeners are reserved for root.
    PlacesForRoot "places-for-root",
    /// One descriptor is kept for looking who connects.
    SpareDescriptor "spare-descriptor",
    /// Subordinate users count as their account.
    Subordinates "subordinates",
    /// The backlog of a program that does not read is bounded.
    BoundedUnread "bounded-unread",
    /// The service never waits for a program to read.
    SendsWithoutWaiting "sends-without-waiting",
    /// The kernel lets no descriptor of a program through.
    PassRights "pass-rights",
    /// Files of rings count until no process holds them.
    KeptFiles "kept-files",
    /// Descriptors in answers count until they are read.
    DescriptorsAloft "descriptors-aloft",
    /// The memory of a channel's burst counts in the user's quota.
    BurstRoom "burst-room",
}

/// Whether this process has `defence`.
#[cfg(not(feature = "trials"))]
#[inline(always)]
pub const fn holds(_: Defence) -> bool {
    true
}

#[cfg(feature = "trials")]
pub use switch::{holds, take_away};

#[cfg(feature = "trials")]
mod switch {
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::Defence;

    /// A bit for each disabled defence.
    static GONE: AtomicU64 = AtomicU64::new(0);

    /// Disables the named defences, separated by commas. Call it before the process does anything else.
    ///
    /// # Panics
    /// If a name is unknown.
    pub fn take_away(names: &str) {
        for name in names.split(',') {
            let defence = Defence::ALL.iter().find(|defence| defence.name() == name);
            let defence = defence.unwrap_or_else(|| panic!("no defence is called {name}"));
            GONE.fetch_or(1 << *defence as u64, Ordering::SeqCst);
        }
    }

    /// Whether this process has `defence`.
    #[inline]
    pub fn holds(defence: Defence) -> bool {
        GONE.load(Ordering::Relaxed) & 1 << defence as u64 == 0
    }
}
