//! States of a connection (CORBA 15.5), for either end, as a table.
//!
//! The table says what a whole message, or an event, means. Who has the connection does it: this module has no queue and no socket.

use crate::Version;
use crate::message::{MessageType, RequestId};

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It connected: it sends requests.
    Client,
    /// It accepted: it sends replies.
    Server,
    /// Both ends send requests (CORBA 15.8), since 1.2.
    Both,
}

impl Role {
    fn is_client(self) -> bool {
        self != Self::Server
    }

    fn is_server(self) -> bool {
        self != Self::Client
    }
}

/// What the connection can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Everything.
    Open,
    /// This end is going to close: requests that were begun get their replies, others are not begun.
    Draining,
    /// Nothing.
    Closed,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A whole message came, in this version.
    Received(MessageType, Version),
    /// Bytes came that are no message.
    Malformed,
    /// The connection broke, or the other end closed it without a word.
    Broken,
    /// This end wants to close it.
    Close,
    /// The last request that was begun has its reply.
    Drained,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing.
    Ignore,
    /// Call the object, or look for it.
    Dispatch,
    /// Give up the request, if it was not answered yet.
    Cancel,
    /// Give the reply to who waits for it. If nobody does, drop it.
    Complete,
    /// Wait for [`Event::Drained`], which comes at once if no request is begun.
    Drain,
    /// Send `CloseConnection`, then close. Requests without a reply fail with `TRANSIENT`, not begun: the other end begins none
    /// of them.
    SendClose,
    /// Send `MessageError`, then close. Requests without a reply fail with `COMM_FAILURE`, perhaps completed.
    SendError,
    /// Close. Requests without a reply were not begun: send them again on a new connection.
    Retry,
    /// Close. Requests without a reply fail with `COMM_FAILURE`, perhaps completed.
    Fail,
}

/// The table: the next state, and what to do.
pub fn step(role: Role, state: State, event: Event) -> (State, Action) {
    use MessageType as M;
    match (state, event) {
        (State::Closed, _) => (State::Closed, Action::Ignore),
        (_, Event::Broken) => (State::Closed, Action::Fail),
        (_, Event::Malformed) => (State::Closed, Action::SendError),
        (State::Open, Event::Close) => (State::Draining, Action::Drain),
        (State::Draining, Event::Drained) => (State::Closed, Action::SendClose),
        (State::Open, Event::Drained) | (State::Draining, Event::Close) => (state, Action::Ignore),
        (_, Event::Received(kind, version)) => match kind {
            M::Request | M::LocateRequest if role.is_server() => match state {
                State::Open => (state, Action::Dispatch),
                // The other end sends it again: CloseConnection follows.
                State::Draining | State::Closed => (state, Action::Ignore),
            },
            M::CancelRequest if role.is_server() => (state, Action::Cancel),
            M::Reply | M::LocateReply if role.is_client() => (state, Action::Complete),
            // Before 1.2 servers alone may say so.
            M::CloseConnection if role.is_client() || version >= Version::V1_2 => {
                (State::Closed, Action::Retry)
            }
            M::MessageError => (State::Closed, Action::Fail),
            // What the other end must not send. Fragments were put together before.
            _ => (State::Closed, Action::SendError),
        },
    }
}

/// The numbers of the requests that one end sends. With [`Role::Both`] those of the ends differ: the end that connected has
/// even ones (CORBA 15.8).
#[derive(Clone, Debug)]
pub struct RequestIds(u32);

impl RequestIds {
    /// For the end that connected.
    pub fn of_connecting_end() -> Self {
        Self(0)
    }

    /// For the end that accepted.
    pub fn of_accepting_end() -> Self {
        Self(1)
    }

    /// The next number. After 2^31 requests they begin again: who has a request open for so long leaves its number out.
    pub fn take(&mut self) -> RequestId {
        let id = RequestId(self.0);
        self.0 = self.0.wrapping_add(2);
        id
    }
}
