//! The pieces of a campaign add up to the whole, in any order, and no other results are added.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::campaign::{Campaign, CampaignError, Record};
use punctual_sim::{Options, Sabotage, SizeChoice, Traffic};

/// A new file of this test.
fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder.join("campaign.json")
}

fn short() -> Options {
    Options { traffic: Traffic::For(Nanos::from_millis(50)), sizes: SizeChoice::Small, ..Options::default() }
}

fn open(path: &std::path::Path, options: Options) -> Campaign {
    Campaign::open(path, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Continues the campaign until `most` more seeds are done.
fn run(path: &std::path::Path, seeds: std::ops::Range<u64>, most: u64) -> Record {
    let mut campaign = open(path, short());
    let done = AtomicU64::new(0);
    let step = |_: &Record| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    campaign.run(seeds, 2, step).expect("runs");
    Record { core_seconds: 0.0, ..campaign.record().clone() }
}

#[test]
fn pieces_add_up_to_the_whole() {
    let (whole, pieces) = (file("whole"), file("pieces"));
    let all = run(&whole, 0..10, u64::MAX);
    assert_eq!((all.report.seeds, all.report.violations_total), (10, 0), "{all:?}");
    assert!(all.report.messages > 0 && all.report.packet_hops > all.report.messages);
    // Backwards, one overlapping the other, one stopped in the middle.
    run(&pieces, 7..10, u64::MAX);
    let stopped = run(&pieces, 2..8, 2);
    assert!((4..9).contains(&stopped.report.seeds), "{}", stopped.report.seeds);
    assert_eq!(run(&pieces, 0..10, u64::MAX), all);
    assert_eq!(run(&pieces, 3..6, u64::MAX), all, "nothing counts twice");
}

#[test]
fn other_options_and_other_code_are_refused() {
    let path = file("other");
    run(&path, 0..1, 1);
    let longer = Options { traffic: Traffic::For(Nanos::from_millis(51)), ..short() };
    let error = Campaign::open(&path, longer).expect_err("other options");
    assert!(matches!(error, CampaignError::Other { what: "options", .. }), "{error}");
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::write(&path, text.replace(punctual_sim::campaign::CODE, "0123456789abcdef")).expect("writes");
    let error = Campaign::open(&path, short()).expect_err("other code");
    assert!(matches!(error, CampaignError::Other { what: "code", .. }), "{error}");
}

#[test]
fn a_damaged_file_is_refused() {
    let path = file("damaged");
    let sum = run(&path, 0..2, u64::MAX).digest_sum.to_string();
    let text = std::fs::read_to_string(&path).expect("written");
    let cut = text.lines().filter(|line| !line.contains("\"messages\"")).collect::<Vec<_>>().join("\n");
    for damaged in ["{}", &text[..text.len() / 2], &cut, &text.replace(&sum, ""), &text.replace(&sum, "0g")] {
        std::fs::write(&path, damaged).expect("writes");
        let error = Campaign::open(&path, short()).expect_err("damaged");
        assert!(matches!(error, CampaignError::Format { .. }), "{error}");
    }
    std::fs::write(&path, text).expect("writes");
    open(&path, short());
}

/// A campaign of its own: the locks of files whose names differ only in the last part are different.
#[test]
fn one_process_at_a_time() {
    let path = file("busy");
    let first = open(&path, short());
    let error = Campaign::open(&path, short()).expect_err("somebody has it");
    assert!(matches!(error, CampaignError::Busy(_)), "{error}");
    let second = open(&path.with_extension("2"), short());
    drop(first);
    open(&path, short());
    drop(second);
}

#[test]
fn violations_are_kept() {
    let path = file("violations");
    let sabotage = Sabotage { silent_loss: Ppm(100_000), ..Sabotage::default() };
    let mut campaign = open(&path, Options { sabotage, ..short() });
    campaign.run(0..2, 1, |_| ControlFlow::Continue(())).expect("runs");
    let report = &campaign.record().report;
    assert!(report.violations_total > 0 && !report.violations.is_empty() && !report.holds());
}
