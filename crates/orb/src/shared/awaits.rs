//! Who awaits the reply to a request, and what becomes of it.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use punctual_giop::Reference;
use punctual_giop::message::Addressing;
use punctual_giop::reassembly::Joined;

use crate::call::Failure;
use crate::contexts::Contexts;
use crate::outcome::Outcome;
use crate::transport::Deadline;
use crate::wakeup::Wakeup;

/// What is done with the outcome of a call.
pub(crate) type Done = Box<dyn FnOnce(Outcome<'_>) + Send>;

/// Why a request is to be sent again.
#[derive(Debug)]
pub(crate) enum Redirect {
    /// The object is elsewhere.
    Forward(Reference),
    /// The server wants the object named so.
    Address(Addressing),
    /// The server has closed the connection, and did not begin it.
    Reconnect,
}

/// Sends the request again.
pub(crate) type Again = Box<dyn FnOnce(Redirect, Done) + Send>;

/// Who awaits a reply.
pub(crate) enum Awaits {
    /// A call that goes on when the reply is there.
    Later(Done, Again),
    /// A thread that waits for the whole message, or for why there is none.
    Thread(Waiter),
}

/// A thread that waits for a reply.
pub(crate) struct Waiter {
    pub reply: SyncSender<Result<Joined, Failure>>,
    /// Wakes it where it has other work meanwhile.
    pub wakeup: Option<Arc<Wakeup>>,
}

impl Waiter {
    pub fn give(&self, reply: Result<Joined, Failure>) {
        // It waits until it gets this.
        let _ = self.reply.send(reply);
        self.wakeup.iter().for_each(|wakeup| wakeup.wake());
    }
}

/// A request whose reply is awaited.
pub(crate) struct Sent {
    pub awaits: Awaits,
    pub deadline: Deadline,
    /// Takes the contexts of the reply, where no thread waits for it.
    pub received: Option<Contexts>,
}
