//! Cases: recorded runs that once failed. A file contains a few; `tests/seeds` has those that must never fail
//! again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use punctual_analysis::{Nanos, Ppm};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cut::Cut;
use crate::faults::{FaultKinds, UnknownKind};
use crate::options::{Class, FaultChoice, Faults, Options, Sabotage, ScheduleChoice, SizeChoice, Traffic};
use crate::outcome::Outcome;
use crate::scenario::{Scenario, ScenarioError};
use crate::topology::{Topology, TopologyError};

/// The cases of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// In the order of the file.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One run; in TOML, missing values are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its seed.
    pub seed: u64,
    /// What it showed when it was recorded.
    pub lesson: String,
    /// The plan that its seed drew then, see [`Scenario::digest`]; any plan if missing.
    pub plan: Option<String>,
    /// The topology, relative to the file; drawn if missing.
    pub topology: Option<PathBuf>,
    /// Class of the run; drawn if missing.
    pub class: Option<Class>,
    /// Size of the drawn network; drawn if missing.
    pub size: Option<SizeChoice>,
    /// Time for which applications send; drawn if missing.
    pub traffic_ms: Option<u64>,
    /// A long run of this many seconds, see [`Traffic::Uptime`].
    pub uptime_s: Option<u64>,
    /// Traffic at full rate for this many seconds, see [`Traffic::Drift`].
    pub drift_s: Option<u64>,
    /// Whether hosts have TCP connections.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub tcp: bool,
    /// Kinds of faults besides those of single frames; drawn if missing.
    pub schedule: Option<String>,
    /// Faults of single frames; drawn if missing.
    pub frames: Option<Frames>,
    /// Broken assumptions, for the checker's own tests.
    pub sabotage: Option<Sabotage>,
    /// The remaining part of the plan.
    #[serde(default, skip_serializing_if = "is_whole")]
    pub cut: Cut,
}

fn is_whole(cut: &Cut) -> bool {
    *cut == Cut::default()
}

/// Chances in a million frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Frames {
    /// See [`Faults`].
    pub loss_ppm: u32,
    /// See [`Faults`].
    pub duplicate_ppm: u32,
    /// See [`Faults`].
    pub delay_ppm: u32,
    /// See [`Faults`].
    pub delay_max_ms: u64,
    /// See [`Faults`].
    pub corrupt_ppm: u32,
}

impl From<Frames> for Faults {
    fn from(frames: Frames) -> Self {
        Self {
            loss: Ppm(frames.loss_ppm),
            duplicate: Ppm(frames.duplicate_ppm),
            delay: Ppm(frames.delay_ppm),
            delay_max: Nanos::from_millis(frames.delay_max_ms),
            corrupt: Ppm(frames.corrupt_ppm),
        }
    }
}

/// Why a file of cases cannot be used.
#[derive(Debug, Error)]
pub enum CaseError {
    /// The file, or a topology that it names, cannot be read.
    #[error("{}: {cause}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the error.
        cause: io::Error,
    },
    /// Not TOML, or unknown or missing keys.
    #[error("{}: {cause}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the error.
        cause: toml::de::Error,
        /// Text of the file.
        text: String,
    },
    /// The named topology is invalid.
    #[error("{}: {cause}", path.display())]
    Topology {
        /// Path of the topology.
        path: PathBuf,
        /// Cause of the error.
        cause: TopologyError,
        /// Text of the topology.
        text: String,
    },
    /// The named kind of fault does not exist.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// Its lengths contradict each other.
    #[error("seed {seed}: give one of traffic_ms, uptime_s and drift_s, not several")]
    Traffic {
        /// Seed of the case.
        seed: u64,
    },
    /// The plan that is drawn for its seed has changed since.
    #[error(
        "seed {seed} draws plan \"{drawn}\", written down is \"{kept}\": what it taught may not happen in it; \
         find a seed that shows it again, or, where only fields were added, write plan = \"{drawn}\""
    )]
    Plan {
        /// Seed of the case.
        seed: u64,
        /// When it was written down.
        kept: String,
        /// Now.
        drawn: String,
    },
    /// Its plan cannot be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl Cases {
    /// The cases of `file`.
    ///
    /// # Errors
    /// If it cannot be read or holds something else.
    pub fn read(file: &Path) -> Result<Self, CaseError> {
        let text = fs::read_to_string(file).map_err(|cause| CaseError::File { path: file.into(), cause })?;
        toml::from_str(&text).map_err(|cause| CaseError::Syntax { path: file.into(), cause, text })
    }
}

impl Case {
    /// The options of its run; a topology's path is relative to `file`.
    ///
    /// # Errors
    /// If that cannot be used, or a kind of fault is unknown.
    pub fn options(&self, file: &Path) -> Result<Options, CaseError> {
        let topology = self.topology.as_ref().map(|name| {
            let path = file.parent().unwrap_or(Path::new("")).join(name);
            match fs::read_to_string(&path) {
                Ok(text) => Topology::parse(&text).map_err(|cause| CaseError::Topology { path, cause, text }),
                Err(cause) => Err(CaseError::File { path, cause }),
            }
        });
        let mut options = Options {
            topology: topology.transpose()?,
            class: self.class,
            sizes: self.size.unwrap_or_default(),
            sabotage: self.sabotage.unwrap_or_default(),
            traffic: self.traffic()?,
            tcp: self.tcp,
            ..Options::default()
        };
        if let Some(kinds) = &self.schedule {
            options.schedule = ScheduleChoice::Kinds(kinds.parse::<FaultKinds>()?);
        }
        if let Some(frames) = self.frames {
            options.faults = FaultChoice::These(frames.into());
        }
        Ok(options)
    }

    fn traffic(&self) -> Result<Traffic, CaseError> {
        match (self.traffic_ms, self.uptime_s, self.drift_s) {
            (None, None, None) => Ok(Traffic::Drawn),
            (Some(ms), None, None) => Ok(Traffic::For(Nanos::from_millis(ms))),
            (None, Some(s), None) => Ok(Traffic::Uptime(Nanos::from_secs(s))),
            (None, None, Some(s)) => Ok(Traffic::Drift(Nanos::from_secs(s))),
            _ => Err(CaseError::Traffic { seed: self.seed }),
        }
    }

    /// Its plan.
    ///
    /// # Errors
    /// If the topology contradicts itself, or its seed does not draw the recorded plan any more.
    pub fn plan(&self, options: &Options) -> Result<Scenario, CaseError> {
        let mut plan = Scenario::draw(self.seed, options)?;
        let drawn = plan.digest();
        if let Some(kept) = self.plan.as_ref().filter(|kept| **kept != drawn) {
            return Err(CaseError::Plan { seed: self.seed, kept: kept.clone(), drawn });
        }
        self.cut.apply(&mut plan);
        Ok(plan)
    }

    /// Runs it, with a timeline if `trace`.
    ///
    /// # Errors
    /// If a file, the topology or a configuration cannot be used.
    pub fn run(&self, file: &Path, trace: bool) -> Result<Outcome, CaseError> {
        let options = Options { trace, ..self.options(file)? };
        let plan = self.plan(&options)?;
        Ok(crate::batch::caught(self.seed, || crate::run_scenario(self.seed, plan, &options))?)
    }
}
