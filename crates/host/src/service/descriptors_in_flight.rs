//! Descriptors in answers that a program has not read yet.
//!
//! A descriptor that was sent into a socket is in no process's descriptor table. The kernel counts it for the
//! user whose process sent it, with one bound for all of them (`RLIMIT_NOFILE` of the process that sends
//! next). Therefore a descriptor counts in the quota of the receiving user until it is read, and also after
//! the connection was cut, because the sent packets stay with the reader's end.
//!
//! The kernel reports how many of the sent bytes the reader has not read (`SIOCOUTQ`). It never counts less
//! than was sent. Packets are read in order. Therefore a packet was certainly read if fewer bytes are left
//! than the packet and all packets behind it have.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use punctual_ipc::socket::{Packet, unread_bytes};
use punctual_proto::api::UserId;

use super::connection::Connection;

/// Descriptors that one socket has carried.
#[derive(Debug, Default)]
pub(super) struct DescriptorsInFlight {
    /// Bytes of all packets.
    sent: u64,
    /// Packets with descriptors that may not be read yet: the place of each in the bytes that were sent, and
    /// the number of its descriptors.
    unread: VecDeque<(u64, u64)>,
}

impl DescriptorsInFlight {
    /// Records a packet that was sent into the socket.
    pub(super) fn sent(&mut self, packet: &Packet) {
        if !packet.descriptors.is_empty() {
            self.unread.push_back((self.sent, packet.descriptors.len() as u64));
        }
        self.sent += packet.bytes.len() as u64;
    }

    /// Whether no descriptor is under way.
    pub(super) fn is_over(&self) -> bool {
        self.unread.is_empty()
    }

    /// How many descriptors have been read, if the reader has left `unread` bytes.
    fn landed(&mut self, unread: u64) -> u64 {
        let mut landed = 0;
        while let Some((begin, descriptors)) = self.unread.front().copied() {
            if unread >= self.sent - begin {
                break;
            }
            self.unread.pop_front();
            landed += descriptors;
        }
        landed
    }

    /// Number of descriptors that the reader has read since the last call, according to `socket`.
    pub(super) fn recount(&mut self, socket: impl AsFd) -> u64 {
        if self.is_over() {
            return 0;
        }
        // A socket that returns an error keeps its count.
        unread_bytes(socket).map_or(0, |unread| self.landed(unread))
    }
}

/// A connection that was cut while descriptors were on their way to the process at the other end.
#[derive(Debug)]
pub(super) struct CutConnection {
    pub account: UserId,
    pub socket: Connection,
    pub flight: DescriptorsInFlight,
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use punctual_ipc::socket::{receive, send};
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, shutdown, socketpair,
    };

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    fn packet(bytes: usize, descriptors: usize) -> Packet {
        let descriptor =
            |_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        Packet { bytes: vec![b' '; bytes], descriptors: (0..descriptors).map(descriptor).collect() }
    }

    fn put(flight: &mut DescriptorsInFlight, socket: &OwnedFd, bytes: usize, descriptors: usize) {
        let packet = packet(bytes, descriptors);
        send(socket, &packet, SendFlags::DONTWAIT).expect("room");
        flight.sent(&packet);
    }

    fn read(socket: &OwnedFd) {
        receive(socket, &mut [0; 70_000], RecvFlags::DONTWAIT).expect("received").expect("a packet");
    }

    /// Never before it is read; at the latest when all is.
    #[test]
    fn what_is_unread_is_aloft_and_what_is_read_has_landed() {
        let (ours, theirs) = pair();
        let mut flight = DescriptorsInFlight::default();
        for (bytes, descriptors) in [(300, 4), (200, 0), (50, 3), (20_000, 0), (60, 1)] {
            put(&mut flight, &ours, bytes, descriptors);
        }
        let mut landed = 0;
        for most in [4, 4, 7, 7, 8] {
            assert!(!flight.is_over());
            read(&theirs);
            landed += flight.recount(&ours);
            assert!(landed <= most, "{landed} of {most}");
        }
        assert!(landed == 8 && flight.is_over());
    }

    /// The number of unread packets of a client that reads continuously but never empties the queue is
    /// bounded by the size of that queue.
    #[test]
    fn descriptors_are_released_for_a_socket_that_always_has_unread_packets() {
        let (ours, theirs) = pair();
        let (mut flight, mut unread) = (DescriptorsInFlight::default(), 0);
        put(&mut flight, &ours, 300, 0);
        for _ in 0..1_000 {
            put(&mut flight, &ours, 300, 4);
            unread += 4;
            read(&theirs);
            unread -= flight.recount(&ours);
            assert!((4..=5 * 4).contains(&unread), "{unread}");
        }
    }

    /// If a reader announces its end without closing its socket, the sent packets still belong to it.
    #[test]
    fn what_was_sent_is_aloft_until_the_readers_end_is_closed() {
        let (ours, theirs) = pair();
        let mut flight = DescriptorsInFlight::default();
        put(&mut flight, &ours, 300, 4);
        shutdown(&theirs, Shutdown::Both).expect("shut");
        shutdown(&ours, Shutdown::Both).expect("shut");
        assert_eq!(flight.recount(&ours), 0);
        drop(theirs);
        assert_eq!(flight.recount(&ours), 4);
    }
}
