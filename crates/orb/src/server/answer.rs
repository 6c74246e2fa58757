//! From a message of a client to what it is answered.

use std::sync::Arc;

use punctual_giop::codeset::Chosen;
use punctual_giop::connection::{Action, Role};
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{self, Header, LocateReply, LocateStatus, Message, RequestId, Response};
use punctual_giop::reassembly::Whole;
use punctual_giop::{ByteOrder, Encode, Encoder, Error, Version};

use crate::core::Core;
use crate::exception::no_code_set;
use crate::poa::Located;
use crate::reply::Reply;
use crate::session::Session;
use crate::transport::Stream;

/// Tells the other side that its bytes are no message.
pub(super) fn refuse(stream: &Stream, outbox: &mut Encoder) {
    outbox.clear();
    if message::write_message_error(outbox).is_ok() {
        // The connection ends all the same.
        let _ = stream.write(outbox.as_bytes(), &[]);
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Whether the connection goes on, after what was written is sent.
    pub goes_on: bool,
    /// The request whose reply was written.
    pub id: Option<RequestId>,
}

/// An outbox for replies, before anything is known of the client.
pub(crate) fn new_outbox() -> Encoder {
    let mut outbox = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    outbox.set_characters(Chosen::DEFAULT.characters);
    outbox
}

/// Writes the answer to a message of a client, if it has one.
pub(super) fn answer(core: &Arc<Core>, whole: Whole<'_>, outbox: &mut Encoder) -> Answered {
    outbox.clear();
    let (action, message) = Session::new(Role::Server).receive(whole);
    match (action, message) {
        (Action::Dispatch, Some(message)) => {
            let id = answer_message(core, whole, message, outbox);
            Answered { goes_on: true, id: id.filter(|_| !outbox.as_bytes().is_empty()) }
        }
        (Action::SendError, _) => {
            // It is short: it has bytes.
            let _ = message::write_message_error(outbox);
            Answered { goes_on: false, id: None }
        }
        (Action::Retry | Action::Fail | Action::SendClose, _) => Answered { goes_on: false, id: None },
        // A request is answered before the next message is read: it is too late to cancel it.
        (Action::Cancel | Action::Ignore | Action::Complete | Action::Drain | Action::Dispatch, _) => {
            Answered { goes_on: true, id: None }
        }
    }
}

/// Writes the answer to a request, if it has one, into an empty outbox: the number of the request.
pub(crate) fn answer_message(
    core: &Arc<Core>,
    whole: Whole<'_>,
    message: Message<'_>,
    outbox: &mut Encoder,
) -> Option<RequestId> {
    let header = whole.bytes.first_chunk().and_then(|header| Header::parse(header).ok())?;
    answer_with(outbox, header.version);
    match message {
        Message::Request(request, mut arguments) => {
            let is_expected = request.response != Response::None;
            let reply = |outbox| Reply::new(outbox, request.id, is_expected);
            match request.contexts.find(CODE_SETS).map(Chosen::of_context) {
                Some(Ok(chosen)) => outbox.set_characters(chosen.characters),
                Some(Err(_)) => {
                    reply(outbox).system(&no_code_set());
                    return Some(request.id);
                }
                None => {}
            }
            arguments.set_characters(outbox.characters());
            core.registry.dispatch(&request, arguments, &mut reply(outbox));
            Some(request.id)
        }
        Message::LocateRequest(request) => {
            let located = request.target.object_key().map(|key| core.registry.locate(key));
            let located = located.unwrap_or(Located::Unknown);
            // Its bytes are known to exist.
            let _ = write_located(request.id, &located, outbox);
            Some(request.id)
        }
        _ => None,
    }
}

fn write_located(id: RequestId, located: &Located, outbox: &mut Encoder) -> Result<(), Error> {
    let status = match located {
        Located::Here => LocateStatus::ObjectHere,
        Located::Unknown => LocateStatus::UnknownObject,
        Located::Forward(_) => LocateStatus::ObjectForward,
    };
    let open = LocateReply { id, status }.begin(outbox)?;
    if let Located::Forward(to) = located {
        to.encode(outbox)?;
    }
    open.finish(outbox)
}

/// Replies have the version of their requests.
fn answer_with(outbox: &mut Encoder, version: Version) {
    if outbox.version() != version {
        let characters = outbox.characters();
        let bytes = std::mem::replace(outbox, Encoder::new(ByteOrder::NATIVE, version)).into_bytes();
        *outbox = Encoder::on(bytes, ByteOrder::NATIVE, version);
        outbox.set_characters(characters);
    }
}
