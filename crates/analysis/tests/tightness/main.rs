//! Tightness: how much of what the verified analyses of `response-time-analysis` accept the policies admit, stage
//! kind by stage kind. Each set of random channels is offered one by one, with bounds of all lengths, to a policy and
//! to the analysis; each keeps its own set, and what they hold in the end is compared by utilisation.
//!
//! Time is in ticks of a microsecond on both sides. Blocking is C - 1 there and C here (see `oracle.rs`), interference
//! a staircase there and a line above it here: both in favour of the reference.

#[path = "../common/kind.rs"]
mod kind;
mod kinds;
mod reference;

use kinds::{Asked, KINDS, Stage};
use punctual_analysis::{StageKey, policy_by_name};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Sets of each stage kind.
const SETS: u64 = 12;
/// Channels that ask, some twice what fits.
const CHANNELS: u64 = 36;

/// The utilisation that `admit` takes of a set.
fn taken(asked: &[Asked], mut admit: impl FnMut(usize) -> bool) -> f64 {
    (0..asked.len()).filter(|&index| admit(index)).map(|index| asked[index].share()).sum()
}

fn by_policy(name: &str, stage: &Stage, asked: &[Asked]) -> f64 {
    let mut policy = policy_by_name(name, stage.model).unwrap();
    taken(asked, |index| {
        policy.hold(StageKey(index as u64), &asked[index].demand, asked[index].bound).is_ok()
    })
}

fn by_reference(stage: &Stage, asked: &[Asked], accepts: impl Fn(&Stage, &[Asked]) -> bool) -> f64 {
    let mut held: Vec<Asked> = Vec::new();
    taken(asked, |index| {
        held.push(asked[index]);
        let share: f64 = held.iter().map(Asked::share).sum();
        let yes = share <= stage.free_share() && accepts(stage, &held);
        if !yes {
            held.pop();
        }
        yes
    })
}

/// The ratio of what the policy takes to what the reference does, over all sets of each kind; the least.
fn compare(name: &str, accepts: impl Fn(&Stage, &[Asked]) -> bool + Copy) -> f64 {
    let mut least = f64::MAX;
    for kind in KINDS {
        let (mut ours, mut theirs) = (0.0, 0.0);
        for seed in 0..SETS {
            let mut rng = SmallRng::seed_from_u64(seed);
            let stage = Stage::draw(kind, &mut rng);
            let asked: Vec<Asked> = (0..CHANNELS).map(|_| stage.ask(&mut rng)).collect();
            ours += by_policy(name, &stage, &asked);
            theirs += by_reference(&stage, &asked, accepts);
        }
        let ratio = ours / theirs;
        println!(
            "{name:8} {kind:?}: {:.3} of the stage on average, the reference {:.3}: {ratio:.4}",
            ours / SETS as f64,
            theirs / SETS as f64
        );
        least = least.min(ratio);
    }
    least
}

#[test]
fn edf_admits_99_percent_of_what_the_exact_test_accepts() {
    let least = compare("edf", reference::edf);
    assert!(least >= 0.99, "{least}");
}

#[test]
fn d_order_admits_95_percent_of_what_fixed_priorities_in_the_best_order_accept() {
    let least = compare("d-order", reference::best_order);
    assert!(least >= 0.95, "{least}");
}
