//! The figures and tables of the papers, repeated: Punctual and plain kernel sockets in turns, in one run.
//!
//! One module a figure; [`sweep`] runs them, [`findings`] is what they say. `punctual bench NAME` shows it.

pub mod acceptance;
pub mod clips_enforcement;
pub mod clips_fairness;
pub mod clips_isolation;
pub mod findings;
pub mod harts;
pub mod harts_adapter;
pub mod harts_burst;
pub mod harts_endtoend;
pub mod harts_isolation;
pub mod harts_misbehaving;
pub mod harts_overhead;
pub mod harts_preemption;
pub mod instructions;
pub mod livelock;
pub mod measured;
pub mod profile_limit;
pub mod rio_bandwidth;
pub mod rio_cost;
pub mod rio_latency;
pub mod rio_roundtrip;
pub mod rio_utilisation;
pub mod sim_scale;
pub mod sim_speed;
pub mod small_messages;
pub mod sweep;
pub mod tail;
pub mod video_traces;
pub mod worker;

use std::path::PathBuf;

use anyhow::{Context, bail};
use punctual::{BitRate, Nanos};
use serde::Serialize;

use crate::excuse::Excuses;
use crate::interrupt;
use crate::measure::{Latencies, Side};
use crate::report::ensure_writable;
use crate::testbed::configuration::Driver;
use crate::testbed::{Options, Privilege, driver, privilege};
use crate::witness::Witness;
pub use findings::Findings;
pub use measured::{Ground, Measured, Report};

/// How an experiment is to be run.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Fewer points and shorter slices: done within 60 s.
    pub quick: bool,
    /// As short as it runs at all: its figures say nothing. `quick` is set with it.
    pub smoke: bool,
    /// Where plots and daemon logs go.
    pub directory: PathBuf,
    /// Whether processors run in the real-time class.
    pub real_time: bool,
    /// Whether to say on stderr how far it is.
    pub progress: bool,
    /// What carries Punctual's links, for experiments that leave it open.
    pub driver: Driver,
    /// The other machine; without one both hosts are namespaces of this one.
    pub peer: Option<Peer>,
}

impl Conditions {
    /// Says on stderr how far it is.
    pub fn progress(&self, what: std::fmt::Arguments<'_>) {
        show_progress(self.progress, what);
    }

    /// How many rounds of which length, told as milliseconds.
    fn rounds(&self, quick: (usize, u64), full: (usize, u64)) -> (usize, Nanos) {
        let (count, length_ms) = if self.quick { quick } else { full };
        (if self.smoke { count.min(2) } else { count }, self.brief(Nanos::from_millis(length_ms)))
    }

    /// How many of something.
    fn amount(&self, quick: u32, full: u32) -> u32 {
        match self.smoke {
            true => (quick / SMOKE_PART).max(1),
            false if self.quick => quick,
            false => full,
        }
    }

    /// A span, or a part of it where only the experiment itself is tried.
    fn brief(&self, span: Nanos) -> Nanos {
        if self.smoke { span / u64::from(SMOKE_PART) } else { span }
    }

    /// Watches for platform holes, where that is permitted.
    ///
    /// # Errors
    /// Where a thread cannot start.
    pub fn witness(&self) -> anyhow::Result<Option<Witness>> {
        let watch = || Witness::start().context("witness");
        self.real_time.then(watch).transpose()
    }
}

/// What of a quick run's spans a smoke test keeps: one part in so many.
const SMOKE_PART: u32 = 16;

fn show_progress(is_wanted: bool, what: std::fmt::Arguments<'_>) {
    if is_wanted {
        eprint!("\r\x1b[K{what} ");
    }
}

/// A machine that runs `punctual bench --serve`.
#[derive(Clone, Debug)]
pub struct Peer {
    /// HOST or HOST:PORT.
    pub address: String,
    /// Rate of the link to it; else what the network interface says.
    pub rate: Option<BitRate>,
}

/// What finds out.
#[derive(Clone, Copy)]
enum Run {
    /// Both systems over streams.
    Streams(fn(&Conditions) -> anyhow::Result<Findings>),
    /// Something else.
    Measured(fn(&Conditions) -> anyhow::Result<Measured>),
    /// Something in virtual time: no test bed, no privilege, no driver; what it takes is CPU time, which holes do not touch.
    Simulated(fn(&Wanted) -> anyhow::Result<Measured>),
}

/// What carries an experiment's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// The driver that was asked for, or the best one.
    Asked,
    /// This one, whatever the host has.
    Always(Driver),
    /// A device that takes every packet at once and forgets it.
    NullDevice,
    /// No message is sent.
    Nothing,
}

impl Carrier {
    /// As reports tell it.
    const fn name(self, asked: Driver) -> &'static str {
        match (self, asked) {
            (Self::NullDevice, _) => "null-device",
            (Self::Nothing, _) => "none",
            (Self::Always(Driver::Udp), _) | (Self::Asked, Driver::Udp) => "udp",
            (Self::Always(Driver::Xdp), _) | (Self::Asked, Driver::Xdp) => "xdp",
            (Self::Always(Driver::Memory), _) | (Self::Asked, Driver::Memory) => "memory",
        }
    }
}

/// Why an experiment needs both hosts on one machine.
const ONE_CLOCK: &str =
    "it subtracts times of both hosts, and clocks of two machines differ by more than what is measured";
const ONE_CPU: &str = "it measures the CPU time of one host, with no other host behind its device";
const BOTH_ENDS: &str = "it works both ends of a link by one program";
const NO_HOST: &str = "no host takes part in it";

/// How an experiment was asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// See [`Conditions`].
    pub quick: bool,
    /// See [`Conditions`].
    pub smoke: bool,
    /// See [`Conditions`].
    pub directory: PathBuf,
    /// See [`Conditions`].
    pub progress: bool,
    /// `None`: the best that there is.
    pub driver: Option<Driver>,
    /// See [`Conditions`].
    pub peer: Option<Peer>,
}

impl Wanted {
    /// Says on stderr how far it is.
    pub fn progress(&self, what: std::fmt::Arguments<'_>) {
        show_progress(self.progress, what);
    }
}

/// One of them.
#[derive(Clone, Copy, Serialize)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Which figure of which paper.
    pub paper: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// Whether it can run over two machines.
    pub peer: bool,
    /// Why it cannot.
    #[serde(skip)]
    alone: &'static str,
    /// What carries its messages.
    #[serde(skip)]
    carrier: Carrier,
    #[serde(skip)]
    run: Run,
}

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "clips-enforcement",
        paper: "CLIPS 7.1, figure 5",
        about: "a channel delivers what is offered up to its rate, and no more",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(clips_enforcement::run),
    },
    Experiment {
        name: "clips-isolation",
        paper: "CLIPS 7.2, figures 6a and 6b",
        about: "neither a greedy channel nor best effort disturbs the others",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(clips_isolation::run),
    },
    Experiment {
        name: "clips-fairness",
        paper: "CLIPS 7.3 and 7.4, figure 7",
        about: "best effort uses what channels leave, however bursty they are",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(clips_fairness::run),
    },
    Experiment {
        name: "harts-isolation",
        paper: "HARTS 6.2, figure 7",
        about: "three channels, one bursty, under growing best effort",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(harts_isolation::run),
    },
    Experiment {
        name: "harts-misbehaving",
        paper: "HARTS 6.2, figure 8",
        about: "the same while one channel sends twice what it may",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(harts_misbehaving::run),
    },
    Experiment {
        name: "harts-burst",
        paper: "HARTS 6.3",
        about: "messages of 4 to 32 KB at the same load: the paper lost conforming packets",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(harts_burst::run),
    },
    Experiment {
        name: "video-traces",
        paper: "CLIPS 8 (announced there)",
        about: "real video traces through suggested contracts beside floods",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Always(Driver::Udp),
        run: Run::Streams(video_traces::run),
    },
    Experiment {
        name: "harts-overhead",
        paper: "HARTS 5.2.1, figure 5",
        about: "cost of a message by its fragments on a null device, without and with the link scheduler",
        peer: false,
        alone: ONE_CPU,
        carrier: Carrier::NullDevice,
        run: Run::Measured(harts_overhead::run),
    },
    Experiment {
        name: "harts-adapter",
        paper: "HARTS 4.2, figure 4",
        about: "throughput and access latency of the bare adapter by packet size and pipeline depth",
        peer: false,
        alone: BOTH_ENDS,
        carrier: Carrier::Asked,
        run: Run::Measured(harts_adapter::run),
    },
    Experiment {
        name: "harts-endtoend",
        paper: "HARTS 5.3, figure 6",
        about: "throughput and latency by message size for fragments of 1, 2 and 4 KB",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Asked,
        run: Run::Measured(harts_endtoend::run),
    },
    Experiment {
        name: "harts-preemption",
        paper: "HARTS 5.2.2 (left open there)",
        about: "how long an urgent message waits for the CPU by quantum, and what shorter quanta cost",
        peer: false,
        alone: ONE_CPU,
        carrier: Carrier::Asked,
        run: Run::Measured(harts_preemption::run),
    },
    Experiment {
        name: "livelock",
        paper: "RIO 2.0.1",
        about: "guaranteed traffic under floods of smallest packets, with and without early demultiplexing",
        peer: false,
        alone: ONE_CLOCK,
        carrier: Carrier::Asked,
        run: Run::Measured(livelock::run),
    },
    Experiment {
        name: "small-messages",
        paper: "HARTS 5, for packets of today",
        about: "messages of 64 B a second and core against sendmmsg and recvmmsg",
        peer: false,
        alone: BOTH_ENDS,
        carrier: Carrier::Asked,
        run: Run::Measured(small_messages::run),
    },
    Experiment {
        name: "rio-cost",
        paper: "RIO 3.2.2, figures 6 and 7",
        about: "what scheduled protocol processing adds to the round trip of 64 B",
        peer: true,
        alone: "",
        carrier: Carrier::Asked,
        run: Run::Measured(rio_cost::run),
    },
    Experiment {
        name: "rio-utilisation",
        paper: "RIO 3.2.3",
        about: "up to which load a round trip of 64 B stays below 2 ms",
        peer: true,
        alone: "",
        carrier: Carrier::Asked,
        run: Run::Measured(rio_utilisation::run),
    },
    Experiment {
        name: "rio-roundtrip",
        paper: "RIO 3.2.2; CLIPS 6 for the costs of a daemon",
        about: "the round trip of 64 B, spinning and blocking, embedded and through the daemon",
        peer: true,
        alone: "",
        carrier: Carrier::Asked,
        run: Run::Measured(rio_roundtrip::run),
    },
    Experiment {
        name: "rio-bandwidth",
        paper: "RIO 3.2.4, figure 11",
        about: "guaranteed flows join one by one beside best effort; best effort bounded to 40 %",
        peer: true,
        alone: "",
        carrier: Carrier::Asked,
        run: Run::Measured(rio_bandwidth::run),
    },
    Experiment {
        name: "rio-latency",
        paper: "RIO 3.2.3, figures 9 and 10",
        about: "the round trip of 64 B beside bulk and CPU hogs, against plain and tuned kernel sockets",
        peer: true,
        alone: "",
        carrier: Carrier::Asked,
        run: Run::Measured(rio_latency::run),
    },
    Experiment {
        name: "acceptance",
        paper: "HARTS 3.2; CLIPS 4.2",
        about: "channels admitted over 3 and 8 stages by load, policy and the way of sharing the leftover deadline",
        peer: false,
        alone: NO_HOST,
        carrier: Carrier::Nothing,
        run: Run::Measured(acceptance::run),
    },
    Experiment {
        name: "profile-limit",
        paper: "CLIPS 6",
        about: "channels admitted on measured CPU costs until refused, and what the machine could carry",
        peer: false,
        alone: ONE_CPU,
        carrier: Carrier::Always(Driver::Memory),
        run: Run::Measured(profile_limit::run),
    },
    Experiment {
        name: "sim-speed",
        paper: "none",
        about: "packet-hops that the simulator does in a second of one core",
        peer: false,
        alone: NO_HOST,
        carrier: Carrier::Nothing,
        run: Run::Simulated(sim_speed::run),
    },
    Experiment {
        name: "sim-scale",
        paper: "none",
        about: "what channels cost by their number: up to 10,000 nodes and a million channels, simulated",
        peer: false,
        alone: NO_HOST,
        carrier: Carrier::Nothing,
        run: Run::Simulated(sim_scale::run),
    },
];

/// For experiments that look for the most that goes through: costs so low that neither admission nor the bound on all
/// protocol work, which both count with them, holds anything back.
const FAST_COSTS: &str = "[processor.costs]\nsend_message = \"100ns\"\nsend_packet = \"100ns\"\n\
                          send_packet_later = \"100ns\"\nforward_packet = \"100ns\"\n\
                          receive_packet = \"100ns\"\ndeliver_message = \"100ns\"\ncopy_kib = \"100ns\"\n";

/// Options of the engines of world number `world`: between two machines all worlds share the link, so each has ports of
/// its own.
fn on_ports(world: usize, conditions: &Conditions) -> Options {
    let first = 7_411 + 2 * world;
    let link = match conditions.peer {
        Some(_) => format!("data_port = {first}\nsignalling_port = {}\n", first + 1),
        None => String::new(),
    };
    Options { link, ..Options::default() }
}

/// (latency in us, share of samples above it), without what holes explain.
fn exceedance(side: &Side, excuses: &Excuses) -> Vec<(f64, f64)> {
    let mut latencies = Latencies::default();
    side.samples()
        .filter(|sample| !sample.is_excused(excuses))
        .for_each(|sample| latencies.record(sample.span));
    latencies.exceedance(0).into_iter().map(|(ms, share)| (ms * 1e3, share)).collect()
}

/// The experiment of that name.
///
/// # Errors
/// Where there is none; says which there are.
pub fn find(name: &str) -> anyhow::Result<&'static Experiment> {
    match EXPERIMENTS.iter().find(|experiment| experiment.name == name) {
        Some(experiment) => Ok(experiment),
        None => {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            bail!("no experiment \"{name}\": there are {}", known.join(", "))
        }
    }
}

impl Experiment {
    /// Why it cannot be run over two machines, or with that driver, with the fix; `None` where it can.
    pub fn objection(&self, has_peer: bool, driver: Option<Driver>) -> Option<String> {
        let Self { name, alone, carrier, .. } = self;
        if has_peer && !self.peer {
            return Some(format!("{name} runs on one machine only, since {alone}: leave --peer out"));
        }
        let other = driver.filter(|&driver| match *carrier {
            Carrier::Asked => false,
            Carrier::Always(always) => always != driver,
            Carrier::NullDevice | Carrier::Nothing => true,
        })?;
        Some(match carrier {
            Carrier::Nothing => format!("{name} is computed, without drivers: leave --driver out"),
            _ => format!("{name} runs over {}, whatever the driver: leave --driver out", carrier.name(other)),
        })
    }

    /// Runs it: the exit status, and the report unless another process (inside a user namespace) has it.
    ///
    /// # Errors
    /// Where no test bed can be set up, a stream breaks, or the run is interrupted.
    pub fn run(&self, wanted: Wanted) -> anyhow::Result<(i32, Option<Report>)> {
        interrupt::install()?;
        if let Some(why) = self.objection(wanted.peer.is_some(), wanted.driver) {
            bail!(why);
        }
        for ending in ["svg", "json"] {
            ensure_writable(&wanted.directory.join(format!("{}.{ending}", self.name)))
                .context("--directory")?;
        }
        let run = match self.run {
            Run::Simulated(run) => Ok((run(&wanted)?, None)),
            Run::Streams(run) => {
                on_hosts(&wanted, self.carrier, |conditions| Ok(run(conditions)?.measured()))?
            }
            Run::Measured(run) => on_hosts(&wanted, self.carrier, run)?,
        };
        let (measured, ground) = match run {
            Ok(run) => run,
            Err(status) => return Ok((status, None)),
        };
        if wanted.progress {
            eprint!("\r\x1b[K");
        }
        let report = measured.report(self, &wanted, ground)?;
        Ok((report.exit_status(), Some(report)))
    }
}

/// Runs it on a test bed: what it found, and on what; or the exit status of another process (inside a user namespace) that
/// did.
fn on_hosts(
    wanted: &Wanted,
    carrier: Carrier,
    run: impl FnOnce(&Conditions) -> anyhow::Result<Measured>,
) -> anyhow::Result<Result<(Measured, Option<Ground>), i32>> {
    let privilege = Privilege::detect()?;
    match privilege {
        Privilege::Root => {}
        Privilege::UserNamespace => {
            if let Some(status) = privilege::enter_user_namespace()? {
                return Ok(Err(status));
            }
        }
        Privilege::InProcess => bail!(
            "experiments need network namespaces: run as root, or allow user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)"
        ),
    }
    let real_time = privilege == Privilege::Root;
    let Wanted { quick, smoke, directory, progress, driver, peer } = wanted.clone();
    // Between machines all worlds share an interface, and that holds one XDP program.
    let best = || if peer.is_some() { Driver::Udp } else { driver::default(real_time) };
    let driver = driver.unwrap_or_else(best);
    let told = carrier.name(driver);
    let ground = Ground { real_time, driver: told, peer: peer.as_ref().map(|peer| peer.address.clone()) };
    let measured = run(&Conditions { quick, smoke, directory, real_time, progress, driver, peer })?;
    Ok(Ok((measured, Some(ground))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for experiment in EXPERIMENTS {
            assert_eq!(find(experiment.name).expect("it is there").name, experiment.name);
            assert_eq!(EXPERIMENTS.iter().filter(|other| other.name == experiment.name).count(), 1);
        }
        for experiment in EXPERIMENTS {
            let Experiment { name, peer, alone, .. } = experiment;
            assert!(*peer == alone.is_empty(), "{name} says why it runs on one machine only, where it does");
            let objection = experiment.objection(true, None);
            assert!(objection.is_none_or(|why| !peer && why.contains(alone)), "{name}");
        }
        let why = |name, driver| find(name).expect("it is there").objection(false, Some(driver));
        assert_eq!(why("livelock", Driver::Udp), None);
        assert_eq!(why("clips-isolation", Driver::Udp), None);
        assert!(why("clips-isolation", Driver::Xdp).is_some_and(|why| why.contains("runs over udp")));
        assert!(why("harts-overhead", Driver::Udp).is_some_and(|why| why.contains("null-device")));
        assert!(why("sim-scale", Driver::Udp).is_some_and(|why| why.contains("without drivers")));
        let error = find("nothing").err().expect("it is not there").to_string();
        assert!(error.contains("clips-enforcement"), "{error}");
    }
}
