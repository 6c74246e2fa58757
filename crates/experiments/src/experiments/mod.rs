//! The figures and tables of the papers, repeated: Punctual and plain kernel sockets in turns, in one run.
//!
//! One module a figure; [`sweep`] runs them, [`findings`] is their result. `punctual bench NAME` shows it.

mod acceptance;
mod clips;
mod contest;
mod dispatch;
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
mod orb_demux;
mod profile_limit;
mod rio_bandwidth;
mod rio_cost;
mod rio_latency;
mod rio_utilisation;
mod roundtrip;
mod rtu_best_effort;
mod rtu_latency;
mod rtu_path;
mod rtu_relay;
mod rtu_scale;
mod rtu_streams;
mod sim_scale;
mod sim_speed;
mod small_messages;
mod sweep;
mod tail;
mod video_traces;
mod worker;

use anyhow::{Context, bail};
use punctual_host::config::Driver;
use punctual_os::interrupt;
use serde::Serialize;

use crate::excuse::Excuses;
use crate::measure::{Latencies, Side};
use crate::report::ensure_writable;
use crate::testbed::{Conditions, Privilege, driver, privilege};
pub use crate::testbed::{Peer, Wanted};
pub use dispatch::work_if_asked;
pub use findings::Findings;
pub use list::EXPERIMENTS;
use measured::{Compared, judged, judged_under};
pub use measured::{Measured, Report, RunConditions};

/// How an experiment runs. It fails if the test setup fails, a stream breaks or the run is interrupted.
#[derive(Clone, Copy)]
enum Run {
    /// Something on hosts.
    Measured(fn(&Conditions) -> anyhow::Result<Measured>),
    /// A simulation in virtual time: it needs no test setup, privilege or driver; its costs are CPU time, which
    /// holes do not affect.
    Simulated(fn(&Wanted) -> anyhow::Result<Measured>),
}

/// What carries an experiment's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// The requested driver, or the best one.
    Asked,
    /// This one, whatever the host has.
    Always(Driver),
    /// A device that takes every packet at once and forgets it.
    NullDevice,
    /// No message is sent.
    Nothing,
}

impl Carrier {
    /// The name in reports.
    fn name(self, asked: Driver) -> &'static str {
        match (self, asked) {
            (Self::NullDevice, _) => "null-device",
            (Self::Nothing, _) => "none",
            (Self::Always(driver), _) | (Self::Asked, driver) => driver.name(),
        }
    }
}

/// Why an experiment needs both hosts on one machine.
const ONE_CLOCK: &str =
    "it subtracts times of both hosts, and clocks of two machines differ by more than what is measured";
const ONE_PROGRAM: &str = "it opens both ends of its connections in one program";
const NO_HOST: &str = "no host takes part in it";

/// One of them.
#[derive(Clone, Copy, Serialize)]
pub struct Experiment {
    /// Name of the experiment on the command line.
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

/// For experiments that measure maximum throughput: costs so low that neither admission nor the bound on all
/// protocol work, which both use them, limits anything.
const FAST_COSTS: &str = "[processor.costs]\nsend_message = \"100ns\"\nsend_packet = \"100ns\"\n\
                          send_packet_later = \"100ns\"\nforward_packet = \"100ns\"\n\
                          receive_packet = \"100ns\"\ndeliver_message = \"100ns\"\ncopy_kib = \"100ns\"\n";

/// (latency in us, share of samples above it), without what holes explain.
fn exceedance(side: &Side, excuses: &Excuses) -> Vec<(f64, f64)> {
    let mut latencies = Latencies::default();
    side.clean_spans(excuses).for_each(|span| latencies.record(span));
    latencies.exceedance(0).into_iter().map(|(ms, share)| (ms * 1e3, share)).collect()
}

/// Finds the experiment of that name.
///
/// # Errors
/// If there is none; the message lists all names.
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
    /// An experiment that also runs over two machines, and over any driver.
    const fn new(name: &'static str, paper: &'static str, about: &'static str, run: Run) -> Self {
        Self { name, paper, about, peer: true, alone: "", carrier: Carrier::Asked, run }
    }

    /// Streams through both systems, on one machine and over `udp`.
    const fn of_streams(self) -> Self {
        self.alone(ONE_CLOCK).over(Carrier::Always(Driver::UDP))
    }

    /// TCP of Punctual and of the kernel, on one machine and over the driver that knows flows.
    const fn of_tcp(self) -> Self {
        self.alone(ONE_PROGRAM).over(Carrier::Always(Driver::XDP))
    }

    /// One in which no host takes part.
    const fn computed(self) -> Self {
        self.alone(NO_HOST).over(Carrier::Nothing)
    }

    /// This experiment, limited to one machine for this reason.
    const fn alone(self, alone: &'static str) -> Self {
        Self { peer: false, alone, ..self }
    }

    /// This experiment, always over this carrier.
    const fn over(self, carrier: Carrier) -> Self {
        Self { carrier, ..self }
    }

    /// Why it cannot be run over two machines, or with that driver, with the fix; `None` if it can.
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
    /// If no test setup can be set up, a stream breaks, or the run is interrupted.
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

/// Runs it on a test setup: returns its results and the test setup, or the exit status of another process (inside
/// a user namespace) that ran it.
fn on_hosts(
    wanted: &Wanted,
    carrier: Carrier,
    run: impl FnOnce(&Conditions) -> anyhow::Result<Measured>,
) -> anyhow::Result<Result<(Measured, Option<RunConditions>), i32>> {
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
    // Between machines all worlds share an interface, and that holds one XDP program.
    let best = || if wanted.peer.is_some() { Driver::default() } else { driver::default(real_time) };
    let driver = wanted.driver.unwrap_or_else(best);
    let peer = wanted.peer.as_ref().map(|peer| peer.address.clone());
    let ground = RunConditions { real_time, driver: carrier.name(driver), peer };
    let measured = run(&Conditions { wanted: wanted.clone(), real_time, driver })?;
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
            assert!(*peer == alone.is_empty(), "{name}: a reason if it runs on one machine only");
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
