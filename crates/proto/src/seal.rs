//! A check of signalling packets by drivers, before they cost a buffer: a seal over number and length.
//!
//! Signalling is authenticated by keyed BLAKE3 over all of a packet, which is too much work for a program in
//! a driver. Therefore the sender also puts SipHash-2-4 of 16 bytes in front, with a key for this one life of
//! this one end of the link ([`SealKey`]). A driver that has the key can distinguish the neighbour's packets
//! from those of a sender that forges its addresses, and by the number it can distinguish a packet from a
//! recording. The seal does not protect the rest of the packet: a node that receives a packet still checks
//! the tag.

use siphasher::sip::SipHasher24;

use crate::ids::{Life, NodeId};

/// Bytes of the envelope: version, epoch, session, number, seal; little-endian.
pub const ENVELOPE_BYTES: usize = 1 + 8 + 4 + 8 + 8;
/// Offset of the packet's number, in bytes.
pub const NUMBER_OFFSET: usize = 13;
/// Offset of the seal, in bytes.
pub const SEAL_OFFSET: usize = 21;

/// Key of the seals of one life of one end of a link: each life has another key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealKey(pub [u8; 16]);

impl core::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

impl SealKey {
    /// The key of the packets that `from` sends to `to` in its life `life`.
    pub(crate) fn new(domain_key: &[u8; 32], from: NodeId, to: NodeId, life: Life) -> Self {
        let mut material = [0; 52];
        material[..32].copy_from_slice(domain_key);
        material[32..36].copy_from_slice(&from.0.to_le_bytes());
        material[36..40].copy_from_slice(&to.0.to_le_bytes());
        material[40..48].copy_from_slice(&life.epoch.0.to_le_bytes());
        material[48..].copy_from_slice(&life.session.to_le_bytes());
        let key = blake3::derive_key("punctual 2026 rtcop seal for drivers v1", &material);
        let mut half = [0; 16];
        half.copy_from_slice(&key[..16]);
        Self(half)
    }

    /// Seals packet `number` of `bytes` bytes, the tag included.
    pub fn seal(&self, number: u64, bytes: usize) -> u64 {
        let mut sealed = [0; 16];
        sealed[..8].copy_from_slice(&number.to_le_bytes());
        sealed[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
        SipHasher24::new_with_key(&self.0).hash(&sealed)
    }

    /// The number of `packet` if its seal is valid, as a driver checks it.
    pub fn number_of(&self, packet: &[u8]) -> Option<u64> {
        let word = |offset: usize| {
            let bytes = packet.get(offset..offset + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let number = word(NUMBER_OFFSET)?;
        (word(SEAL_OFFSET)? == self.seal(number, packet.len())).then_some(number)
    }
}
