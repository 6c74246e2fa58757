//! The outgoing ring, with an application that writes arbitrary data to the shared memory.
//!
//! The daemon's end never panics, never returns a message longer than the ring's maximum, and a message's
//! length never changes. While no thread writes out of turn, messages arrive whole and in order. The
//! application's own end survives a daemon that behaves in the same way.

use std::collections::VecDeque;
use std::io::IoSlice;

use punctual_proto::Instant;
use punctual_proto::memory::{MessageRead, Outbox};

use crate::input::Input;
use crate::ring::{OutboxMessage, OutboxReader, OutboxWriter, RingShape, outbox};
use crate::shm::{Region, scribble};
use crate::wake::{Alarm, RingPath};

const SLOTS: u32 = 3;
const BYTES: u32 = 100;
const HEADER_BYTES: u64 = 256;
/// Which of the two files has the payload.
const PAYLOAD: usize = 1;
/// Offsets of the fields that the two sides share, and offsets between and behind them.
const OFFSETS: [u32; 10] = [0, 128, 136, 192, 200, 256, 264, 320, 448, 640];

struct Bench {
    reader: OutboxReader,
    writer: OutboxWriter,
    /// The daemon's file and the application's.
    regions: [Region; 2],
    /// Messages that were taken, with their lengths.
    taken: VecDeque<(OutboxMessage, u32)>,
    expected: VecDeque<Vec<u8>>,
    now: Instant,
    last_sent: Instant,
    honest: bool,
}

impl Bench {
    fn new() -> Self {
        let shape = RingShape::new(SLOTS, BYTES).expect("a shape");
        let (reader, handles, _doorbell) = outbox(shape, &Alarm, &RingPath::Direct).expect("a ring");
        let map = |file: usize| {
            let bytes = if file == PAYLOAD { shape.file_bytes() } else { HEADER_BYTES };
            Region::map(&handles.descriptors[file], bytes).expect("the ring's memory")
        };
        let regions = [map(0), map(1)];
        let writer = OutboxWriter::attach(handles).expect("attached");
        reader.health().accept().expect("accepted");
        let (taken, expected) = Default::default();
        let now = Instant(1_000);
        Self { reader, writer, regions, taken, expected, now, last_sent: Instant::ZERO, honest: true }
    }

    fn push(&mut self, byte: u8, len: usize) {
        let message = vec![byte; len];
        if self.writer.push(&[IoSlice::new(&message)]).is_ok() {
            self.expected.push_back(message);
        }
    }

    fn take(&mut self) {
        self.now = Instant(self.now.0 + 7);
        let ready = self.reader.is_ready();
        let Some((message, sent)) = self.reader.take(self.now) else {
            // Its length may be what breaks the ring.
            return assert!(!ready || self.reader.is_broken());
        };
        assert!(!self.reader.is_broken() && ready);
        assert!(sent <= self.now && sent >= self.last_sent, "sent at {sent:?}");
        assert!(message.len() <= BYTES && self.taken.len() < SLOTS as usize);
        self.last_sent = sent;
        let len = message.len();
        let mut bytes = vec![0; len as usize];
        message.copy_to(0, &mut bytes);
        if self.honest {
            assert_eq!(self.expected.pop_front(), Some(bytes));
        }
        self.taken.push_back((message, len));
    }

    fn check_taken(&self, offset: u32) {
        let mut out = [0; 16];
        for (message, len) in &self.taken {
            assert_eq!(message.len(), *len);
            message.copy_to(offset, &mut out);
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
            0 | 1 => bench.push(detail, usize::from(detail) * 4),
            2 | 3 => bench.take(),
            4 => drop(bench.taken.remove(usize::from(detail) % (bench.taken.len() + 1))),
            5 => bench.check_taken(u32::from(detail) * 0x0100_0000),
            6 => {
                // The reaction of the application's end to invalid values.
                let (len, position) = (usize::from(detail) * 8, u64::from(detail));
                let _ = (bench.writer.outstanding(), bench.writer.is_sent(position));
                bench.push(detail, len);
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
        assert!(!bench.honest || !bench.reader.is_broken(), "an honest ring is broken");
    }
    drop(bench.reader);
    assert!(bench.writer.is_closed());
}

/// Rings in use, freed out of order, and broken in each of its fields.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        vec![0x28, 0x30, 0x02, 0x02, 0x0c, 0x04, 0x38, 0x02, 0x04],
        (0..30).flat_map(|n| [n << 3, 2, 4]).collect(),
        vec![0x08, 0x10, 0x18, 0x20, 2, 2, 2, 2, 0x14, 0x0c, 0x04, 0x28, 2, 0x0d, 0x35],
    ];
    for (place, file) in (0..OFFSETS.len() as u8).flat_map(|place| [(place, 7), (place, 15)]) {
        for value in [0, 2, 101, u64::MAX] {
            let mut seed = vec![0x28, 0x30, 2, file, place, 0];
            seed.extend_from_slice(&u64::to_le_bytes(value));
            seed.extend([2, 0x28, 4, 2, 0x3e]);
            seeds.push(seed);
        }
    }
    seeds
}
