//! The result for one set.

use crate::search::search;
use crate::sets::{Kind, draw};
use crate::stage::TICK_NS;
use crate::{soft, verified};

/// Most states that are searched for one set.
#[cfg_attr(feature = "mutations", allow(dead_code))]
pub const STATES_LONG: usize = 20_000;
pub const STATES_SHORT: usize = 5_000;
/// One set in so many is of soft channels.
const SOFT_EVERY: u64 = 50;
/// Policies whose response times the crate `response-time-analysis` has, too.
const VERIFIED: [&str; 4] = ["edf", "d-order", "fixed-priority", "rmdp"];

/// Distance of a bound from the longest response that was found.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    pub ticks: f64,
    /// Bound by response.
    pub ratio: f64,
}

/// A set whose release patterns were tried.
#[derive(Clone, Copy, Debug)]
pub struct Searched {
    pub policy: &'static str,
    pub kind: Kind,
    pub channels: usize,
    pub states: usize,
    /// All of them were.
    pub complete: bool,
    /// The gap of the channel that was admitted last, if it has its smallest possible bound.
    pub least: Option<Gap>,
    /// The gap of the channel that is nearest to its bound.
    pub nearest: Option<Gap>,
}

#[derive(Clone, Debug, Default)]
pub struct Opinion {
    pub searched: Option<Searched>,
    pub soft: Option<soft::Outcome>,
    /// Violations found by the search.
    pub broken: Vec<String>,
    /// A violation found by the crate `response-time-analysis`.
    pub refuted: Option<String>,
}

/// The opinion on set number `set` of `seed`.
pub fn opinion(seed: u64, set: u64, states_max: usize) -> Opinion {
    let own_seed = seed.wrapping_mul(1_000_000_007).wrapping_add(set);
    let mut opinion = if set % SOFT_EVERY == SOFT_EVERY - 1 {
        of_soft(own_seed)
    } else {
        of_patterns(own_seed, states_max)
    };
    let policy = VERIFIED[(set % VERIFIED.len() as u64) as usize];
    opinion.refuted = verified::broken_bound(policy, own_seed);
    let all = opinion.broken.iter_mut().chain(&mut opinion.refuted);
    all.for_each(|what| *what = format!("set {set} of seed {seed}: {what}"));
    opinion
}

fn of_soft(seed: u64) -> Opinion {
    let soft = soft::check(seed);
    let broken = soft.iter().filter(|outcome| outcome.is_broken());
    Opinion {
        soft,
        broken: broken.map(|outcome| format!("soft channels: {outcome:?}")).collect(),
        ..Opinion::default()
    }
}

fn of_patterns(seed: u64, states_max: usize) -> Opinion {
    let set = draw(seed);
    let mut opinion = Opinion::default();
    if set.channels.is_empty() {
        return opinion;
    }
    if set.gives_too_much_away() {
        opinion.broken.push(format!("more is given away than may be: {set:?}"));
    }
    let found = search(&set.stage, &set.channels, states_max);
    if let Some((late, way)) = &found.late {
        opinion.broken.push(format!("{late:?} is late in {set:?} by {way:?}"));
    }
    let gap = |index: usize| {
        let bound = set.channels[index].bound_ns as f64 / TICK_NS as f64;
        let response = f64::from(found.worst[index].filter(|&ticks| ticks > 0)?);
        Some(Gap { ticks: bound - response, ratio: bound / response })
    };
    opinion.searched = Some(Searched {
        policy: set.policy,
        kind: set.kind,
        channels: set.channels.len(),
        states: found.states,
        complete: found.complete,
        least: set.least.and_then(gap),
        nearest: (0..set.channels.len()).filter_map(gap).min_by(|a, b| a.ratio.total_cmp(&b.ratio)),
    });
    opinion
}
