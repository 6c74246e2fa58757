//! IP packets that carry TCP: checked once here, then trusted. A refused packet is reported with its reason.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, TcpControl, TcpOption, TcpPacket, TcpRepr,
    TcpSeqNumber, TcpTimestampRepr,
};

/// Bytes of an IPv4 header without options, an IPv6 header, and a TCP header without options.
pub const IPV4_BYTES: usize = 20;
/// See [`IPV4_BYTES`].
pub const IPV6_BYTES: usize = 40;
/// See [`IPV4_BYTES`].
pub const TCP_BYTES: usize = 20;

/// The two ends of a connection, from this host's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

impl Flow {
    /// Whether the flow runs over IPv6.
    pub const fn is_v6(&self) -> bool {
        self.local.is_ipv6()
    }
}

/// Control bits of a segment (RFC 9293 3.1) that this stack uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Flags {
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    pub psh: bool,
}

/// A checked packet: the fields of its TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The flow that it belongs to; its destination is local.
    pub flow: Flow,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number, if the segment has one.
    pub ack: Option<u32>,
    /// Control bits.
    pub flags: Flags,
    /// The window field as sent, unscaled.
    pub window: u16,
    /// The urgent pointer, if the segment has one.
    pub urgent: Option<u16>,
    /// Bytes of payload.
    pub payload_bytes: u16,
    /// Option: largest segment that the sender accepts.
    pub mss: Option<u16>,
    /// Option: window scale, at most 14.
    pub scale: Option<u8>,
    /// Option: timestamp value and echo.
    pub timestamp: Option<(u32, u32)>,
    /// Option: selective acknowledgements permitted.
    pub sack: bool,
}

impl Segment {
    /// Length of the segment in sequence space: payload, SYN and FIN.
    pub fn length(&self) -> u32 {
        u32::from(self.payload_bytes) + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// Whether it asks for a connection: a SYN without an acknowledgement.
    pub const fn begins(&self) -> bool {
        self.flags.syn && self.ack.is_none() && !self.flags.rst
    }

    /// The sequence number after the segment.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.length())
    }
}

/// Why a packet is no TCP segment that can be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its headers state.
    #[error("the packet is cut short")]
    Truncated,
    /// Neither IPv4 nor IPv6.
    #[error("the packet has no known IP version")]
    Version,
    /// Another protocol, or IPv6 extension headers before TCP.
    #[error("the packet carries no TCP")]
    Protocol,
    /// A fragment of an IP packet: the caller must reassemble.
    #[error("the packet is a fragment")]
    Fragment,
    /// The checksum of IPv4 or TCP is wrong.
    #[error("the checksum is wrong")]
    Checksum,
    /// Header length or an option is wrong.
    #[error("the TCP header is malformed")]
    Header,
    /// Control bits that exclude each other (SYN with FIN or RST, FIN with RST).
    #[error("the control bits exclude each other")]
    Bits,
    /// Port 0, or an address that no unicast connection can have.
    #[error("an address or port cannot belong to a connection")]
    Address,
}

/// The addresses of an IP packet, and the begin and end of its TCP segment.
pub(crate) struct Layout {
    pub(crate) source: IpAddress,
    pub(crate) destination: IpAddress,
    pub(crate) tcp: core::ops::Range<usize>,
}

/// Finds the TCP segment in an IP packet, without parsing it.
pub(crate) fn layout(packet: &[u8]) -> Result<Layout, Malformed> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => layout_v4(packet),
        Some(6) => layout_v6(packet),
        Some(_) => Err(Malformed::Version),
        None => Err(Malformed::Truncated),
    }
}

fn layout_v4(packet: &[u8]) -> Result<Layout, Malformed> {
    let ip = Ipv4Packet::new_checked(packet).map_err(|_| Malformed::Truncated)?;
    if ip.more_frags() || ip.frag_offset() != 0 {
        return Err(Malformed::Fragment);
    }
    if ip.next_header() != IpProtocol::Tcp {
        return Err(Malformed::Protocol);
    }
    let tcp = usize::from(ip.header_len())..usize::from(ip.total_len());
    Ok(Layout { source: ip.src_addr().into(), destination: ip.dst_addr().into(), tcp })
}

fn layout_v6(packet: &[u8]) -> Result<Layout, Malformed> {
    let ip = Ipv6Packet::new_checked(packet).map_err(|_| Malformed::Truncated)?;
    if ip.next_header() != IpProtocol::Tcp {
        return Err(Malformed::Protocol);
    }
    let tcp = IPV6_BYTES..ip.total_len();
    Ok(Layout { source: ip.src_addr().into(), destination: ip.dst_addr().into(), tcp })
}

/// Whether an address may be an end of a connection (RFC 1122 3.2.1.3, RFC 9293 3.9.2).
pub(crate) fn is_usable(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0);
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Checks a packet that arrived, with its checksums.
///
/// # Errors
///
/// Why it is no segment of a connection.
pub fn parse(packet: &[u8]) -> Result<Segment, Malformed> {
    let layout = layout(packet)?;
    let is_v4 = matches!(layout.source, IpAddress::Ipv4(_));
    if is_v4 && !Ipv4Packet::new_unchecked(packet).verify_checksum() {
        return Err(Malformed::Checksum);
    }
    let bytes = &packet[layout.tcp.clone()];
    let tcp = TcpPacket::new_checked(bytes).map_err(|_| Malformed::Truncated)?;
    if !tcp.verify_checksum(&layout.source, &layout.destination) {
        return Err(Malformed::Checksum);
    }
    let flow = Flow {
        local: SocketAddr::new(layout.destination.into(), tcp.dst_port()),
        remote: SocketAddr::new(layout.source.into(), tcp.src_port()),
    };
    read(&tcp, flow, bytes.len())
}

fn read(tcp: &TcpPacket<&[u8]>, flow: Flow, tcp_bytes: usize) -> Result<Segment, Malformed> {
    let has_ports = flow.local.port() != 0 && flow.remote.port() != 0;
    if !has_ports || !is_usable(flow.local.ip()) || !is_usable(flow.remote.ip()) {
        return Err(Malformed::Address);
    }
    let flags = Flags { syn: tcp.syn(), fin: tcp.fin(), rst: tcp.rst(), psh: tcp.psh() };
    if [flags.syn, flags.fin, flags.rst].into_iter().filter(|bit| *bit).count() > 1 {
        return Err(Malformed::Bits);
    }
    let payload = tcp_bytes - usize::from(tcp.header_len());
    let mut segment = Segment {
        flow,
        seq: tcp.seq_number().0 as u32,
        ack: tcp.ack().then(|| tcp.ack_number().0 as u32),
        flags,
        window: tcp.window_len(),
        urgent: tcp.urg().then(|| tcp.urgent_at()),
        payload_bytes: u16::try_from(payload).map_err(|_| Malformed::Truncated)?,
        mss: None,
        scale: None,
        timestamp: None,
        sack: false,
    };
    read_options(&mut segment, tcp.options())?;
    Ok(segment)
}

/// The ranges of the option of selective acknowledgements (RFC 2018 3) of a packet that [`parse`] has checked: three at most, as
/// many as fit beside a timestamp.
pub(crate) fn sacked(packet: &[u8]) -> Vec<(u32, u32)> {
    let Ok(layout) = layout(packet) else { return Vec::new() };
    let tcp = TcpPacket::new_unchecked(&packet[layout.tcp]);
    let mut options = tcp.options();
    while let Ok((rest, option)) = TcpOption::parse(options) {
        match option {
            TcpOption::SackRange(ranges) => return ranges.into_iter().flatten().collect(),
            TcpOption::EndOfList => break,
            _ => options = rest,
        }
    }
    Vec::new()
}

fn read_options(segment: &mut Segment, mut options: &[u8]) -> Result<(), Malformed> {
    while !options.is_empty() {
        let (rest, option) = TcpOption::parse(options).map_err(|_| Malformed::Header)?;
        match option {
            TcpOption::EndOfList => break,
            TcpOption::MaxSegmentSize(mss) => segment.mss = Some(mss),
            TcpOption::WindowScale(scale) => segment.scale = Some(scale.min(14)),
            TcpOption::SackPermitted => segment.sack = true,
            TcpOption::TimeStamp { tsval, tsecr } => segment.timestamp = Some((tsval, tsecr)),
            _ => (),
        }
        options = rest;
    }
    Ok(())
}

/// Writes `segment` without payload as a packet into `packet`, from the flow's local end to its remote one (`is_to_peer`) or
/// back.
pub fn write(segment: &Segment, hop_limit: u8, is_to_peer: bool, packet: &mut Vec<u8>) {
    write_with(segment, &[], hop_limit, is_to_peer, packet);
}

/// [`write()`] with a payload of at most 65,000 bytes.
pub fn write_with(segment: &Segment, payload: &[u8], hop_limit: u8, is_to_peer: bool, packet: &mut Vec<u8>) {
    let Flow { local, remote } = segment.flow;
    let (source, destination) = if is_to_peer { (local, remote) } else { (remote, local) };
    let control = match segment.flags {
        Flags { syn: true, .. } => TcpControl::Syn,
        Flags { fin: true, .. } => TcpControl::Fin,
        Flags { rst: true, .. } => TcpControl::Rst,
        Flags { psh: true, .. } => TcpControl::Psh,
        _ => TcpControl::None,
    };
    let tcp = TcpRepr {
        src_port: source.port(),
        dst_port: destination.port(),
        control,
        seq_number: TcpSeqNumber(segment.seq as i32),
        ack_number: segment.ack.map(|ack| TcpSeqNumber(ack as i32)),
        window_len: segment.window,
        window_scale: segment.scale,
        max_seg_size: segment.mss,
        sack_permitted: segment.sack,
        sack_ranges: [None; 3],
        timestamp: segment.timestamp.map(|(value, echo)| TcpTimestampRepr::new(value, echo)),
        payload,
    };
    let (from, to) = (IpAddress::from(source.ip()), IpAddress::from(destination.ip()));
    let ip = IpRepr::new(from, to, IpProtocol::Tcp, tcp.buffer_len(), hop_limit);
    packet.clear();
    packet.resize(ip.buffer_len(), 0);
    let sums = ChecksumCapabilities::default();
    ip.emit(&mut packet[..], &sums);
    let start = ip.header_len();
    tcp.emit(&mut TcpPacket::new_unchecked(&mut packet[start..]), &from, &to, &sums);
}

/// The reset for a segment without a connection (RFC 9293 3.10.7.1); none for a reset.
pub fn reset_for(segment: &Segment, packet: &mut Vec<u8>) -> bool {
    if segment.flags.rst {
        return false;
    }
    let (seq, ack) = match segment.ack {
        Some(ack) => (ack, None),
        None => (0, Some(segment.end())),
    };
    let flags = Flags { rst: true, ..Flags::default() };
    let reset = Segment { seq, ack, flags, ..bare(segment.flow) };
    write(&reset, 64, true, packet);
    true
}

/// A segment without payload, flags and options.
pub fn bare(flow: Flow) -> Segment {
    Segment {
        flow,
        seq: 0,
        ack: None,
        flags: Flags::default(),
        window: 0,
        urgent: None,
        payload_bytes: 0,
        mss: None,
        scale: None,
        timestamp: None,
        sack: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows() -> [Flow; 2] {
        [
            Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() },
            Flow {
                local: "[fd00::1]:80".parse().expect("an address"),
                remote: "[fd00::2]:5000".parse().expect("an address"),
            },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for flow in flows() {
            let segment = Segment {
                seq: 0xffff_fff0,
                ack: Some(7),
                flags: Flags { syn: true, ..Flags::default() },
                window: 1000,
                mss: Some(1460),
                scale: Some(7),
                timestamp: Some((1, 2)),
                sack: true,
                ..bare(flow)
            };
            let mut packet = Vec::new();
            write(&segment, 64, false, &mut packet);
            assert_eq!(parse(&packet), Ok(segment));
        }
    }

    /// RFC 9293 3.1: every single flipped bit is detected, by a checksum or by a field that must keep its
    /// value.
    #[test]
    fn a_flipped_bit_is_seen() {
        for flow in flows() {
            let segment = Segment { seq: 1, ack: Some(7), window: 1000, ..bare(flow) };
            let mut packet = Vec::new();
            write(&segment, 64, false, &mut packet);
            for bit in 0..packet.len() * 8 {
                packet[bit / 8] ^= 1 << (bit % 8);
                // IPv6 has no checksum of its own: its hop limit and traffic class may change, and nothing else.
                assert!(parse(&packet).is_err() || parse(&packet) == Ok(segment), "bit {bit}");
                packet[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// RFC 9293 3.10.7.1: with an acknowledgement the reset takes its number from it, else it acknowledges the segment.
    #[test]
    fn a_segment_of_no_connection_gets_the_reset_that_its_sender_accepts() {
        let flow = flows()[0];
        let mut packet = Vec::new();
        let syn = Segment { seq: 9, flags: Flags { syn: true, ..Flags::default() }, ..bare(flow) };
        assert!(reset_for(&syn, &mut packet));
        let back = Flow { local: flow.remote, remote: flow.local };
        let reset = parse(&packet).expect("a segment");
        assert_eq!((reset.flow, reset.seq, reset.ack, reset.flags.rst), (back, 0, Some(10), true));
        assert!(reset_for(&Segment { seq: 9, ack: Some(77), ..bare(flow) }, &mut packet));
        let reset = parse(&packet).expect("a segment");
        assert_eq!((reset.seq, reset.ack), (77, None));
        let rst = Segment { flags: Flags { rst: true, ..Flags::default() }, ..bare(flow) };
        assert!(!reset_for(&rst, &mut packet));
    }

    /// RFC 791 3.2: the first fragment has the bit, the last has the offset, those between have both.
    #[test]
    fn fragments_are_refused() {
        let mut packet = Vec::new();
        write(&bare(flows()[0]), 64, false, &mut packet);
        for (field, is_fragment) in [([0x20, 0], true), ([0, 1], true), ([0x20, 1], true), ([0x40, 0], false)]
        {
            packet[6..8].copy_from_slice(&field);
            Ipv4Packet::new_unchecked(&mut packet[..]).fill_checksum();
            let fragment = parse(&packet).err();
            assert_eq!(fragment, is_fragment.then_some(Malformed::Fragment), "{field:?}");
        }
    }

    /// RFC 7323 2.3: a larger scale counts as 14.
    #[test]
    fn a_scale_is_14_at_most() {
        let mut packet = Vec::new();
        for (written, read) in [(0, 0), (13, 13), (14, 14), (15, 14), (255, 14)] {
            let syn = Flags { syn: true, ..Flags::default() };
            let segment = Segment { flags: syn, scale: Some(written), ..bare(flows()[0]) };
            write(&segment, 64, false, &mut packet);
            assert_eq!(parse(&packet).expect("a segment").scale, Some(read));
        }
    }

    #[test]
    fn bits_that_exclude_each_other_are_refused() {
        let mut packet = Vec::new();
        write(
            &Segment { flags: Flags { syn: true, ..Flags::default() }, ..bare(flows()[0]) },
            64,
            false,
            &mut packet,
        );
        let tcp = layout(&packet).expect("TCP");
        let mut edit = TcpPacket::new_unchecked(&mut packet[tcp.tcp]);
        edit.set_fin(true);
        edit.fill_checksum(&tcp.source, &tcp.destination);
        assert_eq!(parse(&packet), Err(Malformed::Bits));
    }
}
