//! Every target over its corpus and some thousand mutations of it; the same on every machine.

use std::collections::BTreeSet;

use punctual_fuzz::driver::{corpus, corpus_folder, inputs, run};
use punctual_fuzz::fault::DIRECTIONS;
use punctual_fuzz::{TARGETS, insider, target, targets};
use punctual_ipc::api::{Call, FromDaemon};
use punctual_proto::api::DropCounters;

const SEED: u64 = 1;

fn short(name: &str) {
    let target = target(name).expect("a target");
    let corpus = corpus(&corpus_folder(target)).expect("a corpus");
    assert!(!corpus.is_empty(), "{name} has no corpus: punctual-fuzz seeds {name}");
    run(target, &inputs(target).expect("a corpus"), SEED, target.short);
}

/// One test a target, so that they run side by side and a failure names its target.
macro_rules! short {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            short(stringify!($name));
        })*
        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

short! {
    header reassembly datagram signalling node outbox inbox kernel request answer service config analyze plan topology profile segment quote idl cdr giop reference trace
}

#[test]
fn every_target_is_tested_and_what_honest_encoders_make_is_accepted() {
    assert_eq!(TESTED, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        seeds.iter().for_each(|bytes| (target.run)(bytes));
    }
}

fn corpus_of(name: &str) -> Vec<Vec<u8>> {
    corpus(&corpus_folder(target(name).expect("a target"))).expect("a corpus")
}

#[test]
fn conversations_reach_every_state_and_nothing_of_them_is_dropped() {
    let conversations = targets::signalling::seeds();
    let reached: Vec<_> = conversations.iter().map(|bytes| targets::signalling::reach(bytes)).collect();
    for (number, reached) in reached.iter().enumerate() {
        let open = String::from("open");
        let has_lived = reached.states.contains(&open) && !reached.left.contains(&open);
        assert!(has_lived, "conversation {number}: {:?}, {:?} at its end", reached.states, reached.left);
        assert_eq!(reached.drops, DropCounters::default(), "conversation {number}");
    }
    let states: BTreeSet<&str> =
        reached.iter().flat_map(|reached| &reached.states).map(String::as_str).collect();
    let listed = ["accepted", "asking", "creating", "draining", "open"];
    assert!(listed.iter().all(|state| states.contains(state)), "{states:?}");
}

/// A corpus in another version of its format would be refused at the first check, and the code behind that
/// would not be tested. `punctual-fuzz seeds TARGET` regenerates it.
#[test]
fn corpora_use_the_present_versions() {
    // Each one on a host of its own: a channel that one input ends would be missing for the following ones.
    let datagrams: Vec<_> =
        corpus_of("datagram").iter().map(|bytes| targets::signalling::reach(bytes)).collect();
    for (number, drops) in datagrams.iter().map(|reached| reached.drops).enumerate() {
        assert_eq!((drops.version, drops.malformed), (0, 0), "datagram {number}: {drops:?}");
    }
    let states: BTreeSet<&str> =
        datagrams.iter().flat_map(|reached| &reached.states).map(String::as_str).collect();
    assert!(states.contains("asking") && states.contains("creating"), "{states:?}");
    for bytes in corpus_of("request") {
        let read = serde_json::from_slice::<Call>(&bytes);
        assert!(read.is_ok(), "{read:?}: {}", bytes.escape_ascii());
    }
    for bytes in corpus_of("answer") {
        let read = serde_json::from_slice::<FromDaemon>(&bytes);
        assert!(read.is_ok(), "{read:?}: {}", bytes.escape_ascii());
    }
}

#[test]
fn the_insiders_packets_are_those_of_honest_nodes() {
    let mut read = 0;
    for packet in targets::node::honest_packets(0, 2) {
        if let Some(known) = insider::read(&packet.bytes) {
            assert_eq!(insider::write(&known), packet.bytes);
            read += 1;
        }
    }
    assert!(read > 20, "{read} packets of RTCOP in a channel's life");
}

/// Of the sequences from which mutations are made, some have faults of one direction of a link, of each one.
#[test]
fn links_fail_in_one_direction_only() {
    let one_way: Vec<BTreeSet<_>> = targets::node::seeds()
        .iter()
        .flat_map(|bytes| targets::node::directions(bytes))
        .filter(|worse| worse.len() == 1)
        .collect();
    for direction in DIRECTIONS {
        let count = one_way.iter().filter(|worse| worse.contains(&direction)).count();
        assert!(count >= 3, "{direction:?} fails alone {count} times");
    }
}
