//! A second, independent implementation of the program's rules, in another language: field by field from the
//! frame's bytes. It has no rates and buffers, so the tests that use it do not limit them.

use std::net::IpAddr;

use punctual_link::xdp::ClassifierOptions;
use punctual_link::{Filter, Stream};

use crate::support::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expected {
    Pass,
    Drop(Reason),
    Steer { stream: Stream2, offset: usize, bytes: usize },
}

/// [`Stream`] by number, to be a key.
pub type Stream2 = usize;

pub fn classify(frame: &[u8], options: &ClassifierOptions, filter: &Filter) -> Expected {
    match to_our_address(frame, options).and_then(|(udp, room)| to_our_port(frame, udp, room, options)) {
        None => Expected::Pass,
        Some(Err(reason)) => Expected::Drop(reason),
        Some(Ok((is_signalling, offset, bytes))) => {
            let stream =
                if is_signalling { Ok(Stream::Signalling) } else { data(&frame[offset..][..bytes], filter) };
            match stream {
                Ok(stream) => Expected::Steer { stream: stream as usize, offset, bytes },
                Err(reason) => Expected::Drop(reason),
            }
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The offset of UDP and the number of bytes according to IP.
fn to_our_address(frame: &[u8], options: &ClassifierOptions) -> Option<(usize, usize)> {
    let ip = frame.get(14..)?;
    match (be16(frame, 12)?, options.local, options.peer) {
        (0x0800, IpAddr::V4(local), IpAddr::V4(peer)) => {
            let is_whole = be16(ip, 6)? & 0x3fff == 0;
            let ours = ip.get(16..20)? == local.octets() && ip.get(12..16)? == peer.octets();
            (is_whole && ours && ip[0] == 0x45 && ip[9] == 17)
                .then(|| Some((34, usize::from(be16(ip, 2)?).checked_sub(20)?)))?
        }
        (0x86dd, IpAddr::V6(local), IpAddr::V6(peer)) => {
            let ours = ip.get(24..40)? == local.octets() && ip.get(8..24)? == peer.octets();
            (ours && ip[0] >> 4 == 6 && ip[6] == 17).then(|| Some((54, be16(ip, 4)?.into())))?
        }
        _ => None,
    }
}

type Ours = Result<(bool, usize, usize), Reason>;

/// Whether it is signalling, and the offset of its payload.
fn to_our_port(frame: &[u8], udp: usize, room: usize, options: &ClassifierOptions) -> Option<Ours> {
    frame.get(udp..udp + 8)?;
    let (from, to, bytes) = (be16(frame, udp)?, be16(frame, udp + 2)?, be16(frame, udp + 4)? as usize);
    let expected_from = if to == options.signalling_port {
        options.peer_signalling_port
    } else if to == options.data_port {
        options.peer_data_port
    } else {
        return None;
    };
    let fits = bytes <= room && udp + room <= frame.len() && bytes <= 8 + options.packet_bytes_max as usize;
    Some(if bytes <= 8 || !fits {
        Err(Reason::Malformed)
    } else if from != expected_from {
        Err(Reason::Unknown)
    } else {
        Ok((to == options.signalling_port, udp + 8, bytes - 8))
    })
}

fn data(packet: &[u8], filter: &Filter) -> Result<Stream, Reason> {
    if packet.len() < 64 {
        return Err(Reason::Malformed);
    }
    let le32 = |at: usize| u32::from_le_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let le16 = |at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
    let le64 = |at: usize| u64::from(le32(at)) | u64::from(le32(at + 4)) << 32;
    let (source, channel, cookie, destination) = (le32(4), le32(8), le32(12), le32(60));
    let (message_bytes, payload_bytes) = (le32(36), u32::from(le16(56)));
    let shape = matches!((packet[0], packet[1], le16(2), destination), (2, 1, 0 | 1 | 3, _) | (2, 2, 0, 1..));
    let lengths = payload_bytes as usize <= packet.len() - 64 && payload_bytes <= message_bytes;
    if !shape || source == 0 || le16(32) >= le16(34) || !lengths {
        return Err(Reason::Malformed);
    }
    if packet[1] == 2 {
        return Ok(Stream::BestEffort);
    }
    if (source, channel, le64(16)) != (filter.path.node, filter.path.channel, filter.path.epoch) {
        return Err(Reason::Unknown);
    }
    if cookie != filter.cookie {
        return Err(Reason::WrongCookie);
    }
    if packet.len() > filter.packet_bytes_max as usize {
        return Err(Reason::Malformed);
    }
    if filter.slack_ns_min.is_some_and(|least| le64(40).cast_signed() < least) {
        return Err(Reason::Expired);
    }
    Ok(if le16(2) != 0 { Stream::BestEffort } else { filter.stream })
}
