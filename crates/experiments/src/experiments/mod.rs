//! The figures and tables of the papers, repeated: Punctual and plain kernel sockets in turns, in one run.
//!
//! One module a figure; [`sweep`] runs them, [`findings`] is what they say. `punctual bench NAME` shows it.

pub mod clips_enforcement;
pub mod clips_fairness;
pub mod clips_isolation;
pub mod findings;
pub mod harts;
pub mod harts_burst;
pub mod harts_isolation;
pub mod harts_misbehaving;
pub mod sweep;
pub mod video_traces;

use std::path::PathBuf;

use anyhow::bail;
use serde::Serialize;

use crate::interrupt;
use crate::testbed::{Privilege, privilege};
pub use findings::{Findings, Report};

/// How an experiment is to be run.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Fewer points and shorter slices: done within 60 s.
    pub quick: bool,
    /// Where plots and daemon logs go.
    pub directory: PathBuf,
    /// Whether processors run in the real-time class.
    pub real_time: bool,
    /// Whether to say on stderr how far it is.
    pub progress: bool,
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
    #[serde(skip)]
    run: fn(&Conditions) -> anyhow::Result<Findings>,
}

/// All of them.
pub const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        name: "clips-enforcement",
        paper: "CLIPS 7.1, figure 5",
        about: "a channel delivers what is offered up to its rate, and no more",
        run: clips_enforcement::run,
    },
    Experiment {
        name: "clips-isolation",
        paper: "CLIPS 7.2, figures 6a and 6b",
        about: "neither a greedy channel nor best effort disturbs the others",
        run: clips_isolation::run,
    },
    Experiment {
        name: "clips-fairness",
        paper: "CLIPS 7.3 and 7.4, figure 7",
        about: "best effort uses what channels leave, however bursty they are",
        run: clips_fairness::run,
    },
    Experiment {
        name: "harts-isolation",
        paper: "HARTS 6.2, figure 7",
        about: "three channels, one bursty, under growing best effort",
        run: harts_isolation::run,
    },
    Experiment {
        name: "harts-misbehaving",
        paper: "HARTS 6.2, figure 8",
        about: "the same while one channel sends twice what it may",
        run: harts_misbehaving::run,
    },
    Experiment {
        name: "harts-burst",
        paper: "HARTS 6.3",
        about: "messages of 4 to 32 KB at the same load: the paper lost conforming packets",
        run: harts_burst::run,
    },
    Experiment {
        name: "video-traces",
        paper: "CLIPS 8 (announced there)",
        about: "real video traces through suggested contracts beside floods",
        run: video_traces::run,
    },
];

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
    /// Runs it: the exit status, and the report unless another process (inside a user namespace) has it.
    ///
    /// # Errors
    /// Where no test bed can be set up, a stream breaks, or the run is interrupted.
    pub fn run(
        &self,
        quick: bool,
        directory: PathBuf,
        progress: bool,
    ) -> anyhow::Result<(i32, Option<Report>)> {
        interrupt::install()?;
        let privilege = Privilege::detect()?;
        match privilege {
            Privilege::Root => {}
            Privilege::UserNamespace => {
                if let Some(status) = privilege::enter_user_namespace()? {
                    return Ok((status, None));
                }
            }
            Privilege::InProcess => bail!(
                "experiments need network namespaces: run as root, or allow user namespaces \
                 (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)"
            ),
        }
        let conditions = Conditions { quick, directory, real_time: privilege == Privilege::Root, progress };
        let findings = (self.run)(&conditions)?;
        let report = findings.report(self, &conditions)?;
        Ok((report.exit_status(), Some(report)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for experiment in &EXPERIMENTS {
            assert_eq!(find(experiment.name).expect("it is there").name, experiment.name);
            assert_eq!(EXPERIMENTS.iter().filter(|other| other.name == experiment.name).count(), 1);
        }
        let error = find("nothing").err().expect("it is not there").to_string();
        assert!(error.contains("clips-enforcement"), "{error}");
    }
}
