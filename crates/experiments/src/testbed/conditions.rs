//! How an experiment is to be run.

use std::ops::Deref;
use std::path::PathBuf;

use anyhow::Context;
use punctual::{BitRate, Nanos};
use punctual_host::config::Driver;

use super::Options;
use crate::loads::Class;
use crate::witness::Witness;

/// What of a quick run's spans a smoke test keeps: one part in so many.
const SMOKE_PART: u32 = 16;

/// The arguments of an experiment.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Fewer points and shorter slices: done within 60 s.
    pub quick: bool,
    /// A shortest possible run: its figures are meaningless. `quick` is set with it.
    pub smoke: bool,
    /// Folder of plots and daemon logs.
    pub directory: PathBuf,
    /// Whether to report the progress on stderr.
    pub progress: bool,
    /// `None`: the best that there is.
    pub driver: Option<Driver>,
    /// The other machine; without one both hosts are namespaces of this one.
    pub peer: Option<Peer>,
}

/// A machine that runs `punctual bench --serve`.
#[derive(Clone, Debug)]
pub struct Peer {
    /// HOST or HOST:PORT.
    pub address: String,
    /// Rate of the link to it; else the rate that the network interface reports.
    pub rate: Option<BitRate>,
}

/// What was wanted, and what this process and its hosts have.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The arguments.
    pub wanted: Wanted,
    /// Whether processors run in the real-time class.
    pub real_time: bool,
    /// Driver of Punctual's links, for experiments that do not fix it.
    pub driver: Driver,
}

impl Deref for Conditions {
    type Target = Wanted;
    fn deref(&self) -> &Wanted {
        &self.wanted
    }
}

impl Wanted {
    /// Reports the progress on stderr.
    pub fn progress(&self, what: std::fmt::Arguments<'_>) {
        if self.progress {
            eprint!("\r\x1b[K{what} ");
        }
    }

    /// One of three: for a smoke test, a quick run, a full one.
    pub fn pick<T>(&self, smoke: T, quick: T, full: T) -> T {
        match self.smoke {
            true => smoke,
            false if self.quick => quick,
            false => full,
        }
    }

    /// How many rounds of which length, given in milliseconds.
    pub fn rounds(&self, quick: (usize, u64), full: (usize, u64)) -> (usize, Nanos) {
        let (count, length_ms) = if self.quick { quick } else { full };
        (if self.smoke { count.min(2) } else { count }, self.brief(Nanos::from_millis(length_ms)))
    }

    /// How many of something.
    pub fn amount(&self, quick: u32, full: u32) -> u32 {
        self.pick((quick / SMOKE_PART).max(1), quick, full)
    }

    /// A span, or a part of it where only the experiment itself is tried.
    pub fn brief(&self, span: Nanos) -> Nanos {
        if self.smoke { span / u64::from(SMOKE_PART) } else { span }
    }

    /// Works on all points in turns, `rounds` times: each round begins with another point, so that none
    /// always follows the same one. `turn` gets the index of its point; `what` precedes the number of the
    /// round.
    ///
    /// # Errors
    /// The error of a turn.
    pub fn in_turns<T>(
        &self,
        what: &str,
        rounds: usize,
        points: &mut [T],
        mut turn: impl FnMut(usize, &mut T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for round in 0..rounds {
            self.progress(format_args!("{what}round {} of {rounds}", round + 1));
            for step in 0..points.len() {
                let at = (round + step) % points.len();
                turn(at, &mut points[at])?;
            }
        }
        Ok(())
    }
}

impl Conditions {
    /// The class of the applications of guaranteed channels, and of what is compared with them.
    pub const fn class(&self) -> Class {
        if self.real_time { Class::RealTime } else { Class::Ordinary }
    }

    /// Options of engines on the requested driver.
    pub fn options(&self) -> Options {
        Options { driver: self.driver, real_time: self.real_time, ..Options::default() }
    }

    /// The same of world number `world`: between two machines all worlds share the link, so each has ports of its own.
    pub fn options_of(&self, world: usize) -> Options {
        let first = 7_411 + 2 * world;
        let ports = format!("data_port = {first}\nsignalling_port = {}\n", first + 1);
        let link = self.peer.as_ref().map(|_| ports).unwrap_or_default();
        Options { link, ..self.options() }
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
