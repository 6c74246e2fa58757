//! The drivers that links run on: the only place that names them.
//!
//! To add a driver, write a file with a [`DriverKind`] and a [`LinkDriver`], and add a line to the table below.
//! The parser of the configuration, the daemon's rights, the profile, `punctual doctor`,
//! `profile` and `bench`, and the experiments use this table. A program that embeds an engine provides its
//! own table: see [`parse_with`](super::parse_with).

mod kind;
mod link_input;

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

pub use self::kind::{CheckedLink, DriverKind, LinkDriver, OpeningLink, OpeningLinks, settings_of};
pub use self::link_input::{Ends, LinkInput};
pub use self::memory::MemorySettings;

/// Declares the modules of the drivers, a constant of [`Driver`] for each, and the table [`Driver::ALL`]: a line for each
/// driver. A module defines the [`DriverKind`] behind the constant's name.
macro_rules! drivers {
    ($($vis:vis mod $module:ident: $name:ident($kind:ident) = $doc:literal;)*) => {
        $($vis mod $module;)*

        impl Driver {
            $(
                #[doc = $doc]
                pub const $name: Self = Self(&$module::$kind);
            )*

            /// Drivers that come with Punctual and that a configuration can name.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];
        }
    };
}

drivers! {
    mod udp: UDP(Udp) = "Kernel sockets: on every host, without privileges. The default.";
    pub mod xdp: XDP(Xdp) = "AF_XDP, classified in the adapter's driver.";
    mod memory: MEMORY(Memory) = "Rings inside one process: the embedding program gives their ends.";
}

/// What links run on. Two are the same where their names are.
#[derive(Clone, Copy)]
pub struct Driver(&'static dyn DriverKind);

impl Driver {
    /// The cheapest driver, which needs no device: profiles show it beside the requested driver.
    pub const BASE: Self = Self::MEMORY;

    /// A driver of the program's own. Its name must be none of [`Driver::ALL`].
    pub const fn new(kind: &'static dyn DriverKind) -> Self {
        Self(kind)
    }

    /// The one of [`Driver::ALL`] with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|driver| driver.name() == name)
    }

    /// [`Driver::ALL`] in the order of their names.
    pub fn by_name() -> [Self; Self::ALL.len()] {
        let mut all = Self::ALL;
        all.sort_by_key(|driver| driver.name());
        all
    }
}

impl Deref for Driver {
    type Target = dyn DriverKind;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Default for Driver {
    fn default() -> Self {
        Self::UDP
    }
}

impl PartialEq for Driver {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Driver {}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Driver {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for driver in Driver::ALL {
            assert_eq!(Driver::named(driver.name()), Some(driver));
            assert_eq!(Driver::ALL.into_iter().filter(|other| *other == driver).count(), 1, "{driver:?}");
        }
        assert_eq!(Driver::named("no-such-driver"), None);
        assert!(Driver::by_name().is_sorted_by_key(|driver| driver.name()));
    }

    /// A host is profiled on the most expensive driver that it has; a driver that replaces another must
    /// not be cheaper.
    #[test]
    fn costs_of_drivers_have_an_order() {
        for driver in Driver::ALL {
            assert_eq!(
                Driver::ALL.into_iter().filter(|other| other.packet_cost() == driver.packet_cost()).count(),
                1
            );
            assert!(driver == Driver::BASE || driver.packet_cost() > Driver::BASE.packet_cost());
            assert!(
                driver.substitute().is_none_or(|other| other.packet_cost() > driver.packet_cost()),
                "{driver:?}"
            );
        }
    }
}
