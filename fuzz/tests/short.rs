//! Every target over its corpus and some thousand mutations of it; the same on every machine.

use punctual_fuzz::driver::{corpus, corpus_folder, run};
use punctual_fuzz::{TARGETS, insider, target, targets};

const SEED: u64 = 1;

fn short(name: &str) {
    let target = target(name).expect("a target");
    let corpus = corpus(&corpus_folder(target)).expect("a corpus");
    assert!(!corpus.is_empty(), "{name} has no corpus: punctual-fuzz seeds {name}");
    run(target, &corpus, SEED, target.short);
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
    header reassembly datagram signalling node outbox inbox kernel request answer service config analyze plan topology profile trace
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
