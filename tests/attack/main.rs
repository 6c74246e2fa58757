//! Hostile programs and neighbours against real daemons in network namespaces (source - relay - sink), with a channel of
//! another user as witness: 1,000 B every 10 ms, D = 40 ms. Each attack runs beside its control, in which the same program
//! does the same to objects of its own. Needs root.
//!
//! Short in `make test`; `PUNCTUAL_ATTACK_SECONDS` sets how long each goes on by itself (`make attack`).

#[path = "../../crates/daemon/tests/common/mod.rs"]
mod common;

mod attacker;
mod bursts;
#[cfg(feature = "trials")]
mod crowded;
mod crowds;
mod drains;
#[cfg(feature = "trials")]
mod faults;
mod field;
mod full_rings;
mod host;
mod judge;
mod kept;
#[cfg(feature = "trials")]
mod keys;
mod large_rings;
mod latency;
#[cfg(feature = "trials")]
mod measured;
mod memory;
mod news;
mod objects;
#[cfg(feature = "trials")]
mod owners;
mod pages;
#[cfg(feature = "trials")]
mod places;
mod ports;
mod proc;
mod requests;
mod trials;
#[cfg(feature = "trials")]
mod waits;
mod wire;
#[cfg(feature = "trials")]
mod without;
mod world;

use attacker::Mechanism;

/// By what they attack.
const ALL: [&[Mechanism]; 9] = [
    objects::MECHANISMS,
    memory::MECHANISMS,
    kept::MECHANISMS,
    news::MECHANISMS,
    large_rings::MECHANISMS,
    full_rings::MECHANISMS,
    requests::MECHANISMS,
    host::MECHANISMS,
    wire::MECHANISMS,
];

/// Not a test by itself: what the hostile program does.
#[test]
fn attacker() {
    attacker::follow_orders();
}
