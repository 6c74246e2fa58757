//! The first bytes of every message of an experiment: which one it is and when it was due.

use punctual_analysis::Instant;

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 32;
const MAGIC: u32 = 0x434e_5550;

/// Which message this is, when it was sent, when it logically arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The stream.
    pub stream: u32,
    /// The number of the message in it.
    pub sequence: u64,
    /// t: when it was sent.
    pub sent: Instant,
    /// l: its logical arrival under the contract; t without one.
    pub logical: Instant,
}

impl Stamp {
    /// Writes it to the front of `message`.
    ///
    /// # Panics
    /// If the message is shorter than a stamp: the loads never make such.
    pub fn write(&self, message: &mut [u8]) {
        message[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        message[4..8].copy_from_slice(&self.stream.to_le_bytes());
        message[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        message[16..24].copy_from_slice(&self.sent.0.to_le_bytes());
        message[24..32].copy_from_slice(&self.logical.0.to_le_bytes());
    }

    /// Reads it; `None` if the message contains none.
    pub fn read(message: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(message.get(at..at + 8)?.try_into().ok()?));
        let head = word(0)?;
        if head as u32 != MAGIC {
            return None;
        }
        Some(Self {
            stream: (head >> 32) as u32,
            sequence: word(8)?,
            sent: Instant(word(16)?),
            logical: Instant(word(24)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let stamp = Stamp { stream: 7, sequence: 1 << 40, sent: Instant(5), logical: Instant(u64::MAX) };
        let mut message = [0; STAMP_BYTES + 3];
        stamp.write(&mut message);
        assert_eq!(Stamp::read(&message), Some(stamp));
    }

    #[test]
    fn what_carries_no_stamp_is_none() {
        assert_eq!(Stamp::read(&[0; STAMP_BYTES]), None);
        assert_eq!(Stamp::read(&[0; 3]), None);
    }
}
