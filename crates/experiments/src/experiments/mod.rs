//! The figures and tables of the papers, repeated: Punctual and plain kernel sockets in turns, in one run.
//!
//! One module a figure; [`sweep`] runs them, [`findings`] is what they say. `punctual bench NAME` shows it.

mod acceptance;
mod clips;
mod findings;
mod harts;
mod harts_adapter;
mod harts_endtoend;
mod harts_overhead;
mod harts_preemption;
mod instructions;
mod list;
mod livelock;
mod measured;
mod profile_limit;
mod rio_bandwidth;
mod rio_cost;
mod rio_latency;
mod rio_roundtrip;
mod rio_utilisation;
mod sim_scale;
mod sim_speed;
mod small_messages;
mod sweep;
mod tail;
mod video_traces;
pub mod worker;

use std::path::PathBuf;

use anyhow::{Context, bail};
use punctual::{BitRate, Nanos, Ppm};
use serde::Serialize;

use crate::excuse::Excuses;
use crate::measure::{Latencies, Side};
use crate::report::ensure_writable;
use crate::testbed::{Options, Privilege, driver, privilege};
use crate::witness::Witness;
pub use findings::Findings;
pub use list::EXPERIMENTS;
pub use measured::{Ground, Measured, Report};
use punctual_host::config::Driver;
use punctual_os::interrupt;

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
    /// If a thread cannot start.
    pub fn witness(&self) -> anyhow::Result<Option<Witness>> {
        let watch = || Witness::start().context("witness");
        self.real_time.then(watch).transpose()
    }
}

/// What `judge` finds, with the holes that excuse what was measured until now.
fn judged(
    witness: Option<Witness>,
    judge: impl FnOnce(&Excuses) -> anyhow::Result<Measured>,
) -> anyhow::Result<Measured> {
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let measured = judge(&Excuses::new(&testimony.holes, Ppm(0)))?;
    Ok(Measured { testimony, ..measured })
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

/// What finds out. It fails where the test bed fails, a stream breaks or the run is interrupted.
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
    fn name(self, asked: Driver) -> &'static str {
        match (self, asked) {
            (Self::NullDevice, _) => "null-device",
            (Self::Nothing, _) => "none",
            (Self::Always(driver), _) | (Self::Asked, driver) => driver.name(),
        }
    }
}

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

/// Why an experiment needs both hosts on one machine.
const ONE_CLOCK: &str =
    "it subtracts times of both hosts, and clocks of two machines differ by more than what is measured";

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
/// If there is none; says which there are.
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
    /// One that runs over two machines, too, and over any driver.
    const fn new(name: &'static str, paper: &'static str, about: &'static str, run: Run) -> Self {
        Self { name, paper, about, peer: true, alone: "", carrier: Carrier::Asked, run }
    }

    /// Streams through both systems, on one machine and over `udp`.
    const fn of_streams(
        name: &'static str,
        paper: &'static str,
        about: &'static str,
        run: fn(&Conditions) -> anyhow::Result<Findings>,
    ) -> Self {
        Self::new(name, paper, about, Run::Streams(run)).alone(ONE_CLOCK).over(Carrier::Always(Driver::UDP))
    }

    /// The same on one machine only, for this reason.
    const fn alone(self, alone: &'static str) -> Self {
        Self { peer: false, alone, ..self }
    }

    /// The same whatever driver was asked for.
    const fn over(self, carrier: Carrier) -> Self {
        Self { carrier, ..self }
    }

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
    /// If no test bed can be set up, a stream breaks, or the run is interrupted.
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
    let best = || if peer.is_some() { Driver::default() } else { driver::default(real_time) };
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
        assert_eq!(why("livelock", Driver::UDP), None);
        assert_eq!(why("clips-isolation", Driver::UDP), None);
        assert!(why("clips-isolation", Driver::XDP).is_some_and(|why| why.contains("runs over udp")));
        assert!(why("harts-overhead", Driver::UDP).is_some_and(|why| why.contains("null-device")));
        assert!(why("sim-scale", Driver::UDP).is_some_and(|why| why.contains("without drivers")));
        let error = find("nothing").err().expect("it is not there").to_string();
        assert!(error.contains("clips-enforcement"), "{error}");
    }
}
