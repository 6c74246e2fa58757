//! What bytes from outside reach, as functions of those bytes.
//!
//! | module | owns |
//! |---|---|
//! | [`targets`] | one function for each parser and state machine, with what honest encoders make for it |
//! | [`driver`], [`mutate`] | the short run of the tests: a corpus and mutations of it, the same on every machine |
//! | [`net`], [`insider`] | hosts to act on, and an attacker who has the domain's key |
//! | [`seeds`] | texts to start from, and the words of their languages |
//! | [`ring`] | the rings of `ipc`: its sources, over memory ([`shm`]) and wake-ups ([`wake`]) that cost no system call |
//!
//! `fuzz/libfuzzer` gives the same functions to libFuzzer; `make fuzz` runs that for long. Corpora lie in
//! `fuzz/corpus`, one folder a target: what was made by [`targets::Target::seeds`], grown by libFuzzer and made small
//! again, and every input that ever broke something.

pub mod driver;
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

/// What libFuzzer runs.
///
/// # Panics
/// Where the target does, and where there is none of this name.
pub fn fuzz(name: &str, data: &[u8]) {
    let target = target(name).expect("a target");
    (target.run)(data);
}
