//! States of a connection, in every combination, and numbers of requests.

use punctual_giop::Version;
use punctual_giop::connection::{Action, Event, RequestIds, Role, State, step};
use punctual_giop::message::{MessageType, RequestId};

const ROLES: [Role; 3] = [Role::Client, Role::Server, Role::Both];
const STATES: [State; 3] = [State::Open, State::Draining, State::Closed];
const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

fn events() -> Vec<Event> {
    let received =
        MessageType::ALL.into_iter().flat_map(|kind| VERSIONS.map(|version| Event::Received(kind, version)));
    received.chain([Event::Malformed, Event::Broken, Event::Close, Event::Drained]).collect()
}

fn all() -> impl Iterator<Item = (Role, State, Event, State, Action)> {
    ROLES.into_iter().flat_map(|role| {
        STATES.into_iter().flat_map(move |state| {
            events().into_iter().map(move |event| {
                let (next, action) = step(role, state, event);
                (role, state, event, next, action)
            })
        })
    })
}

#[test]
fn a_closed_connection_stays_closed_and_does_nothing() {
    for (_, state, _, next, action) in all() {
        if state == State::Closed {
            assert_eq!((next, action), (State::Closed, Action::Ignore));
        }
    }
}

#[test]
fn each_action_that_closes_leads_to_closed_and_no_other_does() {
    let closes = [Action::SendClose, Action::SendError, Action::Retry, Action::Fail];
    for (role, state, event, next, action) in all() {
        let is_closing = state != State::Closed && next == State::Closed;
        assert_eq!(closes.contains(&action), is_closing, "{role:?} {state:?} {event:?}");
    }
}

#[test]
fn only_servers_serve_and_only_clients_get_replies() {
    for (role, state, event, _, action) in all() {
        match action {
            Action::Dispatch => assert!(role != Role::Client && state == State::Open, "{event:?}"),
            Action::Cancel => assert_ne!(role, Role::Client),
            Action::Complete => assert_ne!(role, Role::Server),
            _ => {}
        }
    }
}

/// CORBA 15.4, table 15-1: who sends what. The other end answers `MessageError` to what it must not get.
#[test]
fn messages_of_the_wrong_end_end_the_connection() {
    let from_client = [MessageType::Request, MessageType::CancelRequest, MessageType::LocateRequest];
    let from_server = [MessageType::Reply, MessageType::LocateReply];
    for (role, state, event, _, action) in all() {
        let Event::Received(kind, version) = event else { continue };
        if state == State::Closed {
            continue;
        }
        let is_allowed = match role {
            _ if kind == MessageType::MessageError => true,
            _ if kind == MessageType::Fragment => false,
            Role::Both => true,
            Role::Client => from_server.contains(&kind) || kind == MessageType::CloseConnection,
            Role::Server if kind == MessageType::CloseConnection => version == Version::V1_2,
            Role::Server => from_client.contains(&kind),
        };
        assert_eq!(action != Action::SendError, is_allowed, "{role:?} {state:?} {event:?}");
    }
}

#[test]
fn an_end_that_closes_finishes_what_was_begun_and_begins_nothing() {
    for role in ROLES {
        let (state, action) = step(role, State::Open, Event::Close);
        assert_eq!((state, action), (State::Draining, Action::Drain));
        if role != Role::Client {
            let request = Event::Received(MessageType::Request, Version::V1_2);
            assert_eq!(step(role, state, request), (State::Draining, Action::Ignore));
        }
        if role != Role::Server {
            let reply = Event::Received(MessageType::Reply, Version::V1_2);
            assert_eq!(step(role, state, reply), (State::Draining, Action::Complete));
        }
        assert_eq!(step(role, state, Event::Drained), (State::Closed, Action::SendClose));
    }
}

#[test]
fn a_client_sends_again_what_an_orderly_server_did_not_begin() {
    for version in VERSIONS {
        let close = Event::Received(MessageType::CloseConnection, version);
        assert_eq!(step(Role::Client, State::Open, close), (State::Closed, Action::Retry));
    }
    assert_eq!(step(Role::Client, State::Open, Event::Broken), (State::Closed, Action::Fail));
}

#[test]
fn numbers_of_both_ends_differ_and_begin_again() {
    let mut connecting = RequestIds::of_connecting_end();
    let mut accepting = RequestIds::of_accepting_end();
    for number in 0..1_000 {
        assert_eq!(connecting.take(), RequestId(2 * number));
        assert_eq!(accepting.take(), RequestId(2 * number + 1));
    }
}
