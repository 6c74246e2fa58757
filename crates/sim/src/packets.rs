//! Packets that were put into a channel and have not come out of it. They have no identity of their own: their bytes are compared.

use std::collections::BTreeMap;

/// The packets of a channel that are under way, or lost, by their order.
#[derive(Clone, Debug, Default)]
pub struct Packets(BTreeMap<u64, Box<[u8]>>);

impl Packets {
    /// A packet of this number was put into the channel.
    pub fn put(&mut self, index: u64, packet: Box<[u8]>) {
        self.0.insert(index, packet);
    }

    /// Takes out the packet that has come: the one that the node's number of it suggests, if it has these bytes, otherwise the
    /// first that has. `None`: no such packet is under way, so it was altered, comes again, or is another channel's.
    pub fn take(&mut self, suggested: u64, bytes: &[u8]) -> Option<u64> {
        let is_it = |index: &u64| self.0.get(index).is_some_and(|packet| **packet == *bytes);
        let first = || self.0.iter().find(|(_, packet)| ***packet == *bytes).map(|(index, _)| *index);
        let index = Some(suggested).filter(is_it).or_else(first)?;
        self.0.remove(&index).map(|_| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_packets_are_told_apart_by_number_and_others_by_their_bytes() {
        let mut packets = Packets::default();
        for (index, byte) in [(0, 1), (1, 2), (2, 1), (3, 1)] {
            packets.put(index, Box::new([byte]));
        }
        assert_eq!(packets.take(2, &[1]), Some(2));
        assert_eq!(packets.take(2, &[1]), Some(0), "the first of those that are left");
        assert_eq!(packets.take(0, &[2]), Some(1), "a wrong number does not count");
        assert_eq!(packets.take(3, &[3]), None, "altered");
        assert_eq!([packets.take(3, &[1]), packets.take(3, &[1])], [Some(3), None], "it came twice");
    }
}
