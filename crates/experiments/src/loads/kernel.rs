//! The baseline: the same messages over plain kernel UDP sockets.
//!
//! A message is split into datagrams of the same payload as Punctual's packets and reassembled at the
//! receiver. There are no retransmissions and no pacing: this is what a program gets that simply sends.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use punctual_analysis::Instant;
use punctual_os::clock::{duration, now};
use punctual_os::namespaces::Namespace;
use rustix::net::sockopt::{set_ip_tos, set_socket_recv_buffer_size};

use super::{MessageReceiver, MessageSender, Offered, is_passing};

/// Payload of a datagram, as Punctual's default.
pub const FRAGMENT_BYTES: usize = 1_400;
const HEADER_BYTES: usize = 64;
/// The receiver's socket buffer: large, so that losses are the network's.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Messages that are reassembled at the same time; an older incomplete message is lost.
const PARTIAL_MAX: usize = 16;

/// Which queue a socket's packets join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// Before everything else.
    High,
    /// Behind everything else.
    Low,
}

impl Precedence {
    /// The type of service that the kernel maps to `pfifo_fast`'s first or last band: low delay, throughput.
    pub const fn type_of_service(self) -> u8 {
        match self {
            Self::High => 0x10,
            Self::Low => 0x08,
        }
    }
}

/// Sends messages.
#[derive(Debug)]
pub struct KernelSender {
    socket: UdpSocket,
    message: u64,
    packet: Vec<u8>,
}

/// Receives messages.
#[derive(Debug)]
pub struct KernelReceiver {
    socket: UdpSocket,
    partial: VecDeque<Partial>,
    packet: Vec<u8>,
}

#[derive(Debug)]
struct Partial {
    message: u64,
    missing: usize,
    seen: Vec<bool>,
    bytes: Vec<u8>,
}

/// A stream from a socket in `from` to `port` of `address` in `to`.
///
/// # Errors
/// If a namespace or socket is refused.
pub fn stream(
    from: &Namespace,
    to: &Namespace,
    address: Ipv4Addr,
    port: u16,
) -> io::Result<(KernelSender, KernelReceiver)> {
    let target = SocketAddrV4::new(address, port);
    let receiver = to.within(|| KernelReceiver::bind(target))?;
    let sender = from.within(|| KernelSender::connect(target))?;
    Ok((sender, receiver))
}

/// A stream between two sockets on loopback, on a port that the kernel picks.
///
/// # Errors
/// If a socket is refused.
pub fn loopback() -> io::Result<(KernelSender, KernelReceiver)> {
    let receiver = KernelReceiver::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    match receiver.socket.local_addr()? {
        SocketAddr::V4(target) => Ok((KernelSender::connect(target)?, receiver)),
        SocketAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

impl KernelSender {
    /// A socket in the calling thread's namespace.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn connect(target: SocketAddrV4) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(target)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, message: 0, packet: Vec::with_capacity(HEADER_BYTES + FRAGMENT_BYTES) })
    }

    /// Sets which queue its packets join on hosts that have priorities.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn mark(&self, precedence: Precedence) -> io::Result<()> {
        Ok(set_ip_tos(&self.socket, precedence.type_of_service())?)
    }
}

impl KernelReceiver {
    /// A socket in the calling thread's namespace.
    ///
    /// # Errors
    /// If the address is taken.
    pub fn bind(address: SocketAddrV4) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        Ok(Self { socket, partial: VecDeque::new(), packet: vec![0; HEADER_BYTES + FRAGMENT_BYTES] })
    }

    /// Takes a datagram in; the message that it completes, if any.
    fn accept(&mut self, len: usize) -> Option<Partial> {
        let word = |at: usize| Some(u64::from_le_bytes(self.packet[..len].get(at..at + 8)?.try_into().ok()?));
        let (message, total, index) =
            (word(0)?, usize::try_from(word(8)?).ok()?, usize::try_from(word(16)?).ok()?);
        let count = total.div_ceil(FRAGMENT_BYTES).max(1);
        let payload = self.packet.get(HEADER_BYTES..len)?;
        let start = index.checked_mul(FRAGMENT_BYTES)?;
        let fits = total <= 64 << 20 && index < count && payload.len() == FRAGMENT_BYTES.min(total - start);
        if !fits {
            return None;
        }
        let position = match self.partial.iter().position(|partial| partial.message == message) {
            Some(position) => position,
            None => {
                if self.partial.len() == PARTIAL_MAX {
                    self.partial.pop_front();
                }
                self.partial.push_back(Partial {
                    message,
                    missing: count,
                    seen: vec![false; count],
                    bytes: vec![0; total],
                });
                self.partial.len() - 1
            }
        };
        let partial = &mut self.partial[position];
        if !std::mem::replace(partial.seen.get_mut(index)?, true) {
            partial.bytes.get_mut(start..start + payload.len())?.copy_from_slice(payload);
            partial.missing -= 1;
        }
        if partial.missing == 0 { self.partial.remove(position) } else { None }
    }
}

impl MessageSender for KernelSender {
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered> {
        let (number, total) = (self.message, message.len() as u64);
        self.message += 1;
        for (index, payload) in message.chunks(FRAGMENT_BYTES).enumerate() {
            self.packet.clear();
            self.packet.resize(HEADER_BYTES, 0);
            self.packet[0..8].copy_from_slice(&number.to_le_bytes());
            self.packet[8..16].copy_from_slice(&total.to_le_bytes());
            self.packet[16..24].copy_from_slice(&(index as u64).to_le_bytes());
            self.packet.extend_from_slice(payload);
            match self.socket.send(&self.packet) {
                Ok(_) => {}
                // The queue is full: the packet is lost, as UDP's are.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                // What an earlier packet met; the receiver counts the loss.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Offered::Taken)
    }
}

impl MessageReceiver for KernelReceiver {
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool> {
        loop {
            let left = until.since(now());
            if left.as_u64() == 0 {
                return Ok(false);
            }
            self.socket.set_read_timeout(Some(duration(left)))?;
            match self.socket.recv(&mut self.packet) {
                Ok(len) => {
                    if let Some(complete) = self.accept(len) {
                        *message = complete.bytes;
                        return Ok(true);
                    }
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::Nanos;

    use super::*;

    #[test]
    fn messages_of_any_length_come_back_whole() {
        let (mut sender, mut receiver) = loopback().expect("sockets");
        let until = now() + Nanos::from_secs(10);
        for len in [1, 1_400, 1_401, 100_000] {
            let sent: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
            assert_eq!(sender.offer(&sent).expect("sent"), Offered::Taken);
            let mut received = Vec::new();
            assert!(receiver.take(&mut received, until).expect("a socket"), "{len} bytes did not arrive");
            assert!(received == sent, "{len} bytes were changed");
        }
    }

    #[test]
    fn a_lost_packet_costs_its_message_only() {
        let (mut sender, mut receiver) = loopback().expect("sockets");
        let whole = vec![5; 3_000];
        sender.offer(&whole).expect("sent");
        let mut received = Vec::new();
        let until = now() + Nanos::from_secs(10);
        // Swallow the first packet of the first message.
        receiver.socket.recv(&mut receiver.packet).expect("a packet");
        sender.offer(&vec![6; 3_000]).expect("sent");
        assert!(receiver.take(&mut received, until).expect("a socket"));
        assert_eq!(received, vec![6; 3_000]);
        assert!(!receiver.take(&mut received, now() + Nanos::from_millis(20)).expect("a socket"));
    }

    #[test]
    fn nonsense_is_ignored() {
        let (sender, mut receiver) = loopback().expect("sockets");
        for nonsense in [vec![], vec![255; 10], vec![255; HEADER_BYTES + 10], vec![0; HEADER_BYTES + 10]] {
            sender.socket.send(&nonsense).expect("sent");
        }
        assert!(!receiver.take(&mut Vec::new(), now() + Nanos::from_millis(20)).expect("a socket"));
    }
}
