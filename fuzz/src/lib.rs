//! The parsers and state machines that bytes from outside reach, as functions of those bytes.
//!
//! | module | owns |
//! |---|---|
//! | [`targets`] | one function for each parser and state machine, with what honest encoders make for it |
//! | [`driver`], [`mutate`] | the short run of the tests: a corpus and mutations of it, the same on every machine |
//! | [`net`], [`fault`], [`insider`] | hosts to act on, faults of their links, and an attacker who has the domain's key |
//! | [`seeds`] | texts to start from, and the words of their languages |
//! | [`ring`] | the rings of `ipc`: its sources, over memory ([`shm`]) and wake-ups ([`wake`]) that cost no system call |
//!
//! `fuzz/libfuzzer` passes the same functions to libFuzzer; `make fuzz` runs that for a long time. Corpora
//! are in `fuzz/corpus`, one folder per target: the inputs of [`targets::Target::seeds`], extended by
//! libFuzzer and then minimised, and every input that ever caused a failure.

pub mod driver;
pub mod fault;
pub mod input;
pub mod insider;
pub mod mutate;
pub mod net;
pub mod random;
#[path = "../../crates/ipc/src/ring/mod.rs"]
pub mod ring;
pub mod seeds;
pub mod shm;
pub mod sync;
pub mod targets;
pub mod wake;

pub use targets::{TARGETS, Target, target};

/// The entry point of libFuzzer.
///
/// # Panics
/// If the target panics, or there is none of this name.
pub fn fuzz(name: &str, data: &[u8]) {
    let target = target(name).expect("a target");
    (target.run)(data);
}
