//! Defences of a host that can be taken away for a trial: proof that the attacks of docs/SECURITY.md would do harm without
//! them.
//!
//! Without the feature `trials`, which nothing that ships enables, [`holds`] is a constant `true`, and there is no way to
//! take anything away. With it, a daemon leaves out what `PUNCTUAL_WITHOUT` in its environment names (`make trials`).
#![no_std]
#![forbid(unsafe_code)]

macro_rules! defences {
    ($($(#[$doc:meta])* $defence:ident $name:literal,)*) => {
        /// What holds an attack off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Defence { $($(#[$doc])* $defence,)* }

        impl Defence {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$defence,)*];

            /// As it is called in `PUNCTUAL_WITHOUT`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$defence => $name,)* }
            }
        }
    };
}

defences! {
    /// Bells are rung, and rings closed, by a thread of their user, not by the processor.
    Ringer "ringer",
    /// Bells are eventfds: whoever reads one holds no lock that its writer waits for, as it does with a pipe.
    EventfdBells "eventfd-bells",
    /// Files of rings are sealed against holes and other writers.
    SealedRings "sealed-rings",
    /// A page of each 2 MiB of a ring is held, so that no huge page takes its place.
    HeldPages "held-pages",
    /// What a ring's positions and lengths say is checked.
    CheckedRings "checked-rings",
    /// Connections, listeners, channels and memory of a user have quotas.
    Quotas "quotas",
    /// Threads of programs stay below the processor's priority.
    BelowProcessor "below-processor",
    /// Packets of channels carry a cookie.
    Cookies "cookies",
    /// Signalling that is not sealed has a budget of its own in the driver.
    Seals "seals",
    /// What ICMP says about a path's MTU is not believed.
    DeviceMtu "device-mtu",
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

    /// A bit for each that is gone.
    static GONE: AtomicU64 = AtomicU64::new(0);

    /// Takes away what is named, separated by commas. Before the process does anything else.
    ///
    /// # Panics
    /// Where a name is none.
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
