//! Mutates an input at random, like a fuzzer without instrumentation.

use crate::random::Random;

/// Values at which counts, lengths and signs turn.
const EDGES: [u64; 14] =
    [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];
/// Numbers as texts have them.
const EDGE_TEXTS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "255",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e300",
    "0.1",
];

/// Makes one to four changes. `words`: of the target's language; empty if it is not text. `other`: an input
/// from which pieces are copied.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], words: &[&str], bytes_max: usize) {
    for _ in 0..=random.below(4) {
        if words.is_empty() || random.below(2) == 0 {
            change_bytes(random, bytes, other);
        } else {
            change_text(random, bytes, other, words);
        }
    }
    bytes.truncate(bytes_max);
}

fn change_bytes(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(bytes.len() + 1);
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.next() as u8,
        2 => {
            let value = EDGES[random.below(EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        3 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add([1, 0xff][random.below(2)]),
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..(at + 1 + random.below(16)).min(bytes.len()))),
        6 => replace(bytes, at, at, &piece(random, other)),
        _ => {
            let own = piece(random, bytes);
            replace(bytes, at, at, &own);
        }
    }
}

/// Exchanges, adds or removes a word.
fn change_text(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let (start, end) = word_at(bytes, random.below(bytes.len() + 1));
    match random.below(6) {
        0 => replace(bytes, start, end, words[random.below(words.len())].as_bytes()),
        1 => replace(bytes, start, end, EDGE_TEXTS[random.below(EDGE_TEXTS.len())].as_bytes()),
        2 => replace(bytes, start, start, words[random.below(words.len())].as_bytes()),
        3 => replace(bytes, start, end, b""),
        4 => {
            let line = line_at(bytes, start);
            let copied = line_at(other, random.below(other.len() + 1));
            replace(bytes, line.0, line.0, &other[copied.0..copied.1]);
        }
        _ => {
            let line = line_at(bytes, start);
            replace(bytes, line.0, line.1, b"");
        }
    }
}

fn piece(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let start = random.below(bytes.len() + 1);
    let end = (start + random.below(64)).min(bytes.len());
    bytes[start..end].to_vec()
}

fn replace(bytes: &mut Vec<u8>, start: usize, end: usize, by: &[u8]) {
    bytes.splice(start..end, by.iter().copied());
}

/// The letters and digits around `at`.
fn word_at(bytes: &[u8], at: usize) -> (usize, usize) {
    around(bytes, at, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The line around `at`, with its end.
fn line_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let (start, end) = around(bytes, at, |byte| byte != b'\n');
    (start, (end + 1).min(bytes.len()))
}

fn around(bytes: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> (usize, usize) {
    let start = bytes[..at].iter().rposition(|byte| !belongs(*byte)).map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|byte| !belongs(*byte)).map_or(bytes.len(), |behind| at + behind);
    (start, end)
}
