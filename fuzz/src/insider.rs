//! An attacker who has the domain's key and implements RTCOP. It encodes the packets of the signalling port a
//! second time, so that a change of the format without a change of its version is detected here.

use blake3::{derive_key, keyed_hash};
use serde::{Deserialize, Serialize};

use crate::net::DOMAIN_KEY;

/// Bytes of the tag behind a packet.
pub const TAG_BYTES: usize = 16;

/// A packet without its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Version of the protocol.
    pub version: u8,
    /// The sending node.
    pub from: u32,
    /// The receiving one.
    pub to: u32,
    /// The sender's.
    pub life: Life,
    /// The receiver's life, as far as the sender knows it.
    pub peer_life: Option<Life>,
    /// Counts packets.
    pub number: u64,
    /// For drivers that classify; a node does not read it.
    pub seal: u64,
    /// Segments below it were received, and by their bits those behind it.
    pub received: (u64, u32),
    /// The rest.
    pub body: Body,
}

/// Epoch and session.
pub type Life = (u64, u32);

/// The kinds of packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Liveness.
    Hello(Hello),
    /// A piece of the stream of messages.
    Segment(u64, Vec<u8>),
    /// Nothing.
    Acknowledgement,
}

/// See RTCOP's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// 0 to 2.
    pub step: Step,
    /// The nonce that the answer must echo.
    pub nonce: u64,
    /// The sender's clock.
    pub sent: u64,
    /// Nonce and time of the answered HELLO.
    pub echo: Option<(u64, u64)>,
    /// Tolerance of the clock, in ppm.
    pub tolerance: u32,
    /// How long after `sent` it leaves at the latest, in ns.
    pub departure: u64,
    /// What its packets take to the neighbour's driver at most, in ns.
    pub travel_max: u64,
    /// Bytes that came in over the link so far.
    pub received_bytes: u64,
}

/// Which of three HELLOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Begins.
    First,
    /// Answers.
    Second,
    /// Answers that.
    Third,
}

/// Adds the tag that the domain's key gives.
pub fn sign(packet: &[u8]) -> Vec<u8> {
    let key = derive_key("punctual 2026 rtcop packet authentication v1", &DOMAIN_KEY);
    let mut bytes = packet.to_vec();
    bytes.extend_from_slice(&keyed_hash(&key, packet).as_bytes()[..TAG_BYTES]);
    bytes
}

/// The content behind the envelope: from, to, peer's life, received, body.
type Content = (u32, u32, Option<Life>, (u64, u32), Body);

/// Parses a datagram without checking its tag.
pub fn read(datagram: &[u8]) -> Option<Packet> {
    let (signed, _) = datagram.split_last_chunk::<TAG_BYTES>()?;
    let (version, signed) = signed.split_first()?;
    let (epoch, signed) = signed.split_first_chunk()?;
    let (session, signed) = signed.split_first_chunk()?;
    let (number, signed) = signed.split_first_chunk()?;
    let (seal, content) = signed.split_first_chunk()?;
    let ((from, to, peer_life, received, body), []) = postcard::take_from_bytes::<Content>(content).ok()?
    else {
        return None;
    };
    let life = (u64::from_le_bytes(*epoch), u32::from_le_bytes(*session));
    let (number, seal) = (u64::from_le_bytes(*number), u64::from_le_bytes(*seal));
    Some(Packet { version: *version, from, to, life, peer_life, number, seal, received, body })
}

/// Writes a datagram.
pub fn write(packet: &Packet) -> Vec<u8> {
    let Packet { version, from, to, life, peer_life, number, seal, received, body } = packet;
    let mut bytes = vec![*version];
    bytes.extend(life.0.to_le_bytes());
    bytes.extend(life.1.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(seal.to_le_bytes());
    bytes.extend(postcard::to_allocvec(&(from, to, peer_life, received, body)).unwrap_or_default());
    sign(&bytes)
}

/// A neighbour that the attacker plays: it answers HELLOs like an honest one, and sends arbitrary messages.
#[derive(Debug)]
pub struct Insider {
    here: u32,
    there: u32,
    /// Protocol version of the node.
    version: u8,
    life: Life,
    peer_life: Option<Life>,
    number: u64,
    segment: u64,
    received: u64,
}

impl Insider {
    /// Node `here`, neighbour of `there`.
    pub const fn new(here: u32, there: u32) -> Self {
        let life = (1, 0);
        Self { here, there, version: 0, life, peer_life: None, number: 0, segment: 0, received: 0 }
    }

    fn packet(&mut self, body: Body) -> Packet {
        self.number += 1;
        Packet {
            version: self.version,
            from: self.here,
            to: self.there,
            life: self.life,
            peer_life: self.peer_life,
            number: self.number,
            seal: 0,
            received: (self.received, 0),
            body,
        }
    }

    /// Its answer to a datagram of the node, if any.
    pub fn handle_datagram(&mut self, datagram: &[u8], now: u64) -> Option<Vec<u8>> {
        let packet = read(datagram)?;
        self.version = packet.version;
        if self.peer_life != Some(packet.life) {
            // Another session there: ours begins anew with it.
            self.peer_life = Some(packet.life);
            self.life.1 += 1;
            (self.segment, self.received) = (0, 0);
        }
        let body = match packet.body {
            Body::Hello(Hello { step: Step::Third, .. }) | Body::Acknowledgement => return None,
            Body::Hello(hello) => Body::Hello(Hello {
                step: Step::Third,
                nonce: self.number,
                sent: now,
                echo: Some((hello.nonce, now)),
                tolerance: 100,
                departure: 0,
                travel_max: u64::MAX,
                received_bytes: u64::MAX,
            }),
            Body::Segment(number, _) => {
                self.received = self.received.max(number.saturating_add(1));
                Body::Acknowledgement
            }
        };
        let answer = self.packet(body);
        Some(write(&answer))
    }

    /// The datagrams that carry a message in the stream.
    pub fn encode_message(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let mut stream = (message.len() as u16).to_le_bytes().to_vec();
        stream.extend_from_slice(message);
        stream.chunks(1_200).map(|bytes| self.segment(bytes)).collect()
    }

    /// The next segment, whatever is in it.
    pub fn segment(&mut self, bytes: &[u8]) -> Vec<u8> {
        let body = Body::Segment(self.segment, bytes.to_vec());
        self.segment += 1;
        let packet = self.packet(body);
        write(&packet)
    }
}
