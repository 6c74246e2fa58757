//! Soft channels: a stage under `statistical`, filled up to the first refusal, simulated unit by unit in
//! virtual time. Independent sources that use all that they declare miss no more often than permitted, and
//! hard channels beside them never. The simulation can fail: sources that are in step with each other do miss
//! too often, and admission by means alone misses.

use std::collections::BTreeMap;

use punctual_analysis::{
    AdmissionPolicy, Blocking, Class, Demand, Interference, Nanos, Ppb, Ppm, Soft, StageKey, StageModel,
    Urgency, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MODEL: StageModel = StageModel {
    blocking: Blocking::LargestUnit { best_effort: Nanos(120_000) },
    interference: Interference { sigma: Nanos(100_000), rho: Ppm(20_000) },
    utilisation_limit: Ppm(950_000),
};
const UNIT_NS: u64 = 120_000;
const RUN_NS: u64 = 60_000_000_000;

/// How a soft source uses what it declares.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Sends all of its allowance at the peak, then nothing until it has it again.
    OnOff,
    /// Each message with the probability that gives the mean.
    Random,
    /// At the mean rate.
    Even,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    demand: Demand,
    bound: Nanos,
}

/// How far channels may be served ahead of their effective arrivals, and how many hard ones there are.
#[derive(Clone, Copy, Debug)]
struct Hard {
    early: Nanos,
    wanted: usize,
}

/// A few, each served at its effective arrival or later.
fn punctual(rng: &mut SmallRng) -> Hard {
    Hard { early: Nanos::ZERO, wanted: rng.random_range(2..6) }
}

/// So many and so early that what they bring at once is longer than a soft bound.
fn early(rng: &mut SmallRng) -> Hard {
    Hard { early: Nanos::from_millis(rng.random_range(5..120)), wanted: rng.random_range(3..9) }
}

fn hard(rng: &mut SmallRng) -> Demand {
    let period = Nanos(rng.random_range(5..40) * 1_000_000);
    let cost = Nanos(UNIT_NS * rng.random_range(1..6));
    Demand {
        cost,
        unit_cost_max: Nanos(UNIT_NS),
        period,
        release_latency: Nanos(rng.random_range(0..100_000)),
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, period),
        soft: None,
    }
}

/// Peaks of some percent of the stage, means of a fifth of them.
fn soft(miss_ratio: Ppb, rng: &mut SmallRng) -> Demand {
    let period = Nanos(rng.random_range(8..24) * 1_000_000);
    let mean_period = period * rng.random_range(4..8);
    let mean_over = Nanos::from_millis(rng.random_range(200..800));
    // Far down a path effective arrivals are known to within J only.
    let jitter =
        if rng.random_bool(0.5) { Nanos::from_millis(rng.random_range(0..100)) } else { Nanos::ZERO };
    let soft = Soft { mean_period, mean_over, jitter: Nanos::ZERO, miss_ratio }.at_stage(1, jitter);
    Demand { cost: Nanos(UNIT_NS * rng.random_range(1..4)), period, soft: Some(soft), ..hard(rng) }
}

struct Set {
    channels: Vec<Channel>,
    hard: usize,
}

/// Some hard channels, then soft ones up to the first refusal.
fn admitted(policy: &mut dyn AdmissionPolicy, miss_ratio: Ppb, kind: Hard, rng: &mut SmallRng) -> Set {
    let mut channels = Vec::new();
    let hard_wanted = kind.wanted;
    while channels.len() < hard_wanted {
        let demand = Demand { early: kind.early, ..hard(rng) };
        let bound = policy.offer(&demand, Nanos::from_secs(1)).unwrap().bound;
        policy.hold(StageKey(channels.len() as u64), &demand, bound).unwrap();
        channels.push(Channel { demand, bound });
    }
    loop {
        let demand = Demand { early: kind.early, ..soft(miss_ratio, rng) };
        let wanted = Nanos::from_millis(rng.random_range(8..30));
        let bound = match policy.offer(&demand, wanted) {
            Ok(offer) => Nanos(rng.random_range(offer.bound.0..=wanted.0)),
            Err(_) => return Set { channels, hard: hard_wanted },
        };
        policy
            .hold(StageKey(channels.len() as u64), &demand, bound)
            .expect("what was offered holds, and more");
        channels.push(Channel { demand, bound });
    }
}

/// Effective arrivals of one channel, within its contract; a soft source begins anywhere in its cycle.
fn arrivals(demand: &Demand, source: Source, in_step: bool, rng: &mut SmallRng) -> Vec<u64> {
    let period = demand.period.0;
    let Some(soft) = demand.soft else {
        return (rng.random_range(0..period)..RUN_NS).step_by(period as usize).collect();
    };
    let mut shift = |most: u64| if in_step { 0 } else { rng.random_range(0..most) };
    match source {
        Source::Even => (shift(soft.mean_period.0)..RUN_NS).step_by(soft.mean_period.0 as usize).collect(),
        Source::OnOff => {
            // 1 + (t + over)/mean messages in a burst of t = (n - 1) periods.
            let burst = (1..)
                .take_while(|n| n * period <= (n * period + soft.mean_over.0) / soft.mean_period.0 * period);
            let burst = burst.count() as u64 + 1;
            let cycle = burst * soft.mean_period.0;
            let start = shift(cycle);
            let of_cycle = |n: u64| (0..burst).map(move |k| n * cycle + k * period);
            (0..RUN_NS / cycle + 2)
                .flat_map(of_cycle)
                .filter_map(|at| at.checked_sub(start))
                .filter(|&at| at < RUN_NS)
                .collect()
        }
        Source::Random => {
            let share = period as f64 / soft.mean_period.0 as f64;
            let start = shift(period);
            let mut due = 0;
            (start..RUN_NS)
                .step_by(period as usize)
                .filter(|&at| {
                    // The regulator of the mean.
                    let sends = rng.random_bool(share) && due <= at + soft.mean_over.0;
                    if sends {
                        due = due.max(at) + soft.mean_period.0;
                    }
                    sends
                })
                .collect()
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    messages: u64,
    misses: u64,
}

/// Messages that may arrive early come in bursts: all messages of `early_ns` at once, at the begin of that
/// time.
fn gathered(at: u64, early_ns: u64) -> u64 {
    at.checked_div(early_ns).map_or(at, |heap| heap * early_ns)
}

/// Serves everything: hard by deadline, then soft by deadline, then best effort without end; interference takes what
/// it may. Counts of hard and of soft messages.
fn simulate(set: &Set, sources: &[Vec<u64>], rng: &mut SmallRng) -> [Counts; 2] {
    let mut coming: Vec<(u64, usize, u64)> = Vec::new();
    for (index, arrivals) in sources.iter().enumerate() {
        let Demand { release_latency, early, .. } = set.channels[index].demand;
        coming.extend(arrivals.iter().map(|&at| {
            let ready = gathered(at, early.0) + release_latency.0 * rng.random_range(0..2);
            (ready, index, at)
        }));
    }
    coming.sort_unstable();
    let mut counts = [Counts::default(); 2];
    let mut ready: BTreeMap<(bool, u64, usize, u64), u64> = BTreeMap::new();
    let (mut now, mut stolen_until) = (0, 0);
    let mut coming = coming.into_iter().peekable();
    loop {
        while let Some((_, index, at)) = coming.next_if(|&(ready_at, ..)| ready_at <= now) {
            let channel = &set.channels[index];
            let key = (channel.demand.soft.is_some(), at + channel.bound.0, index, at);
            ready.insert(key, channel.demand.cost.0);
        }
        let (served, unit) = match ready.first_key_value() {
            Some((&key, &left)) => (Some(key), left.min(UNIT_NS)),
            None if coming.peek().is_none() => return counts,
            None => (None, UNIT_NS),
        };
        // Chunks of interference, as soon as they may come: 2 % and a burst at first.
        let mut end = now + unit;
        while stolen_until <= end {
            end += 50_000;
            stolen_until += 2_500_000;
        }
        now = end;
        let Some(key) = served else { continue };
        let left = ready.get_mut(&key).expect("it is being served");
        *left -= unit;
        if *left == 0 {
            ready.remove(&key);
            let count = &mut counts[usize::from(key.0)];
            count.messages += 1;
            count.misses += u64::from(now > key.1);
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    soft_channels: usize,
    peak_channels: usize,
    hard: Counts,
    soft: Counts,
    /// The worst ratio of one set.
    worst: f64,
}

struct Filled {
    seed: u64,
    set: Set,
    peak_channels: usize,
}

fn filled(policy: &mut dyn AdmissionPolicy, miss_ratio: Ppb, rng: &mut SmallRng) -> Set {
    let kind = punctual(rng);
    admitted(policy, miss_ratio, kind, rng)
}

fn fill(miss_ratio: Ppb, seeds: std::ops::Range<u64>, draw: fn(&mut SmallRng) -> Hard) -> Vec<Filled> {
    let one = |seed| {
        let admit = |name| {
            let mut policy = policy_by_name(name, MODEL).unwrap();
            let mut rng = SmallRng::seed_from_u64(seed);
            let kind = draw(&mut rng);
            admitted(policy.as_mut(), miss_ratio, kind, &mut rng)
        };
        Filled { seed, set: admit("statistical"), peak_channels: admit("edf").channels.len() }
    };
    seeds.map(one).collect()
}

fn run(filled: &[Filled], source: Source, in_step: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for Filled { seed, set, peak_channels } in filled {
        let mut rng = SmallRng::seed_from_u64(*seed);
        outcome.peak_channels += peak_channels;
        outcome.soft_channels += set.channels.len() - set.hard;
        let sources: Vec<_> =
            set.channels.iter().map(|channel| arrivals(&channel.demand, source, in_step, &mut rng)).collect();
        let [hard, soft] = simulate(set, &sources, &mut rng);
        outcome.worst = outcome.worst.max(soft.misses as f64 / soft.messages as f64);
        for (sum, one) in [(&mut outcome.hard, hard), (&mut outcome.soft, soft)] {
            sum.messages += one.messages;
            sum.misses += one.misses;
        }
    }
    outcome
}

#[test]
fn independent_sources_miss_no_more_often_than_they_bear() {
    for parts in [50_000_000, 1_000_000] {
        let miss_ratio = Ppb::new(parts).unwrap();
        let filled = fill(miss_ratio, 0..3, punctual);
        for source in [Source::OnOff, Source::Random, Source::Even] {
            let outcome = run(&filled, source, false);
            println!("{miss_ratio} {source:?}: {outcome:?}");
            assert_eq!(outcome.hard.misses, 0, "{outcome:?}");
            assert!(outcome.worst <= miss_ratio.as_f64(), "{outcome:?}");
            assert!(outcome.soft.messages > 200_000 && outcome.hard.messages > 20_000, "{outcome:?}");
            assert!(outcome.soft_channels as f64 > 1.5 * outcome.peak_channels as f64, "{outcome:?}");
        }
    }
}

/// One stage whose hard channels send early: counts, and the misses that its soft channels permit.
fn beside_early(seed: u64) -> (Outcome, f64) {
    let miss_ratio = Ppb::new(1_000_000).unwrap();
    let outcome = run(&fill(miss_ratio, seed..seed + 1, early), Source::Random, false);
    let most = miss_ratio.as_f64() * outcome.soft.messages as f64;
    (outcome, most + 4.0 * most.sqrt() + 1.0)
}

/// One stage whose hard channels are served early, in heaps: what it has given soft ones, they get.
pub fn missed(seed: u64) -> Option<String> {
    let (Outcome { soft_channels, hard, soft, .. }, most) = beside_early(seed);
    let is_kept = hard.misses == 0 && soft.misses as f64 <= most;
    (!is_kept).then(|| {
        format!("hard channels miss {hard:?}, {soft_channels} soft ones {soft:?}, they bear {most:.0}")
    })
}

#[test]
fn soft_channels_bear_what_hard_ones_bring_early() {
    let mut messages = 0;
    for seed in 0..8 {
        let (outcome, most) = beside_early(seed);
        assert_eq!(outcome.hard.misses, 0, "seed {seed}: {outcome:?}");
        assert!(outcome.soft.misses as f64 <= most, "seed {seed}: {outcome:?}");
        messages += outcome.soft.messages;
    }
    assert!(messages > 150_000, "{messages} messages of soft channels");
}

/// The guarantee depends on independence: sources in step send all their bursts at once. Even then no hard
/// channel misses.
#[test]
fn sources_in_step_miss_too_often_and_harm_no_other_channel() {
    let miss_ratio = Ppb::new(1_000_000).unwrap();
    let outcome = run(&fill(miss_ratio, 0..1, punctual), Source::OnOff, true);
    println!("{outcome:?}");
    assert!(
        outcome.soft.misses as f64 > 10.0 * miss_ratio.as_f64() * outcome.soft.messages as f64,
        "{outcome:?}"
    );
    assert_eq!(outcome.hard.misses, 0, "{outcome:?}");
}

/// A later hard channel is admitted by its own test, and refused if soft channels would miss too often.
#[test]
fn hard_newcomers_are_refused_where_soft_channels_would_miss() {
    let miss_ratio = Ppb::new(1_000_000).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut policy = policy_by_name("statistical", MODEL).unwrap();
    let set = filled(policy.as_mut(), miss_ratio, &mut rng);
    let mut edf = policy_by_name("edf", MODEL).unwrap();
    for (key, channel) in set.channels[..set.hard].iter().enumerate() {
        edf.hold(StageKey(key as u64), &channel.demand, channel.bound).unwrap();
    }
    let newcomer = Demand { cost: Nanos(6 * UNIT_NS), ..hard(&mut rng) };
    let offered = edf.offer(&newcomer, Nanos::from_secs(1)).unwrap();
    assert!(policy.offer(&newcomer, Nanos::from_secs(1)).is_err(), "the soft ones fill the stage");
    for key in set.hard..set.channels.len() {
        assert!(policy.is_soft(StageKey(key as u64)));
        assert!(policy.release(StageKey(key as u64)));
    }
    assert_eq!(policy.offer(&newcomer, Nanos::from_secs(1)), Ok(offered), "as if they had never been there");
    assert_eq!(policy.utilisation(), edf.utilisation());
}

/// A failed change leaves everything as it was.
#[test]
fn what_is_refused_changes_nothing() {
    let miss_ratio = Ppb::new(1_000_000).unwrap();
    let mut rng = SmallRng::seed_from_u64(2);
    let mut policy = policy_by_name("statistical", MODEL).unwrap();
    let set = filled(policy.as_mut(), miss_ratio, &mut rng);
    let (used, held) = (policy.utilisation(), policy.len());
    for (key, channel) in set.channels.iter().enumerate() {
        let (key, bound) = (StageKey(key as u64), channel.bound);
        assert!(policy.relax(key, Nanos(1)).is_err());
        assert!(policy.hold(key, &Demand { cost: channel.demand.period, ..channel.demand }, bound).is_err());
        assert_eq!(policy.bound(key), Some(bound));
        policy.relax(key, bound).unwrap();
    }
    assert_eq!((policy.utilisation(), policy.len()), (used, held));
}

/// Arrivals of a channel that sends all that it may as early as it may: first at its peak rate, then at its mean rate.
fn bunched(demand: &Demand, soft: &Soft) -> impl Iterator<Item = u64> {
    let (peak, mean, over) = (demand.period.0, soft.mean_period.0, soft.mean_over.0);
    (0..).map(move |number: u64| (number * peak).max((number * mean).saturating_sub(over)))
}

/// The messages of one channel are not independent of each other. If it is alone on a stage, none may be late, even if it sends
/// all that it may send at once.
#[test]
fn a_soft_channel_that_is_alone_misses_nothing_however_it_bunches_its_messages() {
    let blocking = Blocking::LargestUnit { best_effort: Nanos(UNIT_NS) };
    let model = StageModel { blocking, interference: Interference::default(), utilisation_limit: Ppm::ONE };
    let (mut waited, mut admitted) = (0, 0);
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let period = Nanos(rng.random_range(1_000_000..20_000_000));
        let mean_period = period * rng.random_range(8..400);
        let mean_over = mean_period * rng.random_range(1..12);
        let miss_ratio = Ppb::new(rng.random_range(1_000_000..100_000_000)).unwrap();
        let soft = Soft { mean_period, mean_over, jitter: Nanos::ZERO, miss_ratio };
        let cost = Nanos(period.0 * rng.random_range(1..40) / 10);
        let demand = Demand { cost, period, soft: Some(soft), ..hard(&mut rng) };
        let demand = Demand { release_latency: Nanos::ZERO, ..demand };
        let mut policy = policy_by_name("statistical", model).unwrap();
        let Ok(offer) = policy.offer(&demand, Nanos::from_secs(2)) else { continue };
        policy.hold(StageKey(1), &demand, offer.bound).unwrap();
        admitted += 1;
        // A unit of best effort has just begun.
        let mut end = UNIT_NS;
        for arrival in bunched(&demand, &soft).take(40) {
            end = arrival.max(end) + cost.0;
            assert!(end - arrival <= offer.bound.0, "seed {seed}: {} of {}", end - arrival, offer.bound);
            waited += u32::from(end - arrival > cost.0 + UNIT_NS);
        }
    }
    assert!(admitted > 100 && waited > 1_000, "{admitted} {waited}");
}
