//! The twelve bytes at the begin of each message (CORBA 15.4.1), and messages that are being written.

use crate::{ByteOrder, Encode, Encoder, Error as CdrError, MESSAGE_HEADER_BYTES, Version};

/// What a message is for. Its number is its place in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageType {
    /// A client calls an operation.
    Request,
    /// What became of a request.
    Reply,
    /// The client does not wait for a reply any more.
    CancelRequest,
    /// A client asks where an object is.
    LocateRequest,
    /// Where it is.
    LocateReply,
    /// The sender closes the connection. Requests without replies were not processed.
    CloseConnection,
    /// The sender did not understand a message.
    MessageError,
    /// More bytes of an earlier message. Since 1.1.
    Fragment,
}

impl MessageType {
    /// All, by their numbers.
    pub const ALL: [Self; 8] = [
        Self::Request,
        Self::Reply,
        Self::CancelRequest,
        Self::LocateRequest,
        Self::LocateReply,
        Self::CloseConnection,
        Self::MessageError,
        Self::Fragment,
    ];

    /// Whether fragments may follow such a message (CORBA 15.4.9): 1.1 allows it for requests and replies only.
    pub fn may_be_fragmented(self, version: Version) -> bool {
        match self {
            Self::Request | Self::Reply | Self::Fragment => version >= Version::V1_1,
            Self::LocateRequest | Self::LocateReply => version >= Version::V1_2,
            Self::CancelRequest | Self::CloseConnection | Self::MessageError => false,
        }
    }
}

/// Why bytes are no message. The answer is `MessageError` (CORBA 15.4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes do not begin with `GIOP`.
    #[error("no message of GIOP: it does not begin with `GIOP`")]
    Magic,
    /// A version other than 1.0, 1.1 and 1.2.
    #[error("GIOP {0}.{1} is not supported; 1.0, 1.1 and 1.2 are")]
    Version(u8, u8),
    /// A number of no type of message in this version.
    #[error("{0} is no type of message in this version of GIOP")]
    Type(u8),
    /// An order of bytes that is neither 0 nor 1, or fragments behind a message that has none.
    #[error("the flags {0:#04x} are not allowed here")]
    Flags(u8),
    /// A message that is longer than the limit, or than its header says, or shorter.
    #[error("a message of {size} bytes where {expected} are expected or allowed")]
    Size {
        /// Bytes of the message without its header.
        size: u64,
        /// Bytes that are allowed, or there.
        expected: u64,
    },
    /// The bytes behind the header are wrong.
    #[error(transparent)]
    Cdr(#[from] CdrError),
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of the message.
    pub version: Version,
    /// The order of the bytes of its numbers.
    pub order: ByteOrder,
    /// Whether fragments follow.
    pub has_more: bool,
    /// What the message is for.
    pub kind: MessageType,
    /// Bytes behind the header.
    pub size: u32,
}

const MAGIC: [u8; 4] = *b"GIOP";
const FLAG_LITTLE: u8 = 1;
const FLAG_MORE: u8 = 2;

impl Header {
    /// Bytes of a header.
    pub const BYTES: usize = MESSAGE_HEADER_BYTES;
    /// Where the flags are.
    const FLAGS_AT: usize = 6;
    /// Where the size is.
    const SIZE_AT: usize = 8;

    /// Reads a header.
    ///
    /// # Errors
    /// All of [`Error`] but [`Error::Size`] and [`Error::Cdr`].
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, Error> {
        let [m0, m1, m2, m3, major, minor, flags, kind, size @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(Error::Magic);
        }
        let version = Version::from_numbers(major, minor).ok_or(Error::Version(major, minor))?;
        if version == Version::V1_0 && flags > FLAG_LITTLE {
            return Err(Error::Flags(flags));
        }
        let order = if flags & FLAG_LITTLE == 0 { ByteOrder::Big } else { ByteOrder::Little };
        let known = MessageType::ALL.get(usize::from(kind)).copied();
        let kind = known.filter(|kind| *kind != MessageType::Fragment || version >= Version::V1_1);
        let kind = kind.ok_or(Error::Type(bytes[Self::FLAGS_AT + 1]))?;
        let has_more = flags & FLAG_MORE != 0;
        if has_more && !kind.may_be_fragmented(version) {
            return Err(Error::Flags(flags));
        }
        let size = match order {
            ByteOrder::Big => u32::from_be_bytes(size),
            ByteOrder::Little => u32::from_le_bytes(size),
        };
        Ok(Self { version, order, has_more, kind, size })
    }

    /// The bytes of the header.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let (major, minor) = self.version.numbers();
        let flags = self.order.flag() | if self.has_more { FLAG_MORE } else { 0 };
        let [m0, m1, m2, m3] = MAGIC;
        let [s0, s1, s2, s3] = match self.order {
            ByteOrder::Big => self.size.to_be_bytes(),
            ByteOrder::Little => self.size.to_le_bytes(),
        };
        [m0, m1, m2, m3, major, minor, flags, self.kind as u8, s0, s1, s2, s3]
    }

    /// Bytes of the message with its header, if it has at most `size_max` behind it.
    ///
    /// # Errors
    /// [`Error::Size`].
    pub fn message_bytes(&self, size_max: usize) -> Result<usize, Error> {
        let size = usize::try_from(self.size).ok().filter(|size| *size <= size_max);
        let size = size.ok_or(Error::Size { size: self.size.into(), expected: size_max as u64 })?;
        size.checked_add(Self::BYTES).ok_or(Error::Size { size: self.size.into(), expected: size_max as u64 })
    }
}

/// A message that is being written into an [`Encoder`], which takes no memory if it has enough from earlier messages.
///
/// 1. Its `begin` writes the header and the fields.
/// 2. The caller writes the body.
/// 3. [`Open::finish`] writes the size.
#[derive(Debug)]
#[must_use = "its size is missing until it is finished"]
pub struct Open {
    begin: usize,
    fields_end: usize,
    body: usize,
}

impl Open {
    /// Begins a message behind what the encoder has.
    pub(super) fn begin(kind: MessageType, to: &mut Encoder) -> Self {
        to.begin();
        let begin = to.place();
        let header = Header { version: to.version(), order: to.order(), has_more: false, kind, size: 0 };
        to.write(&header.to_bytes());
        let end = to.place();
        Self { begin, fields_end: end, body: end }
    }

    /// Writes the fields with `write`, and forgets the message if that fails.
    pub(super) fn fields(
        mut self,
        to: &mut Encoder,
        write: impl FnOnce(&mut Encoder) -> Result<(), CdrError>,
    ) -> Result<Self, CdrError> {
        if let Err(error) = to.copying(write) {
            self.abandon(to);
            return Err(error);
        }
        self.fields_end = to.place();
        self.body = self.fields_end;
        Ok(self)
    }

    /// The body of a request or reply of 1.2 is aligned to 8 bytes (CORBA 15.4.2.2).
    pub(super) fn align_body(mut self, to: &mut Encoder) -> Self {
        if to.version() >= Version::V1_2 {
            to.align(8);
            self.body = to.place();
        }
        self
    }

    /// Forgets what was written of the body, for another one.
    pub fn restart_body(&self, to: &mut Encoder) {
        to.truncate(self.body);
    }

    /// Forgets the message.
    pub fn abandon(self, to: &mut Encoder) {
        to.truncate(self.begin);
    }

    /// Ends the message.
    ///
    /// # Errors
    /// [`CdrError::Length`] if it is longer than a message can be; it is forgotten.
    pub fn finish(self, to: &mut Encoder) -> Result<(), CdrError> {
        self.finish_before(to, 0)
    }

    /// Ends the message, whose last `more_bytes` bytes the caller sends behind those of the encoder.
    ///
    /// # Errors
    /// Those of [`Open::finish`].
    pub fn finish_before(self, to: &mut Encoder, more_bytes: usize) -> Result<(), CdrError> {
        if to.place() == self.body && more_bytes == 0 {
            // Without a body, nothing is aligned.
            to.truncate(self.fields_end);
        }
        let size = (to.place() - self.begin - Header::BYTES) as u64 + more_bytes as u64;
        let Ok(patch) = u32::try_from(size) else {
            self.abandon(to);
            return Err(CdrError::Length(size));
        };
        to.patch(self.begin + Header::SIZE_AT, patch);
        Ok(())
    }
}

/// The number of a request on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

impl Encode for RequestId {
    fn encode(&self, to: &mut Encoder) -> Result<(), CdrError> {
        self.0.encode(to)
    }
}

impl crate::Decode for RequestId {
    const BYTES_MIN: usize = 4;

    fn decode(from: &mut crate::Decoder<'_>) -> Result<Self, CdrError> {
        u32::decode(from).map(Self)
    }
}
