//! Packets that wait for a client that does not read.
//!
//! The backlog is in a file in memory, not on the heap. The daemon's heap is locked and does not give back
//! memory in its middle; pages of the file are not locked, and are given back when they are read. Most
//! clients never have a backlog: packets that fit into their socket are sent at once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use punctual_ipc::api::PACKET_BYTES_MAX;
use punctual_ipc::socket::Packet;

/// What an entry takes on the heap, descriptors included, counted on the safe side.
const ENTRY_BYTES: u64 = 128;

/// The largest page of any system that holds such a file.
const PAGE_BYTES: u64 = 65_536;

/// What packets count for in their user's quotas while they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub bytes: u64,
    pub descriptors: u64,
}

impl Cost {
    /// Cost of one packet.
    pub(super) const fn of(packet: &Packet) -> Self {
        Self { bytes: packet.bytes.len() as u64 + ENTRY_BYTES, descriptors: packet.descriptors.len() as u64 }
    }
}

impl std::ops::Sub for Cost {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { bytes: self.bytes - other.bytes, descriptors: self.descriptors - other.descriptors }
    }
}

/// A packet in the file.
#[derive(Debug)]
struct Entry {
    bytes: usize,
    descriptors: Vec<OwnedFd>,
}

/// Packets in the order in which they are to be sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    file: Option<OwnedFd>,
    entries: VecDeque<Entry>,
    /// Offset of the first packet in the file, and of the next one to write.
    begin: u64,
    end: u64,
    /// Place in the file up to which pages were given back.
    freed: u64,
    /// Descriptors of all packets.
    descriptors: u64,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sum of the packets' costs.
    pub(super) fn cost(&self) -> Cost {
        let bytes = self.end - self.begin + self.entries.len() as u64 * ENTRY_BYTES;
        Cost { bytes, descriptors: self.descriptors }
    }

    /// Puts a packet behind the others.
    ///
    /// # Errors
    /// If descriptors or memory run out; the packet is lost then.
    pub(super) fn push(&mut self, packet: Packet) -> io::Result<()> {
        let Packet { bytes, descriptors } = packet;
        if self.file.is_none() {
            self.file = Some(memfd_create("punctual-unread", MemfdFlags::CLOEXEC)?);
        }
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::pwrite(file, &bytes[written..], self.end + written as u64)?;
        }
        self.end += written as u64;
        self.descriptors += descriptors.len() as u64;
        self.entries.push_back(Entry { bytes: written, descriptors });
        Ok(())
    }

    /// Takes the first packet out; `None` if there is none. A packet that cannot be sent is put back by
    /// [`Self::put_back`].
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn pop(&mut self) -> io::Result<Option<Packet>> {
        let (Some(file), Some(entry)) = (&self.file, self.entries.pop_front()) else { return Ok(None) };
        let mut bytes = vec![0; entry.bytes];
        let mut read = 0;
        while read < bytes.len() {
            match rustix::io::pread(file, &mut bytes[read..], self.begin + read as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
        self.begin += read as u64;
        self.descriptors -= entry.descriptors.len() as u64;
        Ok(Some(Packet { bytes, descriptors: entry.descriptors }))
    }

    /// Undoes the last [`Self::pop`].
    pub(super) fn put_back(&mut self, packet: Packet) {
        self.begin -= packet.bytes.len() as u64;
        self.descriptors += packet.descriptors.len() as u64;
        self.entries.push_front(Entry { bytes: packet.bytes.len(), descriptors: packet.descriptors });
    }

    /// Gives back memory that holds no packets any more.
    pub(super) fn give_back(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        } else if self.begin - self.freed >= PACKET_BYTES_MAX as u64
            && let Some(file) = &self.file
        {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If it fails, the pages stay until the backlog is empty: the quota has counted them.
            let _ = fallocate(file, flags, self.freed, self.begin - self.freed);
            // A page that is only partly behind us was not given back.
            self.freed = self.begin / PAGE_BYTES * PAGE_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: usize) -> Packet {
        Packet { bytes: vec![number as u8; 1 + number * 37 % 60_000], descriptors: Vec::new() }
    }

    fn pages_bytes(backlog: &Backlog) -> u64 {
        backlog
            .file
            .as_ref()
            .map_or(0, |file| rustix::fs::fstat(file).expect("a file").st_blocks as u64 * 512)
    }

    #[test]
    fn descriptors_that_wait_are_counted_until_they_are_sent() {
        let with = |count: usize| {
            let descriptor = || memfd_create("own", MemfdFlags::CLOEXEC).expect("a file");
            Packet { descriptors: (0..count).map(|_| descriptor()).collect(), ..packet(1) }
        };
        let mut backlog = Backlog::default();
        for count in [4, 0, 3] {
            backlog.push(with(count)).expect("room");
        }
        assert_eq!(backlog.cost().descriptors, 7);
        let first = backlog.pop().expect("read").expect("a packet");
        assert_eq!((first.descriptors.len(), backlog.cost().descriptors), (4, 3));
        backlog.put_back(first);
        assert_eq!(backlog.cost().descriptors, 7);
    }

    #[test]
    fn packets_come_out_as_they_went_in_and_their_memory_is_given_back() {
        let mut backlog = Backlog::default();
        for number in 0..300 {
            backlog.push(packet(number)).expect("room");
        }
        let whole = pages_bytes(&backlog);
        assert!(whole >= 1 << 20 && backlog.cost().bytes >= whole - 4_096, "{whole} {:?}", backlog.cost());
        for number in 0..300 {
            let first = backlog.pop().expect("read").expect("a packet");
            assert_eq!(first.bytes, packet(number).bytes);
            if number % 3 == 0 {
                // The socket was full: the same one again.
                backlog.put_back(first);
                assert_eq!(backlog.pop().expect("read").expect("a packet").bytes, packet(number).bytes);
            }
            backlog.give_back();
            let slack = 2 * PACKET_BYTES_MAX as u64;
            assert!(pages_bytes(&backlog) <= backlog.cost().bytes + slack, "what was read is given back");
        }
        assert!(backlog.pop().expect("nothing to read").is_none());
        assert!(
            backlog.file.is_none() && backlog.cost() == Cost::default() && backlog.entries.capacity() == 0
        );
    }
}
