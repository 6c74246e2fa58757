//! A second opinion on every policy, by code that shares nothing with it: stages of small whole numbers are
//! filled, then every release pattern is tried on them, and soft channels are tried over random phases.
//! Admitted channels are never late, and the distance of the bounds from the worst case found is reported. In
//! addition, the policy's reservations are compared with the crate `response-time-analysis`.
//!
//! `PUNCTUAL_ORACLE_SETS` is the number of sets (2,000 if it is not set), `PUNCTUAL_ORACLE_SEED` the seed.
//! With the feature `mutations` the same program searches for deliberate faults instead.

#[cfg(feature = "mutations")]
mod faults;
mod opinion;
#[cfg(not(feature = "mutations"))]
mod pieces;
mod search;
mod sets;
mod soft;
#[path = "../checks/soft_limit.rs"]
mod soft_limit;
mod stage;
mod tally;
#[path = "../checks/oracle.rs"]
mod verified;

#[cfg(not(feature = "mutations"))]
mod honest {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::opinion::{STATES_LONG, STATES_SHORT, opinion};
    use crate::soft_limit;
    use crate::tally::Tally;

    const SETS_SHORT: u64 = 2_000;
    /// Number of progress reports.
    const TELL_TIMES: u64 = 50;

    /// A number from the environment of this program.
    #[allow(clippy::disallowed_methods)] // Tests have no arguments of their own.
    fn number(name: &str) -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: give a whole number")))
    }

    /// Sets in the order of their numbers, by as many threads as there are processors.
    fn run(sets: u64, seed: u64, states_max: usize) -> Tally {
        let (next, sum) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        let work = || {
            loop {
                let set = next.fetch_add(1, Ordering::Relaxed);
                if set >= sets {
                    return;
                }
                let one = opinion(seed, set, states_max);
                let mut sum = sum.lock().expect("nobody panics with it");
                sum.add(&one);
                if set % sets.div_ceil(TELL_TIMES) == 0 {
                    println!("{set} of {sets} sets, {} wrong", sum.broken.len());
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        sum.into_inner().expect("nobody panicked with it")
    }

    #[test]
    fn nothing_that_is_admitted_is_late_in_any_release_pattern() {
        let wanted = number("PUNCTUAL_ORACLE_SETS");
        let (sets, seed) = (wanted.unwrap_or(SETS_SHORT), number("PUNCTUAL_ORACLE_SEED").unwrap_or(1));
        let states_max = if sets > SETS_SHORT { STATES_LONG } else { STATES_SHORT };
        println!("{sets} sets of seed {seed}, up to {states_max} states each");
        let tally = run(sets, seed, states_max);
        println!("{tally}");
        assert!(tally.broken.is_empty(), "{}", tally.broken.join("\n"));
        // For every seed: most sets are searched completely, and bounds are not far above the worst case
        // found.
        if sets >= SETS_SHORT {
            assert!(tally.complete * 2 > tally.searched && tally.soft.len() as u64 > sets / 100);
            let far = tally.far();
            assert!(far.is_empty(), "bounds far above the worst: {far:?}");
        }
    }
    /// The bound on misses is used almost up, and never exceeded.
    #[test]
    fn soft_channels_at_the_limit_miss_nearly_as_often_as_they_may() {
        const STAGES: u64 = 60;
        let outcomes: Vec<_> = (0..STAGES).filter_map(soft_limit::outcome).collect();
        for soft_limit::Outcome { allowed, missed } in &outcomes {
            assert!(missed <= allowed, "{missed} of the messages miss, {allowed} may");
        }
        let mut used: Vec<_> = outcomes.iter().map(soft_limit::Outcome::used).collect();
        used.sort_unstable_by(f64::total_cmp);
        let (median, most) = (used[used.len() / 2], used[used.len() - 1]);
        println!("{} stages: {median:.3} of the allowed misses in the median, {most:.3} at most", used.len());
        assert!(used.len() as u64 > STAGES / 2 && median > 0.4 && most > 0.8, "{used:.3?}");
    }
}
