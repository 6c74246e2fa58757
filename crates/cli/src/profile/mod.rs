//! `punctual profile`: the execution profile of this machine (ADR 0013, CLIPS 6, HARTS table 1).
//!
//! [`run`] measures one cost after the other, all of them first with an idle CPU and then under [`Hogs`]; the
//! higher of the two counts. The costs that admission uses go to a file ([`Profile`]); the measurements of
//! the papers are beside them in the [`Report`]. [`Summary::block_ns`] defines the value used, plus the
//! margin of the host that reads it.

mod api;
mod basics;
mod links;
mod paths;
mod report;
mod rows;
mod wake;

use std::path::PathBuf;

use anyhow::Context;
use punctual::Nanos;
use punctual_engine::profile::{Profile, Summary, profile_of};

use punctual_host::config::Driver;

use punctual_experiments::excuse::{HoleSummary, summarise};
use punctual_experiments::loads::hogs::Hogs;
use punctual_experiments::report::ensure_writable;
use punctual_experiments::witness::Witness;
use punctual_os::{cpus, realtime};

pub use links::MeasuredLink;
pub use report::Report;

/// The arguments of a profile run.
#[derive(Clone, Debug)]
pub struct Request {
    /// A few seconds instead of a minute.
    pub quick: bool,
    /// The date, as the caller states it: goes into the file.
    pub date: String,
    /// The host's configuration: the drain rates of its links are measured if the neighbour answers.
    pub config: Option<PathBuf>,
    /// Only this link of it.
    pub link: Option<String>,
    /// The driver that the profile's costs are measured on; else that of the configuration, else
    /// [`Driver::default`].
    pub driver: Option<Driver>,
    /// Path of the profile.
    pub output: PathBuf,
    /// A quick profile may replace a full one there.
    pub force: bool,
    /// Path of the plot.
    pub plot: PathBuf,
    /// Reports the progress on stderr.
    pub progress: bool,
}

/// Priority at which the processor runs by default, and at which it is measured.
pub(crate) const PRIORITY: u8 = 50;
/// CPU hogs for each CPU.
const HOGS_PER_CPU: usize = 2;

/// How much of each is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Messages of each shape on each driver, idle and loaded.
    pub messages: usize,
    /// Wake-ups of each class, idle and loaded.
    pub wakes: usize,
    /// Repetitions of the basics and of the ring operations.
    pub rounds: usize,
    /// How long a link is driven at its most.
    pub drain: Nanos,
}

impl Extent {
    fn new(quick: bool) -> Self {
        if quick {
            Self { messages: 2_000, wakes: 500, rounds: 2_000, drain: Nanos::from_millis(500) }
        } else {
            Self { messages: 20_000, wakes: 5_000, rounds: 20_000, drain: Nanos::from_secs(3) }
        }
    }
}

/// Text after the date of a quick profile in its file.
const QUICK: &str = ", quick";

/// Checks before the measurement that the result can be written. A full profile costs a minute of an idle
/// machine: a quick one does not replace it by default.
fn check_output(request: &Request) -> anyhow::Result<()> {
    let output = &request.output;
    anyhow::ensure!(
        output.is_file() || !output.exists(),
        "--output: {} is not a regular file, and a profile would replace it: name a file",
        output.display()
    );
    // It is written beside it first.
    ensure_writable(&output.with_extension("new")).context("--output")?;
    ensure_writable(output).context("--output")?;
    ensure_writable(&request.plot).context("--plot")?;
    // A file that cannot be read as a profile is replaced: the error about it would only advise to measure
    // again.
    let Ok(there) = Profile::load(&request.output) else { return Ok(()) };
    let is_full = !there.short && !there.measured.ends_with(QUICK);
    anyhow::ensure!(
        !(request.quick && is_full && !request.force),
        "{path} is a full profile (measured {}), which a quick one would replace: measure without --quick, give \
         --output another file, or --force",
        there.measured,
        path = request.output.display()
    );
    Ok(())
}

/// Measures, writes the profile and the plot.
///
/// # Errors
/// If a quick profile would replace a full one, the real-time class is refused, a driver cannot be opened, the machine is too busy to be measured, or a file
/// cannot be written.
pub fn run(request: &Request) -> anyhow::Result<Report> {
    check_output(request)?;
    anyhow::ensure!(
        realtime::available(),
        "SCHED_FIFO was refused: profiles are measured in the processor's class: run as root or grant CAP_SYS_NICE"
    );
    let print = |what: &str| {
        if request.progress {
            eprintln!("profile: {what}");
        }
    };
    let extent = Extent::new(request.quick);
    let links = links::measure(request, extent, &print)?;
    let driver = driver(request, &links);
    let witness = Witness::start().context("cannot watch for platform holes")?;
    print("basics");
    let basics = basics::measure(extent)?;
    print("rings between program and daemon");
    let api = api::measure(extent)?;
    print("wake-ups, idle");
    let mut wakes = vec![wake::measure(extent, false)?];
    print("paths, idle");
    let mut paths = paths::measure(extent, driver, false)?;
    {
        let cpus = cpus::usable()?.len();
        let _hogs = Hogs::start(cpus * HOGS_PER_CPU).context("cannot load the CPU")?;
        print("wake-ups, loaded");
        wakes.push(wake::measure(extent, true)?);
        print("paths, loaded");
        paths.extend(paths::measure(extent, driver, true)?);
    }
    let testimony = witness.stop();
    let holes: HoleSummary = summarise(&testimony, 0, 0);
    let profile = profile(request, driver, &paths, &wakes);
    profile.save(&request.output)?;
    let report = Report::new(request, profile, &basics, &api, &wakes, &paths, links, holes);
    report.draw(&paths, &request.plot)?;
    Ok(report)
}

/// The driver of the configuration's links, or the requested one.
fn driver(request: &Request, links: &[MeasuredLink]) -> Driver {
    let mut drivers = links.iter().map(|link| link.driver);
    let first = drivers.clone().next();
    let configured = drivers.find(|driver| driver.has_wire()).or(first);
    request.driver.or(configured).unwrap_or_default()
}

/// The higher of the idle and the loaded value, cost by cost.
fn profile(request: &Request, driver: Driver, paths: &[paths::Measured], wakes: &[wake::Wakes]) -> Profile {
    let of_driver = paths.iter().filter(|one| one.driver == driver);
    let measured = format!("{}{}", request.date, if request.quick { QUICK } else { "" });
    let profiles: Vec<Profile> =
        of_driver.map(|one| profile_of(&one.samples, driver.name(), &measured, false)).collect();
    let mut profile = profiles[0].clone();
    for other in &profiles[1..] {
        let (ours, theirs) = (&mut profile.costs, other.costs);
        for (ours, theirs) in [
            (&mut ours.send_message_ns, theirs.send_message_ns),
            (&mut ours.send_packet_ns, theirs.send_packet_ns),
            (&mut ours.send_packet_later_ns, theirs.send_packet_later_ns),
            (&mut ours.forward_packet_ns, theirs.forward_packet_ns),
            (&mut ours.receive_packet_ns, theirs.receive_packet_ns),
            (&mut ours.deliver_message_ns, theirs.deliver_message_ns),
            (&mut ours.copy_kib_ns, theirs.copy_kib_ns),
            (&mut ours.cold_start_ns, theirs.cold_start_ns),
            (&mut ours.segment_ns, theirs.segment_ns),
            (&mut ours.segment_call_ns, theirs.segment_call_ns),
            (&mut profile.turn_ns, other.turn_ns),
        ] {
            *ours = theirs.max(*ours);
        }
        for (name, summary) in &other.measurements {
            let kept = profile.measurements.entry(name.clone()).or_insert(*summary);
            if summary.block_ns > kept.block_ns {
                *kept = *summary;
            }
        }
    }
    profile.wake_up_ns = wakes.iter().map(|one| Summary::of(&one.fifo).p999_ns).max().unwrap_or(0);
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_profile_replaces_a_full_one_only_by_force() {
        let path = std::env::temp_dir().join(format!("punctual-quick-{}.toml", std::process::id()));
        let request = |quick, force| Request {
            quick,
            date: "2026-01-31".into(),
            config: None,
            link: None,
            driver: None,
            output: path.clone(),
            force,
            plot: path.with_extension("svg"),
            progress: false,
        };
        let measured = |text: &str| {
            let samples = punctual_engine::profile::PathSamples::default();
            profile_of(&samples, Driver::default().name(), text, false).save(&path).expect("written");
        };
        assert!(check_output(&request(true, false)).is_ok(), "nothing is there");
        measured("2026-01-30");
        let no = check_output(&request(true, false)).expect_err("a full one is there").to_string();
        assert!(no.contains("--force") && no.contains("2026-01-30") && no.contains("punctual-quick"), "{no}");
        assert!(check_output(&request(true, true)).is_ok() && check_output(&request(false, false)).is_ok());
        measured("2026-01-30, quick");
        assert!(check_output(&request(true, false)).is_ok(), "a quick one may be replaced");
        std::fs::write(&path, "version = 0").expect("written");
        assert!(check_output(&request(true, false)).is_ok(), "so may what is no profile");
        std::fs::remove_file(path).expect("removed");
    }
}
