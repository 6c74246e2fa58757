//! Batched reception: `recvmmsg` straight into frames of the pool, with the kernel's receive times.
//!
//! The vectors are made once and point at each other; they are in boxed slices that never move. Slots from
//! `armed_from` on hold a frame each; a call consumes them from the front, the next one re-arms those.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use punctual_os::clock::ClockPair;

use super::BATCH_PACKETS;
use crate::pool::{Frame, Pool};
use crate::{LinkError, LinkStatistics, Port, Received};

/// Room for a timestamp and a drop counter: control messages of 32 and 24 bytes.
type Control = [u64; 8];
/// Errors of an absent peer that are swallowed in one call.
const REFUSALS_PER_CALL: usize = 4;

pub(super) struct Receiver {
    pool: Pool,
    // No boxes: every move of one forbids the raw pointers that lead into it.
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    _controls: Vec<Control>,
    frames: Box<[Option<Frame>]>,
    armed_from: usize,
    ports: [PortState; 2],
}

#[derive(Clone, Copy, Default)]
struct PortState {
    /// Receive times never decrease within a port.
    last_ns: u64,
    /// Packets that the socket dropped since its buffer was full, modulo 2^32 (`SO_RXQ_OVFL`).
    drops: u32,
}

// SAFETY: the raw pointers in `headers` and `vectors` point into the vectors and frames of the same value,
// which move with it (their heap addresses stay), and no other code uses them.
unsafe impl Send for Receiver {}

/// The contents of a packet's control messages.
#[derive(Default)]
struct Facts {
    wall_ns: Option<u64>,
    drops: Option<u32>,
}

impl Receiver {
    pub(super) fn new(frames: u32, packet_bytes_max: usize) -> Self {
        let mut controls: Vec<Control> = vec![[0; 8]; BATCH_PACKETS];
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vectors = vec![empty; BATCH_PACKETS];
        // SAFETY: `mmsghdr` is plain data for which all zeroes is a valid, empty value.
        let blank: libc::mmsghdr = unsafe { mem::zeroed() };
        let mut headers = vec![blank; BATCH_PACKETS];
        for (n, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = &raw mut vectors[n];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = (&raw mut controls[n]).cast();
        }
        let slots = (0..BATCH_PACKETS).map(|_| None).collect();
        let pool = Pool::new(frames, packet_bytes_max);
        let ports = [PortState::default(); 2];
        Self { pool, headers, vectors, _controls: controls, frames: slots, armed_from: BATCH_PACKETS, ports }
    }

    /// Packets that the kernel dropped at the sockets, as far as later packets have reported.
    pub(super) fn kernel_drops(&self) -> u64 {
        self.ports.iter().map(|port| u64::from(port.drops)).sum()
    }

    /// Up to `max` packets of one socket.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        port: Port,
        out: &mut Vec<Received>,
        max: usize,
        statistics: &mut LinkStatistics,
    ) -> Result<usize, LinkError> {
        let mut total = 0;
        while total < max {
            self.arm();
            let wanted = (BATCH_PACKETS - self.armed_from).min(max - total);
            if wanted == 0 {
                statistics.pool_dry += 1;
                break;
            }
            let count = self.receive_batch(socket, wanted, statistics)?;
            total += self.collect(count, port, out, statistics);
            if count < wanted {
                break;
            }
        }
        statistics.packets_in += total as u64;
        Ok(total)
    }

    /// Gives every slot a frame, as long as the pool has any.
    fn arm(&mut self) {
        while self.armed_from > 0 {
            let Some(mut frame) = self.pool.take() else { return };
            let slot = self.armed_from - 1;
            let buffer = frame.buffer_mut();
            self.vectors[slot].iov_base = buffer.as_mut_ptr().cast();
            self.vectors[slot].iov_len = buffer.len();
            self.headers[slot].msg_hdr.msg_controllen = size_of::<Control>();
            self.headers[slot].msg_hdr.msg_flags = 0;
            self.frames[slot] = Some(frame);
            self.armed_from = slot;
        }
    }

    fn receive_batch(
        &mut self,
        socket: BorrowedFd<'_>,
        wanted: usize,
        statistics: &mut LinkStatistics,
    ) -> Result<usize, LinkError> {
        for _ in 0..=REFUSALS_PER_CALL {
            let first = &raw mut self.headers[self.armed_from];
            // SAFETY: `first` and the `wanted - 1` headers behind it are armed: their vectors and control
            // buffers are ours and valid, and no other code uses them during the call.
            let count = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    first,
                    wanted as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if count >= 0 {
                return Ok(count as usize);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(0),
                Some(libc::EINTR) => {}
                Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => {
                    return Err(LinkError::Os { what: "receiving".into(), error });
                }
                // An ICMP error for an earlier packet: the socket still works.
                _ => statistics.peer_refused += 1,
            }
        }
        Ok(0)
    }

    /// Moves the first `count` armed slots out; returns how many packets were whole.
    fn collect(
        &mut self,
        count: usize,
        port: Port,
        out: &mut Vec<Received>,
        statistics: &mut LinkStatistics,
    ) -> usize {
        if count == 0 {
            return 0;
        }
        let clocks = ClockPair::read();
        let before = out.len();
        for slot in self.armed_from..self.armed_from + count {
            let Some(mut frame) = self.frames[slot].take() else { continue };
            let facts = self.facts(slot);
            let state = &mut self.ports[port as usize];
            state.drops = facts.drops.unwrap_or(state.drops);
            if self.headers[slot].msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                statistics.truncated += 1;
                continue;
            }
            let stamp_ns = facts.wall_ns.and_then(|wall_ns| clocks.to_monotonic(wall_ns));
            statistics.times_clamped += u64::from(stamp_ns.is_none());
            state.last_ns = stamp_ns.unwrap_or(clocks.monotonic_ns).max(state.last_ns);
            frame.set_len(self.headers[slot].msg_len as usize);
            let received_ns = state.last_ns;
            out.push(Received { frame, port, ip: None, stream: port.stream(), received_ns });
        }
        self.armed_from += count;
        out.len() - before
    }

    fn facts(&self, slot: usize) -> Facts {
        let header = &self.headers[slot].msg_hdr;
        let mut facts = Facts::default();
        // SAFETY: the kernel has filled `msg_control` and set `msg_controllen` to the length of its valid
        // part; the macros stay within that, and each payload is read unaligned as its own type only if its
        // length is right.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while !message.is_null() {
                let data = libc::CMSG_DATA(message);
                let bytes = (*message).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                match ((*message).cmsg_level, (*message).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if bytes >= size_of::<libc::timespec>() => {
                        facts.wall_ns = wall_ns(&data.cast::<libc::timespec>().read_unaligned());
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if bytes >= size_of::<u32>() => {
                        facts.drops = Some(data.cast::<u32>().read_unaligned());
                    }
                    _ => {}
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        facts
    }
}

fn wall_ns(time: &libc::timespec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec).ok()?)
}
