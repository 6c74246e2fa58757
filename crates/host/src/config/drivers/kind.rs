//! The traits by which a driver describes itself and each link that runs on it.

use std::any::Any;
use std::fmt::Debug;

use punctual_engine::profile::{MeasureError, Wires};
use punctual_link::Link;
use punctual_link::kernel::{Device, KernelError, Watched, route_to};
use punctual_os::calls::Forbidden;
use rustix::thread::CapabilitySet;

use super::Driver;
use super::link_input::{Ends, LinkInput};
use crate::config::ConfigError;
use crate::finding::Finding;

/// A driver: its description, its requirements, and how its links are opened.
pub trait DriverKind: Send + Sync {
    /// Name of the driver, as the configuration spells it (`udp`, ...).
    fn name(&self) -> &'static str;

    /// What carries the driver's packets, for people: "kernel sockets".
    fn medium(&self) -> &'static str;

    /// True if the driver's packets leave the process. If they do not, there is no device, no address, no
    /// rate to measure and no other traffic beside the link.
    fn has_wire(&self) -> bool {
        true
    }

    /// True if a link may lead to another program of this machine: over loopback, where no wire is shared, or
    /// between two ports of one address.
    fn stays_on_machine(&self) -> bool {
        false
    }

    /// True if the driver's packets bypass the kernel's stack and queues. Each link then needs a device of
    /// its own, and kernel traffic has a rate limit of its own. Otherwise one shaper can send kernel traffic
    /// behind ours.
    fn bypasses_kernel(&self) -> bool {
        false
    }

    /// Capabilities that the driver needs while it runs, in addition to what every processor needs.
    fn rights(&self) -> CapabilitySet {
        CapabilitySet::empty()
    }

    /// Keys of a `[[link]]` that are valid for every driver's link, and that only this driver can carry out.
    fn claimed_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Keys of a `[[link]]` that only this driver accepts; [`LinkInput::own`] reads them.
    fn own_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Refuses a key of another driver with a message of this driver, before it is refused with a general
    /// message.
    ///
    /// # Errors
    /// The mistake in the link's keys, with the fix.
    fn refuse_keys(&self, _input: &LinkInput<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Checks and stores the configuration of one link.
    ///
    /// # Errors
    /// The first mistake, made by [`LinkInput::refuse`].
    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError>;

    /// Completes the settings of its links with what depends on the others. `links` are all links of the host, of any driver.
    fn complete(&self, _links: &mut [Box<dyn LinkDriver>]) {}

    /// Opens all its links of a host, in their order.
    ///
    /// # Errors
    /// The first that cannot be opened.
    fn open(&self, links: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError>;

    /// Cost of a packet, in no unit: only the order counts. A host measures its costs with the driver that has the highest one.
    fn packet_cost(&self) -> u8;

    /// Both links of the chain that a profile is measured on.
    ///
    /// # Errors
    /// If this host cannot join itself by this driver.
    fn wires(&self) -> Result<Wires, MeasureError> {
        let (name, measured) = (self.name(), Driver::default());
        Err(MeasureError::Failed(format!(
            "driver \"{name}\" cannot be measured on one host: measure driver \"{measured}\""
        )))
    }

    /// What these wires need, for `--help`.
    fn wires_need(&self) -> Option<&'static str> {
        None
    }

    /// A driver with higher costs. If this driver cannot be measured, those are used.
    fn substitute(&self) -> Option<Driver> {
        None
    }

    /// The findings of `punctual doctor` about a host with these links of the driver; `serving`: a daemon
    /// runs, and the programs on the devices are its own.
    fn examine(&self, _links: &[CheckedLink<'_>], _serving: bool) -> Vec<Finding> {
        Vec::new()
    }
}

/// Settings of one link, as its driver keeps them.
pub trait LinkDriver: Settings {
    /// The driver that carries the link.
    fn driver(&self) -> Driver;

    /// Addresses and ports of both ends of the link; `None` if it has no addresses.
    fn ends(&self) -> Option<Ends> {
        None
    }

    /// Device that the link is to leave by, if the configuration names one.
    fn device(&self) -> Option<&str> {
        None
    }

    /// Gives up everything that takes a privilege.
    fn run_without_privileges(&mut self) {}

    /// True if the link's device paces packets itself, and no other pace was configured.
    fn has_own_pace(&self) -> bool {
        false
    }

    /// TCP connections and listeners of this host's own that the link has room for.
    fn tcp_rooms(&self) -> [u32; 2] {
        [0, 0]
    }

    /// What `punctual doctor` finds out about this link alone.
    fn examine(&self, _link: &CheckedLink<'_>, _serving: bool) -> Vec<Finding> {
        Vec::new()
    }
}

impl dyn LinkDriver {
    /// The link's settings, if they are of the type `T`.
    pub fn settings<T: LinkDriver>(&self) -> Option<&T> {
        let settings: &dyn Any = self;
        settings.downcast_ref()
    }

    /// The link's settings for changing them, if they are of the type `T`.
    pub fn settings_mut<T: LinkDriver>(&mut self) -> Option<&mut T> {
        let settings: &mut dyn Any = self;
        settings.downcast_mut()
    }

    /// Whether the link uses loopback, which has no wire behind it.
    pub fn is_loopback(&self) -> bool {
        self.driver().stays_on_machine() && self.ends().is_some_and(|ends| ends.local.is_loopback())
    }

    /// Device that the link leaves by: the configured one, or that of the route.
    ///
    /// # Errors
    /// If there is no such device or no route.
    pub fn way_out(&self) -> Result<Device, KernelError> {
        match (self.device(), self.ends()) {
            (Some(name), _) => Device::named(name),
            (None, Some(ends)) => route_to(ends.peer).and_then(|route| Device::numbered(route.device)),
            // A link with neither stays on this machine.
            (None, None) => Device::named("lo"),
        }
    }
}

/// What every type of settings can do; implemented for all of them.
pub trait Settings: Any + Debug + Send + Sync {
    /// A copy.
    fn copied(&self) -> Box<dyn LinkDriver>;
    /// Whether the other settings are equal.
    fn equals(&self, other: &dyn LinkDriver) -> bool;
}

impl<T: LinkDriver + Clone + PartialEq> Settings for T {
    fn copied(&self) -> Box<dyn LinkDriver> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn LinkDriver) -> bool {
        other.settings::<T>().is_some_and(|other| other == self)
    }
}

impl Clone for Box<dyn LinkDriver> {
    fn clone(&self) -> Self {
        (**self).copied()
    }
}

impl PartialEq for dyn LinkDriver {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

impl Eq for dyn LinkDriver {}

/// A link that is to be opened.
pub struct OpeningLink<'a> {
    /// Name of the link.
    pub name: &'a str,
    /// Settings of the link that its driver has read.
    pub settings: &'a dyn LinkDriver,
    /// The account in which the link counts its traffic, if its device is watched.
    pub watched: Option<Watched>,
}

/// All links of a driver that are to be opened.
pub struct OpeningLinks<'a> {
    /// The links, in the order of the configuration.
    pub links: Vec<OpeningLink<'a>>,
    /// What happens to system calls that a thread of the driver does not need.
    pub forbidden: Forbidden,
    /// Returns a link that the program around the host has made, by its name.
    pub given: &'a mut dyn FnMut(&str) -> Option<Box<dyn Link>>,
}

/// A link that `punctual doctor` checks.
#[derive(Clone, Copy)]
pub struct CheckedLink<'a> {
    /// Name of the link.
    pub name: &'a str,
    /// Settings of the link that its driver has read.
    pub settings: &'a dyn LinkDriver,
    /// True if a running daemon has the link: a device that is missing here then exists in that daemon's
    /// network namespace.
    pub is_known: bool,
}

/// Settings of those links whose settings are of the type `T`: a driver finds its own links in this way.
pub fn settings_of<'a, T: LinkDriver>(links: impl IntoIterator<Item = &'a dyn LinkDriver>) -> Vec<&'a T> {
    links.into_iter().filter_map(|link| link.settings()).collect()
}
