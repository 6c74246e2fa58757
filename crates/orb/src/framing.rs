//! How messages go on streams: whole or in fragments, and what is accepted from the other side.

use std::io;
use std::time::{Duration, Instant};

use punctual_giop::reassembly::pieces;

use crate::limits::PROGRESS_BYTES;
use crate::options::Options;
use crate::transport::{Deadline, Stream};

/// What the connections of an ORB have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    /// Bytes of a message that comes.
    pub message_bytes_max: usize,
    /// How long the rest of a message that has begun may take, for each [`PROGRESS_BYTES`] of it; and how long a client may
    /// take to read as much of a reply.
    pub message_time: Option<Duration>,
    /// Longer messages are sent in fragments.
    fragment_bytes: Option<usize>,
}

impl Framing {
    /// As an ORB is configured.
    pub fn of(options: &Options) -> Self {
        Self {
            message_bytes_max: options.message_bytes_max,
            message_time: options.message_time,
            fragment_bytes: options.fragment_bytes,
        }
    }

    /// Whether longer messages are sent in fragments.
    pub fn cuts(&self) -> bool {
        self.fragment_bytes.is_some()
    }

    /// Gives a message to `send`, in the parts in which it goes on the stream. Versions before 1.2 have no fragments
    /// that begin anywhere: their messages stay whole.
    pub fn each(
        &self,
        message: &[u8],
        mut send: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.fragment_bytes {
            Some(bytes_max) if message.len() > bytes_max => {
                let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
                pieces(message, bytes_max)
                    .map_err(invalid)?
                    .try_for_each(|piece| send(piece.head(), piece.body))
            }
            _ => send(message, &[]),
        }
    }

    /// By when a client must have taken a message of so many bytes.
    pub fn taken_by(&self, bytes: usize) -> Deadline {
        let spans = u32::try_from(bytes / PROGRESS_BYTES).unwrap_or(u32::MAX).saturating_add(1);
        Instant::now().checked_add(self.message_time?.checked_mul(spans)?)
    }

    /// Sends a message until the deadline. `set` is the timeout that the socket has for writing.
    pub fn send_until(
        &self,
        stream: &Stream,
        message: &[u8],
        deadline: Deadline,
        set: &mut Option<Duration>,
    ) -> io::Result<()> {
        self.each(message, |head, body| stream.write_until(head, body, deadline, set))
    }
}
