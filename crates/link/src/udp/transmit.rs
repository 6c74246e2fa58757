//! Batched transmission: `sendmmsg` in the order of queueing, and how much of it has left the host.
//!
//! Slots `start..end` hold packets that the kernel has not accepted. The packets that it has accepted and not
//! sent are bounded by the sockets' send queues (`SIOCOUTQ`).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::BATCH_PACKETS;
use crate::{LinkError, LinkStatistics, Port};

/// Packets per socket whose completion is reported separately; older ones are reported together.
const IN_FLIGHT_MAX: usize = 1_024;
/// The least that the kernel charges to the send queue besides a packet's bytes: its buffer's own descriptor.
const SKB_OVERHEAD_BYTES_MIN: u32 = 512;
/// Number of ICMP errors after which one packet is still retried. An attacker who forges them as fast as
/// possible may place several between two attempts.
const REFUSALS_PER_PACKET: usize = 8;

pub(super) struct Transmitter {
    // No boxes: every move of one forbids the raw pointers that lead into it.
    buffers: Vec<Vec<u8>>,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    queued: [(Port, u32); BATCH_PACKETS],
    start: usize,
    end: usize,
    in_flight: [InFlight; 2],
    finished_bytes: u32,
}

// SAFETY: the raw pointers in `headers` and `vectors` point into the vectors of the same value, which move
// with it (their heap addresses stay), and no other code uses them.
unsafe impl Send for Transmitter {}

impl Transmitter {
    pub(super) fn new(packet_bytes_max: usize) -> Self {
        let mut buffers = vec![vec![0; packet_bytes_max]; BATCH_PACKETS];
        let mut vectors: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 0 })
            .collect();
        // SAFETY: `mmsghdr` is plain data for which all zeroes is a valid, empty value.
        let blank: libc::mmsghdr = unsafe { mem::zeroed() };
        let mut headers = vec![blank; BATCH_PACKETS];
        for (header, vector) in headers.iter_mut().zip(vectors.iter_mut()) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        let in_flight = [InFlight::new(), InFlight::new()];
        let queued = [(Port::Data, 0); BATCH_PACKETS];
        Self { buffers, headers, vectors, queued, start: 0, end: 0, in_flight, finished_bytes: 0 }
    }

    pub(super) fn buffer(&mut self) -> Option<&mut [u8]> {
        self.buffers.get_mut(self.end).map(|buffer| &mut buffer[..])
    }

    pub(super) fn queue(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let Some(buffer) = self.buffers.get_mut(self.end) else {
            return Err(LinkError::Options("a packet was queued without a transmit buffer".into()));
        };
        if len > buffer.len() {
            return Err(LinkError::TooLong { bytes: len, bytes_max: buffer.len() });
        }
        self.vectors[self.end].iov_base = buffer.as_mut_ptr().cast();
        self.vectors[self.end].iov_len = len;
        self.queued[self.end] = (port, wire_bytes);
        self.end += 1;
        Ok(())
    }

    pub(super) fn is_pending(&self) -> bool {
        self.start < self.end
    }

    /// Sends run by run of the same port; stops when the kernel has no room.
    pub(super) fn flush(
        &mut self,
        data: BorrowedFd<'_>,
        signalling: BorrowedFd<'_>,
        statistics: &mut LinkStatistics,
    ) -> Result<(), LinkError> {
        let mut refusals = 0;
        while self.start < self.end {
            let port = self.queued[self.start].0;
            let socket = if port == Port::Data { data } else { signalling };
            match self.send_run(socket, port) {
                Ok(count) => {
                    self.take_over(socket, port, count);
                    statistics.packets_out += count as u64;
                    refusals = 0;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => {
                        statistics.send_waits += 1;
                        return Ok(());
                    }
                    Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => {
                        return Err(LinkError::Os { what: "sending".into(), error });
                    }
                    Some(error) if is_of_an_earlier_one(error) && refusals < REFUSALS_PER_PACKET => {
                        refusals += 1;
                        statistics.peer_refused += 1;
                    }
                    _ => {
                        self.give_up_one();
                        statistics.send_errors += 1;
                        refusals = 0;
                    }
                },
            }
        }
        (self.start, self.end) = (0, 0);
        Ok(())
    }

    fn send_run(&mut self, socket: BorrowedFd<'_>, port: Port) -> io::Result<usize> {
        let run = self.queued[self.start..self.end].iter().take_while(|(of, _)| *of == port).count();
        let first = &raw mut self.headers[self.start];
        // SAFETY: `first` and the `run - 1` headers behind it point at our own vectors and buffers, which are
        // valid and which no other code uses during the call.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), first, run as libc::c_uint, libc::MSG_DONTWAIT as _)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// The kernel has taken the first `count` packets.
    fn take_over(&mut self, socket: BorrowedFd<'_>, port: Port, count: usize) {
        for slot in self.start..self.start + count {
            let charge = (self.vectors[slot].iov_len as u32).saturating_add(SKB_OVERHEAD_BYTES_MIN);
            let in_flight = &mut self.in_flight[port as usize];
            if in_flight.is_full() {
                let done = in_flight.settle(outstanding_bytes(socket));
                self.finished_bytes = self.finished_bytes.saturating_add(done);
            }
            in_flight.push(Packet { wire_bytes: self.queued[slot].1, charge });
        }
        self.start += count;
    }

    /// The first packet is lost.
    fn give_up_one(&mut self) {
        self.finished_bytes = self.finished_bytes.saturating_add(self.queued[self.start].1);
        self.start += 1;
    }

    pub(super) fn completed(&mut self, data: BorrowedFd<'_>, signalling: BorrowedFd<'_>) -> u32 {
        let mut done = mem::take(&mut self.finished_bytes);
        for (port, socket) in [(Port::Data, data), (Port::Signalling, signalling)] {
            let in_flight = &mut self.in_flight[port as usize];
            if in_flight.len > 0 {
                done = done.saturating_add(in_flight.settle(outstanding_bytes(socket)));
            }
        }
        done
    }
}

/// The bytes that the kernel charges to the socket for packets that it has accepted and not sent; the maximum
/// if it cannot be read.
fn outstanding_bytes(socket: BorrowedFd<'_>) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int to the given address, which is ours.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { u32::try_from(bytes).unwrap_or(u32::MAX) } else { u32::MAX }
}

#[derive(Clone, Copy, Default)]
struct Packet {
    wire_bytes: u32,
    /// The least that the kernel charges to the socket while it has the packet.
    charge: u32,
}

/// Packets that a socket has taken, oldest first.
///
/// The kernel reports the sum of its charges, which are larger than ours by an unknown part. Packets leave in
/// order, so those outstanding are the youngest; counting back from the youngest with the *least* charges
/// takes at least as many packets as there are: a completion may be reported late, never early.
struct InFlight {
    packets: Box<[Packet]>,
    first: usize,
    len: usize,
    charge: u64,
}

impl InFlight {
    fn new() -> Self {
        Self { packets: vec![Packet::default(); IN_FLIGHT_MAX].into(), first: 0, len: 0, charge: 0 }
    }

    fn is_full(&self) -> bool {
        self.len == self.packets.len()
    }

    /// Adds a packet. If the list is full, it is added to the youngest entry.
    fn push(&mut self, packet: Packet) {
        self.charge += u64::from(packet.charge);
        if self.is_full() {
            let youngest = &mut self.packets[(self.first + self.len - 1) % IN_FLIGHT_MAX];
            youngest.wire_bytes = youngest.wire_bytes.saturating_add(packet.wire_bytes);
            youngest.charge = youngest.charge.saturating_add(packet.charge);
        } else {
            self.packets[(self.first + self.len) % IN_FLIGHT_MAX] = packet;
            self.len += 1;
        }
    }

    /// Removes the packets that have left, given the kernel's charge for the others; returns their wire
    /// bytes.
    fn settle(&mut self, outstanding: u32) -> u32 {
        let mut done = 0u32;
        while self.len > 0 {
            let oldest = self.packets[self.first];
            let younger = self.charge - u64::from(oldest.charge);
            if outstanding > 0 && younger < u64::from(outstanding) {
                break;
            }
            done = done.saturating_add(oldest.wire_bytes);
            self.charge = younger;
            self.first = (self.first + 1) % IN_FLIGHT_MAX;
            self.len -= 1;
        }
        done
    }
}

/// Whether the error may be an ICMP error of an earlier packet, or of none: then this packet was not tried
/// yet. Each such error is reported once. A packet that is itself too long, or has no route, causes the error
/// again.
fn is_of_an_earlier_one(error: i32) -> bool {
    let refused = matches!(error, libc::ECONNREFUSED | libc::EPROTO | libc::ENOPROTOOPT | libc::EOPNOTSUPP);
    let unreachable =
        matches!(error, libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENONET);
    refused || unreachable || error == libc::EMSGSIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight(packets: u32) -> InFlight {
        let mut in_flight = InFlight::new();
        for _ in 0..packets {
            in_flight.push(Packet { wire_bytes: 100, charge: 1_000 });
        }
        in_flight
    }

    #[test]
    fn a_completion_is_reported_late_but_never_early() {
        // The kernel charges 1,500 for each packet of which we count only 1,000: of ten, `left` are
        // outstanding.
        for left in 0..=10u32 {
            let mut in_flight = in_flight(10);
            let done = in_flight.settle(left * 1_500);
            assert!(done <= (10 - left) * 100, "{left} outstanding, {done} B reported");
            assert_eq!(in_flight.settle(0), 1_000 - done, "the rest is reported when all is out");
        }
    }

    #[test]
    fn exact_charges_are_reported_at_once() {
        let mut in_flight = in_flight(10);
        assert_eq!(in_flight.settle(4_000), 600);
        assert_eq!(in_flight.settle(4_000), 0);
        assert_eq!(in_flight.settle(1), 300);
        assert_eq!(in_flight.settle(0), 100);
    }

    #[test]
    fn packets_that_cannot_be_distinguished_are_reported_together() {
        let mut in_flight = in_flight(IN_FLIGHT_MAX as u32 + 5);
        assert_eq!(in_flight.settle(u32::MAX), 0);
        assert_eq!(in_flight.settle(1), (IN_FLIGHT_MAX as u32 - 1) * 100);
        assert_eq!(in_flight.settle(0), 600);
    }
}
