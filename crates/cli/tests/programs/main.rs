//! Runs unmodified programs over `punctual relay`, with the kernel's TCP at the other end. Each program runs three times: over the
//! kernel alone, with a relay on the server's host, and with a relay on the client's host. Needs root.
//!
//! By default this is a short run of those programs that are installed. With PUNCTUAL_PROGRAMS=all (`make programs`) all programs
//! run, and their transfers are large.

#[path = "../common/basics.rs"]
mod basics;
#[path = "../../../link/tests/common/host.rs"]
mod host;
mod http;
mod process;
mod redis;
mod shell;
mod speed;
mod table;
mod world;

use host::privileged;
use table::Table;
use world::{Way, World};

/// How much data to transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Little data: a run takes a few seconds.
    Sample,
    /// All the data that `make programs` transfers.
    All,
}

impl Size {
    fn of_environment() -> Self {
        if std::env::var("PUNCTUAL_PROGRAMS").is_ok_and(|value| value == "all") {
            Self::All
        } else {
            Self::Sample
        }
    }

    /// One of two values.
    pub fn pick<T>(self, sample: T, all: T) -> T {
        if self == Self::All { all } else { sample }
    }
}

/// The commands that a program needs, and the function that runs it once. That returns figures, or an error.
struct Program {
    name: &'static str,
    needs: &'static [&'static str],
    is_in_sample: bool,
    run: fn(&World, Size) -> Result<table::Figures, String>,
}

const PROGRAMS: [Program; 6] = [
    Program { name: "nginx and curl", needs: &["nginx", "curl"], is_in_sample: true, run: http::run },
    Program {
        name: "redis",
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        is_in_sample: true,
        run: redis::run,
    },
    Program { name: "iperf3", needs: &["iperf3"], is_in_sample: false, run: speed::iperf },
    Program { name: "sockperf", needs: &["sockperf"], is_in_sample: false, run: speed::sockperf },
    Program { name: "ssh", needs: &["sshd", "ssh", "ssh-keygen"], is_in_sample: false, run: shell::ssh },
    Program {
        name: "rsync",
        needs: &["sshd", "ssh", "ssh-keygen", "rsync"],
        is_in_sample: false,
        run: shell::rsync,
    },
];

#[test]
fn programs_work_through_a_relay() {
    if !privileged() {
        return;
    }
    let size = Size::of_environment();
    let only = std::env::var("PUNCTUAL_PROGRAMS_ONLY").ok();
    let (mut table, mut wrong) = (Table::default(), Vec::new());
    for program in PROGRAMS {
        let is_wanted = only.as_ref().is_none_or(|only| program.name.contains(only.as_str()));
        if !is_wanted || size == Size::Sample && !program.is_in_sample {
            continue;
        }
        if let Some(missing) = program.needs.iter().find(|name| process::path_of(name).is_none()) {
            assert!(size == Size::Sample, "{missing} is not installed: `make programs` installs it");
            punctual_skip::skipped!("{}: {missing} is not installed", program.name);
            continue;
        }
        for way in Way::ALL {
            let world = World::new(way, size);
            eprintln!("{}: {way}", program.name);
            match (program.run)(&world, size).and_then(|figures| world.runs().map(|()| figures)) {
                Ok(figures) => table.add(program.name, way, figures),
                Err(error) => {
                    eprintln!("FAILED: {}, {way}: {error}\n{}", program.name, world.end());
                    wrong.push(format!("{}, {way}: {error}", program.name));
                }
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
