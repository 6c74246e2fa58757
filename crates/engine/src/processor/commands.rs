//! Requests of other threads to the processor: commands in each turn, and requests of programs in the
//! background.

use punctual_os::now;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};

use super::{Background, Processor, WORK_SLICE};
use crate::command::CommandQueue;
use crate::direct;
use crate::events::Events;
use crate::ready::ReadySet;
use crate::statistics::Counters;

/// Commands, and connections whose programs have used their rings, that are taken in one turn.
const COMMANDS_PER_TURN: usize = 16;
/// Turns full of protocol work after which one background command runs in any case: some 3 ms.
const BACKGROUND_TURNS: u32 = 64;

/// The state that the processor shares with its handles.
pub(crate) struct Mailboxes<O: Outbox, I: Inbox> {
    commands: CommandQueue<Processor<O, I>>,
    /// Commands that run when no message waits for its handler, one in a turn.
    background: CommandQueue<Processor<O, I>>,
    /// Connections of TCP whose programs have used their rings; the doorbell of `commands` rings for them.
    ready: ReadySet,
    events: Events,
    counters: Counters,
}

impl<O: Outbox, I: Inbox> Mailboxes<O, I> {
    /// For so many connections of TCP.
    pub fn new(connections_max: u32) -> std::io::Result<Self> {
        Ok(Self {
            commands: CommandQueue::new()?,
            background: CommandQueue::new()?,
            ready: ReadySet::new(connections_max),
            events: Events::new()?,
            counters: Counters::default(),
        })
    }
    pub const fn commands(&self) -> &CommandQueue<Processor<O, I>> {
        &self.commands
    }
    /// Queue of the commands that run when no message waits for its handler, one in a turn.
    pub const fn background(&self) -> &CommandQueue<Processor<O, I>> {
        &self.background
    }
    pub const fn ready(&self) -> &ReadySet {
        &self.ready
    }
    pub const fn events(&self) -> &Events {
        &self.events
    }
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    pub(super) fn run_commands(&mut self, at: Instant) -> bool {
        if !self.orders.are_waiting {
            return false;
        }
        let has_more = self.take_ready(at);
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = self.shared.commands().try_pop() else {
                // A thread that is just adding a command rings after it.
                self.orders.are_waiting = has_more;
                break;
            };
            command(self, at);
        }
        self.serve_handlers(at);
        true
    }

    /// Calls the handlers of connections whose programs have used their rings; whether more may wait.
    fn take_ready(&mut self, at: Instant) -> bool {
        for _ in 0..COMMANDS_PER_TURN {
            let Some(index) = self.shared.ready().take(&mut self.orders.ready) else { return false };
            self.ready_index(index, at);
        }
        true
    }

    /// Runs one background command if the turn had little other work, or turns have been full for long;
    /// returns whether it ran one, and the time. To all other work it is like a unit of work whose length
    /// only the command itself bounds.
    pub(super) fn answer(&mut self, worked: Nanos, at: Instant) -> (bool, Instant) {
        let Background { may_wait, put_off } = self.orders.background;
        if !may_wait {
            return (false, at);
        }
        if worked >= WORK_SLICE && put_off < BACKGROUND_TURNS {
            self.orders.background.put_off += 1;
            return (false, at);
        }
        let command = self.shared.background().try_pop();
        self.orders.background = Background { may_wait: command.is_some(), put_off: 0 };
        let Some(command) = command else { return (false, at) };
        command(self, at);
        self.serve_handlers(at);
        (true, now())
    }

    /// What applications on this thread have just sent.
    pub(super) fn serve_handlers(&mut self, at: Instant) {
        while let Some(channel) = direct::next_rung() {
            self.node.handle_ring(channel, at);
        }
        self.take_delivered(at);
        self.ready_handlers(at);
    }
}
