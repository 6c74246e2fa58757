//! Applications that run on the processor's own thread: handlers called at a message's delivery, within
//! [`Inbox::publish`](punctual_proto::memory::Inbox::publish).
//!
//! The node checks what such a handler sent as soon as the current unit is done; no doorbell is rung and no
//! thread is woken. One processor runs on a thread, so the list is thread-local.

use std::cell::RefCell;
use std::collections::VecDeque;

use punctual_link::Frame;
use punctual_proto::api::RtuId;
use punctual_proto::ids::ChannelId;

/// Outgoing rings that one unit of work may fill without the list growing.
const OUTBOXES: usize = 64;

thread_local! {
    static RUNG: RefCell<Vec<ChannelId>> = const { RefCell::new(Vec::new()) };
    static READY: RefCell<Vec<RtuId>> = const { RefCell::new(Vec::new()) };
    static DELIVERED: RefCell<VecDeque<(ChannelId, Frame)>> = const { RefCell::new(VecDeque::new()) };
}

/// Notifies the engine whose processor runs on this thread that a message was put into the outgoing ring of
/// its `channel`. On any other thread it has no effect.
pub fn ring_outbox(channel: ChannelId) {
    RUNG.with_borrow_mut(|rung| {
        if rung.capacity() > 0 {
            rung.push(channel);
        }
    });
}

/// Notifies the engine whose processor runs on this thread that a program's handler has work; `false` on any
/// other thread.
pub(crate) fn make_ready(handler: RtuId) -> bool {
    is_processor() && {
        READY.with_borrow_mut(|ready| {
            if !ready.contains(&handler) {
                ready.push(handler);
            }
        });
        true
    }
}

/// Gives the engine whose processor runs on this thread a packet of TCP that `channel` has just delivered. On any other thread
/// it has no effect.
pub fn deliver(channel: ChannelId, packet: Frame) {
    if is_processor() {
        DELIVERED.with_borrow_mut(|delivered| delivered.push_back((channel, packet)));
    }
}

/// The next packet that a channel has delivered.
pub(crate) fn next_delivered() -> Option<(ChannelId, Frame)> {
    DELIVERED.with_borrow_mut(VecDeque::pop_front)
}

/// Marks this thread as a processor's from now on.
pub(crate) fn prepare() {
    RUNG.with_borrow_mut(|rung| rung.reserve(OUTBOXES));
    READY.with_borrow_mut(|ready| ready.reserve(OUTBOXES));
    DELIVERED.with_borrow_mut(|delivered| delivered.reserve(OUTBOXES));
}

/// Whether this thread is a processor's: waiting here for its engine would never end.
pub fn is_processor() -> bool {
    RUNG.with_borrow(|rung| rung.capacity() > 0)
}

/// This thread is a processor's no more.
pub(crate) fn retire() {
    RUNG.set(Vec::new());
    READY.set(Vec::new());
    DELIVERED.set(VecDeque::new());
}

/// The next ring that was filled.
pub(crate) fn next_rung() -> Option<ChannelId> {
    RUNG.with_borrow_mut(Vec::pop)
}

/// The next handler that was made ready.
pub(crate) fn next_ready() -> Option<RtuId> {
    READY.with_borrow_mut(Vec::pop)
}
