//! What the host's kernel knows about a link's device, and what it is told: the parts of a driver that are no
//! packets.
//!
//! - Facts come by netlink: [`Device`], [`route_to`], [`resolve`]; [`Watcher`] follows them.
//! - [`hops()`] follows the next hop of each connection to other hosts; a [`PortHold`] keeps its port from others.
//! - Kernel traffic on the device is bounded by a [`Shaper`], receive work runs in [`napi`] threads of a chosen
//!   priority, interrupts may be deferred: [`DeviceCare`] sets all of it up for one device and puts everything back
//!   when it is dropped.
//! - What a device has sent, whoever the packets were from: [`TrafficSample`]. A link counts its own part in an
//!   [`Account`]; who compares the two knows what else was sent.
//! - What was there before is on record in a file that its owner keeps locked ([`leftovers`]): the lock dies with the
//!   process, so whatever a crash leaves is found and put back by the next start or by `punctual doctor --repair`.
//! - [`FollowedLink`] keeps a link's addresses as the kernel's and brings it back after its device was gone.
//!
//! Everything here may wait for the kernel or allocate, and runs on ordinary threads. Real-time threads see only
//! what a housekeeping thread leaves for them in a mailbox that they never wait for.

mod account;
#[doc(hidden)]
pub mod answers;
mod attributes;
mod bell;
mod care;
mod classes;
mod device;
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
mod traffic;
mod watch;

pub use account::{Account, DeviceCondition, Watched};
pub use care::{CareOptions, CareStatus, DeviceCare, Leftover, leftovers};
pub use classes::FIRST_CLASS;
pub use device::{Device, Mac, XdpAttachment, XdpFeatures};
pub use error::KernelError;
pub use follow::{Follow, FollowError, FollowedLink, Opener, follow};
pub use hops::{HopKeeper, HopState, Hops, NextHop, Way, hops};
pub use neighbours::{Route, neighbour, resolve, route_to};
pub use path::{LinkPath, PathRequest, RESOLVE_PATIENCE};
pub use ports::PortHold;
pub use qdisc::{FOLLOWING_UNITS, RESTORABLE, ShaperRate};
pub use traffic::TrafficSample;
pub use watch::{Change, Watcher};
