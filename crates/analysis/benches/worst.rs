//! The largest cost of one decision if newcomers choose the worst contracts beside 1,000 and 10,000 channels.

// A benchmark reads the clock; the crate does not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod support;

use std::time::{Duration, Instant};

use punctual_analysis::{AdmissionPolicy, Contract, Link, Nanos, Rate, StageKey};
use support::{demand, filled};

/// Newcomers that are tried.
const ROUNDS: u64 = 3_000;

/// The longest decision of one kind, and its description.
#[derive(Default)]
struct Worst {
    taken: Duration,
    what: String,
}

impl Worst {
    /// Runs a decision and measures its time.
    fn time<R>(&mut self, what: &str, decision: impl FnOnce() -> R) -> (R, Duration) {
        let begun = Instant::now();
        let result = decision();
        let taken = begun.elapsed();
        if taken > self.taken {
            *self = Self { taken, what: what.to_owned() };
        }
        (result, taken)
    }
}

/// Any valid contract, from 20 us to 168 s and from 1 B to 512 KiB; `None` if the drawn values are invalid.
fn newcomer(roll: &mut impl FnMut(u64) -> u64) -> Option<(Contract, String)> {
    let interval = Nanos(20_000 << roll(23)) + Nanos(roll(20_000));
    let bytes = 1 + (1_u32 << roll(20));
    let deadline = Nanos((50_000 << roll(19)) + roll(1_000));
    let contract = Contract::new(bytes, Rate::every(interval)?, 1, deadline).ok()?;
    Some((contract, format!("{bytes} B every {interval} within {deadline}")))
}

/// The cost of one newcomer for a stage, from its offer to its release; returns the time of the offer.
fn visit(
    link: &Link,
    policy: &mut dyn AdmissionPolicy,
    (contract, what): &(Contract, String),
    worst: &mut [Worst; 4],
) -> Duration {
    let (demand, key) = (demand(link, contract), StageKey(u64::MAX));
    let [offers, holds, relaxes, releases] = worst;
    let (offer, taken) = offers.time(&format!("offer: {what}"), || policy.offer(&demand, contract.deadline));
    let Ok(offer) = offer else { return taken };
    if holds.time(&format!("hold: {what}"), || policy.hold(key, &demand, offer.bound)).0.is_ok() {
        let bound = contract.deadline.max(offer.bound);
        // If a bound is not feasible, the held one stays.
        let _ = relaxes.time(&format!("relax: {what}"), || policy.relax(key, bound));
        releases.time(&format!("release: {what}"), || policy.release(key));
    }
    taken
}

fn report(name: &str, channels: u64, used: f64) {
    let (link, mut policy) = filled(name, channels, used);
    let mut dice: u64 = 7;
    let mut roll = |most: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % most
    };
    let mut worst: [Worst; 4] = Default::default();
    let newcomers = (0..ROUNDS).filter_map(|_| newcomer(&mut roll)).collect::<Vec<_>>();
    let mut offers: Vec<Duration> =
        newcomers.iter().map(|newcomer| visit(&link, &mut *policy, newcomer, &mut worst)).collect();
    offers.sort_unstable();
    let at = |percent: usize| offers[offers.len() * percent / 100];
    println!("{name} {channels} at {used}: offer p50 {:?} p99 {:?}", at(50), at(99));
    for Worst { taken, what } in worst {
        println!("    {taken:?} {what}");
    }
}

fn main() {
    for name in ["edf", "d-order"] {
        for (channels, used) in [(1_000, 0.5), (1_000, 0.88), (10_000, 0.88)] {
            report(name, channels, used);
        }
    }
}
