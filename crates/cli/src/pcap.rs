//! Files of packets as `tcpdump` and `tshark` read them: pcap with times in nanoseconds and IP packets without a link layer
//! (LINKTYPE_RAW; draft-ietf-opsawg-pcap).

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

/// Times in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// The first byte of a packet tells IPv4 from IPv6.
const LINKTYPE_RAW: u32 = 101;
const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
/// Bytes that wait before they are written.
const BUFFER_BYTES: usize = 8_192;

/// Writes packets to `out`. It has a buffer of its own, to know which packets a failed write leaves in the file.
pub struct Pcap<W> {
    out: W,
    /// Whole packets that wait to be written, and where each of them ends.
    waiting: Vec<u8>,
    ends: Vec<usize>,
    written: u64,
}

impl<W: Write> Pcap<W> {
    /// Begins a file whose packets have at most `packet_bytes`.
    pub fn new(mut out: W, packet_bytes: u32) -> io::Result<Self> {
        let mut head = Vec::from(MAGIC.to_le_bytes());
        head.extend([2_u16, 4].iter().flat_map(|part| part.to_le_bytes()));
        head.extend([0, 0, packet_bytes, LINKTYPE_RAW].iter().flat_map(|part| part.to_le_bytes()));
        out.write_all(&head)?;
        out.flush()?;
        Ok(Self { out, waiting: Vec::new(), ends: Vec::new(), written: 0 })
    }

    /// Packets that are in the file as a whole.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Adds a packet of `bytes_whole`, which was seen at `unix_ns`; `bytes` are its first ones.
    pub fn packet(&mut self, unix_ns: u64, bytes: &[u8], bytes_whole: u32) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (seconds, rest) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
        let head = [seconds as u32, rest as u32, length, bytes_whole.max(length)];
        self.waiting.extend(head.iter().flat_map(|part| part.to_le_bytes()));
        self.waiting.extend(bytes);
        self.ends.push(self.waiting.len());
        if self.waiting.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    /// Writes what waits. After an error, nothing more may be written: the last packet may be there in part.
    pub fn flush(&mut self) -> io::Result<()> {
        let (bytes, result) = write_most(&mut self.out, &self.waiting);
        self.written += self.ends.iter().filter(|end| **end <= bytes).count() as u64;
        self.waiting.clear();
        self.ends.clear();
        result.and_then(|()| self.out.flush())
    }
}

/// Writes bytes until all are written or it fails; returns how many were written, too.
fn write_most(out: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut at = 0;
    while at < bytes.len() {
        match out.write(&bytes[at..]) {
            Ok(0) => return (at, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (at, Err(error)),
        }
    }
    (at, Ok(()))
}

/// Adds 16-bit words, the last one filled up (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low))).sum()
}

fn checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The headers of UDP and IP in front of a payload of `whole` bytes, of which `payload` are the first. Without all of them
/// there is no checksum of UDP.
pub fn udp_headers([source, destination]: [SocketAddr; 2], payload: &[u8], whole: u32) -> Vec<u8> {
    let length = u16::try_from(whole as usize + UDP_BYTES).unwrap_or(u16::MAX);
    let ports = [source.port(), destination.port(), length].map(u16::to_be_bytes).concat();
    let addresses = [octets(source.ip()), octets(destination.ip())].concat();
    let pseudo = sum(&addresses) + u64::from(UDP) + u64::from(length);
    let is_whole = payload.len() == whole as usize;
    // 0 is sent as its other form: 0 says that there is none (RFC 768).
    let sent = match checksum(pseudo + sum(&ports) + sum(payload)) {
        0 => 0xffff,
        other => other,
    };
    let datagram = [&ports[..], &(if is_whole { sent } else { 0 }).to_be_bytes()].concat();
    [ip_header(source.ip(), &addresses, length), datagram].concat()
}

fn ip_header(source: IpAddr, addresses: &[u8], length: u16) -> Vec<u8> {
    if source.is_ipv6() {
        let [high, low] = length.to_be_bytes();
        return [&[0x60, 0, 0, 0, high, low, UDP, 64], addresses].concat();
    }
    let [high, low] = length.saturating_add(20).to_be_bytes();
    let mut header = [&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, UDP, 0, 0], addresses].concat();
    let check = checksum(sum(&header));
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_layout_of_pcap() {
        let mut out = Vec::new();
        let mut file = Pcap::new(&mut out, 128).expect("written");
        file.packet(1_700_000_000_123_456_789, &[1, 2, 3], 9).expect("written");
        file.flush().expect("written");
        assert_eq!(file.written(), 1);
        let words: Vec<u32> =
            out[..40].chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four"))).collect();
        assert_eq!(words, [MAGIC, 0x0004_0002, 0, 0, 128, 101, 1_700_000_000, 123_456_789, 3, 9]);
        assert_eq!(out[40..], [1, 2, 3]);
    }

    /// A disk with so many bytes of room.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count > 0 { Ok(count) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_has_the_packets_that_are_whole() {
        for (room, whole) in [(24, 0), (24 + 115, 0), (24 + 116, 1), (24 + 100 * 116 + 1, 100)] {
            let mut file = Pcap::new(Disk(room), 128).expect("the head fits");
            let refused = (0..1_000).find_map(|at| file.packet(at, &[0; 100], 100).err()).expect("full");
            assert_eq!((refused.kind(), file.written()), (io::ErrorKind::StorageFull, whole), "{room}");
        }
    }

    /// A header whose checksum is right sums to 0 (RFC 1071), over IPv4 and IPv6, with payloads of either parity.
    #[test]
    fn headers_have_right_checksums_and_lengths() {
        for ends in [["10.0.0.1:7411", "10.0.0.2:7412"], ["[fd00::1]:7411", "[fd00::2]:7412"]] {
            let ends = ends.map(|end| end.parse::<SocketAddr>().expect(end));
            for payload in [&b"abcd"[..], b"abcde", b""] {
                let headers = udp_headers(ends, payload, payload.len() as u32);
                let (ip, rest) = headers.split_at(headers.len() - UDP_BYTES);
                let addresses = if ends[0].is_ipv4() { &ip[12..] } else { &ip[8..] };
                let length = (UDP_BYTES + payload.len()) as u64;
                let all = sum(addresses) + u64::from(UDP) + length + sum(rest) + sum(payload);
                assert_eq!(checksum(all), 0, "{ends:?} {payload:?}");
                if ends[0].is_ipv4() {
                    assert_eq!(checksum(sum(ip)), 0);
                    assert_eq!(u64::from(u16::from_be_bytes([ip[2], ip[3]])), length + 20);
                }
            }
        }
    }

    #[test]
    fn a_part_of_a_payload_has_no_checksum() {
        let ends = ["10.0.0.1:1", "10.0.0.2:2"].map(|end| end.parse().expect(end));
        let headers = udp_headers(ends, b"ab", 100);
        assert_eq!(headers[26..], [0, 0]);
        assert_eq!(headers[24..26], 108_u16.to_be_bytes());
    }
}
