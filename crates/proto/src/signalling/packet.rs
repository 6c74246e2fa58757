//! Packets between neighbours on the signalling port. An envelope comes first, at fixed places,
//! little-endian: version (1 byte), epoch (8) and session (4) of the sender's life, the packet's number (8),
//! a seal that a driver can check (8, [`SealKey`]). The sender and the receiver, an acknowledgement and a
//! body follow. A truncated keyed BLAKE3 tag over all of it comes last.
//!
//! A packet is parsed only after its tag fits, so only members of the domain reach the decoder.
//!
//! In every version the version comes first and the tag over everything last, and the tag's key is derived
//! from the domain key. Therefore a node can distinguish a member of its domain that speaks another version
//! from a stranger or a broken bit.

use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_trial::{Defence, holds};
use serde::{Deserialize, Serialize};

use super::reliable_stream::Received;
use crate::ids::{Epoch, Life, NodeId};
use crate::limits::SIGNAL_BYTES_MAX;
use crate::seal::{ENVELOPE_BYTES, NUMBER_OFFSET, SEAL_OFFSET, SealKey};

/// Version of RTCOP on the wire. 2: contracts with activation, late and flow. 3: with a mean rate and a miss
/// ratio. 4: refusals that name a version. 5: the reason why a channel ended, the sink's counts, and stages
/// that report whether their host can keep its promises, and the cost of cold caches. 6: HELLOs with their
/// latest departure, and lateness of stages. 7: the rate of a link is measured. 8: an envelope with a seal
/// for drivers. 9: replies name the requesting user; refusals because of busy or crowded hosts.
pub const VERSION: u8 = 10;
// Neighbours that agree on RTCOP agree on data: if their data packets differ, they must not be able to open a
// channel.
const _: () =
    assert!(crate::wire::VERSION == 2, "another version of data packets: raise RTCOP's VERSION, too");
/// Bytes of the tag.
pub const TAG_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub version: u8,
    pub from: NodeId,
    pub to: NodeId,
    pub life: Life,
    /// The receiver's life as known to the sender.
    pub peer_life: Option<Life>,
    /// Number of the packet within the sender's life. Each number is accepted once.
    pub number: u64,
    pub received: Received,
    pub body: Body<'a>,
}

/// The part of a packet behind the envelope.
#[derive(Serialize, Deserialize)]
struct Content<'a> {
    from: NodeId,
    to: NodeId,
    peer_life: Option<Life>,
    received: Received,
    #[serde(borrow)]
    body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body<'a> {
    Hello(Hello),
    Segment { number: u64, bytes: &'a [u8] },
    Acknowledgement,
}

/// Liveness, proof of freshness and time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub step: HelloStep,
    pub nonce: u64,
    /// t3, the sender's clock; also t1 of the exchange that it begins.
    pub sent: Instant,
    pub echo: Option<Echo>,
    /// Tolerance of the sender's clock.
    pub tolerance: Ppm,
    /// Longest time after `sent` at which its last bit leaves the sender.
    pub departure: Nanos,
    /// Longest time of a packet from the sender over this link to the receiver's driver.
    pub travel_max: Nanos,
    /// Bytes received over the link since the sender's start, in bytes of the wire.
    pub received_bytes: u64,
}

/// Step of the exchange: one end begins, the other replies, and the first replies to that. After three
/// packets both ends have a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloStep {
    First,
    Second,
    Third,
}

/// Proves that a HELLO was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    pub nonce: u64,
    /// t2, the echoing node's clock.
    pub received: Instant,
}

/// Why a packet is dropped on reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    Malformed,
    /// The packet is of another version, and its sender cannot be authenticated.
    Version,
    /// The packet is of this other version, and a member of the domain sent it.
    Foreign(u8),
    Unauthenticated,
}

/// The tag that authenticates a packet to the members of a domain, whatever its version: its last bytes.
pub fn tag(domain_key: &[u8; 32], packet: &[u8]) -> [u8; TAG_BYTES] {
    Key::new(domain_key).tag(packet)
}

/// A packet as the member of the domain that sent it could send it again: with the number that `again`
/// computes from its own, and a valid tag. Returns the number and the packet; `None` if the packet is not of
/// this version. For tests that act as such a member.
pub fn renumbered(
    domain_key: &[u8; 32],
    packet: &[u8],
    again: impl FnOnce(u64) -> u64,
) -> Option<(u64, Vec<u8>)> {
    let key = Key::new(domain_key);
    let packet = key.open(packet).ok()?;
    let number = again(packet.number);
    let mut bytes = vec![0; SIGNAL_BYTES_MAX];
    let seal = key.seal_key(packet.from, packet.to, packet.life);
    let len = key.write(&Packet { number, ..packet }, &seal, &mut bytes)?;
    bytes.truncate(len);
    Some((number, bytes))
}

/// The keys that are derived from the domain's.
#[derive(Clone)]
pub struct Key {
    domain: [u8; 32],
    tag: [u8; 32],
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// RTCOP's own key, so that another use of the domain key cannot be turned against it.
    pub fn new(domain_key: &[u8; 32]) -> Self {
        let tag = blake3::derive_key("punctual 2026 rtcop packet authentication v1", domain_key);
        Self { domain: *domain_key, tag }
    }
    /// The key of the seals of what `from` sends to `to` in its life `life`.
    pub fn seal_key(&self, from: NodeId, to: NodeId, life: Life) -> SealKey {
        SealKey::new(&self.domain, from, to, life)
    }
    fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&blake3::keyed_hash(&self.tag, bytes).as_bytes()[..TAG_BYTES]);
        tag
    }
    /// Writes `packet`, sealed with `seal`, and its tag; `None` if `out` is too short.
    pub fn write(&self, packet: &Packet<'_>, seal: &SealKey, out: &mut [u8]) -> Option<usize> {
        let Packet { version, from, to, life, peer_life, number, received, body } = *packet;
        let room = out.len().checked_sub(TAG_BYTES).filter(|room| *room >= ENVELOPE_BYTES)?;
        let (envelope, rest) = out[..room].split_at_mut(ENVELOPE_BYTES);
        let content = Content { from, to, peer_life, received, body };
        let signed = ENVELOPE_BYTES + postcard::to_slice(&content, rest).ok()?.len();
        envelope[0] = version;
        envelope[1..9].copy_from_slice(&life.epoch.0.to_le_bytes());
        envelope[9..NUMBER_OFFSET].copy_from_slice(&life.session.to_le_bytes());
        envelope[NUMBER_OFFSET..SEAL_OFFSET].copy_from_slice(&number.to_le_bytes());
        let seal = seal.seal(number, signed + TAG_BYTES);
        envelope[SEAL_OFFSET..].copy_from_slice(&seal.to_le_bytes());
        let tag = self.tag(&out[..signed]);
        out[signed..signed + TAG_BYTES].copy_from_slice(&tag);
        Some(signed + TAG_BYTES)
    }
    /// Checks and parses a received packet.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<Packet<'a>, Rejected> {
        let (signed, tag) = bytes.split_last_chunk::<TAG_BYTES>().ok_or(Rejected::Malformed)?;
        let version = *signed.first().ok_or(Rejected::Malformed)?;
        let expected = self.tag(signed);
        let difference = expected.iter().zip(tag).fold(0, |bits, (a, b)| bits | (a ^ b));
        let is_authentic = core::hint::black_box(difference) == 0 || !holds(Defence::Authentication);
        match (is_authentic, version == VERSION) {
            (true, true) => {}
            (true, false) => return Err(Rejected::Foreign(version)),
            (false, true) => return Err(Rejected::Unauthenticated),
            (false, false) => return Err(Rejected::Version),
        }
        parse(version, signed).ok_or(Rejected::Malformed)
    }
}

/// Envelope and content of a packet that is authentic.
fn parse(version: u8, signed: &[u8]) -> Option<Packet<'_>> {
    let (envelope, content) = signed.split_first_chunk::<ENVELOPE_BYTES>()?;
    let [_, e0, e1, e2, e3, e4, e5, e6, e7, s0, s1, s2, s3, n0, n1, n2, n3, n4, n5, n6, n7, ..] = *envelope;
    let life = Life {
        epoch: Epoch(u64::from_le_bytes([e0, e1, e2, e3, e4, e5, e6, e7])),
        session: u32::from_le_bytes([s0, s1, s2, s3]),
    };
    let number = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
    let (Content { from, to, peer_life, received, body }, []) = postcard::take_from_bytes(content).ok()?
    else {
        return None;
    };
    Some(Packet { version, from, to, life, peer_life, number, received, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(body: Body<'_>) -> Packet<'_> {
        let life = Life { epoch: Epoch(u64::MAX), session: u32::MAX };
        Packet {
            version: VERSION,
            from: NodeId(u32::MAX),
            to: NodeId(u32::MAX),
            life,
            peer_life: Some(life),
            number: u64::MAX,
            received: Received { next: u64::MAX, later: u32::MAX },
            body,
        }
    }

    fn write(key: &Key, packet: &Packet<'_>, out: &mut [u8]) -> usize {
        key.write(packet, &key.seal_key(packet.from, packet.to, packet.life), out).expect("fits")
    }

    #[test]
    fn the_largest_packets_fit_their_limits() {
        let key = Key::new(&[7; 32]);
        let mut out = [0; 2_000];
        let bytes = [9; crate::limits::SIGNAL_BYTES_MAX - crate::limits::SIGNAL_OVERHEAD_BYTES_MAX];
        let len = write(&key, &packet(Body::Segment { number: u64::MAX, bytes: &bytes }), &mut out);
        assert!(len <= crate::limits::SIGNAL_BYTES_MAX, "{len}");
        let echo = Some(Echo { nonce: u64::MAX, received: Instant(u64::MAX) });
        let sent = Instant(u64::MAX);
        let hello = Hello {
            step: HelloStep::Third,
            nonce: u64::MAX,
            sent,
            echo,
            tolerance: Ppm(u32::MAX),
            departure: Nanos::MAX,
            travel_max: Nanos::MAX,
            received_bytes: u64::MAX,
        };
        let len = write(&key, &packet(Body::Hello(hello)), &mut out);
        assert!(len <= crate::limits::SIGNAL_PACKET_BYTES_MIN, "{len}");
        assert_eq!(key.open(&out[..len]), Ok(packet(Body::Hello(hello))));
    }

    #[test]
    fn any_bit_that_changes_is_noticed() {
        let key = Key::new(&[7; 32]);
        let mut out = [0; 200];
        let len = write(&key, &packet(Body::Segment { number: 3, bytes: b"abc" }), &mut out);
        for bit in 0..len * 8 {
            let mut forged = out;
            forged[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 8 { Rejected::Version } else { Rejected::Unauthenticated };
            assert_eq!(key.open(&forged[..len]), Err(expected), "bit {bit}");
        }
        assert_eq!(Key::new(&[8; 32]).open(&out[..len]), Err(Rejected::Unauthenticated));
        assert_eq!(key.open(&out[..TAG_BYTES]), Err(Rejected::Malformed));
        assert_eq!(key.open(&[]), Err(Rejected::Malformed));
    }

    /// Only a member of the domain could have sealed it: it is not of this version's form all the same.
    #[test]
    fn a_packet_with_bytes_behind_its_content_is_malformed() {
        let key = Key::new(&[7; 32]);
        let mut out = [0; 200];
        let len = write(&key, &packet(Body::Acknowledgement), &mut out);
        let signed = &out[..len - TAG_BYTES];
        for (more, whole) in [(&[][..], true), (&[0][..], false)] {
            let signed = [signed, more].concat();
            let sealed = [&signed[..], &key.tag(&signed)].concat();
            let opened = key.open(&sealed);
            assert_eq!(
                opened,
                if whole { Ok(packet(Body::Acknowledgement)) } else { Err(Rejected::Malformed) }
            );
        }
    }

    #[test]
    fn a_seal_is_of_one_number_length_life_and_direction() {
        let key = Key::new(&[7; 32]);
        let life = Life { epoch: Epoch(5), session: 1 };
        let sent =
            Packet { from: NodeId(1), to: NodeId(2), life, number: 77, ..packet(Body::Acknowledgement) };
        let mut out = [0; 200];
        let len = write(&key, &sent, &mut out);
        let seal = key.seal_key(NodeId(1), NodeId(2), life);
        assert_eq!(seal.number_of(&out[..len]), Some(77));
        assert_eq!((seal.number_of(&out[..len + 1]), seal.number_of(&out[..len - 1])), (None, None));
        for byte in NUMBER_OFFSET..ENVELOPE_BYTES {
            let mut forged = out;
            forged[byte] ^= 1;
            assert_eq!(seal.number_of(&forged[..len]), None, "byte {byte}");
        }
        let others = [
            key.seal_key(NodeId(2), NodeId(1), life),
            key.seal_key(NodeId(1), NodeId(3), life),
            key.seal_key(NodeId(1), NodeId(2), Life { session: 2, ..life }),
            key.seal_key(NodeId(1), NodeId(2), Life { epoch: Epoch(6), ..life }),
            Key::new(&[8; 32]).seal_key(NodeId(1), NodeId(2), life),
        ];
        assert!(others.iter().all(|other| other.number_of(&out[..len]).is_none()));
        assert_eq!(seal.number_of(&out[..ENVELOPE_BYTES - 1]), None);
    }

    #[test]
    fn a_member_with_another_version_differs_from_an_unknown_sender() {
        let key = Key::new(&[7; 32]);
        let mut out = [0; 200];
        let other = Packet { version: VERSION + 1, ..packet(Body::Acknowledgement) };
        let len = write(&key, &other, &mut out);
        assert_eq!(key.open(&out[..len]), Err(Rejected::Foreign(VERSION + 1)));
        assert_eq!(Key::new(&[8; 32]).open(&out[..len]), Err(Rejected::Version));
    }
}
