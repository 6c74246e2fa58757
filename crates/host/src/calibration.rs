//! Decides the costs that a starting host counts with: from the configured profile, from a short measurement, or as configured.

use std::io;
use std::path::Path;

use punctual_engine::WORK_SLICE;
use punctual_engine::profile::{
    Machine, MeasureError, OtherCosts, Plan, Profile, ProfileError, Rings, costs_with_margin, measure,
    profile_of, quantum_that_fits, segment_with_margin, too_short,
};
use punctual_ipc::api::ProfileStatus;
use punctual_os::realtime;
use punctual_proto::config::{CostSource, CpuCosts, Interference, NodeConfig};
use punctual_proto::{Nanos, Ppm};

use thiserror::Error;

use crate::config::{Driver, HostConfig, Mismatch, ProfileSettings};

/// Costs that cannot be settled: the host does not start.
#[derive(Debug, Error)]
pub enum CalibrationError {
    /// The file.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// There is no file, and this host measures nothing.
    #[error(
        "profile {path}: the file does not exist, and {why} measures no profile: write it with 'punctual profile --output \
         {path}', or remove \"profile\" from [processor]"
    )]
    NoFile {
        /// Path of the file.
        path: String,
        /// What measures none.
        why: &'static str,
    },
    /// The measurement.
    #[error("{0}; or give the costs in [processor.costs], or profile_measure = false for the defaults")]
    Measure(#[from] MeasureError),
}

/// Puts the costs that this host runs on, and the quantum that they leave room for, into `config`.
///
/// # Errors
/// See [`CalibrationError`].
pub fn calibrate<R: Rings + Sync>(
    config: &mut HostConfig,
    rings: &R,
) -> Result<ProfileStatus, CalibrationError> {
    let settings = config.profile.clone();
    let wanted = driver_of(config);
    let mut replaces = None;
    let (profile, foreign) = match source_of(config, &settings) {
        Source::Configured => return Ok(as_configured(config, &settings)),
        Source::File(path) => {
            let (profile, foreign) = load(config, path)?;
            let driver = accepted(&profile, wanted);
            if driver != wanted {
                replaces = Some((driver, "the profile was measured so".to_owned()));
            }
            (profile, foreign)
        }
        Source::Measured(file) => {
            let profile = match (measure_short(config, rings, wanted), wanted.substitute()) {
                (Err(error), Some(other)) => {
                    replaces = Some((other, error.to_string()));
                    measure_short(config, rings, other)?
                }
                (measured, _) => measured?,
            };
            if let Some(path) = file {
                profile.save(path)?;
            }
            (profile, None)
        }
    };
    let mut settled = apply(config, &settings, &profile, foreign);
    if let Some((other, why)) = replaces {
        let medium = other.medium();
        settled.summary += &format!(", measured over {medium} in place of {wanted}");
        settled.warnings.push(format!(
            "the costs of {wanted} links are those of {medium}, which cost more: {why}: measure as root with \
             'punctual profile --driver {wanted}'"
        ));
    }
    Ok(settled)
}

/// Checks what [`calibrate`] would find in the file of a profile, and measures nothing.
///
/// # Errors
/// See [`CalibrationError`].
pub fn check_profile(config: &HostConfig) -> Result<(), CalibrationError> {
    match source_of(config, &config.profile) {
        Source::File(path) => load(config, path).map(drop),
        Source::Configured | Source::Measured(_) => Ok(()),
    }
}

/// The profile in a file; and if it is one of another machine, and accepted, in what it differs.
fn load(config: &HostConfig, path: &Path) -> Result<(Profile, Option<String>), CalibrationError> {
    let profile = Profile::load(path).map_err(|error| match &error {
        ProfileError::Io { path, error: cause } if cause.kind() == io::ErrorKind::NotFound => {
            let why = if config.is_best_effort_host() {
                "a best-effort host"
            } else {
                "a host with profile_measure = false"
            };
            CalibrationError::NoFile { path: path.clone(), why }
        }
        _ => error.into(),
    })?;
    let driver = accepted(&profile, driver_of(config));
    match profile.check_machine(&Machine::here(driver.name()), path) {
        Err(error) if config.profile.mismatch == Mismatch::Accept => Ok((profile, Some(error.to_string()))),
        checked => Ok(checked.map(|()| (profile, None))?),
    }
}

/// The source of the costs.
enum Source<'a> {
    Configured,
    File(&'a Path),
    /// Measured now, and stored in a file if one is named.
    Measured(Option<&'a Path>),
}

fn source_of<'a>(config: &HostConfig, settings: &'a ProfileSettings) -> Source<'a> {
    // On a best-effort host nothing is guaranteed, and an ordinary thread would also measure the work of
    // other threads.
    let measure = settings.measure && !config.is_best_effort_host();
    match settings.file.as_deref() {
        _ if settings.given.is_complete() => Source::Configured,
        Some(path) if measure && !path.exists() => Source::Measured(Some(path)),
        Some(path) => Source::File(path),
        None if measure => Source::Measured(None),
        None => Source::Configured,
    }
}

fn as_configured(config: &mut HostConfig, settings: &ProfileSettings) -> ProfileStatus {
    let why = match (settings.given.is_complete(), settings.measure) {
        (true, _) => "all are in [processor.costs]",
        (false, true) => "a best-effort host",
        (false, false) => "profile_measure = false",
    };
    let warnings = fit_units(config, OtherCosts::default());
    ProfileStatus {
        summary: format!("processor costs as configured, not measured ({why})"),
        quantum_packets: config.node.cpu.quantum_packets,
        warnings,
        ..ProfileStatus::default()
    }
}

/// The driver that a profile for this host must have been measured on: the most expensive of its links'
/// drivers.
fn driver_of(config: &HostConfig) -> Driver {
    let drivers = config.drivers.iter().map(|link| link.driver());
    drivers.max_by_key(|driver| driver.packet_cost()).unwrap_or(Driver::BASE)
}

/// The driver that the profile may have been measured on: the wanted driver, or its stand-in.
fn accepted(profile: &Profile, wanted: Driver) -> Driver {
    wanted.substitute().filter(|other| profile.machine.driver == other.name()).unwrap_or(wanted)
}

fn apply(
    config: &mut HostConfig,
    settings: &ProfileSettings,
    profile: &Profile,
    foreign: Option<String>,
) -> ProfileStatus {
    let margin = settings.margin;
    let charged = costs_with_margin(&profile.costs.cpu_costs(), margin);
    config.node.cpu.costs = settings.given.over(&charged);
    config.segment = settings.given.over_segment(segment_with_margin(profile.costs.segment(), margin));
    let costs_from = match foreign {
        None => CostSource::Measured { margin, short: profile.short },
        Some(_) => CostSource::Foreign { margin },
    };
    config.node.cpu.costs_from = costs_from;
    let mut warnings = fit_units(config, OtherCosts::of(profile));
    let cpu = &config.node.cpu;
    warnings.extend(interference_warning(cpu.interference, &cpu.costs, profile));
    let percent = f64::from(margin.0) / 1e4;
    let what = match &foreign {
        Some(error) => format!("DEGRADED, no guarantee rests on it: {error}"),
        None if profile.short => {
            "a short profile, measured as the host started (run 'punctual profile' for a full one)".into()
        }
        None => format!("the profile of {}", profile.measured),
    };
    ProfileStatus {
        costs_from,
        file: settings.file.clone(),
        measured: Some(profile.measured.clone()),
        summary: format!("processor costs from {what}, with a margin of {percent:.0}%"),
        quantum_packets: config.node.cpu.quantum_packets,
        warnings,
    }
}

/// Chooses the quantum if the configuration does not set it, and returns a warning for each time that is too
/// short for its units.
fn fit_units(config: &mut HostConfig, around: OtherCosts) -> Vec<String> {
    let NodeConfig { cpu, fragment_bytes, links, .. } = &mut config.node;
    let fitting = || quantum_that_fits(cpu, *fragment_bytes, links, around);
    cpu.quantum_packets = config.quantum.unwrap_or_else(fitting);
    too_short(cpu, *fragment_bytes, links, around)
}

/// A warning if turns cost [`Profile::turn_ns`] per full slice, or some units cost more than is charged for
/// them, beyond the given interference.
fn interference_warning(given: Interference, costs: &CpuCosts, profile: &Profile) -> Option<String> {
    let needed =
        Ppm(u32::try_from(u128::from(profile.turn_ns) * 1_000_000 / u128::from(WORK_SLICE.0))
            .unwrap_or(u32::MAX));
    let tail = |name: &str, charged: Nanos| {
        let p999 = profile.measurements.get(name).map_or(0, |summary| summary.p999_ns);
        Nanos(p999) - charged
    };
    let burst = tail("send_first_small", costs.send_packet)
        .max(tail("forward_small", costs.forward_packet))
        .max(tail("receive_middle_large", costs.receive_packet + costs.copy_kib * 2));
    (given.rho < needed || given.sigma < burst).then(|| {
        format!(
            "interference {} + {:.1}% is less than what was measured: set interference_burst = \"{}us\" and \
             interference_share = \"{}%\" in [processor]",
            given.sigma,
            f64::from(given.rho.0) / 1e4,
            given.sigma.max(burst).0.div_ceil(1_000),
            given.rho.0.max(needed.0).div_ceil(10_000)
        )
    })
}

/// Measures in the class that the processor will run in, on a thread of its own.
fn measure_short<R: Rings + Sync>(
    config: &HostConfig,
    rings: &R,
    driver: Driver,
) -> Result<Profile, MeasureError> {
    let real_time = config.real_time;
    let samples = std::thread::scope(|scope| {
        let measuring =
            std::thread::Builder::new().name("punctual-profile".into()).spawn_scoped(scope, || {
                realtime::apply(&real_time)?;
                measure(rings, driver.wires()?, Plan::SHORT)
            });
        let measuring = measuring.map_err(|error| MeasureError::Os { what: "a thread", error })?;
        measuring.join().unwrap_or_else(|_| Err(MeasureError::Failed("the measuring thread failed".into())))
    })?;
    Ok(profile_of(&samples, driver.name(), "the start of the host", true))
}
