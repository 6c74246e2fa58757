//! The memory of all `xdp` links of a host: one region of equal frames.
//!
//! A frame is owned by exactly one of: the pool's free list, a [`Frame`](crate::Frame), or the kernel (a ring
//! of one link, as recorded in its ledger). Every link registers the whole region with its own sockets, so a
//! received frame can go out on any other link of the region without a copy, and links are opened, closed and
//! fail independently.
//!
//! No link takes frames that another one needs: when a link opens, it reserves as many frames as its rings
//! and its applications may ever hold, and never has more. So the pool is never empty for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::headers::{ETHERNET_BYTES, HEADER_BYTES_MAX};
use super::mapping::Mapping;
use super::tag::TAG_BYTES;
use crate::LinkError;
use crate::pool::Pool;

/// Bytes that the kernel leaves free in front of a received packet (`XDP_PACKET_HEADROOM`): more than longer
/// headers need when the packet is forwarded over another protocol.
const HEADROOM_BYTES: usize = 256;
/// Offset of the first byte behind our headers in a frame that we fill; a multiple of the cache line. A
/// packet that fits behind it also fits into a frame for receiving.
pub(super) const PAYLOAD_OFFSET: usize = 320;
const _: () = assert!(PAYLOAD_OFFSET >= HEADROOM_BYTES + HEADER_BYTES_MAX);
/// Sizes that the kernel takes for frames on pages of 4 KiB.
const FRAME_BYTES: [usize; 2] = [2_048, 4_096];
/// Huge pages are mapped whole.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The region; cloning shares it.
#[derive(Clone)]
pub struct XdpMemory {
    region: Arc<Region>,
}

struct Region {
    pool: Pool,
    /// The frames, mapped once.
    mapping: Arc<Mapping>,
    /// Frames that links have reserved.
    reserved: AtomicU32,
}

impl XdpMemory {
    /// `frames` frames of `frame_bytes` (2,048 or 4,096) each, on ordinary pages.
    ///
    /// # Errors
    /// If the size is none of these or the memory cannot be had; the fix is in the text.
    pub fn new(frames: u32, frame_bytes: usize) -> Result<Self, LinkError> {
        Self::map(frames, frame_bytes, false)
    }

    /// Allocates the memory on huge pages, otherwise as [`XdpMemory::new`] does. There are fewer misses in
    /// the address cache.
    ///
    /// # Errors
    /// The errors of [`XdpMemory::new`], and an error if the host has not set enough huge pages aside.
    pub fn with_huge_pages(frames: u32, frame_bytes: usize) -> Result<Self, LinkError> {
        Self::map(frames, frame_bytes, true)
    }

    fn map(frames: u32, frame_bytes: usize, huge_pages: bool) -> Result<Self, LinkError> {
        if !FRAME_BYTES.contains(&frame_bytes) {
            let text = format!("XDP frames of {frame_bytes} B: the kernel supports 2048 or 4096");
            return Err(LinkError::Options(text));
        }
        if frames == 0 || frames > u32::MAX / 2 {
            let text = format!("an XDP memory of {frames} frames: give at least 1, or leave it to the links");
            return Err(LinkError::Options(text));
        }
        let bytes = frames as usize * frame_bytes;
        let mapped = if huge_pages { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes };
        let mapping = Mapping::anonymous(mapped, huge_pages).map_err(|error| {
            let fix = if huge_pages {
                format!("set vm.nr_hugepages to {} more, or do without", mapped / HUGE_PAGE_BYTES)
            } else {
                "configure fewer frames or give the host more memory".into()
            };
            LinkError::Os { what: format!("mapping {mapped} B for XDP frames ({fix})"), error }
        })?;
        let mapping = Arc::new(mapping);
        let keep: Box<dyn Send + Sync> = Box::new(Arc::clone(&mapping));
        // SAFETY: the mapping is zeroed memory of at least so many bytes, is kept in `keep`, and is passed
        // only to the kernel, which accesses only frames whose index a link has taken out of the pool.
        let pool = unsafe { Pool::over(mapping.base(), frames, frame_bytes, keep) };
        Ok(Self { region: Arc::new(Region { pool, mapping, reserved: AtomicU32::new(0) }) })
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.region.pool.frames()
    }

    /// Size of each.
    pub fn frame_bytes(&self) -> usize {
        self.region.pool.frame_bytes()
    }

    /// Longest packet, from our header on, that fits a frame on every way.
    pub fn packet_bytes_max(&self) -> usize {
        self.frame_bytes() - PAYLOAD_OFFSET
    }

    /// Longest IP packet of a flow that fits a frame on every way.
    pub fn ip_bytes_max(&self) -> usize {
        // Sent, it begins where our packets do; received, the tag and Ethernet's header are in front of it.
        self.packet_bytes_max().min(self.frame_bytes() - HEADROOM_BYTES - TAG_BYTES - ETHERNET_BYTES)
    }

    /// Frames that no link has reserved.
    pub fn unreserved(&self) -> u32 {
        self.frames() - self.region.reserved.load(Ordering::Relaxed)
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.region.pool
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.region.mapping
    }

    /// Sets `frames` frames aside for one link.
    pub(super) fn reserve(&self, frames: u32) -> Result<Reservation, LinkError> {
        let all = self.frames();
        let taken = self.region.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
            reserved.checked_add(frames).filter(|sum| *sum <= all)
        });
        match taken {
            Ok(_) => Ok(Reservation { memory: self.clone(), frames }),
            Err(reserved) => Err(LinkError::Options(format!(
                "an xdp link needs {frames} frames and {} of {all} are free: give XdpMemory at least {} frames (the \
                 sum of XdpOptions::frames_needed of all links), or the link fewer frames or smaller rings",
                all - reserved,
                u64::from(reserved) + u64::from(frames),
            ))),
        }
    }
}

impl fmt::Debug for XdpMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XdpMemory({:?}, {} unreserved)", self.region.pool, self.unreserved())
    }
}

/// Frames that are set aside for one link; given up on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: XdpMemory,
    frames: u32,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.region.reserved.fetch_sub(self.frames, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_exceed_the_region_and_come_back() {
        let memory = XdpMemory::new(64, 2_048).expect("128 KiB");
        let first = memory.reserve(40).expect("40 of 64");
        let refused = memory.reserve(25).expect_err("24 are left").to_string();
        assert!(refused.contains("24 of 64") && refused.contains("at least 65"), "{refused}");
        let second = memory.reserve(24).expect("the rest");
        assert_eq!(memory.unreserved(), 0);
        drop(first);
        assert_eq!(memory.unreserved(), 40);
        drop(second);
        assert_eq!(memory.unreserved(), 64);
    }

    #[test]
    fn frames_of_the_region_are_ordinary_frames() {
        let memory = XdpMemory::new(3, 4_096).expect("12 KiB");
        let mut frames: Vec<_> = std::iter::from_fn(|| memory.pool().take()).collect();
        assert_eq!(frames.len(), 3);
        for (n, frame) in frames.iter_mut().enumerate() {
            frame.buffer_mut().fill(n as u8 + 1);
            frame.set_len(4_096);
        }
        drop(memory);
        for (n, frame) in frames.iter().enumerate() {
            assert!(frame.as_ref().iter().all(|byte| *byte == n as u8 + 1));
        }
    }

    #[test]
    fn the_error_of_a_failed_mapping_names_the_fix() {
        let refusal = |result: Result<XdpMemory, LinkError>| result.expect_err("refused").to_string();
        assert!(refusal(XdpMemory::new(8, 3_000)).contains("2048 or 4096"));
        assert!(refusal(XdpMemory::new(0, 2_048)).contains("at least 1"));
        // More pages than any host has reserved; the message has the missing number.
        let refused = refusal(XdpMemory::with_huge_pages(1 << 24, 4_096));
        assert!(refused.contains("vm.nr_hugepages to 32768 more"), "{refused}");
    }
}
