//! Messages in fragments (CORBA 15.4.9): whole messages to fragments, and back.
//!
//! With 1.2 each fragment says which request it belongs to, so that those of several messages may mix. With 1.1 it belongs to the
//! one message before it.
//!
//! [`Reassembly`] owns the bytes of messages that are not whole yet. It never holds more than its limit, whatever comes.

use alloc::vec::Vec;

pub use crate::whole::{Joined, Whole};

use crate::message::{Error, Header, MessageType, RequestId};
use crate::{ByteOrder, Error as CdrError, Version};

/// Bytes before the body of a fragment of 1.2: the header and the number of the request.
const FRAGMENT_FIELDS_BYTES: usize = Header::BYTES + 4;

/// What became of the bytes of a message or fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is whole by itself, and nothing was kept.
    Whole,
    /// It is kept until more comes.
    Kept,
    /// It was the last fragment of this message.
    Completed(Joined),
}

/// A message that is not whole yet.
#[derive(Debug)]
struct Partial {
    /// With 1.1 there is none.
    id: Option<RequestId>,
    header: Header,
    bytes: Vec<u8>,
    /// Where fragments of 1.1 begin. They are counted as bytes that the message holds.
    breaks: Vec<usize>,
}

/// Messages of one connection that are not whole yet.
#[derive(Debug)]
pub struct Reassembly {
    partials: Vec<Partial>,
    /// Capacities of all partials together.
    bytes: usize,
    bytes_max: usize,
    messages_max: usize,
}

impl Reassembly {
    /// Holds at most `bytes_max` bytes in at most `messages_max` messages.
    pub fn new(bytes_max: usize, messages_max: usize) -> Self {
        Self { partials: Vec::new(), bytes: 0, bytes_max, messages_max }
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.partials.is_empty()
    }

    /// Takes a message or fragment, whose header was read from its begin.
    ///
    /// # Errors
    /// [`Error::Size`] beyond a limit; [`Error::Flags`] for a fragment in another order or version than its message;
    /// [`CdrError::Truncated`] for one without its fields; [`Error::Type`] for a fragment of no message, or a second message with
    /// the same number. The connection cannot be used any more then.
    pub fn push(&mut self, header: &Header, bytes: &[u8]) -> Result<Pushed, Error> {
        if header.kind != MessageType::Fragment {
            return if header.has_more { self.begin(header, bytes) } else { self.whole(header) };
        }
        let at = if header.version < Version::V1_2 { Header::BYTES } else { FRAGMENT_FIELDS_BYTES };
        let body = bytes.get(at..).ok_or(CdrError::Truncated)?;
        let id = id_of(header, bytes)?;
        let number = self.find(id).ok_or(Error::Type(header.kind as u8))?;
        let of = self.partials[number].header;
        if (of.order, of.version) != (header.order, header.version) {
            return Err(Error::Flags(header.to_bytes()[6]));
        }
        self.grow(number, body.len())?;
        if header.version < Version::V1_2 {
            self.note_break(number)?;
        }
        self.partials[number].bytes.extend_from_slice(body);
        if header.has_more {
            return is_aligned(header, bytes).map(|()| Pushed::Kept);
        }
        Ok(Pushed::Completed(self.take(number).into_whole()))
    }

    /// Whether a message or fragment with this header may come: asked before its bytes are read.
    ///
    /// # Errors
    /// [`Error::Size`] if there is no room for it beside what is held.
    pub fn admit(&self, header: &Header) -> Result<(), Error> {
        let is_kept = header.has_more || header.kind == MessageType::Fragment;
        let size = header.size as usize;
        let is_new = header.kind != MessageType::Fragment;
        if is_kept
            && (size > self.bytes_max - self.bytes || is_new && self.partials.len() >= self.messages_max)
        {
            return Err(self.too_long(size));
        }
        Ok(())
    }

    /// Remembers that a fragment of 1.1 begins here.
    fn note_break(&mut self, number: usize) -> Result<(), Error> {
        let free = self.bytes_max - self.bytes;
        let too_long = self.too_long(size_of::<usize>());
        let partial = &mut self.partials[number];
        let capacity = partial.breaks.capacity();
        if partial.breaks.len() == capacity {
            let more = capacity.max(4);
            if more * size_of::<usize>() > free {
                return Err(too_long);
            }
            partial.breaks.reserve_exact(more);
            self.bytes += (partial.breaks.capacity() - capacity) * size_of::<usize>();
        }
        partial.breaks.push(partial.bytes.len());
        Ok(())
    }

    /// Forgets what is there of this request, which was cancelled.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(number) = self.find(Some(id)) {
            self.take(number);
        }
    }

    /// With 1.1 no other request or reply may be between a message and its fragments.
    fn whole(&self, header: &Header) -> Result<Pushed, Error> {
        let is_between = header.version == Version::V1_1 && self.find(None).is_some();
        let is_short = !header.kind.may_be_fragmented(Version::V1_2);
        if is_between && !is_short { Err(Error::Type(header.kind as u8)) } else { Ok(Pushed::Whole) }
    }

    fn begin(&mut self, header: &Header, bytes: &[u8]) -> Result<Pushed, Error> {
        let id = id_of(header, bytes)?;
        if self.find(id).is_some() {
            return Err(Error::Type(header.kind as u8));
        }
        if self.partials.len() >= self.messages_max {
            return Err(self.too_long(bytes.len()));
        }
        is_aligned(header, bytes)?;
        self.partials.push(Partial { id, header: *header, bytes: Vec::new(), breaks: Vec::new() });
        let number = self.partials.len() - 1;
        if let Err(error) = self.grow(number, bytes.len()) {
            self.take(number);
            return Err(error);
        }
        self.partials[number].bytes.extend_from_slice(bytes);
        Ok(Pushed::Kept)
    }

    fn find(&self, id: Option<RequestId>) -> Option<usize> {
        self.partials.iter().position(|partial| partial.id == id)
    }

    fn take(&mut self, number: usize) -> Partial {
        let partial = self.partials.swap_remove(number);
        self.bytes -= partial.bytes.capacity() + partial.breaks.capacity() * size_of::<usize>();
        partial
    }

    fn too_long(&self, more: usize) -> Error {
        Error::Size { size: self.bytes as u64 + more as u64, expected: self.bytes_max as u64 }
    }

    /// Takes memory for so many more bytes of this message. It doubles as long as the limit allows, so that many small fragments
    /// are not copied again and again.
    fn grow(&mut self, number: usize, more: usize) -> Result<(), Error> {
        let free = self.bytes_max - self.bytes;
        let too_long = self.too_long(more);
        let bytes = &mut self.partials[number].bytes;
        let (length, capacity) = (bytes.len(), bytes.capacity());
        let needed = length.checked_add(more).filter(|needed| needed.saturating_sub(capacity) <= free);
        let needed = needed.ok_or(too_long)?;
        if needed <= capacity {
            return Ok(());
        }
        let wanted = needed.max(capacity.saturating_mul(2).min(capacity + free));
        bytes.reserve_exact(wanted - length);
        self.bytes += bytes.capacity() - capacity;
        Ok(())
    }
}

impl Partial {
    /// The message as if it had come whole.
    fn into_whole(mut self) -> Joined {
        let size = self.bytes.len() - Header::BYTES;
        // Checked by the limit: a message is not longer than 2^32 - 1 bytes.
        let header = Header { has_more: false, size: u32::try_from(size).unwrap_or(u32::MAX), ..self.header };
        self.bytes[..Header::BYTES].copy_from_slice(&header.to_bytes());
        Joined::new(self.bytes, self.breaks)
    }
}

/// The number of the request, the first field of 1.2's fragments and of messages that may have some.
fn id_of(header: &Header, bytes: &[u8]) -> Result<Option<RequestId>, Error> {
    if header.version < Version::V1_2 {
        return Ok(None);
    }
    let field = bytes.get(Header::BYTES..).and_then(|rest| rest.first_chunk()).ok_or(CdrError::Truncated)?;
    Ok(Some(RequestId(match header.order {
        ByteOrder::Big => u32::from_be_bytes(*field),
        ByteOrder::Little => u32::from_le_bytes(*field),
    })))
}

/// With 1.2, what comes behind this begins at a multiple of 8 bytes (CORBA 15.4.9).
fn is_aligned(header: &Header, bytes: &[u8]) -> Result<(), Error> {
    let rest = bytes.len() as u64 % 8;
    match header.version {
        Version::V1_2 if rest != 0 => {
            Err(Error::Size { size: bytes.len() as u64, expected: bytes.len() as u64 - rest })
        }
        _ => Ok(()),
    }
}

/// A part of a message: send the head, then the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    head: [u8; FRAGMENT_FIELDS_BYTES],
    head_bytes: usize,
    /// Bytes of the message.
    pub body: &'a [u8],
}

impl Piece<'_> {
    /// The header, and of 1.2's fragments the number of the request.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }
}

/// Cuts a message of 1.2 into pieces of at most `piece_bytes_max` bytes each. A message of another version, or one that is shorter,
/// or that has no fragments, is one piece.
///
/// `piece_bytes_max` is rounded down to a multiple of 8, and is at least 32.
///
/// # Errors
/// [`CdrError::Truncated`] if it is no message.
pub fn pieces(message: &[u8], piece_bytes_max: usize) -> Result<impl Iterator<Item = Piece<'_>>, Error> {
    let (head, mut rest) = message.split_first_chunk().ok_or(CdrError::Truncated)?;
    let header = Header::parse(head)?;
    let piece_bytes_max = (piece_bytes_max & !7).max(32);
    let is_cut = header.version == Version::V1_2
        && header.kind.may_be_fragmented(header.version)
        && message.len() > piece_bytes_max;
    let id = if is_cut { id_of(&header, message)? } else { None };
    let mut is_first = true;
    Ok(core::iter::from_fn(move || {
        let begins = core::mem::replace(&mut is_first, false);
        if rest.is_empty() && !begins {
            return None;
        }
        let fields = if begins { Header::BYTES } else { FRAGMENT_FIELDS_BYTES };
        let length = if is_cut { rest.len().min(piece_bytes_max - fields) } else { rest.len() };
        let (body, behind) = rest.split_at(length);
        rest = behind;
        Some(piece(&header, id.filter(|_| !begins), body, !behind.is_empty()))
    }))
}

fn piece<'a>(header: &Header, id: Option<RequestId>, body: &'a [u8], has_more: bool) -> Piece<'a> {
    let kind = if id.is_some() { MessageType::Fragment } else { header.kind };
    let fields = if id.is_some() { FRAGMENT_FIELDS_BYTES - Header::BYTES } else { 0 };
    let size = u32::try_from(body.len() + fields).unwrap_or(u32::MAX);
    let mut head = [0; FRAGMENT_FIELDS_BYTES];
    head[..Header::BYTES].copy_from_slice(&Header { has_more, kind, size, ..*header }.to_bytes());
    let number = id.unwrap_or_default().0;
    head[Header::BYTES..].copy_from_slice(&match header.order {
        ByteOrder::Big => number.to_be_bytes(),
        ByteOrder::Little => number.to_le_bytes(),
    });
    Piece { head, head_bytes: Header::BYTES + fields, body }
}
