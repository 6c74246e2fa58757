//! Soft channels beside hard ones: hard ones lose no message, soft ones no more than their contracts permit,
//! and every host reports which is which.

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::{
    Class, FaultKinds, Options, Outcome, Sabotage, Scenario, SizeChoice, Traffic, run, run_scenario,
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
