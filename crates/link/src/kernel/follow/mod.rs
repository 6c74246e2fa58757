//! Links that follow their device: hardware addresses, carrier, and the device itself, which may vanish and come back.
//!
//! There are two parties, with one mailbox for each link. The *keeper*, an ordinary thread, owns the
//! [`Watcher`](super::Watcher) and the [`DeviceCare`](super::DeviceCare) of each device, opens links and
//! closes them. A [`FollowedLink`] belongs to the engine's real-time thread and never waits: it checks one
//! flag, and takes or leaves a parcel if the mailbox is free at that moment. When a device is gone, the link
//! returns its driver to be closed and continues without one (packets that it sends are lost and counted).
//! When the device is there again, the link finds a new driver in its mailbox.

mod begin;
mod keeper;
mod link;
mod mailbox;

pub use begin::follow;
pub use keeper::{Follow, FollowError, Opener};
pub use link::FollowedLink;
