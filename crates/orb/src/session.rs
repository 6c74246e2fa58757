//! What messages mean where they come, by the table of `punctual-giop`.

use punctual_giop::Completion;
use punctual_giop::connection::{Action, Event, Role, State, step};
use punctual_giop::exception::Cause;
use punctual_giop::message::{Header, Message};
use punctual_giop::reassembly::Whole;
use punctual_giop::{SystemException, SystemExceptionKind as Kind};

/// The state of one connection, for one of its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    role: Role,
    state: State,
}

impl Session {
    pub fn new(role: Role) -> Self {
        Self { role, state: State::Open }
    }

    /// What to do at an event.
    pub fn on(&mut self, event: Event) -> Action {
        let action;
        (self.state, action) = step(self.role, self.state, event);
        action
    }

    /// What to do with a message. Without one, its bytes are none.
    pub fn receive<'m>(&mut self, whole: Whole<'m>) -> (Action, Option<Message<'m>>) {
        let header = whole.bytes.first_chunk().map(Header::parse);
        match (header, Message::read_whole(whole)) {
            (Some(Ok(header)), Ok(message)) => {
                (self.on(Event::Received(header.kind, header.version)), Some(message))
            }
            _ => (self.on(Event::Malformed), None),
        }
    }
}

fn failed(cause: Cause) -> SystemException {
    SystemException::new(Kind::CommFailure, 0, Completion::Maybe).with_cause(cause)
}

/// What requests without a reply get when a connection ends so.
pub(crate) fn unanswered(action: Action) -> SystemException {
    match action {
        Action::Retry | Action::SendClose => SystemException::new(Kind::Transient, 0, Completion::No),
        // What has come is refused at this end: it is malformed, or longer than `Options::message_bytes_max`.
        Action::SendError => failed(Cause::NoMessage),
        _ => failed(Cause::Closed),
    }
}
