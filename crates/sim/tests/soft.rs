//! Soft channels beside hard ones: hard ones lose no message, soft ones no more than their contracts permit,
//! and every host reports which is which.

use punctual_analysis::{Contract, Nanos, Ppb, Ppm, Rate, Statistical};
use punctual_sim::{
    Arrivals, ChannelPlan, Class, FaultKinds, Options, Outcome, Sabotage, Scenario, SizeChoice, Topology,
    Traffic, run, run_scenario,
};

fn soft(sabotage: Sabotage) -> Options {
    let traffic = Traffic::For(Nanos::from_millis(1_500));
    let (class, sizes) = (Some(Class::Soft), SizeChoice::Small);
    Options { class, sizes, traffic, sabotage, ..Options::default() }.with_faults(FaultKinds::NONE)
}

fn outcome(seed: u64, options: &Options) -> Outcome {
    run(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

#[test]
fn independent_sources_keep_their_miss_ratio_and_hard_channels_every_promise() {
    let (mut messages, mut misses, mut borne_milli) = (0, 0, 0);
    for seed in 0..24 {
        let outcome = outcome(seed, &soft(Sabotage::default()));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert_eq!(outcome.misses, 0, "seed {seed}");
        messages += outcome.soft_messages;
        misses += outcome.soft_misses;
        borne_milli += outcome.soft_borne_milli;
    }
    assert!(messages > 5_000, "{messages} messages of soft channels");
    assert!(
        misses * 1_000 <= borne_milli,
        "{misses} of {messages} missed, borne are {borne_milli} thousandths"
    );
}

/// Hard channels must not be affected either by faults of others.
#[test]
fn faults_beside_soft_channels_harm_only_what_they_touch() {
    for seed in 0..6 {
        let options = soft(Sabotage::default()).with_faults(FaultKinds::ALL);
        let outcome = outcome(seed, &options);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
    }
}

/// Unrecorded loss of frames exceeds what soft channels permit, and each channel with too many misses is
/// reported. (Only soft channels: hard ones would be reported first, and of a run's violations only the first
/// keep their text.)
#[test]
fn what_soft_channels_lose_is_counted_and_too_much_is_a_violation() {
    let sabotage = Sabotage { silent_loss: Ppm(200_000), ..Sabotage::default() };
    let mut named = 0;
    for seed in 0..8 {
        let options = soft(sabotage);
        let mut plan = Scenario::draw(seed, &options).expect("drawn");
        plan.channels.retain(|channel| channel.contract.statistical.is_some());
        let outcome =
            run_scenario(seed, plan, &options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let over =
            outcome.violations.iter().filter(|violation| violation.what.contains("its contract bears"));
        let over = over.count();
        assert!(over == 0 || outcome.soft_misses * 1_000 > outcome.soft_borne_milli, "seed {seed}");
        named += over;
    }
    assert!(named > 0, "no soft channel is told to miss too much");
}

/// Stages that are filled with soft channels up to the first refusal, beside hard ones that send early.
#[test]
fn soft_channels_up_to_the_limit_keep_their_miss_ratio() {
    const COPIES: usize = 6;
    let (mut messages, mut misses, mut borne_milli, mut refused) = (0, 0, 0, 0);
    for seed in 0..5 {
        let options = soft(Sabotage::default());
        let mut plan = Scenario::draw(seed, &options).expect("drawn");
        let mut wanted = plan.channels.clone();
        wanted.retain(|channel| channel.contract.statistical.is_some());
        for channel in &mut wanted {
            (channel.closes_at, channel.consents, channel.squeezes) = (None, true, false);
        }
        let more = wanted.iter().cycle().take(COPIES * wanted.len());
        plan.channels.extend(more.copied());
        let outcome =
            run_scenario(seed, plan, &options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert_eq!(outcome.misses, 0, "seed {seed}");
        messages += outcome.soft_messages;
        misses += outcome.soft_misses;
        borne_milli += outcome.soft_borne_milli;
        refused += outcome.refused;
    }
    println!("{misses} of {messages} missed, borne are {borne_milli} thousandths, {refused} refused");
    assert!(messages > 4_000 && refused > 50, "{messages} messages of soft channels, {refused} refused");
    assert!(misses * 1_000 <= borne_milli, "{misses} of {messages} missed");
}

/// Deadlines of the two channels at the limit: a message takes 161.6 ms on the link. Each is right behind a value with five
/// binary digits, to which admission rounds, and the second right behind the end of a window of admission.
const OWN_MS: u64 = 190;
const BOTH_MS: u64 = 322;
/// A ratio that is admitted, of which the link has a third, and one that is not.
const ADMITTED_PPM: u32 = 650_000;
const REFUSED_PPM: u32 = 500_000;

/// Two hosts whose link decides: two messages do not fit into the deadline of one of them, by little. So the bound on
/// the probability is close to the probability, and the smallest ratio that is admitted close to what misses.
fn at_the_limit(ratio_ppm: u32, options: &Options) -> Scenario {
    const BYTES: u32 = 177_000;
    let mut plan = Scenario::draw(0, options).expect("drawn");
    let first = plan.channels[0];
    let ms = Nanos::from_millis;
    let every = |span| Rate::every(span).expect("a rate");
    let channel = |deadline_ms, mean_ms, opens_at| {
        let soft = Statistical {
            mean_rate: every(ms(mean_ms)),
            mean_over: ms(20 * mean_ms),
            miss_ratio: Ppb::new(ratio_ppm * 1_000).expect("a ratio"),
        };
        let contract = Contract::new(BYTES, every(ms(mean_ms / 2)), 1, ms(deadline_ms)).expect("in range");
        let contract = Contract { statistical: Some(soft), ..contract };
        let (arrivals, squeezes, full) = (Arrivals::Independent, false, true);
        ChannelPlan { contract, arrivals, squeezes, full, opens_at, ..first }
    };
    let opens = plan.times.opens;
    plan.channels = vec![channel(OWN_MS, 3_000, opens), channel(BOTH_MS, 3_000, opens + ms(300))];
    plan.floods.clear();
    plan.requests.clear();
    for host in &mut plan.hosts {
        // What admission must assume of others is little, or happens.
        host.config.signalling.packets_per_second = 30;
        host.config.fragment_bytes = 1_400;
        host.slow = true;
        for (link, config) in host.links.iter_mut().zip(&host.config.links) {
            (link.busy, link.rate) = (true, config.rate.less(config.rate_error));
        }
    }
    plan
}

/// Soft channels on whole hosts, loaded until some of their messages miss: no more than may, and some do.
#[test]
fn soft_channels_at_the_limit_miss_and_no_more_than_they_may() {
    let topology = r#"{"host": [
            {"name": "a", "run": "edf", "admission": "edf", "cpu_cost_percent": 25},
            {"name": "b", "run": "edf", "admission": "edf", "cpu_cost_percent": 25}],
        "link": [{"between": ["a", "b"], "rate_mbit": 10, "pace": "clock", "pipeline_depth": 2,
            "admission": "statistical"}],
        "channel": [{"from": "a", "to": "b", "message_bytes_max": 1000, "interval_us": 100000, "deadline_us": 100000}]}"#;
    let topology = Some(Topology::parse(topology).expect("a topology"));
    let traffic = Traffic::For(Nanos::from_secs(800));
    let options = Options { topology, class: Some(Class::Mixed), traffic, ..Options::default() };
    let options = options.with_faults(FaultKinds::NONE);
    let (mut messages, mut misses, mut borne_milli) = (0, 0, 0);
    for seed in 0..4 {
        let plan = at_the_limit(ADMITTED_PPM, &options);
        let outcome =
            run_scenario(seed, plan, &options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert_eq!(outcome.admitted, 2, "seed {seed}");
        messages += outcome.soft_messages;
        misses += outcome.soft_misses;
        borne_milli += outcome.soft_borne_milli;
    }
    println!("{misses} of {messages} missed, borne are {borne_milli} thousandths");
    assert!(misses * 1_000 <= borne_milli, "{misses} of {messages} missed");
    assert!(misses >= 10, "only {misses} of {messages} missed: that is no limit");
    let options = Options { traffic: Traffic::For(Nanos::from_secs(1)), ..options };
    let outcome = run_scenario(0, at_the_limit(REFUSED_PPM, &options), &options).expect("it runs");
    assert_eq!((outcome.admitted, outcome.violations.len()), (1, 0), "a little stricter is too much");
}
