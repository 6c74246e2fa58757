//! The state and the settings of a link's device in the host's kernel: the parts of a driver that do not
//! handle packets.
//!
//! - Facts come by netlink: [`Device`], [`devices_with`], [`route_to`], [`resolve`]; [`Watcher`] follows them.
//! - [`hops()`] follows the next hop of each connection to other hosts; a [`PortHold`] keeps its port from others.
//! - Kernel traffic on the device is bounded by a shaper, receive work runs in [`napi`] threads of a chosen
//!   priority, interrupts may be deferred: [`DeviceCare`] sets all of it up for one device and puts everything back
//!   when it is dropped.
//! - All traffic that a device has sent, whatever its sender: [`TrafficSample`]. A link counts its own part
//!   in an [`Account`]; the difference between the two is the traffic of other senders.
//! - The former settings are in a record file that its owner keeps locked ([`leftovers`]). The lock ends with
//!   the process, so the next start or `punctual doctor --repair` finds and restores what a crash left
//!   changed.
//! - [`FollowedLink`] keeps a link's addresses equal to the kernel's and restores the link after its device
//!   was gone.
//!
//! All functions here may wait for the kernel or allocate, and run on ordinary threads. Real-time threads
//! only read what a housekeeping thread puts into a mailbox, for which they never wait.

mod account;
mod addresses;
#[doc(hidden)]
pub mod answers;
mod attributes;
mod bell;
mod care;
mod classes;
mod device;
mod device_log;
mod error;
mod follow;
mod hops;
pub mod napi;
mod neighbours;
mod netlink;
mod path;
mod ports;
mod qdisc;
mod record;
mod shaper;
mod traffic;
mod watch;

pub use crate::mac::Mac;
pub use account::{Account, DeviceCondition, Watched};
pub use addresses::devices_with;
pub use care::{CareOptions, CareStatus, DeviceCare, Leftover, leftovers};
pub use classes::FIRST_CLASS;
pub use device::{Device, XdpAttachment, XdpFeatures};
pub use device_log::DeviceLog;
pub use error::KernelError;
pub use follow::{Follow, FollowError, FollowedLink, Opener, follow};
pub use hops::{HopKeeper, HopRoute, HopState, Hops, NextHop, hops};
pub use neighbours::{Route, neighbour, resolve, route_to};
pub use path::{LinkPath, PathRequest, RESOLVE_PATIENCE};
pub use ports::PortHold;
pub use qdisc::{FOLLOWING_UNITS, RESTORABLE};
pub use shaper::ShaperRate;
pub use traffic::TrafficSample;
pub use watch::{Change, Watcher};
