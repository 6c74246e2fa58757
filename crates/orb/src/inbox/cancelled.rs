//! Requests that are cancelled.

use punctual_giop::message::{Header, MessageType, RequestId};
use punctual_giop::{Decode, Decoder};

use super::Inbox;
use crate::limits::{IDLE_BUFFER_BYTES, READ_AHEAD_BYTES};
use crate::transport::Stream;

impl Inbox {
    /// Whether a `CancelRequest` for this request is among the bytes behind the present message: whole messages
    /// only. With `stream`, what has come in the meantime is read first, as far as there is room.
    pub fn is_cancelled(&mut self, id: RequestId, stream: Option<&Stream>) -> bool {
        if let Some(stream) = stream {
            // The buffer of a short request has room: a larger one would count with what all clients hold.
            if self.bytes.capacity() - self.bytes.len() < READ_AHEAD_BYTES {
                self.bytes.reserve_exact(IDLE_BUFFER_BYTES);
            }
            // The end of the stream, and its failures, are found when it is read for the next message.
            let read = stream.read_now(&mut self.bytes).unwrap_or(0);
            self.owed.progress(read);
        }
        let mut rest = &self.bytes[self.end..];
        while let Some((header, behind)) = rest.split_first_chunk() {
            let Ok(header) = Header::parse(header) else { return false };
            let Some((body, next)) = behind.split_at_checked(header.size as usize) else { return false };
            let of = RequestId::decode(&mut Decoder::new(body, header.order, header.version));
            if header.kind == MessageType::CancelRequest && of == Ok(id) {
                return true;
            }
            rest = next;
        }
        false
    }

    /// Forgets what is there of a request in pieces that is cancelled.
    pub(super) fn cancel(&mut self, header: &Header) {
        let body = &self.bytes[Header::BYTES..self.end];
        if let Ok(id) = RequestId::decode(&mut Decoder::new(body, header.order, header.version)) {
            self.partial.cancel(id);
        }
    }
}
