//! The daemon's log lines about links and channels.

mod common;

use std::path::Path;

use common::hosts::with_text;
use common::program::{Program, folder};
use common::{eventually, stream};
use rustix::process::Signal;

/// Host `a` with its log in a file.
fn logged(folder: &Path, cable: u16, log: &Path) -> Program {
    with_text(folder, "a", cable, |text| {
        Program::start(folder, text, |line| format!("{line} 2>{}", log.display()))
    })
}

fn awaits(log: &Path, line: &str) {
    eventually(line, || std::fs::read_to_string(log).is_ok_and(|text| text.contains(line)));
}

#[test]
fn links_that_come_and_go_and_channels_that_are_lost_are_in_the_log() {
    let folder = folder("links");
    let log = folder.join("log");
    let a = logged(&folder, 0, &log);
    let b = with_text(&folder, "b", 0, |text| Program::start(&folder, text, str::to_owned));
    let (on_a, on_b) = (a.connect(), b.connect());
    let (_channel, _receiver) = stream(&on_a, &on_b, 2_000);
    awaits(&log, "INFO punctual::journal: link to-b to b is up\n");
    b.stop(Signal::KILL);
    awaits(&log, "WARN punctual::journal: link to-b to b is down: b does not answer;");
    awaits(&log, "WARN punctual::journal: channel to cam@b lost: a link or node on the route is down\n");
    let printed = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(printed.matches("link to-b").count(), 2, "once each: {printed}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_neighbour_with_another_key_is_named_with_the_fix() {
    let folder = folder("keys");
    let log = folder.join("log");
    let a = logged(&folder, 1, &log);
    let other_key = folder.join("b.toml");
    let _b = with_text(&folder, "b", 1, |text| {
        Program::start(&folder, text, |line| {
            format!("sh -c 'sed -i s/000102/ff0102/ {} && exec {line}'", other_key.display())
        })
    });
    awaits(
        &log,
        "WARN punctual::journal: link to-b to b: packets from b fail authentication (1 so far): compare [signalling] key \
         and the ids of [[host]] on both hosts\n",
    );
    let on_a = a.connect();
    eventually("more are counted", || on_a.status().expect("status").node.links[0].unauthenticated > 3);
    let link = on_a.status().expect("status").node.links[0].clone();
    assert_eq!((link.alive, link.neighbour_name.as_str()), (false, "b"));
    let printed = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(printed.matches("fail authentication").count(), 1, "once: {printed}");
    std::fs::remove_dir_all(folder).expect("removed");
}
