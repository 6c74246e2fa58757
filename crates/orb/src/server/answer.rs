//! From a message of a client to what it is answered.

use std::sync::Arc;

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{self, Header, LocateReply, LocateStatus, Message, RequestId};
use punctual_giop::{ByteOrder, Encode as _, Encoder, SystemException, TaggedList, Version};

use crate::core::Core;
use crate::limits::REPLY_BYTES_KEPT;
use crate::poa::{Manager, Served};
use crate::reply::{Reply, Sender};
use crate::transport::Stream;

/// What follows a message.
#[derive(Debug)]
pub(super) enum Answer {
    /// What was written is sent; it may be nothing.
    Done,
    /// What was written is sent, and the connection ends.
    End,
    /// The request waits until this manager does not hold it any more. Only where the thread must not wait.
    Held(Manager),
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A servant, or an adapter.
    Request(RequestId),
    /// That this request is not served.
    Cancel(RequestId),
    /// Something else.
    Other,
}

/// What a message asks for, and the code set that it may choose.
pub(super) fn kind(bytes: &[u8], characters: &mut CharacterSet) -> Kind {
    match Message::read(bytes) {
        Ok(Message::Request(request, _)) => {
            if let Some(Ok(chosen)) = request.contexts.find(CODE_SETS).map(Chosen::of_context) {
                *characters = chosen.characters;
            }
            Kind::Request(request.id)
        }
        Ok(Message::LocateRequest(request)) => Kind::Request(request.id),
        Ok(Message::CancelRequest(id)) => Kind::Cancel(id),
        _ => Kind::Other,
    }
}

/// Tells the other side that its bytes are no message.
pub(super) fn refuse(stream: &Stream, outbox: &mut Encoder) {
    outbox.clear();
    if message::write_message_error(outbox).is_ok() {
        // The connection ends all the same.
        let _ = stream.write(outbox.as_bytes(), &[]);
    }
}

/// Writes the answer to a message, if it has one. `send` sends what the client gets before the servant is called.
pub(super) fn answer(core: &Arc<Core>, bytes: &[u8], outbox: &mut Encoder, send: Sender<'_>) -> Answer {
    outbox.clear();
    let header = bytes.first_chunk().map(Header::parse);
    let (Some(Ok(header)), Ok(message)) = (header, Message::read(bytes)) else {
        let _ = message::write_message_error(outbox);
        return Answer::End;
    };
    answer_with(outbox, header.version);
    match message {
        Message::Request(request, mut arguments) => {
            if let Some(Ok(chosen)) = request.contexts.find(CODE_SETS).map(Chosen::of_context) {
                outbox.set_characters(chosen.characters);
            }
            arguments.set_characters(outbox.characters());
            let mut reply = Reply::new(outbox, request.id, request.response, send);
            match core.registry.dispatch(&request, arguments, &mut reply) {
                Served::Done => Answer::Done,
                Served::Held(manager) => Answer::Held(manager),
            }
        }
        Message::LocateRequest(request) => {
            let status = request.target.object_key().map(|key| core.registry.locate(key));
            let reply = LocateReply { id: request.id, status: status.unwrap_or(LocateStatus::UnknownObject) };
            let open = reply.begin(outbox);
            end_unless(open.and_then(|open| open.finish(outbox)).is_ok())
        }
        // Who serves the request may look for it; else it is too late.
        Message::CancelRequest(_) => Answer::Done,
        // A reply that nobody awaits.
        Message::Reply(..) | Message::LocateReply(..) => Answer::Done,
        Message::CloseConnection | Message::MessageError | Message::Fragment(..) => Answer::End,
    }
}

fn end_unless(is_written: bool) -> Answer {
    if is_written { Answer::Done } else { Answer::End }
}

/// Writes why a request is not served; nothing if nobody awaits its reply.
pub(super) fn refuse_request(bytes: &[u8], outbox: &mut Encoder, why: &SystemException) {
    outbox.clear();
    let Some(Ok(header)) = bytes.first_chunk().map(Header::parse) else { return };
    answer_with(outbox, header.version);
    let open = match Message::read(bytes) {
        Ok(Message::Request(request, _)) if request.response.is_expected() => {
            let status = message::ReplyStatus::SystemException;
            message::Reply { id: request.id, status, contexts: TaggedList::default() }.begin(outbox)
        }
        Ok(Message::LocateRequest(request)) => {
            // Before 1.2 there is no exception: the request that follows gets it.
            let is_new = header.version >= Version::V1_2;
            let status = if is_new { LocateStatus::SystemException } else { LocateStatus::ObjectHere };
            let open = LocateReply { id: request.id, status }.begin(outbox);
            if !is_new {
                let _ = open.and_then(|open| open.finish(outbox));
                return;
            }
            open
        }
        _ => return,
    };
    // A short message without strings of the client.
    let _ = open.and_then(|open| {
        why.encode(outbox)?;
        open.finish(outbox)
    });
}

/// Gives the memory of a long reply back.
pub(super) fn give_back_memory(outbox: &mut Encoder) {
    if outbox.as_bytes().len() > REPLY_BYTES_KEPT {
        let characters = outbox.characters();
        *outbox = Encoder::new(ByteOrder::NATIVE, outbox.version());
        outbox.set_characters(characters);
    }
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
