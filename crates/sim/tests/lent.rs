//! Kernel traffic has the share that is not reserved and uses all of it, and no message of a guaranteed
//! channel is late. Shapers change some time after the request, and confirm some time after that (ADR 0028).

use punctual_analysis::Nanos;
use punctual_sim::{Class, FaultChoice, Faults, Options, SizeChoice, Traffic, run};

fn lent() -> Options {
    Options {
        class: Some(Class::Lent),
        faults: FaultChoice::These(Faults::NONE),
        sizes: SizeChoice::Small,
        traffic: Traffic::For(Nanos::from_millis(1_500)),
        ..Options::default()
    }
}

#[test]
fn nothing_is_late_beside_a_kernel_that_has_what_is_not_admitted() {
    let (mut messages, mut lent_to) = (0, 0);
    for seed in 0..40 {
        let outcome = run(seed, &lent()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        messages += outcome.messages;
        lent_to += outcome.shaped;
    }
    assert!(messages > 10_000 && lent_to > 100, "{messages} messages, {lent_to} changes of shapers");
}
