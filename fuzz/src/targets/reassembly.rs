//! Reassembly of messages from fragments in any order, duplicated, of other sizes, given up in between:
//! delivered messages are whole, unaltered and delivered once, and no slot is lost.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use punctual_proto::fragment::{Outcome, Reassembly};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::memory::MessageWrite;
use punctual_proto::wire::{Header, Kind};

use super::header::packet;
use crate::input::Input;

const MESSAGES_MAX: u32 = 3;
const SLOTS: u32 = 4;
const FRAGMENT_BYTES: u32 = 16;
const MESSAGE_BYTES_MAX: u32 = 200;

/// A slot that counts itself.
#[derive(Debug)]
struct Slot {
    bytes: Vec<u8>,
    used: Rc<Cell<u32>>,
}

impl MessageWrite for Slot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        let start = offset as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.used.set(self.used.get() - 1);
    }
}

/// The byte at `offset` of a message.
fn content(number: u64, offset: u32) -> u8 {
    (number as u8).wrapping_mul(31) ^ offset as u8
}

fn reserve(used: &Rc<Cell<u32>>) -> Option<Slot> {
    (used.get() < SLOTS).then(|| {
        used.set(used.get() + 1);
        Slot { bytes: vec![0; MESSAGE_BYTES_MAX as usize], used: Rc::clone(used) }
    })
}

/// A header and payload that parse, as `handle_frame` sees them.
fn fragment(input: &mut Input<'_>, base: u64) -> Option<(Header, Vec<u8>)> {
    let (number, bytes, index, size) = (input.u8()?, input.u8()?, input.u8()?, input.u8()?);
    let size =
        [FRAGMENT_BYTES, FRAGMENT_BYTES, FRAGMENT_BYTES, u32::from(size).max(1)][usize::from(size % 4)];
    let message_bytes = u32::from(bytes);
    let fragments = message_bytes.div_ceil(size).max(1);
    let index = u32::from(index) % fragments;
    let mut bytes = packet(Kind::Guaranteed, index as u16, message_bytes, size);
    let (mut header, _) = Header::parse(&bytes).expect("an honest packet");
    header.message = base.wrapping_add(u64::from(number));
    header.demoted = number % 5 == 0;
    for (at, byte) in bytes[HEADER_BYTES..].iter_mut().enumerate() {
        *byte = content(header.message, index * size + at as u32);
    }
    Some((header, bytes.split_off(HEADER_BYTES)))
}

/// A sequence of fragments.
pub fn run(data: &[u8]) {
    let used = Rc::new(Cell::new(0));
    let mut reassembly = Reassembly::new(MESSAGES_MAX, FRAGMENT_BYTES, MESSAGE_BYTES_MAX);
    let (mut base, mut over) = (0, BTreeSet::new());
    let mut input = Input::new(data);
    while let Some(operation) = input.u8() {
        match operation % 16 {
            0 => {
                // Elsewhere in the number space: the window moves, and numbers that it has dropped may come
                // again.
                base = [0, 1 << 20, 1 << 40, u64::MAX - 256][usize::from(operation / 16) % 4];
                over.clear();
            }
            1 => drop(reassembly.expire(base + u64::from(operation / 16))),
            _ => {
                let Some((header, payload)) = fragment(&mut input, base) else { break };
                let outcome = reassembly.accept(&header, &payload, || reserve(&used));
                if let Outcome::Complete { slot, .. } = outcome {
                    assert!(over.insert(header.message), "{} is handed out twice", header.message);
                    let wrong = (0..header.message_bytes)
                        .find(|offset| slot.bytes[*offset as usize] != content(header.message, *offset));
                    assert_eq!(wrong, None, "message {} is altered", header.message);
                }
            }
        }
        assert!(reassembly.in_progress() <= MESSAGES_MAX as usize);
        assert_eq!(used.get() as usize, reassembly.in_progress(), "a slot a message in progress");
    }
    drop(reassembly);
    assert_eq!(used.get(), 0);
}

/// Whole messages, interleaved, of one fragment, doubled.
pub fn seeds() -> Vec<Vec<u8>> {
    let one = |number: u8, bytes: u8, index: u8| [2, number, bytes, index, 0];
    let all = |number: u8, bytes: u8| (0..bytes.div_ceil(16)).map(move |index| one(number, bytes, index));
    vec![
        all(1, 100).flatten().collect(),
        all(1, 100).chain(all(2, 40)).chain(all(3, 200)).flatten().collect(),
        all(5, 60).zip(all(6, 60)).flat_map(|(a, b)| [a, b]).flatten().collect(),
        (0..40).flat_map(|number| one(number, 16, 0)).collect(),
        (0..10).flat_map(|number| one(number, 64, 1)).chain([1]).chain(all(1, 100).flatten()).collect(),
        [0x10, 0x20, 0x30].into_iter().flat_map(|op| [op].into_iter().chain(all(7, 48).flatten())).collect(),
    ]
}
