//! Cutting a byte stream into messages.

use std::io::{self, Read};
use std::str::FromStr;

use crate::h264::access_units;
use punctual_analysis::contract::MESSAGE_BYTES_MAX;

use crate::values;

/// Bytes requested from the input at once.
const READ_BYTES: usize = 64 * 1024;

/// How a stream is split into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// `H264` if the stream begins like one, else blocks of the longest message.
    Auto,
    /// One frame a message (Annex B access units).
    H264,
    /// Frames split into messages of at most this many bytes.
    H264Cut(usize),
    /// One line a message, with its line feed.
    Lines,
    /// Blocks of this many bytes.
    Fixed(usize),
}

impl FromStr for Split {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "h264" => Ok(Self::H264),
            "lines" => Ok(Self::Lines),
            size => {
                let help = format!(
                    "\"{text}\": give auto, h264, h264:1400B (frames cut up), lines, or a block size as 1400B or fixed:1400B"
                );
                let (kind, size): (fn(usize) -> Self, _) = match size.strip_prefix("h264:") {
                    Some(size) => (Self::H264Cut, size),
                    None => (Self::Fixed, size.strip_prefix("fixed:").unwrap_or(size)),
                };
                values::bytes(size)
                    .ok()
                    .filter(|bytes| *bytes > 0)
                    .map(|bytes| kind(bytes as usize))
                    .ok_or(help)
            }
        }
    }
}

/// The messages of a stream, one after the other. Buffers no more than the longest message, or frame, and the
/// data that were read ahead.
pub struct Messages<R> {
    input: R,
    split: Split,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// Bytes that are left of the frame that is being split.
    frame_left: usize,
    ended: bool,
}

impl<R: Read> Messages<R> {
    /// Of `input`; no message may be longer than `bytes_max`.
    pub fn new(input: R, split: Split, bytes_max: usize) -> Self {
        Self { input, split, bytes_max, buffer: Vec::new(), frame_left: 0, ended: false }
    }

    /// The next one.
    ///
    /// # Errors
    /// If the input cannot be read or a message is too long.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(len) = self.complete() {
                if len > self.bytes_max {
                    return Err(self.too_long(len));
                }
                let rest = self.buffer.split_off(len);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.ended {
                return Ok(None);
            }
            // Two messages and the data of one read: a longer buffer means that this message does not end.
            if self.buffer.len() > 2 * self.whole_bytes_max() + 2 * READ_BYTES {
                return Err(self.too_long(self.buffer.len()));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let start = self.buffer.len();
        self.buffer.resize(start + READ_BYTES, 0);
        let read = loop {
            match self.input.read(&mut self.buffer[start..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.buffer.truncate(start + read);
        self.ended = read == 0;
        if self.split == Split::Auto && (self.buffer.len() >= 4 || self.ended) {
            let is_h264 = self.buffer.starts_with(&[0, 0, 1]) || self.buffer.starts_with(&[0, 0, 0, 1]);
            self.split = if is_h264 { Split::H264 } else { Split::Fixed(self.bytes_max) };
        }
        Ok(())
    }

    /// Longest piece of the stream that has to be there before a message can leave.
    fn whole_bytes_max(&self) -> usize {
        if let Split::H264Cut(_) = self.split { MESSAGE_BYTES_MAX as usize } else { self.bytes_max }
    }

    /// Length of the message at the start of the buffer, if it is complete; it is taken next.
    fn complete(&mut self) -> Option<usize> {
        let rest = (self.ended && !self.buffer.is_empty()).then_some(self.buffer.len());
        match self.split {
            Split::Auto => None,
            Split::Fixed(bytes) => {
                if self.buffer.len() >= bytes {
                    Some(bytes)
                } else {
                    rest
                }
            }
            Split::Lines => self.buffer.iter().position(|byte| *byte == b'\n').map(|at| at + 1).or(rest),
            // A unit is complete when the next one has begun; the last start code may still be half there.
            Split::H264 => self.frame().or(rest),
            Split::H264Cut(bytes) => {
                if self.frame_left == 0 {
                    self.frame_left = self.frame().or(rest)?;
                }
                let len = self.frame_left.min(bytes);
                self.frame_left -= len;
                Some(len)
            }
        }
    }

    /// Length of the frame at the start of the buffer, if the next one has begun.
    fn frame(&self) -> Option<usize> {
        access_units(&self.buffer).ok().filter(|units| units.len() > 1).map(|units| units[0].len())
    }

    fn too_long(&self, len: usize) -> io::Error {
        let most = self.bytes_max;
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {len} B: --size allows {most} B, give more or another --split"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte a read, so that every message arrives in pieces.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(1);
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn all(stream: &[u8], split: Split, bytes_max: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut messages = Messages::new(Trickle(stream), split, bytes_max);
        std::iter::from_fn(|| messages.next().transpose()).collect()
    }

    #[test]
    fn streams_are_cut_where_they_should() {
        let cut = |stream: &[u8], split| all(stream, split, 10).expect("messages");
        assert_eq!(cut(b"ab\n\ncd", Split::Lines), [&b"ab\n"[..], b"\n", b"cd"]);
        assert_eq!(cut(b"abcde", Split::Fixed(2)), [&b"ab"[..], b"cd", b"e"]);
        assert_eq!(cut(b"0123456789ab", Split::Auto), [&b"0123456789"[..], b"ab"]);
        assert_eq!(cut(b"", Split::Auto), Vec::<Vec<u8>>::new());
        let film = [0, 0, 0, 1, 0x65, 0x88, 0, 0, 0, 1, 0x41, 0x9a, 0, 0, 1, 0x41, 0x9a];
        for split in [Split::Auto, Split::H264] {
            assert_eq!(cut(&film, split), [&film[..6], &film[6..12], &film[12..]]);
        }
        let pieces = [&film[..4], &film[4..6], &film[6..10], &film[10..12], &film[12..16], &film[16..]];
        assert_eq!(cut(&film, Split::H264Cut(4)), pieces, "no message has bytes of two frames");
    }

    #[test]
    fn too_long_a_message_is_an_error() {
        let error = all(b"0123456789a\n", Split::Lines, 10).expect_err("too long").to_string();
        assert_eq!(error, "a message of 12 B: --size allows 10 B, give more or another --split");
        let endless = vec![b'x'; 1 << 20];
        let mut messages = Messages::new(&endless[..], Split::Lines, 10);
        assert!(messages.next().is_err());
    }

    #[test]
    fn what_people_write() {
        assert_eq!("fixed:1400B".parse(), Ok(Split::Fixed(1_400)));
        assert_eq!("1KiB".parse(), Ok(Split::Fixed(1_024)));
        assert_eq!("h264:1400B".parse(), Ok(Split::H264Cut(1_400)));
        assert!("h264:".parse::<Split>().is_err() && "h264:0B".parse::<Split>().is_err());
        assert!(
            "0B".parse::<Split>().is_err()
                && "1400".parse::<Split>().is_err()
                && "words".parse::<Split>().is_err()
        );
    }
}
