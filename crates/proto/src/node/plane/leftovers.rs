//! Remains of closed channels: queued messages and packets, and the memory reserved for them. A burst may
//! leave 65,536 of them, so each turn frees one slice of them, with other work between (ADR 0047). The
//! channel itself is already removed from all tables.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::best_effort::Message;
use super::outgoing::Messages;
use super::{Clip, Context, PacketIn, PacketQueue, Plane, RoleState, Sink, Source};
use crate::ids::ChannelId;
use crate::limits::LEFTOVERS_MAX;
use crate::memory::{Inbox, Memory};
use crate::slab::Slab;

/// Clips that are being taken apart, the oldest first.
pub(super) struct Leftovers<M: Memory> {
    clips: VecDeque<Box<Clip<M>>>,
    /// Sinks whose application takes messages as fast as it is given them.
    resuming: VecDeque<ChannelId>,
    /// True if something may be left here, in the slabs or in the queues of links, so that one check
    /// suffices.
    is_any: bool,
}

impl<M: Memory> Default for Leftovers<M> {
    fn default() -> Self {
        Self { clips: VecDeque::new(), resuming: VecDeque::new(), is_any: false }
    }
}

/// Steps left in a slice.
struct Steps(u32);

impl Steps {
    /// Repeats `step` until it returns `true` or the slice is used up. Returns whether `step` has finished.
    fn until_done(&mut self, mut step: impl FnMut() -> bool) -> bool {
        while self.0 > 0 {
            if !step() {
                return true;
            }
            self.0 -= 1;
        }
        false
    }
}

impl<M: Memory> Leftovers<M> {
    /// Called when the application of a sink has taken a message: gives it a bounded number of the messages
    /// that waited for room in its ring.
    pub(super) fn resume(&mut self, channel: ChannelId, sink: &mut Sink<M>) {
        if sink.inbox.as_mut().is_some_and(Inbox::resume) && !core::mem::replace(&mut sink.is_resuming, true)
        {
            self.resuming.push_back(channel);
            self.is_any = true;
        }
    }
}

impl<M: Memory> Plane<M> {
    /// Takes apart a clip that is removed from all tables. What exceeds one slice is freed later.
    pub(super) fn dismantle(&mut self, clip: Box<Clip<M>>) {
        let mut clip = clip;
        clip.close_rings();
        if !self.take_apart(&mut clip, &mut Steps(LEFTOVERS_MAX)) {
            self.leftovers.clips.push_back(clip);
        }
        self.note_leftovers();
    }

    /// Whether [`Self::free_some`] has something to do.
    pub const fn has_leftovers(&self) -> bool {
        self.leftovers.is_any
    }

    /// Notes that something has ended, so that its remains are freed from now on.
    pub fn note_leftovers(&mut self) {
        self.leftovers.is_any = !self.leftovers.clips.is_empty()
            || !self.leftovers.resuming.is_empty()
            || self.context.messages.has_leftovers()
            || self.context.waiting.has_leftovers()
            || self.context.links.states.iter().any(|state| state.scheduler.has_leftovers());
    }

    /// Frees one slice of the remains.
    pub fn free_some(&mut self) {
        if !self.leftovers.is_any {
            return;
        }
        if let Some(channel) = self.leftovers.resuming.pop_front() {
            self.resume_listed(channel);
        }
        if let Some(mut clip) = self.leftovers.clips.pop_front() {
            if !self.take_apart(&mut clip, &mut Steps(LEFTOVERS_MAX)) {
                self.leftovers.clips.push_front(clip);
            }
        } else if self.context.messages.has_leftovers() {
            self.context.messages.free_some();
        } else if self.context.waiting.has_leftovers() {
            self.context.waiting.free_some();
        }
        if let Some(state) =
            self.context.links.states.iter_mut().find(|state| state.scheduler.has_leftovers())
        {
            state.scheduler.free_some(drop);
        }
        self.note_leftovers();
    }

    fn resume_listed(&mut self, channel: ChannelId) {
        if let Some(Clip { role: RoleState::Sink(sink), .. }) = self.channels.clips.get_mut(channel) {
            sink.is_resuming = false;
            self.leftovers.resume(channel, sink);
        }
    }

    /// Messages and packets of closed channels in the slabs that all channels share.
    pub fn left_behind(&self) -> [usize; 2] {
        let clips = || self.leftovers.clips.iter();
        [clips().map(|clip| clip.messages()).sum(), clips().map(|clip| clip.inputs()).sum()]
    }

    /// Frees parts of a clip. Returns whether nothing is left of it.
    fn take_apart(&mut self, clip: &mut Clip<M>, steps: &mut Steps) -> bool {
        let Context { messages, waiting, .. } = &mut self.context;
        match &mut clip.role {
            RoleState::Source(source) => source.take_apart(messages, steps),
            RoleState::Forwarder(forwarder) => forwarder.input.take_apart(waiting, steps),
            RoleState::Sink(sink) => sink.take_apart(waiting, steps),
        }
    }
}

impl<M: Memory> Clip<M> {
    /// Closes the channel's rings, which is visible to applications at once. A ring that delivers messages
    /// one by one delivers the rest first.
    fn close_rings(&mut self) {
        if let RoleState::Source(source) = &mut self.role {
            source.outbox = None;
        }
    }
}

impl<M: Memory> Source<M> {
    fn take_apart(&mut self, messages: &mut Messages<Message<M>>, steps: &mut Steps) -> bool {
        let demoted = self.demoted.as_mut().map(|demoted| &mut demoted.outgoing);
        for outgoing in [Some(&mut self.outgoing), demoted].into_iter().flatten() {
            if !steps.until_done(|| outgoing.forget_first(messages)) {
                return false;
            }
            outgoing.give_room_back(messages);
        }
        true
    }
}

impl PacketQueue {
    fn take_apart<F>(&mut self, waiting: &mut Slab<PacketIn<F>>, steps: &mut Steps) -> bool {
        let is_empty = steps.until_done(|| self.pop(waiting).is_some());
        if is_empty {
            waiting.remove_room(core::mem::take(&mut self.packets_max));
        }
        is_empty
    }
}

impl<M: Memory> Sink<M> {
    fn take_apart(&mut self, waiting: &mut Slab<PacketIn<M::Frame>>, steps: &mut Steps) -> bool {
        let Self { input, reassembly, inbox, at_deadline, .. } = self;
        input.take_apart(waiting, steps)
            && steps.until_done(|| {
                at_deadline.as_mut().is_some_and(|at_deadline| at_deadline.held.pop_front().is_some())
            })
            && steps.until_done(|| reassembly.forget_one())
            && steps.until_done(|| inbox.as_mut().is_some_and(Inbox::show_one))
    }
}
