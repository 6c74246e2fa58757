//! A program that embeds an engine brings its own admission policy.

#[path = "../examples/own_policy.rs"]
#[allow(dead_code, reason = "an example has a main")]
mod example;

use punctual::OpenError;

#[test]
fn a_policy_of_the_programs_own_decides() {
    let (channels, refused) = example::open_until_refused().expect("two hosts");
    assert_eq!(channels.len(), 2);
    let OpenError::Refused { refusal, .. } = refused else { panic!("{refused}") };
    assert!(refusal.to_string().contains("host a"), "{refusal}");
}
