//! The escape sequences of a hostile receiver once more, without the filter for harmful text (`make trials`):
//! they must arrive on the terminal. Needs the feature `trials`, which no release has.
#![cfg(feature = "trials")]

mod network;

use std::process::Command;

use network::{Network, with_contract};

const WITHOUT: &str = "PUNCTUAL_WITHOUT";
const PRINTED: &str = "orders to a terminal: ";

/// Not a test by itself: prints how many orders to a terminal a refused sender prints, in a process without
/// the named defences.
#[test]
#[ignore = "a part of a trial"]
fn refused() {
    if let Ok(names) = std::env::var(WITHOUT) {
        punctual_trial::take_away(&names);
    }
    let network = Network::start();
    let host = punctual::Endsystem::connect_to(network.b.socket()).expect("connected");
    let reason = "\x1b[2J\x1b]0;owned\x07\r\npunctual: ok\u{202e}ton\u{9b}31m";
    let listener = host.listen("evil", move |_| punctual::Consent::Refuse(reason.into()));
    let _listener = listener.expect("a listener");
    let ended = network.a.verb(&with_contract("send", "evil@b", &[]));
    assert!(ended.stderr.contains("punctual: ok"), "{:?}", ended.stderr);
    let is_order = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    println!("{PRINTED}{}", ended.stderr.chars().filter(is_order).count());
}

/// The output of the program in a process without the named defences.
fn orders(without: Option<&str>) -> usize {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "refused", "--ignored", "--nocapture"]);
    command.env_remove(WITHOUT).envs(without.map(|names| (WITHOUT, names)));
    let output = command.output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let count = printed.lines().find_map(|line| Some(line.split_once(PRINTED)?.1));
    let count = count.unwrap_or_else(|| panic!("{printed}{}", String::from_utf8_lossy(&output.stderr)));
    count.parse().expect("a number")
}

#[test]
fn without_what_makes_text_harmless_orders_of_others_reach_the_terminal() {
    let [control, attack] = [None, Some("harmless-text")].map(orders);
    println!("| hostile refusal | harmless-text | {attack} orders to the terminal ({control}) |");
    assert_eq!(control, 0);
    assert!(attack >= 5, "no harm without its defence: {attack} orders");
}
