//! Long values of a message: who writes it need not copy them.
//!
//! A message is written twice then. The first time, the bytes of its long values are counted: so the header can say
//! its size. The second time, a sink gets them where the caller has them, between the other bytes. A message without
//! long values is whole after the first time.

use alloc::sync::Arc;
use core::fmt;

use crate::MESSAGE_HEADER_BYTES;

/// Bytes in one piece from which on they are long: to copy fewer takes no longer than to write a message once more.
pub const LONG_BYTES: usize = 64 << 10;

/// Takes a message piece by piece.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Takes the next bytes of the message, `long` behind `before`. What fails is the sink's to keep.
    fn take(&self, before: &[u8], long: &[u8]);
}

/// What becomes of long values.
#[derive(Clone, Debug)]
pub(crate) enum Long {
    /// They are copied like all others.
    Copied,
    /// They are counted.
    Counted,
    /// They are given to a sink, behind the bytes before them.
    Sent {
        /// The header, with the size that was counted.
        header: [u8; MESSAGE_HEADER_BYTES],
        /// How many of the other bytes the sink has.
        sent: usize,
        sink: Arc<dyn Sink>,
    },
}

impl Long {
    /// A long value follows `bytes`. Whether it must not be copied.
    pub fn pass(&mut self, bytes: &mut [u8], long: &[u8]) -> bool {
        match self {
            Self::Copied => return false,
            Self::Counted => {}
            Self::Sent { header, sent, sink } => {
                if *sent == 0
                    && let Some(begin) = bytes.first_chunk_mut()
                {
                    *begin = *header;
                }
                sink.take(&bytes[*sent..], long);
                *sent = bytes.len();
            }
        }
        true
    }
}
