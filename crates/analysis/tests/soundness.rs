//! Soundness: channels that a policy admits never miss at run time. One stage is simulated, unit by unit,
//! under the order of each policy, with random sets filled up to the first refusal and arrivals that try to
//! make it miss. The simulation shares only the model of the stage with the analyses, and it can fail: if
//! blocking, interference or release latency is left out of the model, admitted channels do miss in it.

#[path = "common/thefts.rs"]
mod thefts;

use std::collections::BTreeMap;

use punctual_analysis::policies::level;
use punctual_analysis::{
    Admission, Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel, Urgency,
    policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use thefts::Thefts;

const SETS: u64 = 500;
/// Sets for each part that is left out.
const SETS_BLIND: u64 = 40;
/// Random scenarios of a set, beside the critical instants.
const SCENARIOS: usize = 12;
const CHANNELS_MAX: u64 = 24;
const BOUND_LIMIT: Nanos = Nanos::from_millis(300);
/// Messages arrive for so long.
const ARRIVALS_NS: u64 = 400_000_000;
/// When everything is released at once.
const CRITICAL_NS: u64 = 1_000_000_000;

/// A channel that was admitted.
#[derive(Clone, Copy, Debug)]
struct Channel {
    demand: Demand,
    bound: Nanos,
    /// Its position among the channels of its level: any order must work.
    among_peers: u32,
}

/// Criterion of the message that is served next.
#[derive(Clone, Copy, Debug)]
enum RunOrder {
    Deadline,
    Level,
    Rate,
}

/// The part that the admission leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blind {
    Nothing,
    Blocking,
    Interference,
    ReleaseLatency,
}

const POLICIES: [(&str, RunOrder); 4] = [
    ("edf", RunOrder::Deadline),
    ("d-order", RunOrder::Deadline),
    ("fixed-priority", RunOrder::Level),
    ("rmdp", RunOrder::Rate),
];

#[derive(Clone, Copy, Debug)]
struct Message {
    channel: usize,
    ready_ns: u64,
    deadline_ns: u64,
}

// The stage.

/// Serves units one after another; interference takes time from whatever is being served.
struct Server {
    /// How far ahead of the wire units are chosen: zero with one unit outstanding.
    ahead_ns: u64,
    best_effort_ns: u64,
    /// Time at which all units that were handed over are done.
    free_at_ns: u64,
    interference: Thefts,
}

impl Server {
    fn new(model: &StageModel, begin_ns: u64) -> Self {
        let (ahead_ns, best_effort_ns) = match model.blocking {
            Blocking::LargestUnit { best_effort } => (0, best_effort.0),
            // A unit of half the window is chosen while another half is on its way: a whole one at most.
            Blocking::Pipeline(span) => (span.0 / 2, span.0 / 2),
        };
        let interference = Thefts::new(model.interference, begin_ns);
        Self { ahead_ns, best_effort_ns, free_at_ns: begin_ns, interference }
    }

    /// When the next unit is chosen, at `now_ns` or later.
    fn next_choice_ns(&self, now_ns: u64) -> u64 {
        now_ns.max(self.free_at_ns.saturating_sub(self.ahead_ns))
    }

    /// Hands a unit over; when it is done.
    fn serve(&mut self, now_ns: u64, unit_ns: u64) -> u64 {
        self.free_at_ns = self.interference.end_of(now_ns.max(self.free_at_ns), unit_ns);
        self.free_at_ns
    }
}

/// Serves all messages, best effort filling every gap; the number of misses and of messages done in the last
/// tenth of their bounds.
fn simulate(
    channels: &[Channel],
    model: &StageModel,
    order: RunOrder,
    mut messages: Vec<Message>,
) -> (u32, u32) {
    messages.sort_by_key(|message| message.ready_ns);
    let begin_ns = messages.first().map_or(0, |first| first.ready_ns.min(CRITICAL_NS - 1));
    let (mut server, mut now_ns) = (Server::new(model, begin_ns), begin_ns);
    let (mut misses, mut close) = (0, 0);
    let mut coming = messages.into_iter().enumerate().peekable();
    let mut ready: BTreeMap<_, (Message, u64)> = BTreeMap::new();
    loop {
        now_ns = server.next_choice_ns(now_ns);
        while let Some((number, message)) = coming.next_if(|(_, message)| message.ready_ns <= now_ns) {
            let channel = &channels[message.channel];
            let key = match order {
                RunOrder::Deadline => (message.deadline_ns, 0, number),
                RunOrder::Level => (u64::from(level(channel.bound)), channel.among_peers, number),
                RunOrder::Rate => {
                    let Urgency { class, rate, .. } = channel.demand.urgency;
                    ((class as u64) << 60 | rate.0, channel.among_peers, number)
                }
            };
            ready.insert(key, (message, channel.demand.cost.0));
        }
        if let Some(mut first) = ready.first_entry() {
            let (message, left_ns) = *first.get();
            let channel = &channels[message.channel];
            let unit_ns = left_ns.min(channel.demand.unit_cost_max.0);
            let done_ns = server.serve(now_ns, unit_ns);
            first.get_mut().1 -= unit_ns;
            if left_ns == unit_ns {
                first.remove();
                misses += u32::from(done_ns > message.deadline_ns);
                close += u32::from(done_ns + channel.bound.0 / 10 > message.deadline_ns);
            }
        } else if let Some((_, next)) = coming.peek() {
            match server.best_effort_ns {
                0 => now_ns = next.ready_ns,
                unit_ns => {
                    server.serve(now_ns, unit_ns);
                }
            }
        } else {
            return (misses, close);
        }
    }
}

// Arrivals.

/// Messages as dense as the contract allows from the first one at `first_ns` on, each ready as early as it may
/// be, the first (and what would be ready before it) as late.
fn densest(channel: usize, demand: &Demand, bound: Nanos, ready_first_ns: u64) -> Vec<Message> {
    let first_ns = ready_first_ns - demand.release_latency.0;
    let period_ns = demand.period.0 as usize;
    (first_ns..first_ns + ARRIVALS_NS)
        .step_by(period_ns)
        .map(|effective_ns| Message {
            channel,
            ready_ns: (effective_ns - demand.early.0).max(ready_first_ns),
            deadline_ns: effective_ns + bound.0,
        })
        .collect()
}

/// All channels at once, when a unit of `blocker` (or of best effort) has just begun.
fn critical_instant(channels: &[Channel], blocker: Option<usize>) -> Vec<Message> {
    let of = |(index, channel): (usize, &Channel)| {
        let before_ns = u64::from(blocker == Some(index));
        densest(index, &channel.demand, channel.bound, CRITICAL_NS - before_ns)
    };
    channels.iter().enumerate().flat_map(of).collect()
}

/// All channels, each with an offset of its own.
fn periodic(channels: &[Channel], rng: &mut SmallRng) -> Vec<Message> {
    let mut of = |(index, channel): (usize, &Channel)| {
        let offset_ns = rng.random_range(0..channel.demand.period.0);
        densest(index, &channel.demand, channel.bound, CRITICAL_NS + offset_ns)
    };
    channels.iter().enumerate().flat_map(&mut of).collect()
}

/// Pauses now and then, and every message ready some time between as early and as late as it may be.
fn jittered(channels: &[Channel], rng: &mut SmallRng) -> Vec<Message> {
    let mut messages = Vec::new();
    for (index, Channel { demand, bound, .. }) in channels.iter().enumerate() {
        let mut effective_ns = CRITICAL_NS + rng.random_range(0..demand.period.0);
        let mut latest_ns = 0;
        while effective_ns < CRITICAL_NS + ARRIVALS_NS {
            let anywhere = effective_ns - demand.early.0..=effective_ns + demand.release_latency.0;
            // In order within a channel.
            latest_ns = rng.random_range(anywhere).max(latest_ns);
            let deadline_ns = effective_ns + bound.0;
            messages.push(Message { channel: index, ready_ns: latest_ns, deadline_ns });
            let pause_ns = if rng.random_bool(0.3) { rng.random_range(0..demand.period.0) } else { 0 };
            effective_ns += demand.period.0 + pause_ns;
        }
    }
    messages
}

// Sets.

fn random_stage(rng: &mut SmallRng) -> StageModel {
    let blocking = if rng.random_bool(0.5) {
        Blocking::LargestUnit { best_effort: Nanos(rng.random_range(0..800_000)) }
    } else {
        Blocking::Pipeline(Nanos(rng.random_range(1_600_000..2_400_000)))
    };
    let interference = if rng.random_bool(0.3) {
        Interference::default()
    } else {
        Interference {
            sigma: Nanos(rng.random_range(40_000..800_000)),
            rho: Ppm(rng.random_range(0..80_000)),
        }
    };
    StageModel { blocking, interference, utilisation_limit: Ppm(rng.random_range(800_000..=990_000)) }
}

/// Units of at most half a pipeline's window; one or several a message.
fn random_demand(rng: &mut SmallRng) -> Demand {
    let period = Nanos(rng.random_range(5_000_000..60_000_000));
    let cost = Nanos(rng.random_range(50_000..=period.0 / 8));
    let unit_cost_max = Nanos(rng.random_range(100_000..=800_000)).min(cost);
    let mut sometimes =
        |most_ns: u64| Nanos(if rng.random_bool(0.5) { rng.random_range(0..most_ns) } else { 0 });
    // The sum of all stages before: some periods at the end of a long route.
    let ahead = if sometimes(8).0 > 5 { 4 * period.0 } else { 15_000_000 };
    let early = sometimes(ahead);
    // A wake-up, or what a host takes that has much to do before: nearly a period.
    let latest = if sometimes(8).0 > 4 { period.0 / 10 * 9 } else { 600_000 };
    let release_latency = sometimes(latest);
    // Few enough periods that some channels share one.
    let period = Nanos(period.0 / 1_000_000 * 1_000_000);
    let class = if rng.random_bool(0.2) { Class::LowLatency } else { Class::Guaranteed };
    let urgency = Urgency::of_period(class, period);
    Demand { cost, unit_cost_max, period, release_latency, early, urgency, soft: None }
}

/// Channels of one stage up to the first refusal, by an admission that is blind to something.
fn admitted(policy: &str, model: &StageModel, blind: Blind, rng: &mut SmallRng) -> Vec<Channel> {
    let mut seen = *model;
    match blind {
        Blind::Blocking => seen.blocking = Blocking::Pipeline(Nanos::ZERO),
        Blind::Interference => seen.interference = Interference::default(),
        Blind::Nothing | Blind::ReleaseLatency => {}
    }
    let mut policy = policy_by_name(policy, seen).unwrap();
    let mut channels = Vec::new();
    for key in 0..CHANNELS_MAX {
        let demand = random_demand(rng);
        let mut asked = demand;
        if blind == Blind::ReleaseLatency {
            asked.release_latency = Nanos::ZERO;
        }
        // Under `rmdp` a newcomer cannot choose its place: tight channels of longer periods refuse it.
        let placed = policy.admission() == Admission::RMDP;
        let Ok(offer) = policy.offer(&asked, BOUND_LIMIT) else { if placed { continue } else { break } };
        let room = if placed { 20 } else { 1 };
        let wider = offer.bound + Nanos(rng.random_range(0..=offer.bound.0 * room));
        // A wider bound is one of a lower level, from where a unit blocks more channels.
        let relaxed = rng.random_bool(if placed { 0.8 } else { 0.4 })
            && policy.hold(StageKey(key), &asked, wider).is_ok();
        let bound = if relaxed { wider } else { offer.bound };
        if !relaxed {
            policy.hold(StageKey(key), &asked, bound).expect("what was offered holds");
        }
        channels.push(Channel { demand, bound, among_peers: rng.random() });
    }
    channels
}

/// The result over all sets.
#[derive(Debug, Default)]
struct Outcome {
    channels: usize,
    misses: u32,
    close: u32,
    /// Seed of the first set that missed.
    seed: Option<u64>,
}

fn try_all(policy: &str, order: RunOrder, blind: Blind, seeds: std::ops::Range<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    for seed in seeds {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = random_stage(&mut rng);
        let channels = admitted(policy, &model, blind, &mut rng);
        outcome.channels += channels.len();
        let blockers = (0..channels.len()).map(Some).chain([None]);
        let mut scenarios: Vec<_> = blockers.map(|blocker| critical_instant(&channels, blocker)).collect();
        for _ in 0..SCENARIOS / 2 {
            scenarios.push(periodic(&channels, &mut rng));
            scenarios.push(jittered(&channels, &mut rng));
        }
        for messages in scenarios {
            let (misses, close) = simulate(&channels, &model, order, messages);
            outcome.misses += misses;
            outcome.close += close;
            if misses > 0 {
                outcome.seed.get_or_insert(seed);
            }
        }
    }
    outcome
}

/// One random set of the policy of this name: how many messages miss, if any do.
pub fn missed(policy: &str, seed: u64) -> Option<String> {
    let order = POLICIES.iter().find(|(name, _)| *name == policy)?.1;
    let Outcome { channels, misses, .. } = try_all(policy, order, Blind::Nothing, seed..seed + 1);
    (misses > 0).then(|| format!("{policy}: {misses} messages of {channels} admitted channels miss"))
}

#[test]
fn nothing_that_is_admitted_misses() {
    for (policy, order) in POLICIES {
        let outcome = try_all(policy, order, Blind::Nothing, 0..SETS);
        assert_eq!(outcome.misses, 0, "{policy}: {outcome:?}");
        assert!(outcome.channels > 4_000 && outcome.close > 5_000, "{policy} was hardly tried: {outcome:?}");
    }
}

/// The simulation detects each part that an admission leaves out.
#[test]
fn an_admission_that_leaves_something_out_misses() {
    for (policy, order) in POLICIES {
        for blind in [Blind::Blocking, Blind::Interference, Blind::ReleaseLatency] {
            let outcome = try_all(policy, order, blind, 0..SETS_BLIND);
            assert!(outcome.misses > 0, "{policy} without {blind:?} held: {outcome:?}");
        }
    }
}
