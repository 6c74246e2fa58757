//! Urgent data as in RFC 6093: it stays in the stream, and the pointer only marks its end. Old programs
//! depend on it; new ones should not use it (RFC 6093 5).

use crate::sequence::before;

/// The urgent mark of each direction, as sequence numbers: the number that follows the last urgent byte (RFC 6093 2.2).
#[derive(Debug, Default)]
pub(crate) struct Urgent {
    sending: Option<u32>,
    receiving: Option<u32>,
}

impl Urgent {
    /// Marks everything before `end` that is not acknowledged as urgent.
    pub(crate) fn mark(&mut self, end: u32) {
        self.sending = Some(end);
    }

    /// The pointer of a segment that begins at `seq`, if it is before the mark. If the mark is beyond the
    /// range of the field, the largest value is used (RFC 9293 3.8.5 allows further updates).
    pub(crate) fn pointer(&self, seq: u32) -> Option<u16> {
        let end = self.sending.filter(|end| before(seq, *end))?;
        Some(u16::try_from(end.wrapping_sub(seq)).unwrap_or(u16::MAX))
    }

    /// Clears a mark that the peer has acknowledged.
    pub(crate) fn acknowledged(&mut self, una: u32) {
        self.sending = self.sending.filter(|end| before(una, *end));
    }

    /// Handles the `pointer` of a segment that begins at `seq`. A mark only moves forward (RFC 9293 3.10.7.4,
    /// sixth).
    pub(crate) fn received(&mut self, seq: u32, pointer: u16) {
        let end = seq.wrapping_add(u32::from(pointer));
        if self.receiving.is_none_or(|old| before(old, end)) {
            self.receiving = Some(end);
        }
    }

    /// Bytes from `next`, the next byte that the program reads, up to the mark; `None` if it was passed.
    pub(crate) fn ahead(&self, next: u32) -> Option<u32> {
        let end = self.receiving.filter(|end| before(next, *end))?;
        Some(end.wrapping_sub(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_before_the_mark_carries_the_distance() {
        let mut urgent = Urgent::default();
        assert_eq!(urgent.pointer(100), None);
        urgent.mark(105);
        assert_eq!(urgent.pointer(100), Some(5));
        assert_eq!(urgent.pointer(105), None);
        assert_eq!(urgent.pointer(105u32.wrapping_sub(70_000)), Some(u16::MAX));
        urgent.acknowledged(104);
        assert_eq!(urgent.pointer(104), Some(1));
        urgent.acknowledged(105);
        assert_eq!(urgent.pointer(104), None);
    }

    #[test]
    fn a_received_mark_only_moves_forward() {
        let mut urgent = Urgent::default();
        urgent.received(100, 10);
        urgent.received(90, 5);
        assert_eq!(urgent.ahead(100), Some(10));
        assert_eq!(urgent.ahead(110), None);
    }
}
