//! Links that follow their device: hardware addresses, carrier, and the device itself, which may vanish and come back.
//!
//! Two parties, one mailbox for each link. The *keeper*, an ordinary thread, owns the [`Watcher`](super::Watcher) and
//! the [`DeviceCare`](super::DeviceCare) of each device, opens links and closes them. A [`FollowedLink`] belongs to
//! the engine's real-time thread and never waits: it looks at one flag, and takes or leaves a parcel where the mailbox
//! is free at that moment. When a device is gone the link gives its driver back to be closed and works on without one
//! (what it sends is lost and counted); when the device is there again it finds a new driver in its mailbox.

mod keeper;
mod link;
mod mailbox;

pub use keeper::{Follow, FollowError, Opener, follow};
pub use link::FollowedLink;
