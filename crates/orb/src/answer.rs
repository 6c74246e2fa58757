//! From a message of a client to what it is answered.

use std::sync::Arc;

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::connection::{Action, Role};
use punctual_giop::message::{self, Header, LocateReply, LocateStatus, Message, RequestId};
use punctual_giop::reassembly::Whole;
use punctual_giop::{ByteOrder, Encode, Encoder, Error, SystemException, Version};

use crate::exception::no_code_set;
use crate::limits::REPLY_BYTES_KEPT;
use crate::poa::{Located, Manager, Registry, Served};
use crate::reply::{Reply, Sender};
use crate::session::Session;

/// Writes that the other side's bytes are no message. The connection ends after it.
pub(crate) fn refuse_bytes(outbox: &mut Encoder) {
    outbox.clear();
    // It is short: it has bytes.
    let _ = message::write_message_error(outbox);
}

/// What follows a message.
#[derive(Debug)]
pub(crate) enum Answer {
    /// What was written is sent, if anything was: for this request.
    Done(Option<RequestId>),
    /// What was written is sent, and the connection ends.
    End,
    /// The request waits until this manager does not hold it any more. Only where the thread must not wait.
    Held(Manager),
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A servant, or an adapter.
    Request(RequestId),
    /// That this request is not served.
    Cancel(RequestId),
    /// Something else.
    Other,
}

/// What a message asks for, and the code set that it may choose.
pub(crate) fn kind(whole: Whole<'_>, characters: &mut CharacterSet) -> Kind {
    match Message::read_whole(whole) {
        Ok(Message::Request(request, _)) => {
            if let Ok(Some(chosen)) = Chosen::of_contexts(&request.contexts) {
                *characters = chosen.characters;
            }
            Kind::Request(request.id)
        }
        Ok(Message::LocateRequest(request)) => Kind::Request(request.id),
        Ok(Message::CancelRequest(id)) => Kind::Cancel(id),
        _ => Kind::Other,
    }
}

/// An outbox for replies, before anything is known of the client.
pub(crate) fn new_outbox() -> Encoder {
    let mut outbox = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    outbox.set_characters(Chosen::DEFAULT.characters);
    outbox
}

/// Writes the answer to a message of a client, if it has one. `send` sends what the client gets before the
/// servant is called.
pub(crate) fn answer(
    registry: &Arc<Registry>,
    whole: Whole<'_>,
    outbox: &mut Encoder,
    send: Sender<'_>,
) -> Answer {
    outbox.clear();
    let (action, message) = Session::new(Role::Server).receive(whole);
    match (action, message) {
        (Action::Dispatch, Some(message)) => match answer_message(registry, whole, message, outbox, send) {
            Answer::Done(_) if outbox.as_bytes().is_empty() => Answer::Done(None),
            answer => answer,
        },
        (Action::SendError, _) => {
            refuse_bytes(outbox);
            Answer::End
        }
        (Action::Retry | Action::Fail | Action::SendClose, _) => Answer::End,
        // Who serves the request may look for it; else it is too late to cancel it.
        (Action::Cancel | Action::Ignore | Action::Complete | Action::Drain | Action::Dispatch, _) => {
            Answer::Done(None)
        }
    }
}

/// Writes the answer to a request, if it has one, into an empty outbox.
pub(crate) fn answer_message(
    registry: &Arc<Registry>,
    whole: Whole<'_>,
    message: Message<'_>,
    outbox: &mut Encoder,
    send: Sender<'_>,
) -> Answer {
    let header = whole.bytes.first_chunk().map(Header::parse);
    let Some(Ok(header)) = header else { return Answer::Done(None) };
    answer_with(outbox, header.version);
    match message {
        Message::Request(request, mut arguments) => {
            match Chosen::of_contexts(&request.contexts) {
                Ok(Some(chosen)) => outbox.set_characters(chosen.characters),
                Err(_) => {
                    Reply::new(outbox, request.id, request.response, send).system(&no_code_set());
                    return Answer::Done(Some(request.id));
                }
                Ok(None) => {}
            }
            arguments.set_characters(outbox.characters());
            let mut reply = Reply::new(outbox, request.id, request.response, send);
            match registry.dispatch(&request, arguments, &mut reply) {
                Served::Done => Answer::Done(Some(request.id)),
                Served::Held(manager) => Answer::Held(manager),
            }
        }
        Message::LocateRequest(request) => {
            let located = request.target.object_key().map(|key| registry.locate(key));
            let located = located.unwrap_or(Located::Unknown);
            // Its bytes are known to exist.
            let _ = write_located(request.id, &located, outbox);
            Answer::Done(Some(request.id))
        }
        _ => Answer::Done(None),
    }
}

/// Writes why a request is not served; nothing if nobody awaits its reply.
pub(crate) fn refuse_request(whole: Whole<'_>, outbox: &mut Encoder, why: &SystemException) {
    outbox.clear();
    let Some(Ok(header)) = whole.bytes.first_chunk().map(Header::parse) else { return };
    answer_with(outbox, header.version);
    match Message::read_whole(whole) {
        Ok(Message::Request(request, _)) => {
            Reply::new(outbox, request.id, request.response, &mut |_| {}).system(why);
        }
        Ok(Message::LocateRequest(request)) if header.version < Version::V1_2 => {
            // There is no exception yet: the request that follows gets it.
            let _ = write_located(request.id, &Located::Here, outbox);
        }
        Ok(Message::LocateRequest(request)) => {
            // Its bytes are known to exist.
            let _ = write_unlocated(request.id, why, outbox);
        }
        _ => {}
    }
}

fn write_unlocated(id: RequestId, why: &SystemException, outbox: &mut Encoder) -> Result<(), Error> {
    let open = LocateReply { id, status: LocateStatus::SystemException }.begin(outbox)?;
    why.encode(outbox)?;
    open.finish(outbox)
}

/// Gives the memory of a long reply back.
pub(crate) fn give_back_memory(outbox: &mut Encoder) {
    if outbox.as_bytes().len() > REPLY_BYTES_KEPT {
        renew(outbox);
    }
}

/// Gives all memory back.
pub(crate) fn renew(outbox: &mut Encoder) {
    let characters = outbox.characters();
    *outbox = Encoder::new(ByteOrder::NATIVE, outbox.version());
    outbox.set_characters(characters);
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
