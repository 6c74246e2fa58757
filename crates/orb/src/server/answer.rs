//! From a message of a client to what it is answered.

use std::sync::Arc;

use punctual_giop::codeset::Chosen;
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{self, Header, LocateReply, Message, Response};
use punctual_giop::{ByteOrder, Encoder, Version};

use crate::core::Core;
use crate::reply::Reply;
use crate::transport::Stream;

/// Tells the other side that its bytes are no message.
pub(super) fn refuse(stream: &Stream, outbox: &mut Encoder) {
    outbox.clear();
    if message::write_message_error(outbox).is_ok() {
        // The connection ends all the same.
        let _ = stream.write(outbox.as_bytes(), &[]);
    }
}

/// Writes the answer to a message, if it has one. `false` ends the connection.
pub(super) fn answer(core: &Arc<Core>, bytes: &[u8], outbox: &mut Encoder) -> bool {
    outbox.clear();
    let header = bytes.first_chunk().map(Header::parse);
    let (Some(Ok(header)), Ok(message)) = (header, Message::read(bytes)) else {
        return message::write_message_error(outbox).is_ok();
    };
    answer_with(outbox, header.version);
    match message {
        Message::Request(request, mut arguments) => {
            if let Some(Ok(chosen)) = request.contexts.find(CODE_SETS).map(Chosen::of_context) {
                outbox.set_characters(chosen.characters);
            }
            arguments.set_characters(outbox.characters());
            let is_expected = request.response != Response::None;
            let mut reply = Reply::new(outbox, request.id, is_expected);
            core.registry.dispatch(&request, arguments, &mut reply);
            true
        }
        Message::LocateRequest(request) => {
            let status = request.target.object_key().map(|key| core.registry.locate(key));
            let status = status.unwrap_or(message::LocateStatus::UnknownObject);
            let reply = LocateReply { id: request.id, status };
            let open = reply.begin(outbox);
            open.and_then(|open| open.finish(outbox)).is_ok()
        }
        // A request is answered before the next message is read: too late.
        Message::CancelRequest(_) => true,
        // A reply that nobody awaits.
        Message::Reply(..) | Message::LocateReply(..) => true,
        Message::CloseConnection | Message::MessageError | Message::Fragment(..) => false,
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
