//! The way in: from the streams' rings to frames, and fresh frames to the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use punctual_os::clock::{STAMP_AGE_NS_MAX, monotonic_ns};

use super::checksum::complete;
use super::ledger::Ledger;
use super::queue::Queue;
use super::umem::{Reservation, XdpMemory};
use super::{Accounts, Charge, Classifier, Returns, TAG_BYTES, Tag, XdpOptions};
use crate::kernel::Mac;
use crate::pool::{Receipt, Release};
use crate::{IpPacket, LinkStatistics, Port, Received, Stream};

/// Counts the received frames that are held, as long as there are any.
pub(super) struct Holder {
    held: [AtomicU32; Stream::ALL.len()],
    returns: Arc<Returns>,
    /// The link's frames stay reserved until the last received frame is dropped.
    _reservation: Reservation,
}

impl Holder {
    pub(super) fn new(returns: Arc<Returns>, reservation: Reservation) -> Self {
        Self { held: Default::default(), returns, _reservation: reservation }
    }

    fn held_of(&self, stream: Stream) -> u32 {
        self.held[stream as usize].load(Ordering::Acquire)
    }

    fn held(&self) -> u32 {
        Stream::ALL.into_iter().map(|stream| self.held_of(stream)).sum()
    }
}

impl Release for Holder {
    fn release(&self, token: u64) {
        let charge = Charge::from_token(token);
        self.held[charge.stream() as usize].fetch_sub(1, Ordering::AcqRel);
        self.returns.give_back(charge);
    }
}

/// The sender's hardware address in a frame with a tag in front.
fn sender(bytes: &[u8], start: usize) -> Mac {
    const AT: usize = TAG_BYTES + size_of::<Mac>();
    let address = bytes.get(start + AT..).and_then(<[u8]>::first_chunk);
    Mac(address.copied().unwrap_or_default())
}

pub(super) struct Receiver {
    memory: XdpMemory,
    holder: Arc<Holder>,
    /// Lent to the kernel and held, together.
    frames: u32,
    queue: u32,
    packet_bytes_max: usize,
    /// A device that leaves TCP checksums to the receiver.
    completes_checksums: bool,
    /// Receive times never decrease within a stream.
    last_ns: [u64; Stream::ALL.len()],
}

impl Receiver {
    pub(super) fn new(
        options: &XdpOptions,
        memory: &XdpMemory,
        holder: Arc<Holder>,
        completes_checksums: bool,
    ) -> Self {
        Self {
            memory: memory.clone(),
            holder,
            frames: options.receive_frames(),
            queue: options.queue,
            packet_bytes_max: options.classifier.packet_bytes_max as usize,
            completes_checksums,
            last_ns: [0; Stream::ALL.len()],
        }
    }

    /// Up to `max` packets of the streams that are at least as urgent as `least`, the most urgent first.
    pub(super) fn receive(
        &mut self,
        queue: &mut Queue,
        ledger: &mut Ledger,
        accounts: &mut Accounts,
        (least, max): (Stream, usize),
        out: &mut Vec<Received>,
        statistics: &mut LinkStatistics,
    ) -> usize {
        let before = out.len();
        let mut now_ns = 0;
        for (stream, rx_socket) in Stream::ALL.into_iter().zip(&mut queue.rx) {
            if stream > least {
                break;
            }
            while out.len() - before < max {
                let Some(descriptor) = rx_socket.ring.pop() else { break };
                let received = self.take(&descriptor, stream, ledger, accounts, statistics);
                let Some((frame, ip, received_ns)) = received else { continue };
                let received_ns = self.time(stream, received_ns, &mut now_ns, statistics);
                let port = if stream == Stream::Signalling { Port::Signalling } else { Port::Data };
                out.push(Received { frame, port, ip, stream, received_ns });
            }
            rx_socket.ring.release();
        }
        let count = out.len() - before;
        statistics.packets_in += count as u64;
        count
    }

    /// Takes one descriptor as a frame that begins at our header, or at that of IP, with its receive time in ns; `None`
    /// if it is dropped.
    fn take(
        &self,
        descriptor: &libc::xdp_desc,
        stream: Stream,
        ledger: &mut Ledger,
        accounts: &mut Accounts,
        statistics: &mut LinkStatistics,
    ) -> Option<(crate::Frame, Option<IpPacket>, u64)> {
        let pool = self.memory.pool();
        let frame_bytes = pool.frame_bytes() as u64;
        let index = u32::try_from(descriptor.addr / frame_bytes).ok()?;
        if !ledger.received(index) {
            return None;
        }
        let start = (descriptor.addr % frame_bytes) as usize;
        // SAFETY: the ledger has just taken the frame back from the kernel, which gave it up by this descriptor.
        let bytes = unsafe { pool.bytes_of(index) };
        let packet = bytes.get(start..start + descriptor.len as usize);
        let Some(tag) = packet.and_then(Tag::read) else {
            // The packet does not come from our program.
            pool.give_back(index);
            return None;
        };
        let target = accounts.layout().target(tag.path);
        let ip = target.map(|to| IpPacket { to, sender: sender(bytes, start) });
        let charge = accounts.received(self.queue, stream, &tag);
        self.holder.held[stream as usize].fetch_add(1, Ordering::AcqRel);
        let receipt = Receipt { to: Arc::clone(&self.holder) as Arc<dyn Release>, token: charge.to_token() };
        let (offset, len) = (start + usize::from(tag.offset), usize::from(tag.bytes));
        // SAFETY: as above; `index` is not used any more.
        let mut frame = unsafe { pool.adopt(index, offset, len, Some(receipt)) };
        if ip.is_some() {
            if self.completes_checksums {
                complete(frame.as_mut());
            }
        } else if len > self.packet_bytes_max {
            statistics.truncated += 1;
            return None;
        }
        Some((frame, ip, tag.received_ns))
    }

    /// Never in the future, never before an earlier packet of the stream.
    fn time(
        &mut self,
        stream: Stream,
        received_ns: u64,
        now_ns: &mut u64,
        statistics: &mut LinkStatistics,
    ) -> u64 {
        if received_ns > *now_ns {
            *now_ns = monotonic_ns();
        }
        let possible = now_ns.saturating_sub(STAMP_AGE_NS_MAX)..=*now_ns;
        let stamp_ns = if possible.contains(&received_ns) {
            received_ns
        } else {
            statistics.times_clamped += 1;
            *now_ns
        };
        let last_ns = &mut self.last_ns[stream as usize];
        *last_ns = stamp_ns.max(*last_ns);
        *last_ns
    }

    /// Lends the kernel as many frames as were released.
    pub(super) fn refill(&self, queue: &mut Queue, ledger: &mut Ledger) {
        let wanted = self.frames.saturating_sub(self.holder.held());
        let frame_bytes = self.memory.frame_bytes() as u64;
        while ledger.to_receive() < wanted {
            // Dry only while frames of a link that was closed are still held.
            let Some(index) = self.memory.pool().take_index() else { break };
            if !queue.fill.push(u64::from(index) * frame_bytes) {
                self.memory.pool().give_back(index);
                break;
            }
            ledger.lend(index);
        }
        queue.fill.publish();
        if queue.zero_copy && queue.fill.needs_wakeup() {
            queue.tx.socket.kick_receive();
        }
    }

    /// Gives up packets that the program steered to a stream and that never came.
    pub(super) fn settle(&self, queue: &Queue, classifier: &mut Classifier) {
        for (stream, rx_socket) in Stream::ALL.into_iter().zip(&queue.rx) {
            if rx_socket.ring.waiting() == 0 {
                classifier.accounts().settle(self.queue, stream);
            }
        }
    }
}
