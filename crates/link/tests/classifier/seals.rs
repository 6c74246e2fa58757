//! Seals of signalling: a packet with the neighbour's seal counts as the neighbour's, each number once. Any
//! other packet under its address counts as an unknown sender's, however similar it is.

use punctual_link::xdp::ClassifierOptions;
use punctual_link::{SealKey, Stream};

use crate::frames::{Ends, Udp, ipv4, ipv6};
use crate::support::{Bench, Fate, Reason, options, privileged};

/// The version of RTCOP that the program supports, and the offsets in the envelope: they never change.
const VERSION: u8 = 10;
const NUMBER_AT: usize = 13;
const SEAL_AT: usize = 21;
const ENVELOPE_BYTES: usize = 29;
const KEY: SealKey = SealKey([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 250]);
/// The reason for which an unknown sender's packet is dropped in [`bench`].
const STRANGERS: Reason = Reason::NoBuffer;
const OTHER_KEY: SealKey = SealKey([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 251]);

/// SipHash-2-4 of two words, after the paper.
fn sip(key: SealKey, words: [u64; 2]) -> u64 {
    let part = |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("eight"));
    let (low, high) = (part(0), part(8));
    let names = [*b"somepseu", *b"dorandom", *b"lygenera", *b"tedbytes"].map(u64::from_be_bytes);
    let mut v = [low ^ names[0], high ^ names[1], low ^ names[2], high ^ names[3]];
    let rounds = |v: &mut [u64; 4], times: u32| {
        for _ in 0..times {
            v[0] = v[0].wrapping_add(v[1]);
            v[2] = v[2].wrapping_add(v[3]);
            v[1] = v[1].rotate_left(13) ^ v[0];
            v[3] = v[3].rotate_left(16) ^ v[2];
            v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
            v[2] = v[2].wrapping_add(v[1]);
            v[3] = v[3].rotate_left(21) ^ v[0];
            v[1] = v[1].rotate_left(17) ^ v[2];
            v[2] = v[2].rotate_left(32);
        }
    };
    for word in words.into_iter().chain([16 << 56]) {
        v[3] ^= word;
        rounds(&mut v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v.into_iter().fold(0, |sum, word| sum ^ word)
}

/// The paper's own example for sixteen bytes, so that this file and the program do not share a mistake.
#[test]
fn the_hash_is_that_of_the_paper() {
    let key = SealKey(std::array::from_fn(|at| at as u8));
    let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
    assert_eq!(sip(key, words), 0x3f2a_cc7f_57c2_9bdb);
}

/// Signalling of `bytes` bytes, sealed as such of `sealed` bytes.
fn signal(ends: Ends, key: SealKey, number: u64, bytes: usize, sealed: u64) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..bytes).map(|at| at as u8 ^ 0x5a).collect();
    payload[0] = VERSION;
    payload[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_le_bytes());
    payload[SEAL_AT..SEAL_AT + 8].copy_from_slice(&sip(key, [number, sealed]).to_le_bytes());
    Udp::signalling(ends, payload).frame()
}

fn sealed(ends: Ends, number: u64, bytes: usize) -> Vec<u8> {
    signal(ends, KEY, number, bytes, bytes as u64)
}

/// A program whose buffers for unknown senders are all held, whatever the clock shows: every packet that it
/// lets in is the neighbour's.
fn bench(ends: Ends) -> Bench {
    let mut bench = Bench::new(&ClassifierOptions { buffers: [8; 4], ..options(ends) });
    let mut held = 0;
    while let Fate::Steered(Stream::Signalling, _) = bench.run_and_hold(&sealed(ends, 1, 100)) {
        held += 1;
    }
    assert!((1..8).contains(&held), "some are the neighbour's alone: {held} are held");
    bench.expect_drop(&sealed(ends, 1, 100), STRANGERS);
    bench.program.set_neighbour(KEY).expect("to set");
    bench
}

#[test]
fn what_the_neighbour_has_sealed_is_let_in_once() {
    if !privileged() {
        return;
    }
    for ends in [ipv4(), ipv6()] {
        let mut bench = bench(ends);
        let numbers = [0, 1, 2, 200, u64::from(u32::MAX) + 7, 0x0123_4567_89ab_cdef, u64::MAX - 1];
        for number in numbers {
            let bytes = ENVELOPE_BYTES + (number % 1_400) as usize;
            bench.expect_steer(&sealed(ends, number, bytes), Stream::Signalling);
            bench.expect_drop(&sealed(ends, number, bytes), Reason::Replayed);
        }
    }
}

#[test]
fn a_packet_with_a_false_seal_counts_as_from_an_unknown_sender() {
    if !privileged() {
        return;
    }
    let ends = ipv4();
    let mut bench = bench(ends);
    let payload_at = sealed(ends, 9, 200).len() - 200;
    let changed = |at: usize| {
        let mut frame = sealed(ends, 9, 200);
        frame[payload_at + at] ^= 1;
        frame
    };
    for (what, frame) in [
        ("another key", signal(ends, OTHER_KEY, 9, 200, 200)),
        ("another length", signal(ends, KEY, 9, 200, 199)),
        ("another version", changed(0)),
        ("another number", changed(NUMBER_AT)),
        ("its last byte", changed(NUMBER_AT + 7)),
        ("another seal", changed(SEAL_AT)),
        ("its last byte", changed(SEAL_AT + 7)),
        ("no envelope", Udp::signalling(ends, vec![VERSION; ENVELOPE_BYTES - 1]).frame()),
    ] {
        println!("{what}");
        bench.expect_drop(&frame, STRANGERS);
    }
    // No refused packet has used up its number.
    bench.expect_steer(&sealed(ends, 9, 200), Stream::Signalling);
    // The tag protects the bytes outside the envelope.
    bench.expect_drop(&changed(100), Reason::Replayed);
}

/// Reordered packets are let in as far back as 64, each once.
#[test]
fn numbers_are_known_64_back() {
    if !privileged() {
        return;
    }
    let ends = ipv4();
    let mut bench = bench(ends);
    let mut is_in = |number: u64| match bench.run(&sealed(ends, number, 60)) {
        Fate::Dropped(Reason::Replayed) => false,
        Fate::Steered(Stream::Signalling, _) => true,
        other => panic!("{number}: {other:?}"),
    };
    assert!(is_in(1_000));
    assert!(!is_in(1_000 - 64) && is_in(1_000 - 63) && !is_in(1_000 - 63));
    assert!(is_in(999) && !is_in(999) && is_in(990));
    // Ahead by less than 64: seen numbers stay known, the others may still come.
    assert!(is_in(1_010) && !is_in(1_000) && !is_in(990) && is_in(1_001) && is_in(1_009));
    assert!(!is_in(1_010 - 64) && is_in(1_010 - 62) && !is_in(1_010));
    // Ahead by 64 and more: no number within reach was seen.
    assert!(is_in(1_074) && is_in(1_011) && !is_in(1_010));
    assert!(is_in(5_000) && is_in(4_999) && is_in(4_937) && !is_in(4_936) && !is_in(1_074));
}

/// The packet keeps its buffer: releasing it would show that those before it were lost, and give room to
/// unknown senders.
fn is_let_in(bench: &mut Bench, frame: &[u8]) {
    let fate = bench.run_and_hold(frame);
    assert!(matches!(fate, Fate::Steered(Stream::Signalling, _)), "{fate:?}");
}

/// Another life of the neighbour has another key, and its numbers begin anew.
#[test]
fn another_life_has_numbers_of_its_own() {
    if !privileged() {
        return;
    }
    let ends = ipv4();
    let mut bench = bench(ends);
    for number in [5, 6] {
        is_let_in(&mut bench, &sealed(ends, number, 60));
    }
    bench.program.set_neighbour(OTHER_KEY).expect("to set");
    bench.expect_drop(&sealed(ends, 7, 60), STRANGERS);
    for number in [5, 6] {
        is_let_in(&mut bench, &signal(ends, OTHER_KEY, number, 60, 60));
    }
}
