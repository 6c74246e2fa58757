//! Ten thousand frames of each family, broken at random: the program and the model agree on every one.

use std::collections::BTreeMap;

use crate::frames::{Data, Ends, FAMILIES, Udp};
use crate::model::{Expected, classify};
use crate::support::{Bench, filter, options, privileged};
use crate::verdicts::judge;

const FRAMES: u64 = 10_000;

/// SplitMix64: one seed, one run.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn original(random: &mut Random, ends: Ends) -> Vec<u8> {
    let bytes = random.below(200) as u32;
    match random.below(4) {
        0 => Udp::signalling(ends, vec![0x55; bytes as usize + 1]).frame(),
        1 => Data::best_effort(bytes).frame(ends),
        2 => Data { flags: 1, ..Data::guaranteed(bytes) }.frame(ends),
        _ => Data::guaranteed(bytes).frame(ends),
    }
}

/// Up to four changes: a bit, a byte, a word of edge values, the length.
pub fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..random.below(5) {
        // The program reads the headers: most changes go there.
        let span = if random.below(4) == 0 { frame.len() } else { frame.len().min(130) };
        let at = random.below(span);
        match random.below(5) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.next() as u8,
            2 => {
                let edges = [0, 1, 8, 9, 0x7fff, 0x8000, 0xffff_u16];
                let value = edges[random.below(edges.len())];
                let value = if random.below(2) == 0 { value.to_be_bytes() } else { value.to_le_bytes() };
                let at = (at & !1).min(frame.len() - 2);
                frame[at..at + 2].copy_from_slice(&value);
            }
            3 => frame.truncate(14 + random.below(frame.len() - 13)),
            _ => frame.extend(std::iter::repeat_n(0xa5, random.below(60))),
        }
    }
}

#[test]
fn no_broken_frame_is_judged_otherwise_than_it_should() {
    if !privileged() {
        return;
    }
    for (seed, ends) in FAMILIES.map(|ends| ends()).into_iter().enumerate() {
        let options = options(ends);
        let mut bench = Bench::of(ends);
        let mut random = Random(seed as u64);
        let mut seen = BTreeMap::new();
        for number in 0..FRAMES {
            let mut frame = original(&mut random, ends);
            mutate(&mut random, &mut frame);
            let expected = classify(&frame, &options, &filter());
            assert_eq!(judge(&mut bench, &frame), expected, "seed {seed} frame {number}: {frame:02x?}");
            *seen.entry(kind(expected)).or_insert(0_u32) += 1;
        }
        // Pass, four reasons without state but expiry, three streams: a fuzzer that reaches less proves less.
        assert!(seen.len() >= 7 && seen.values().all(|count| *count >= 10), "{seen:?}");
    }
}

fn kind(expected: Expected) -> Expected {
    match expected {
        Expected::Steer { stream, .. } => Expected::Steer { stream, offset: 0, bytes: 0 },
        other => other,
    }
}
