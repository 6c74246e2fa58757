//! What channels that are gone leave behind: messages and packets that waited, and what their rooms take. A burst may have
//! left 65,536 of them, so they are freed a slice a turn, others' work between (ADR 0047). Nobody finds the channel any more.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::best_effort::Message;
use super::outgoing::Messages;
use super::{Clip, Context, PacketIn, PacketQueue, Plane, RoleState, Sink, Source};
use crate::ids::ChannelId;
use crate::limits::LEFTOVERS_MAX;
use crate::memory::{Inbox, Memory};
use crate::slab::Slab;

/// Clips that are being taken apart, the first come first.
pub(super) struct Leftovers<M: Memory> {
    clips: VecDeque<Box<Clip<M>>>,
    /// Sinks whose application takes messages as fast as they are shown to it.
    resuming: VecDeque<ChannelId>,
    /// True if something may be left, here, in the slabs or in the queues of links: one check tells.
    is_any: bool,
}

impl<M: Memory> Default for Leftovers<M> {
    fn default() -> Self {
        Self { clips: VecDeque::new(), resuming: VecDeque::new(), is_any: false }
    }
}

/// Steps that are left of a slice.
struct Steps(u32);

impl Steps {
    /// Does `step` as often as may be; whether it has ended by itself, saying that nothing is left.
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
    /// The application of a sink has taken a message: it is shown those that waited for that, some at once.
    pub(super) fn resume(&mut self, channel: ChannelId, sink: &mut Sink<M>) {
        if sink.inbox.as_mut().is_some_and(Inbox::resume) && !core::mem::replace(&mut sink.is_resuming, true)
        {
            self.resuming.push_back(channel);
            self.is_any = true;
        }
    }
}

impl<M: Memory> Plane<M> {
    /// Takes a clip apart that nobody finds any more; what does not fit into one slice later.
    pub(super) fn dismantle(&mut self, clip: Box<Clip<M>>) {
        let mut clip = clip;
        clip.close_rings();
        if !self.take_apart(&mut clip, &mut Steps(LEFTOVERS_MAX)) {
            self.leftovers.clips.push_back(clip);
        }
        self.look_for_leftovers();
    }

    /// Whether a slice would do anything.
    pub const fn has_leftovers(&self) -> bool {
        self.leftovers.is_any
    }

    /// Notes that something has ended: what is still here of it is freed from now on.
    pub fn look_for_leftovers(&mut self) {
        self.leftovers.is_any = !self.leftovers.clips.is_empty()
            || !self.leftovers.resuming.is_empty()
            || self.context.messages.has_leftovers()
            || self.context.waiting.has_leftovers()
            || self.context.links.lines.iter().any(|line| line.scheduler.has_leftovers());
    }

    /// Does one slice of what is left to be done.
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
        if let Some(line) = self.context.links.lines.iter_mut().find(|line| line.scheduler.has_leftovers()) {
            line.scheduler.free_some(drop);
        }
        self.look_for_leftovers();
    }

    fn resume_listed(&mut self, channel: ChannelId) {
        if let Some(Clip { role: RoleState::Sink(sink), .. }) = self.channels.clips.get_mut(channel) {
            sink.is_resuming = false;
            self.leftovers.resume(channel, sink);
        }
    }

    /// Messages and packets of channels that are gone, in the slabs that all share.
    pub fn left_behind(&self) -> [usize; 2] {
        let clips = || self.leftovers.clips.iter();
        [clips().map(|clip| clip.messages()).sum(), clips().map(|clip| clip.inputs()).sum()]
    }

    /// Whether nothing is left of a clip.
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
    /// Applications see at once that the channel is over. A ring that shows messages one by one shows the rest first.
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
