//! Soundness, stage kind by stage kind: links with their windows, completions, reactions and clocks, packet
//! by packet; processors with their quanta, runs and message edges, unit by unit. Sets of random contracts
//! are admitted by each policy up to its first refusal, through the models that hosts use
//! ([`Link`](punctual_analysis::Link) and [`Cpu`](punctual_analysis::Cpu)), and then every channel sends the
//! worst traffic that its contract allows. No channel ever misses; and channels of an admission with an
//! incomplete model do miss.

mod arrivals;
#[path = "../common/kind.rs"]
mod kind;
mod kinds;
mod simulate;
#[path = "../common/thefts.rs"]
mod thefts;

use kinds::{KINDS, Kind, Stage};
use punctual_analysis::{
    Admission, Blocking, Demand, Interference, Nanos, StageKey, StageModel, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use simulate::{Order, run};

const SETS: u64 = 60;
/// Sets for each part that is left out.
const SETS_BLIND: u64 = 30;
const SCENARIOS: usize = 8;
const CHANNELS_MAX: u64 = 24;
const BOUND_LIMIT: Nanos = Nanos::from_millis(300);

const POLICIES: [(&str, Order); 5] = [
    ("edf", Order::Deadline),
    ("d-order", Order::Deadline),
    ("statistical", Order::Deadline),
    ("fixed-priority", Order::Level),
    ("rmdp", Order::Rate),
];

/// The part that the admission leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blind {
    Nothing,
    Blocking,
    Interference,
}

/// A channel that was admitted.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Its demand for the stage.
    pub demand: Demand,
    /// d.
    pub bound: Nanos,
    /// S.
    pub message_bytes_max: u32,
    /// Its position among the channels of its level: any order must work.
    pub among_peers: u32,
}

fn seen(model: StageModel, blind: Blind) -> StageModel {
    match blind {
        Blind::Nothing => model,
        Blind::Blocking => StageModel { blocking: Blocking::Pipeline(Nanos::ZERO), ..model },
        Blind::Interference => StageModel { interference: Interference::default(), ..model },
    }
}

/// Channels up to the first refusal; under `rmdp` a newcomer cannot choose its place, so the next one is
/// tried.
fn admitted(policy: &str, stage: &Stage, blind: Blind, rng: &mut SmallRng) -> Vec<Channel> {
    let mut policy = policy_by_name(policy, seen(stage.model(), blind)).unwrap();
    let placed = policy.admission() == Admission::RMDP;
    let mut channels = Vec::new();
    for key in 0..CHANNELS_MAX {
        let (message_bytes_max, demand) = stage.ask(rng);
        let Ok(offer) = policy.offer(&demand, BOUND_LIMIT) else { if placed { continue } else { break } };
        let room = if placed { 20 } else { 1 };
        let wider = offer.bound + Nanos(rng.random_range(0..=offer.bound.0 * room));
        let relaxed = rng.random_bool(if placed { 0.8 } else { 0.4 })
            && policy.hold(StageKey(key), &demand, wider).is_ok();
        let bound = if relaxed { wider } else { offer.bound };
        if !relaxed {
            policy.hold(StageKey(key), &demand, bound).expect("what was offered holds");
        }
        channels.push(Channel { demand, bound, message_bytes_max, among_peers: rng.random() });
    }
    channels
}

/// The result over all sets.
#[derive(Debug, Default)]
struct Outcome {
    channels: usize,
    messages: u64,
    misses: u64,
    /// Done in the last tenth of the bound.
    close: u64,
    /// Seed of the first set that missed.
    seed: Option<u64>,
}

fn try_all(policy: &str, order: Order, kind: Kind, blind: Blind, seeds: std::ops::Range<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    for seed in seeds {
        let mut rng = SmallRng::seed_from_u64(seed);
        let stage = Stage::draw(kind, &mut rng);
        let channels = admitted(policy, &stage, blind, &mut rng);
        outcome.channels += channels.len();
        let blockers = (0..channels.len()).map(Some).chain([None]);
        let mut scenarios: Vec<_> = blockers.map(|one| arrivals::critical_instant(&channels, one)).collect();
        for _ in 0..SCENARIOS / 2 {
            scenarios.push(arrivals::periodic(&channels, &mut rng));
            scenarios.push(arrivals::jittered(&channels, &mut rng));
        }
        for messages in scenarios {
            outcome.messages += messages.len() as u64;
            let counted = run(&stage, &channels, order, messages, &mut rng);
            outcome.misses += counted.misses;
            outcome.close += counted.close;
            if counted.misses > 0 {
                outcome.seed.get_or_insert(seed);
            }
        }
    }
    outcome
}

#[test]
fn nothing_that_is_admitted_misses_at_any_kind_of_stage() {
    for kind in KINDS {
        for (policy, order) in POLICIES {
            let outcome = try_all(policy, order, kind, Blind::Nothing, 0..SETS);
            println!("{kind:?} {policy}: {outcome:?}");
            assert_eq!(outcome.misses, 0, "{kind:?} {policy}: {outcome:?}");
            assert!(
                outcome.channels > 300 && outcome.close > 100,
                "{kind:?} {policy} was hardly tried: {outcome:?}"
            );
        }
    }
}

#[test]
fn an_admission_that_leaves_something_out_misses_at_every_kind_of_stage() {
    for kind in KINDS {
        for blind in [Blind::Blocking, Blind::Interference] {
            let outcome = try_all("edf", Order::Deadline, kind, blind, 0..SETS_BLIND);
            assert!(outcome.misses > 0, "{kind:?} without {blind:?} held: {outcome:?}");
        }
    }
}
