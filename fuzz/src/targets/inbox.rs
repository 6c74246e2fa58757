//! The incoming ring, with an application that writes arbitrary data to the shared memory.
//!
//! The daemon's end never panics, never gives a slot to two messages, and breaks the ring if the
//! application's position is impossible. While no thread writes out of turn, messages arrive whole and in the
//! order of their publication, alternating or not. The application's end survives a daemon that behaves in
//! the same way.

use std::collections::VecDeque;

use punctual_proto::memory::{Inbox, MessageInfo, MessageWrite};

use crate::input::Input;
use crate::ring::{InboxReader, InboxSlot, InboxWriter, RingShape, inbox};
use crate::shm::{Region, scribble};
use crate::wake::{Alarm, RingPath};

const SLOTS: u32 = 3;
const BYTES: u32 = 100;
const HEADER_BYTES: u64 = 256;
/// Which of the two files has the payload.
const PAYLOAD: usize = 0;
const OFFSETS: [u32; 10] = [0, 128, 136, 192, 200, 256, 288, 320, 384, 448];

struct Bench {
    writer: InboxWriter,
    reader: InboxReader,
    /// The daemon's file and the application's.
    regions: [Region; 2],
    slots: Vec<(InboxSlot, u8)>,
    published: VecDeque<(u64, u8, u32)>,
    number: u64,
    honest: bool,
}

impl Bench {
    fn new() -> Self {
        let shape = RingShape::new(SLOTS, BYTES).expect("a shape");
        let (writer, handles) = inbox(shape, &Alarm, &RingPath::Direct).expect("a ring");
        let map = |file: usize| {
            let bytes = if file == PAYLOAD { shape.file_bytes() } else { HEADER_BYTES };
            Region::map(&handles.descriptors[file], bytes).expect("the ring's memory")
        };
        let regions = [map(0), map(1)];
        let reader = InboxReader::attach(handles).expect("attached");
        writer.health().accept().expect("accepted");
        let (slots, published) = Default::default();
        Self { writer, reader, regions, slots, published, number: 0, honest: true }
    }

    fn reserve(&mut self, byte: u8) {
        let Some(mut slot) = self.writer.reserve() else {
            let used = self.slots.len() + self.published.len();
            return assert!(!self.honest || used == SLOTS as usize, "{used} slots are in use, none is free");
        };
        slot.copy_from(0, &[byte; BYTES as usize]);
        self.slots.push((slot, byte));
        assert!(self.slots.len() <= SLOTS as usize);
    }

    fn publish(&mut self, which: u8, len: u32) {
        if self.slots.is_empty() {
            return;
        }
        let (slot, byte) = self.slots.swap_remove(usize::from(which) % self.slots.len());
        self.number += 1;
        let info = MessageInfo { number: self.number, len, ..MessageInfo::default() };
        self.writer.publish(slot, info);
        self.published.push_back((self.number, byte, len.min(BYTES)));
    }

    fn take(&mut self) {
        let taken = self.reader.take(|bytes, info| (info.number, bytes.to_vec(), info.len));
        if let (true, Some((number, bytes, len))) = (self.honest, taken) {
            let (expected, byte, expected_len) = self.published.pop_front().expect("it was published");
            assert_eq!((number, len), (expected, expected_len));
            assert!(bytes.len() == len as usize && bytes.iter().all(|got| *got == byte));
        }
    }
}

/// A sequence of what both sides do.
pub fn run(data: &[u8]) {
    let mut bench = Bench::new();
    let mut input = Input::new(data);
    while let Some(operation) = input.u8() {
        let detail = operation >> 3;
        match operation % 8 {
            0 => bench.reserve(detail),
            1 => bench.publish(detail, u32::from(detail) * 4),
            2 => bench.take(),
            3 => drop(bench.slots.pop()),
            4 => drop(bench.writer.resume()),
            5 => bench.writer.alternate(bench.writer.health().turns()),
            6 => {
                for (slot, _) in &mut bench.slots {
                    // Beyond the slot's end: cut off.
                    slot.copy_from(BYTES + u32::from(detail) * 0x0800_0000, &[0; 32]);
                }
                assert!(bench.reader.take_if(|_| false, |_, _| ()).is_none());
            }
            _ => {
                bench.honest = false;
                // The application writes its own file; a misbehaving daemon writes its own.
                let region = &bench.regions[usize::from(detail & 1 == 0)];
                if scribble(region, &mut input, &OFFSETS).is_none() {
                    break;
                }
            }
        }
        assert!(!bench.honest || !bench.writer.is_broken(), "an honest ring is broken");
    }
    drop(bench.writer);
    assert!(bench.reader.is_closed());
    drop(bench.slots);
}

/// Rings in use, filled out of order, alternating, and broken in each of its fields.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        vec![0x08, 0x10, 0x18, 0x51, 0x49, 0x41, 2, 2, 2, 0x20, 3],
        (0..20).flat_map(|n| [n << 3, 0x29, 2]).collect(),
        vec![5, 0x08, 0x29, 0x10, 0x29, 0x18, 0x29, 4, 2, 4, 2, 4, 2, 4, 0x46],
    ];
    for (place, file) in (0..OFFSETS.len() as u8).flat_map(|place| [(place, 7), (place, 15)]) {
        for value in [0, 1, 5, u64::MAX] {
            let mut seed = vec![0x08, 0x29, 0x10, 0x29, 2, file, place, 0];
            seed.extend_from_slice(&u64::to_le_bytes(value));
            seed.extend([0x08, 0x29, 2, 0x46, 4, 2]);
            seeds.push(seed);
        }
    }
    seeds
}
