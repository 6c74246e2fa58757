//! Every parser and state machine that bytes from outside reach, as a function of those bytes.

pub mod api;
pub mod giop;
pub mod header;
pub mod idl;
pub mod inbox;
pub mod kernel;
pub mod node;
pub mod outbox;
pub mod reassembly;
pub mod signalling;
pub mod tcp;
pub mod text;

use crate::seeds;

/// One of them.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and its corpus' folder.
    pub name: &'static str,
    /// Processes an input. Panics on an error.
    pub run: fn(&[u8]),
    /// What honest encoders make: where corpora begin.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its language, if it is text.
    pub words: &'static [&'static str],
    /// Mutations in the tests: fewer if one input is a whole run of several hosts.
    pub short: u64,
}

const QUICK: u64 = 20_000;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "header", run: header::run, seeds: header::seeds, words: &[], short: QUICK },
    Target { name: "reassembly", run: reassembly::run, seeds: reassembly::seeds, words: &[], short: QUICK },
    Target {
        name: "datagram",
        run: signalling::datagram,
        seeds: signalling::datagram_seeds,
        words: &[],
        short: QUICK,
    },
    Target { name: "signalling", run: signalling::run, seeds: signalling::seeds, words: &[], short: 2_000 },
    Target { name: "node", run: node::run, seeds: node::seeds, words: &[], short: 500 },
    Target { name: "outbox", run: outbox::run, seeds: outbox::seeds, words: &[], short: QUICK },
    Target { name: "inbox", run: inbox::run, seeds: inbox::seeds, words: &[], short: QUICK },
    Target { name: "kernel", run: kernel::run, seeds: kernel::seeds, words: &[], short: QUICK },
    Target {
        name: "request",
        run: api::request,
        seeds: api::request_seeds,
        words: seeds::API_WORDS,
        short: QUICK,
    },
    Target {
        name: "answer",
        run: api::answer,
        seeds: api::answer_seeds,
        words: seeds::API_WORDS,
        short: QUICK,
    },
    Target {
        name: "service",
        run: api::service,
        seeds: api::service_seeds,
        words: seeds::API_WORDS,
        short: 500,
    },
    Target {
        name: "config",
        run: text::config,
        seeds: seeds::config,
        words: seeds::CONFIG_WORDS,
        short: QUICK,
    },
    Target {
        name: "analyze",
        run: text::analyze,
        seeds: seeds::analyze,
        words: seeds::ANALYZE_WORDS,
        short: QUICK,
    },
    Target { name: "plan", run: text::plan, seeds: seeds::plan, words: seeds::PLAN_WORDS, short: QUICK },
    Target {
        name: "topology",
        run: text::topology,
        seeds: seeds::topology,
        words: seeds::TOPOLOGY_WORDS,
        short: QUICK,
    },
    Target {
        name: "profile",
        run: text::profile,
        seeds: seeds::profile,
        words: seeds::PROFILE_WORDS,
        short: QUICK,
    },
    Target { name: "segment", run: tcp::segment, seeds: tcp::segment_seeds, words: &[], short: 2_000 },
    Target { name: "quote", run: tcp::quote, seeds: tcp::quote_seeds, words: &[], short: 5_000 },
    Target { name: "idl", run: idl::run, seeds: idl::seeds, words: idl::WORDS, short: QUICK },
    Target { name: "cdr", run: giop::cdr, seeds: giop::cdr_seeds, words: &[], short: QUICK },
    Target { name: "giop", run: giop::messages, seeds: giop::message_seeds, words: &[], short: QUICK },
    Target {
        name: "reference",
        run: giop::references,
        seeds: giop::reference_seeds,
        words: giop::REFERENCE_WORDS,
        short: QUICK,
    },
    Target { name: "trace", run: text::trace, seeds: seeds::trace, words: seeds::TRACE_WORDS, short: QUICK },
];

/// A target by its name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
