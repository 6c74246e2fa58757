//! The bytes of one direction of a connection, as its two programs know them: what was written and what was read, byte by byte.
//! Independent of the stack: the content follows from the message that was written (see [`Content`]).

use std::collections::VecDeque;

use crate::memory::Content;

/// One direction.
#[derive(Clone, Debug)]
pub struct Stream {
    key: u64,
    /// Lengths of the messages that were written and not read to their end, the first with index `index`.
    lens: VecDeque<u32>,
    index: u64,
    /// Bytes of the first one that were read.
    offset: u32,
    /// All bytes that were written, and read.
    written: u64,
    read: u64,
    /// Messages that were written.
    messages: u64,
    is_closed: bool,
    has_ended: bool,
}

impl Stream {
    /// A stream whose messages have this key.
    pub const fn new(key: u64) -> Self {
        Self {
            key,
            lens: VecDeque::new(),
            index: 0,
            offset: 0,
            written: 0,
            read: 0,
            messages: 0,
            is_closed: false,
            has_ended: false,
        }
    }

    /// Index of the next message that is written.
    pub const fn next_index(&self) -> u64 {
        self.messages
    }

    /// Bytes that were written.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that were read.
    pub const fn read(&self) -> u64 {
        self.read
    }

    /// Whether the writer has closed it.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the reader was shown an end.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether everything was read, and the end seen.
    pub const fn is_complete(&self) -> bool {
        self.is_closed && self.has_ended && self.read == self.written
    }

    /// A message of `len` bytes was written.
    pub fn write(&mut self, len: u32) {
        self.lens.push_back(len);
        self.messages += 1;
        self.written += u64::from(len);
    }

    /// The writer closes its direction, or is gone.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// The reader gets `bytes`; returns what is wrong with them.
    pub fn take(&mut self, mut bytes: &[u8]) -> Option<String> {
        if self.has_ended {
            return Some(format!("{} B come behind the end of the stream", bytes.len()));
        }
        let mut expected = Vec::new();
        while !bytes.is_empty() {
            let Some(&len) = self.lens.front() else {
                return Some(format!("{} B come that were never written", bytes.len()));
            };
            let count = bytes.len().min((len - self.offset) as usize);
            expected.resize(count, 0);
            Content { key: self.key, index: self.index }.write(self.offset, &mut expected);
            let wrong = expected.iter().zip(bytes).position(|(expected, got)| expected != got);
            if let Some(wrong) = wrong {
                return Some(format!("byte {} is not the one that was written", self.read + wrong as u64));
            }
            self.read += count as u64;
            self.offset += count as u32;
            if self.offset == len {
                self.lens.pop_front();
                (self.index, self.offset) = (self.index + 1, 0);
            }
            bytes = &bytes[count..];
        }
        None
    }

    /// The reader is shown the end: without error (`is_clean`), or because the connection broke. Returns what is wrong.
    pub fn end(&mut self, is_clean: bool) -> Option<String> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Some("its end comes twice".into());
        }
        let is_whole = self.is_closed && self.read == self.written;
        (is_clean && !is_whole).then(|| {
            format!(
                "ends after {} of {} B, closed by its writer: {}",
                self.read, self.written, self.is_closed
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(index: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Content { key: 5, index }.write(0, &mut bytes);
        bytes
    }

    #[test]
    fn bytes_are_read_in_any_pieces_and_in_order_alone() {
        let mut stream = Stream::new(5);
        [40, 3, 100].into_iter().for_each(|len| stream.write(len));
        let all: Vec<u8> =
            [(0, 40), (1, 3), (2, 100)].into_iter().flat_map(|(n, len)| bytes(n, len)).collect();
        let mut whole = stream.clone();
        for piece in [&all[..1], &all[1..42], &all[42..]] {
            assert_eq!(whole.take(piece), None);
        }
        assert_eq!((whole.read(), whole.is_complete()), (143, false));
        assert!(whole.clone().take(&[1]).expect("too many").contains("never written"));
        assert!(whole.clone().end(true).expect("not closed").contains("143 of 143"));
        whole.close();
        assert!(whole.end(true).is_none() && whole.is_complete() && whole.end(true).is_some());
        let mut swapped = all.clone();
        swapped[77] ^= 1;
        assert!(stream.clone().take(&swapped).expect("altered").contains("byte 77"));
        assert_eq!(
            stream.clone().take(&all[1..]).expect("one is missing"),
            "byte 0 is not the one that was written"
        );
        stream.close();
        assert!(stream.clone().end(false).is_none(), "a broken connection may end anywhere");
        assert!(stream.end(true).expect("early").contains("0 of 143"));
    }
}
