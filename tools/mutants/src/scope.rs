//! The sources that are mutated, and the programs that check them.

use crate::process::Program;
use crate::report::Outcome;

/// Sources in which mistakes are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Path from the root of the workspace.
    pub folder: &'static str,
    /// The path of the switch, seen from these sources.
    pub switch: &'static str,
    /// Files in it that are mutated; none given: all.
    pub only: &'static [&'static str],
    /// Files in it that are left out: they belong to the checks, not to the checked code.
    pub without: &'static [&'static str],
}

/// A program that runs one seed after the other and ends with a failure at the first that shows a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulator {
    /// The package that it is an example of.
    pub package: &'static str,
    /// The name of the example; its argument is `FIRST..END`.
    pub example: &'static str,
}

/// One selection of `--scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// The mutated sources.
    pub sources: &'static [Sources],
    /// The crate root that the switch is written into.
    pub switch_in: &'static str,
    /// Packages whose tests run.
    pub tested: &'static [&'static str],
    /// Features with which those are built.
    pub features: &'static [&'static str],
    /// Test programs that are not run, by the names of their files: too slow, or not about the sources.
    pub skipped_tests: &'static [&'static str],
    /// Test programs that compare answers with recorded ones (ADR 49): they run last, and count separately.
    pub recordings: &'static [&'static str],
    /// Tests without a harness, with their arguments.
    pub programs: &'static [(&'static str, &'static [&'static str])],
    /// The simulator that runs after the tests.
    pub simulator: Option<Simulator>,
    /// Whether the XDP program's source is mutated.
    pub classifier: bool,
}

impl Scope {
    /// The outcome of a mutant that this test program detects.
    pub fn stage_of(&self, test: &Program) -> Outcome {
        match self.recordings.iter().any(|name| test.is_named(name)) {
            true => Outcome::CaughtByRecordings,
            false => Outcome::CaughtByTests,
        }
    }
}

const OUTSIDE: &str = "punctual_analysis::mutant_switch::chosen";
const SWITCH_IN: &str = "crates/analysis/src/lib.rs";

/// What of the simulator judges; the rest draws and carries out.
const CHECKERS: &[&str] = &[
    "filters.rs",
    "ledger.rs",
    "memory.rs",
    "packets.rs",
    "segment.rs",
    "silence.rs",
    "stream.rs",
    "timeliness.rs",
    "world/backlog.rs",
    "world/books.rs",
    "world/breach.rs",
    "world/effort.rs",
    "world/events.rs",
    "world/neighbours.rs",
    "world/orphans.rs",
    "world/rates.rs",
    "world/requests.rs",
    "world/reservations.rs",
    "world/revival.rs",
    "world/rtu/judge.rs",
    "world/soft.rs",
    "world/tcp/account.rs",
    "world/tcp/promise.rs",
    "world/tcp/share.rs",
    "world/tcp/verdict.rs",
    "world/versions.rs",
    "world/weight.rs",
    "world/wire.rs",
];

/// Of `analysis` and `proto`.
const RECORDINGS: &[&str] = &[
    "configurations_table",
    "contracts_tables",
    "decisions_tables",
    "node_transcripts",
    "node_transcripts_hosts",
    "parts_tables",
    "signalling_transcripts",
    "streams_tables",
];

/// Those of `analysis`.
const RECORDINGS_OF_ANALYSIS: &[&str] = &["contracts_tables", "decisions_tables", "streams_tables"];

/// All selections; the first is the default.
pub const SCOPES: &[Scope] = &[
    Scope {
        name: "core",
        sources: &[
            Sources {
                folder: "crates/analysis/src",
                switch: "crate::mutant_switch::chosen",
                only: &[],
                without: &["mutation.rs"],
            },
            Sources { folder: "crates/proto/src", switch: OUTSIDE, only: &[], without: &[] },
        ],
        switch_in: SWITCH_IN,
        tested: &["punctual-analysis", "punctual-proto"],
        features: &[],
        skipped_tests: &[],
        recordings: RECORDINGS,
        programs: &[],
        simulator: Some(Simulator { package: "punctual-sim", example: "first_violation" }),
        classifier: false,
    },
    Scope {
        name: "analysis",
        sources: &[Sources {
            folder: "crates/analysis/src",
            switch: "crate::mutant_switch::chosen",
            only: &[],
            without: &["mutation.rs"],
        }],
        switch_in: SWITCH_IN,
        tested: &["punctual-analysis"],
        features: &[],
        skipped_tests: &[],
        recordings: RECORDINGS_OF_ANALYSIS,
        programs: &[],
        simulator: None,
        classifier: false,
    },
    Scope {
        name: "checkers",
        sources: &[Sources { folder: "crates/sim/src", switch: OUTSIDE, only: CHECKERS, without: &[] }],
        switch_in: SWITCH_IN,
        tested: &["punctual-sim"],
        features: &["punctual-sim/mutations"],
        // Each takes minutes, with the checkers as they are; that each can fail is in `sabotage`, `checker` and beside the code.
        skipped_tests: &["uptime", "uptime_memory", "faults", "campaign"],
        recordings: &[],
        programs: &[("mutations", &["--short"])],
        simulator: None,
        classifier: false,
    },
    Scope {
        name: "rings",
        sources: &[Sources { folder: "crates/ipc/src/ring", switch: OUTSIDE, only: &[], without: &[] }],
        switch_in: SWITCH_IN,
        tested: &["punctual-ipc"],
        features: &[],
        skipped_tests: &[],
        recordings: &[],
        programs: &[],
        simulator: None,
        classifier: false,
    },
    Scope {
        name: "tcp",
        sources: &[Sources { folder: "crates/tcp/src", switch: OUTSIDE, only: &[], without: &[] }],
        switch_in: SWITCH_IN,
        tested: &["punctual-tcp"],
        features: &[],
        skipped_tests: &[],
        recordings: &[],
        programs: &[],
        simulator: None,
        classifier: false,
    },
    Scope {
        name: "classifier",
        sources: &[],
        switch_in: SWITCH_IN,
        tested: &["punctual-link"],
        features: &[],
        skipped_tests: &["punctual_link", "kernel", "no_allocation"],
        recordings: &[],
        programs: &[("classifier_killed", &[]), ("xdp", &[])],
        simulator: None,
        classifier: true,
    },
];

/// The selection of this name.
pub fn by_name(name: &str) -> Option<&'static Scope> {
    SCOPES.iter().find(|scope| scope.name == name)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{CHECKERS, SCOPES};
    use crate::process::Program;
    use crate::report::Outcome;
    use crate::tree::files;

    #[test]
    fn recordings_run_after_tests_and_the_simulator() {
        let stage = |name: &str| {
            let (path, folder) = (PathBuf::new(), PathBuf::new());
            SCOPES[0].stage_of(&Program { name: name.into(), path, arguments: Vec::new(), folder })
        };
        assert_eq!(stage("proto/node_transcripts"), Outcome::CaughtByRecordings);
        assert_eq!(stage("proto/node_closing"), Outcome::CaughtByTests);
        assert!(Outcome::CaughtByTests < Outcome::CaughtBySimulator);
        assert!(Outcome::CaughtBySimulator < Outcome::CaughtByRecordings);
    }

    /// Files of the simulator that mostly carry out, and report what goes wrong while they do.
    const REPORT_IN_PASSING: &[&str] = &[
        "world/applications.rs",
        "world/faults.rs",
        "world/mod.rs",
        "world/network.rs",
        "world/step.rs",
        "world/tcp/calls.rs",
        "world/tcp/joined.rs",
        "world/tcp/late.rs",
        "world/tcp/opening.rs",
        "world/tcp/programs.rs",
        "world/tcp/wire.rs",
    ];

    /// A file that was renamed would be left out of the drawing without a word.
    #[test]
    fn files_that_are_named_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for sources in SCOPES.iter().flat_map(|scope| scope.sources) {
            for name in sources.only.iter().chain(sources.without) {
                assert!(root.join(sources.folder).join(name).is_file(), "{}: no {name}", sources.folder);
            }
        }
    }

    /// A new check of the simulator is drawn from, too, or named as one that only reports in passing.
    #[test]
    fn every_file_that_reports_violations_is_a_checker_or_named() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/sim/src");
        let mut unnamed = Vec::new();
        for file in files(&folder).expect("the simulator is there") {
            let text = std::fs::read_to_string(&file).expect("is text");
            let name = file.strip_prefix(&folder).expect("is below").to_string_lossy().into_owned();
            let is_named = CHECKERS.contains(&&*name) || REPORT_IN_PASSING.contains(&&*name);
            unnamed.extend((text.contains("violate(") && !is_named).then_some(name));
        }
        assert!(unnamed.is_empty(), "neither in CHECKERS nor in REPORT_IN_PASSING: {unnamed:?}");
    }

    /// A recording that was renamed would count as a test of rules.
    #[test]
    fn recordings_are_test_programs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for scope in SCOPES {
            for name in scope.recordings {
                let folders = scope.sources.iter().filter_map(|sources| Path::new(sources.folder).parent());
                let is_there = |folder: &Path| root.join(folder).join(format!("tests/{name}.rs")).exists();
                assert!(folders.into_iter().any(is_there), "{}: no test program {name}", scope.name);
            }
        }
    }
}
