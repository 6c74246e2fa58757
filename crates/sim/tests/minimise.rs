//! A failing plan is reduced to the necessary part, and that part fails in the same way.

use std::path::Path;

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::case::{Case, CaseError, Cases};
use punctual_sim::cut::Cut;
use punctual_sim::minimise::{Found, Minimum, kind, minimise};
use punctual_sim::{FaultChoice, Faults, Options, Sabotage, Scenario, Topology, Traffic};

const BUSY: &str = include_str!("busy.toml");

fn sabotaged() -> Options {
    Options {
        topology: Some(Topology::parse(BUSY).expect("good")),
        faults: FaultChoice::These(Faults::NONE),
        traffic: Traffic::For(Nanos::from_millis(300)),
        sabotage: Sabotage { silent_loss: Ppm(20_000), ..Sabotage::default() },
        ..Options::default()
    }
}

fn smallest(found: Found) -> Minimum {
    match found {
        Found::Smallest(minimum) => *minimum,
        Found::Nothing(_) => panic!("it is sabotaged"),
    }
}

#[test]
fn what_does_not_matter_is_left_out() {
    let mut seen = 0;
    let found = smallest(minimise(1, &sabotaged(), |_, runs| seen = runs).expect("runs"));
    let first = &found.outcome.violations[0];
    assert!(first.what.contains("was lost"), "{first:?}");
    // Of six channels over four hosts one is left, and the hosts that it passes.
    assert_eq!(found.plan.channels.len(), 1, "{:?}", found.cut);
    assert!((2..=4).contains(&found.plan.hosts.len()) && found.plan.floods.is_empty(), "{:?}", found.cut);
    assert!(found.cut.traffic_ms.is_some_and(|ms| ms < 300) && seen <= found.runs, "{:?}", found.cut);
}

#[test]
fn the_written_case_repeats_it() {
    let found = smallest(minimise(1, &sabotaged(), |_, _| {}).expect("runs"));
    let case = Case {
        seed: 1,
        lesson: "a frame was lost on the way, and nobody said so".into(),
        topology: Some("busy.toml".into()),
        traffic_ms: Some(300),
        frames: Some(Default::default()),
        sabotage: Some(sabotaged().sabotage),
        cut: found.cut.clone(),
        ..Case::default()
    };
    let text = toml::to_string(&Cases { cases: vec![case] }).expect("TOML");
    let cases: Cases = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/case.toml");
    let again = cases.cases[0].run(&here, true).expect("runs");
    assert_eq!(again.digest, found.outcome.digest, "{text}");
    assert_eq!(kind(&again.violations[0].what), kind(&found.outcome.violations[0].what));
    assert!(again.trace.lines().any(|line| line.contains("VIOLATION")));
}

#[test]
fn a_case_keeps_the_class_of_its_run() {
    use punctual_sim::{Class, run};
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/case.toml");
    for class in [Class::Tight, Class::Soft] {
        let case = Case {
            seed: 1,
            lesson: "another class is another run".into(),
            class: Some(class),
            traffic_ms: Some(100),
            frames: Some(Default::default()),
            schedule: Some("none".into()),
            ..Case::default()
        };
        let text = toml::to_string(&Cases { cases: vec![case.clone()] }).expect("TOML");
        let cases: Cases = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let again = cases.cases[0].run(&here, false).expect("runs");
        let options = case.options(&here).expect("options");
        assert_eq!(options.class, Some(class));
        assert_eq!(again.digest, run(1, &options).expect("runs").digest);
        let other = Case { class: Some(Class::Mixed), ..case };
        assert_ne!(again.digest, other.run(&here, false).expect("runs").digest, "{class:?}");
    }
}

#[test]
fn a_case_that_draws_another_plan_is_refused() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/case.toml");
    let case = Case { seed: 1, topology: Some("busy.toml".into()), traffic_ms: Some(50), ..Case::default() };
    let drawn = Scenario::draw(1, &case.options(&here).expect("options")).expect("drawn").digest();
    let kept = Case { plan: Some(drawn), ..case };
    assert!(kept.run(&here, false).is_ok());
    let error = Case { seed: 2, ..kept.clone() }.run(&here, false).expect_err("another seed");
    assert!(matches!(error, CaseError::Plan { seed: 2, .. }), "{error}");
    let error = Case { uptime_s: Some(1), ..kept }.run(&here, false).expect_err("two lengths");
    assert!(matches!(error, CaseError::Traffic { seed: 1 }), "{error}");
}

#[test]
fn hosts_that_are_cut_take_with_them_what_cannot_be_reached_any_more() {
    let options = sabotaged();
    let whole = Scenario::draw(1, &options).expect("drawn");
    let mut cut_off = 0;
    for gone in 0..whole.hosts.len() {
        let hosts = (0..whole.hosts.len()).filter(|host| *host != gone).collect();
        let cut = Cut { hosts: Some(hosts), ..Cut::default() };
        let mut plan = whole.clone();
        cut.apply(&mut plan);
        let at = |host: usize| usize::from(host >= gone) + host;
        let ends = |from: usize, to: usize| whole.channels.iter().any(|c| (c.from, c.to) == (from, to));
        assert!(plan.channels.iter().all(|c| ends(at(c.from), at(c.to))), "without host {gone}");
        let elsewhere = whole.channels.iter().filter(|c| c.from != gone && c.to != gone).count();
        cut_off += elsewhere - plan.channels.len();
        let honest = Options { sabotage: Sabotage::default(), ..sabotaged() };
        let outcome = punctual_sim::run_scenario(1, plan, &honest).expect("runs");
        assert!(outcome.violations.is_empty(), "without host {gone}: {:#?}", outcome.violations);
    }
    assert!(cut_off > 0, "no host is on anybody's only way");
}

#[test]
fn a_plan_that_holds_has_no_minimum() {
    let options = Options { sabotage: Sabotage::default(), ..sabotaged() };
    let Found::Nothing(whole) = minimise(1, &options, |_, _| {}).expect("runs") else {
        panic!("a violation")
    };
    assert!(whole.seed == 1 && whole.messages > 0, "{whole:?}");
}
