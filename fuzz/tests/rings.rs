//! The unsafe code of the rings without a system call: their corpora and mutations of them. Miri runs this; see
//! `scripts/sanitize`.

use punctual_fuzz::driver::{inputs, run};
use punctual_fuzz::target;

const SEED: u64 = 3;
/// An interpreted execution takes some thousand times as long.
const MUTATIONS: u64 = if cfg!(miri) { 50 } else { 20_000 };

fn hold(name: &str) {
    let target = target(name).expect("a target");
    let corpus = inputs(target).expect("a corpus");
    let done = run(target, &corpus, SEED, MUTATIONS);
    assert_eq!(done.executions, corpus.len() as u64 + MUTATIONS);
}

#[test]
fn outgoing_rings_hold() {
    hold("outbox");
}

#[test]
fn incoming_rings_hold() {
    hold("inbox");
}
