//! The daemon's metadata of a message, as stored in the ring's file.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::memory::{MessageInfo, Timeliness};

use crate::ring::counters::DAEMON_HEADER_BYTES;
use crate::ring::{LINE_BYTES, RingShape};
use crate::shm::{Region, View};
use crate::sync::atomic::Ordering;

/// Bytes of an entry: number, logical arrival, deadline, delivered (8 B each), length, slot, flags (4 B
/// each), clock error (8 B).
const ENTRY_BYTES: usize = LINE_BYTES;
const DEMOTED: u32 = 1;
const UNPROMISED: u32 = 2;
/// Place of the timeliness in the flags, in bits.
const TIMELINESS_SHIFT: u32 = 2;
/// Timeliness by the value of its bits.
const TIMELINESS: [Timeliness; 4] =
    [Timeliness::Unmeasured, Timeliness::InTime, Timeliness::PerhapsLate, Timeliness::Late];

pub(super) fn entry_offset(shape: RingShape, position: u64) -> usize {
    DAEMON_HEADER_BYTES + (position % u64::from(shape.slots)) as usize * ENTRY_BYTES
}

pub(super) fn payload_offset(shape: RingShape, slot: u32) -> usize {
    DAEMON_HEADER_BYTES + shape.slots as usize * ENTRY_BYTES + slot as usize * shape.payload_bytes()
}

pub(super) fn write_entry(region: &Region, offset: usize, slot: u32, info: &MessageInfo, shape: RingShape) {
    let words = [info.number, info.logical_arrival.0, info.deadline.0, info.delivered.0];
    for (index, word) in words.into_iter().enumerate() {
        region.word(offset + index * 8).store(word, Ordering::Relaxed);
    }
    region.half(offset + 32).store(info.len.min(shape.message_bytes_max), Ordering::Relaxed);
    region.half(offset + 36).store(slot, Ordering::Relaxed);
    region.half(offset + 40).store(flags_of(info), Ordering::Relaxed);
    let error_ns = info.clock_error.map_or(u64::MAX, |error| error.0);
    region.word(offset + 48).store(error_ns, Ordering::Relaxed);
}

fn flags_of(info: &MessageInfo) -> u32 {
    let timeliness = match info.timeliness {
        Timeliness::Unmeasured => 0,
        Timeliness::InTime => 1,
        Timeliness::PerhapsLate => 2,
        Timeliness::Late => 3,
    };
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    bit(info.demoted, DEMOTED) | bit(info.unpromised, UNPROMISED) | timeliness << TIMELINESS_SHIFT
}

pub(super) fn read_entry(daemon: &View, offset: usize) -> (u32, MessageInfo) {
    let word = |index: usize| daemon.word(offset + index * 8, Ordering::Relaxed);
    let half = |at: usize| daemon.half(offset + at, Ordering::Relaxed);
    let flags = half(40);
    let info = MessageInfo {
        number: word(0),
        logical_arrival: Instant(word(1)),
        deadline: Instant(word(2)),
        delivered: Instant(word(3)),
        len: half(32),
        clock_error: Some(Nanos(word(6))).filter(|error| *error != Nanos::MAX),
        demoted: flags & DEMOTED != 0,
        unpromised: flags & UNPROMISED != 0,
        timeliness: TIMELINESS[(flags >> TIMELINESS_SHIFT & 3) as usize],
    };
    (half(36), info)
}
