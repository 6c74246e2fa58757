//! Interfaces of the core to memory: frames of the driver, rings of the application.
//!
//! The core never owns payload: it refers to a message in the application's outgoing ring and copies a
//! fragment into a frame only when the link scheduler picks that packet (HARTS 5.1); received fragments are
//! copied once, to index times fragment size of a slot of the receiver's ring.

use punctual_analysis::{Instant, Nanos};

use crate::api::ChannelCounters;
pub use crate::latencies::Latencies;
pub use crate::lateness::Timeliness;

/// The family of buffers that a host uses.
pub trait Memory {
    /// A received frame; dropping it gives the buffer back to the driver. Starts at our header. A frame that
    /// passes through is rewritten in place.
    type Frame: AsRef<[u8]> + AsMut<[u8]>;
    /// An application's outgoing ring.
    type Outbox: Outbox;
    /// An application's incoming ring.
    type Inbox: Inbox;
}

/// A message that an application has put into its ring. Dropping it frees the ring slot and shows the
/// application that the link has sent it.
pub trait MessageRead {
    /// Length of the message in bytes. It never changes, whatever the application does to the ring.
    fn len(&self) -> u32;
    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `out.len()` bytes from `offset` on; the caller stays within `len`.
    fn copy_to(&self, offset: u32, out: &mut [u8]);
}

/// An application's outgoing ring. The other side is not trusted: the implementation checks everything that
/// it reads.
pub trait Outbox {
    /// A message in it.
    type Message: MessageRead;
    /// The next message, with the time at which the application reports to have sent it (this host's clock):
    /// not after `now`, which is read before the check. The time is an argument, because reading the clock
    /// costs as much as the rest of the check.
    fn take(&mut self, now: Instant) -> Option<(Self::Message, Instant)>;
    /// Whether a message waits.
    fn is_ready(&self) -> bool;
    /// Whether slots of finished messages must still be returned to the application; each `take` returns some
    /// of them.
    fn is_behind(&self) -> bool {
        false
    }
    /// Notes that the channel's counters are about to change. `true`: the application reads the counters from
    /// shared memory, and [`Outbox::show`] is due when the turn ends; `true` only once until then.
    fn touch(&mut self) -> bool {
        false
    }
    /// Publishes the counters to the application. This is constant work.
    fn show(&mut self, _counters: &ChannelCounters) {}
    /// Notes that the channel's status beside its counters has changed. An application must request the new
    /// status.
    fn outdate(&mut self) {}
}

/// A slot of the receiver's ring in which a message is reassembled. Dropping it unpublished frees it.
pub trait MessageWrite {
    /// Copies `bytes` to `offset`; bytes beyond the slot's size are cut off.
    fn copy_from(&mut self, offset: u32, bytes: &[u8]);
}

/// Information that the receiver gets with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageInfo {
    /// Number of the message in its channel. A gap in the numbers is a lost message.
    pub number: u64,
    /// Length of the message in bytes.
    pub len: u32,
    /// l: the logical arrival at the source, on *this* host's clock; for best effort on the source's.
    pub logical_arrival: Instant,
    /// Largest error of the time since then, in either direction; `None` if the clock offset of a host on the
    /// route is unknown, and for best effort.
    pub clock_error: Option<Nanos>,
    /// l + D: the latest time of its delivery, on *this* host's clock.
    pub deadline: Instant,
    /// Time of the delivery, on this host's clock.
    pub delivered: Instant,
    /// The message travelled as best effort from some stage on: it arrived there too late, too early, or
    /// beyond its contract.
    pub demoted: bool,
    /// The source found that the message breaks the contract: it never had a guarantee.
    pub unpromised: bool,
    /// Whether it was delivered by its deadline, as far as the clocks show.
    pub timeliness: Timeliness,
}

/// An application's incoming ring.
pub trait Inbox {
    /// A slot in it.
    type Slot: MessageWrite;
    /// A free slot of the ring's message size; `None` if the application has not freed any.
    fn reserve(&mut self) -> Option<Self::Slot>;
    /// Makes a filled slot visible to the application and wakes it if it sleeps.
    fn publish(&mut self, slot: Self::Slot, info: MessageInfo);
    /// Number of published messages that the application has not taken, as far as this ring knows: 0 if it does not.
    fn unread(&self) -> u64 {
        0
    }
    /// Latencies of the published messages; `None` if this ring does not record them.
    fn observed(&self) -> Option<&Latencies> {
        None
    }
    /// Called when the application has taken a message and has signalled it: makes one waiting message
    /// visible. Only rings that hold messages back need it. The work is done in bounded steps: `true` if
    /// there is more to do, so that it must be called again soon.
    fn resume(&mut self) -> bool {
        false
    }
    /// Called when the channel has ended: makes one waiting message visible; `false` if none waits any more.
    fn show_one(&mut self) -> bool {
        false
    }
    /// Marks the counters as changed, as [`Outbox::touch`] does: `true` if [`Inbox::show`] is due when the
    /// turn ends.
    fn touch(&mut self) -> bool {
        false
    }
    /// Publishes the counters and the observed latencies. Takes constant time.
    fn show(&mut self, _counters: &ChannelCounters) {}
    /// Marks the channel's status that the application has as out of date, as [`Outbox::outdate`] does.
    fn outdate(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros(u32);

    impl MessageRead for Zeros {
        fn len(&self) -> u32 {
            self.0
        }
        fn copy_to(&self, _: u32, out: &mut [u8]) {
            out.fill(0);
        }
    }

    #[test]
    fn a_message_without_bytes_is_empty() {
        assert_eq!([0, 1, u32::MAX].map(|len| Zeros(len).is_empty()), [true, false, false]);
    }
}
