//! What messages hold behind their stamp.

use std::sync::Arc;

use crate::measure::stamp::STAMP_BYTES;

/// The bodies of a stream's messages. Both ends generate them, so the receiver checks every byte.
#[derive(Clone, Debug)]
pub enum Content {
    /// These payloads in turn, repeatedly: for example the frames of a film.
    Bodies(Arc<[Vec<u8>]>),
    /// Synthetic messages of these total lengths, over and over.
    Sizes(Arc<[usize]>),
}

/// The pattern repeats after a prime, so that shifted or exchanged packets differ.
const PATTERN_PERIOD: usize = 251;

impl Content {
    /// Messages of `bytes` in all, the stamp included.
    pub fn of_size(bytes: usize) -> Self {
        Self::Sizes(Arc::from([bytes]))
    }

    /// After how many messages they repeat.
    pub fn cycle_len(&self) -> usize {
        match self {
            Self::Bodies(bodies) => bodies.len(),
            Self::Sizes(sizes) => sizes.len(),
        }
        .max(1)
    }

    /// Length of message `sequence` in all.
    pub fn len(&self, sequence: u64) -> usize {
        match self {
            Self::Bodies(bodies) => STAMP_BYTES + body(bodies, sequence).len(),
            Self::Sizes(sizes) => sizes[cycle(sequence, sizes.len())].max(STAMP_BYTES),
        }
    }

    /// The largest message.
    pub fn len_max(&self) -> usize {
        match self {
            Self::Bodies(bodies) => STAMP_BYTES + bodies.iter().map(Vec::len).max().unwrap_or(0),
            Self::Sizes(sizes) => sizes.iter().copied().max().unwrap_or(0).max(STAMP_BYTES),
        }
    }

    /// Writes message `sequence` except for its stamp.
    pub fn fill(&self, sequence: u64, message: &mut Vec<u8>) {
        message.clear();
        message.resize(STAMP_BYTES, 0);
        match self {
            Self::Bodies(bodies) => message.extend_from_slice(body(bodies, sequence)),
            Self::Sizes(_) => {
                let rest = self.len(sequence) - STAMP_BYTES;
                message.extend(pattern(sequence).take(rest));
            }
        }
    }

    /// Whether a received message is message `sequence`, byte for byte.
    pub fn matches(&self, sequence: u64, message: &[u8]) -> bool {
        let Some(received) = message.get(STAMP_BYTES..) else { return false };
        match self {
            Self::Bodies(bodies) => received == body(bodies, sequence),
            Self::Sizes(_) => {
                message.len() == self.len(sequence)
                    && received.iter().copied().eq(pattern(sequence).take(received.len()))
            }
        }
    }
}

fn cycle(sequence: u64, len: usize) -> usize {
    (sequence % len.max(1) as u64) as usize
}

fn body(bodies: &[Vec<u8>], sequence: u64) -> &[u8] {
    bodies.get(cycle(sequence, bodies.len())).map_or(&[], Vec::as_slice)
}

fn pattern(sequence: u64) -> impl Iterator<Item = u8> {
    let start = cycle(sequence.wrapping_mul(31), PATTERN_PERIOD);
    (0..PATTERN_PERIOD as u8).cycle().skip(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_differs_from_its_neighbour() {
        for content in [Content::of_size(500), Content::Bodies(Arc::from([vec![1, 2, 3], vec![1, 2, 4]]))] {
            let mut message = Vec::new();
            content.fill(5, &mut message);
            assert_eq!(message.len(), content.len(5));
            assert!(content.matches(5, &message));
            assert!(!content.matches(6, &message));
            *message.last_mut().unwrap() ^= 1;
            assert!(!content.matches(5, &message), "one bit is enough");
            message.pop();
            assert!(!content.matches(5, &message), "too short");
        }
    }

    #[test]
    fn sizes_go_round() {
        let content = Content::Sizes(Arc::from([40, 100]));
        assert_eq!([content.len(0), content.len(1), content.len(2), content.len_max()], [40, 100, 40, 100]);
    }
}
