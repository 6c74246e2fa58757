//! A campaign: many seeds, run in pieces whose results are added up. A file stores the progress, so that the
//! campaign can stop at any time, continue later, and report results over all seeds at the end.
//!
//! Invariants: a seed counts once; the file on disk is always whole (written and synchronised beside, then
//! renamed) and only one process writes it; results of other code or other options are refused, never added.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::batch::run_each;
use crate::options::Options;
use crate::outcome::{Outcome, Report};
use crate::ranges::Ranges;
use crate::scenario::ScenarioError;

/// Name of the simulated code: a digest of its sources.
pub const CODE: &str = env!("PUNCTUAL_SIM_CODE");

/// Violations that keep their text.
const VIOLATIONS_KEPT: usize = 1_000;
/// Longest interval between writes of the file.
const SAVED_EVERY: Duration = Duration::from_secs(5);

/// Results of a campaign so far; its file contains exactly this, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The simulated code, see [`CODE`].
    pub code: String,
    /// The options of every seed.
    pub options: String,
    /// Completed seeds.
    pub done: Ranges,
    /// Wall-clock time of the run, times its threads.
    pub core_seconds: f64,
    /// Digest sum of the completed seeds.
    pub digest_sum: DigestSum,
    /// Their results, without a digest, because seeds are run in any order.
    #[serde(flatten)]
    pub report: Report,
}

/// Seeds and the digests of their runs, combined by exclusive or, so that the order does not matter;
/// hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DigestSum([u8; 32]);

impl DigestSum {
    fn add(&mut self, outcome: &Outcome) {
        let seed = outcome.seed.to_le_bytes();
        let digest = blake3::Hasher::new().update(&seed).update(&outcome.digest).finalize();
        self.0.iter_mut().zip(digest.as_bytes()).for_each(|(sum, byte)| *sum ^= byte);
    }
}

impl fmt::Display for DigestSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl From<DigestSum> for String {
    fn from(sum: DigestSum) -> Self {
        sum.to_string()
    }
}

impl TryFrom<String> for DigestSum {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let hash =
            blake3::Hash::from_hex(&text).map_err(|error| format!("\"{text}\" is no digest: {error}"))?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// Why a campaign cannot continue.
#[derive(Debug, Error)]
pub enum CampaignError {
    /// The file cannot be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the error.
        cause: io::Error,
    },
    /// The file has other content.
    #[error("{}: no campaign: {cause}: name another file", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the error.
        cause: serde_json::Error,
    },
    /// Another process runs it.
    #[error("{}: another process runs this campaign: wait for it, or name another file", .0.display())]
    Busy(PathBuf),
    /// The results in the file cannot be added to those of this program.
    #[error(
        "{}: holds results of {what} {theirs}, this is {ours}: name another file, or move it away",
        path.display()
    )]
    Other {
        /// Path of the file.
        path: PathBuf,
        /// `code` or `options`.
        what: &'static str,
        /// The value in the file.
        theirs: String,
        /// The value of this program.
        ours: String,
    },
    /// A topology or configuration cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A campaign and its file.
#[derive(Debug)]
pub struct Campaign {
    path: PathBuf,
    options: Options,
    record: Record,
    /// Locked while this exists.
    _lock: File,
}

impl Campaign {
    /// Begins the campaign of `path`, or continues it.
    ///
    /// # Errors
    /// If the file cannot be used, is in use, or holds results of other code or options.
    pub fn open(path: &Path, options: Options) -> Result<Self, CampaignError> {
        let lock = lock(path)?;
        let fresh = Record {
            code: CODE.into(),
            options: format!("{options:?}"),
            done: Ranges::default(),
            core_seconds: 0.0,
            digest_sum: DigestSum::default(),
            report: Report::default(),
        };
        let record = match fs::read(path) {
            Ok(bytes) => {
                let record: Record = serde_json::from_slice(&bytes)
                    .map_err(|cause| CampaignError::Format { path: path.into(), cause })?;
                agree(path, "code", &record.code, &fresh.code)?;
                agree(path, "options", &record.options, &fresh.options)?;
                record
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => fresh,
            Err(cause) => return Err(CampaignError::File { path: path.into(), cause }),
        };
        Ok(Self { path: path.into(), options, record, _lock: lock })
    }

    /// Results so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Seeds of `wanted` that have not run.
    pub fn left(&self, wanted: Range<u64>) -> u64 {
        self.record.done.missing(wanted).iter().map(|range| range.end - range.start).sum()
    }

    /// Runs the missing seeds of `wanted` on `threads` threads. `progress` gets the results after each seed,
    /// and decides whether to continue. All results are in the file when this returns, whether the campaign
    /// is complete or not.
    ///
    /// # Errors
    /// If the file cannot be written, or a topology or configuration cannot be used.
    pub fn run(
        &mut self,
        wanted: Range<u64>,
        threads: usize,
        progress: impl Fn(&Record) -> ControlFlow<()> + Sync,
    ) -> Result<(), CampaignError> {
        let missing = self.record.done.missing(wanted);
        let options = self.options.clone();
        let cores = threads.max(1) as f64;
        let shared = Mutex::new((self, Ok(()), Instant::now()));
        run_each(missing.into_iter().flatten(), &options, threads, |_, result| {
            let mut guard = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let (campaign, failed, saved) = &mut *guard;
            let step = result.map_err(CampaignError::from).and_then(|outcome| {
                campaign.record.add(&outcome);
                if saved.elapsed() >= SAVED_EVERY {
                    campaign.record.core_seconds += saved.elapsed().as_secs_f64() * cores;
                    *saved = Instant::now();
                    campaign.save()?;
                }
                Ok(())
            });
            if let Err(error) = step {
                *failed = Err(error);
                return ControlFlow::Break(());
            }
            progress(&campaign.record)
        });
        let (campaign, ended, saved) = shared.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        campaign.record.core_seconds += saved.elapsed().as_secs_f64() * cores;
        campaign.save()?;
        ended
    }

    fn save(&self) -> Result<(), CampaignError> {
        let failed = |cause| CampaignError::File { path: self.path.clone(), cause };
        let json = serde_json::to_string_pretty(&self.record).map_err(|error| failed(error.into()))?;
        replace(&self.path, &(json + "\n")).map_err(failed)
    }
}

impl Record {
    /// Adds a seed's outcome, unless it was added already.
    fn add(&mut self, outcome: &Outcome) {
        if !self.done.insert(outcome.seed) {
            return;
        }
        self.digest_sum.add(outcome);
        self.report.add(outcome);
        self.report.violations.truncate(VIOLATIONS_KEPT);
    }
}

/// The name of another file beside `path`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Replaces a file; the new one is on the disk before it takes the old one's place.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn agree(path: &Path, what: &'static str, theirs: &str, ours: &str) -> Result<(), CampaignError> {
    if theirs == ours {
        return Ok(());
    }
    Err(CampaignError::Other { path: path.into(), what, theirs: theirs.into(), ours: ours.into() })
}

/// Locks a file beside the campaign's file, which is replaced repeatedly.
fn lock(path: &Path) -> Result<File, CampaignError> {
    let lock = beside(path, ".lock");
    let failed = |cause| CampaignError::File { path: lock.clone(), cause };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let file = File::options().create(true).write(true).truncate(false).open(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CampaignError::Busy(path.into())),
        Err(TryLockError::Error(cause)) => Err(failed(cause)),
    }
}
