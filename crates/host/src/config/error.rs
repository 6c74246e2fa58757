//! Errors of configurations and of the links that they describe.

use std::io;

use punctual_link::LinkError;
use punctual_link::kernel::KernelError;
use thiserror::Error;

/// A mistake in a configuration, in one line.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {path}: {error}: name a file that exists and that this user can read"
    )]
    Read {
        /// Path of the file.
        path: String,
        /// Why it cannot be read.
        error: io::Error,
    },
    /// A line of it is wrong.
    #[error("{path}:{line}: {what}")]
    Line {
        /// Path of the file.
        path: String,
        /// Number of the line, from 1.
        line: usize,
        /// The mistake, with the fix.
        what: String,
    },
    /// A link cannot be opened.
    #[error("link \"{name}\": {error}")]
    Link {
        /// Name of the link.
        name: String,
        /// Why it cannot be opened.
        error: LinkError,
    },
    /// No link of a driver can be opened.
    #[error("cannot open the links with driver \"{driver}\": {error}")]
    Driver {
        /// Name of the driver.
        driver: &'static str,
        /// Why none of its links can be opened.
        error: LinkError,
    },
    /// A driver has opened a different number of links than it was to open.
    #[error("driver \"{driver}\" has opened {opened} of {wanted} links: this is a fault in the driver")]
    Opened {
        /// Name of the driver.
        driver: &'static str,
        /// Number of links that it opened.
        opened: usize,
        /// Number of links that it was to open.
        wanted: usize,
    },
    /// A memory link has no other end here.
    #[error(
        "link \"{name}\": driver \"{driver}\" connects engines inside one process: use \"{between_hosts}\" between hosts"
    )]
    MemoryLink {
        /// Name of the link.
        name: String,
        /// Name of the link's driver.
        driver: &'static str,
        /// Name of a driver that connects hosts.
        between_hosts: &'static str,
    },
    /// Two links leave by one device, and the file does not declare that.
    #[error(
        "links \"{one}\" and \"{other}\" both leave by interface {device}: give each device = \"{device}\" and device_rate, \
         what it drains, and rates that fit it together"
    )]
    SharedDevice {
        /// A link.
        one: String,
        /// Another.
        other: String,
        /// Device of these links.
        device: String,
    },
    /// A device cannot be had as it is configured.
    #[error("{error}")]
    Device {
        /// Why the device cannot be used.
        error: KernelError,
    },
    /// The boot count or the random source failed.
    #[error("{what}: {error}")]
    Epoch {
        /// The attempted operation.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}
