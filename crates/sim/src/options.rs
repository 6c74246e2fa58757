//! Parameters of a run besides its seed.

use punctual_analysis::{Nanos, Ppm};
use serde::{Deserialize, Serialize};

use crate::faults::{Fault, FaultKind, FaultKinds};
use crate::resident::Scales;
use crate::topology::Topology;

/// Options of a run. The default draws everything from the seed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Hosts, links and perhaps channels; drawn if missing.
    pub topology: Option<Topology>,
    /// Class of the run; drawn if missing.
    pub class: Option<Class>,
    /// Faults of single frames.
    pub faults: FaultChoice,
    /// Schedule of other faults.
    pub schedule: ScheduleChoice,
    /// Size of drawn networks.
    pub sizes: SizeChoice,
    /// Violations of the configuration by the world, so that the checker has violations to find.
    pub sabotage: Sabotage,
    /// Traffic of applications, and its duration.
    pub traffic: Traffic,
    /// Whether to record a readable timeline.
    pub trace: bool,
    /// Every host repeatedly measures the drain rates of its links: the results must be true, and no channel
    /// may be affected. Drawn networks without it are unchanged.
    pub measure: bool,
    /// Every host has programs' handlers of all classes, beside channels. Networks without them are
    /// unchanged.
    pub handlers: bool,
    /// Hosts have TCP connections to their neighbours, of all classes, beside channels. Networks without them are
    /// unchanged.
    pub tcp: bool,
    /// Reads the memory in use, which must not grow while applications send.
    pub memory: Option<Scales>,
}

/// Classes of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Every value is drawn independently.
    Mixed,
    /// Every margin is small: channels take the smallest possible deadline and send as much as allowed at
    /// once, best effort floods every link, and the hardware is as slow as allowed.
    Tight,
    /// Guaranteed traffic takes all of the links that it may reserve, beside many best-effort flows.
    Crowded,
    /// Kernel traffic has the share that is not reserved, and uses all of it.
    Lent,
    /// Channels of soft guarantee beside hard ones, on stages that admit by the probability of a miss.
    Soft,
}

/// Traffic of applications, and its duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// The traffic of the plan, for a drawn time of about a second.
    #[default]
    Drawn,
    /// The same for this duration.
    For(Nanos),
    /// Little traffic, while channels are opened and closed.
    Uptime(Nanos),
    /// Full rate between clocks that drift apart as fast as allowed.
    Drift(Nanos),
}

/// Faults of single frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultChoice {
    /// One seed in four has some.
    #[default]
    Drawn,
    /// These faults.
    These(Faults),
}

impl Options {
    /// Only faults of `kinds`; every seed draws some of them.
    #[must_use]
    pub fn with_faults(self, kinds: FaultKinds) -> Self {
        let frames = kinds.has(FaultKind::Frames);
        let faults = if frames { FaultChoice::Drawn } else { FaultChoice::These(Faults::NONE) };
        Self { faults, schedule: ScheduleChoice::Kinds(kinds), ..self }
    }
}

/// Schedule of faults besides those of single frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScheduleChoice {
    /// Faults of all kinds, in half of the seeds; none if the faults of frames are given.
    #[default]
    Drawn,
    /// Of these kinds, in every seed.
    Kinds(FaultKinds),
    /// These faults.
    These(Vec<Fault>),
}

/// Size of drawn networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeChoice {
    /// Mostly 2 to 7 hosts, one in twenty up to 64, one in a hundred up to 200, one in 512 up to 2,000.
    #[default]
    Drawn,
    /// 2 to 7 hosts.
    Small,
    /// 8 to 64.
    Medium,
    /// 65 to 200.
    Large,
    /// 201 to 2,000.
    Huge,
}

/// Faults of frames in transit, each with its probability per frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// It is lost.
    pub loss: Ppm,
    /// It arrives twice.
    pub duplicate: Ppm,
    /// It arrives up to `delay_max` late, and does not delay later frames: reordering.
    pub delay: Ppm,
    /// See `delay`.
    pub delay_max: Nanos,
    /// A bit flips; the datagram's checksum finds it and the driver drops the frame.
    pub corrupt: Ppm,
}

impl Faults {
    /// A perfect network.
    pub const NONE: Self =
        Self { loss: Ppm(0), duplicate: Ppm(0), delay: Ppm(0), delay_max: Nanos::ZERO, corrupt: Ppm(0) };

    /// Whether no fault can occur.
    pub fn is_none(&self) -> bool {
        self.loss.0 == 0 && self.duplicate.0 == 0 && self.delay.0 == 0 && self.corrupt.0 == 0
    }
}

/// Broken assumptions. A run with any of these must end in violations: the checker's own test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sabotage {
    /// Real CPU costs in percent of what admission assumes; 100 is honest.
    pub cpu_cost_percent: u32,
    /// Real drain rates in percent of the configured ones; 100 is honest.
    pub link_rate_percent: u32,
    /// Probability per frame of a changed payload byte that the checksum does not detect.
    pub silent_corruption: Ppm,
    /// Probability per frame of a loss that is not recorded.
    pub silent_loss: Ppm,
    /// Accepted burst of drivers in percent of the nodes' filters; 100 is honest.
    pub burst_percent: u32,
    /// Probability per message that an application gets it twice.
    pub deliver_twice: Ppm,
    /// Probability per message that another application gets it.
    pub misdeliver: Ppm,
    /// Nodes have reserved a byte before any channel is open.
    pub books_off: bool,
    /// Nodes have reserved a part of their processor before any channel is open.
    pub shares_off: bool,
    /// Lookups of a channel's source fail.
    pub sources_denied: bool,
    /// Sources do not list the channels that they have opened.
    pub listings_denied: bool,
    /// Hosts report all channels as hard.
    pub softness_denied: bool,
    /// Nodes count one more of every object than exists, and one more of the frames that they were given.
    pub accounts_off: bool,
    /// Drivers keep the filters of channels that are over.
    pub filters_kept: bool,
    /// Each node reports one more waiting operation than there is.
    pub waiting_off: bool,
    /// Violations by hosts of another version.
    pub versions: Versions,
    /// Limit of the work of calls in percent of the documented one; 100 is honest.
    pub effort_percent: u32,
    /// Probability that a node gets no notice of the work of a program's handler.
    pub handlers_unheard: Ppm,
    /// PDUs that programs' handlers process beyond those that they are given.
    pub handlers_greed: u32,
    /// Probability that a program of a TCP connection reads another byte than the one that came.
    pub tcp_misread: Ppm,
    /// A host keeps the channels of a connection that is over.
    pub tcp_path_kept: bool,
    /// A connection that leaves TIME-WAIT takes the timers of the others of its link along.
    pub tcp_timers_lost: bool,
    /// The receivers of channels that were admitted once refuse them in the end.
    pub revivals_refused: bool,
}

impl Default for Sabotage {
    fn default() -> Self {
        Self {
            cpu_cost_percent: 100,
            link_rate_percent: 100,
            silent_corruption: Ppm(0),
            silent_loss: Ppm(0),
            burst_percent: 100,
            deliver_twice: Ppm(0),
            misdeliver: Ppm(0),
            books_off: false,
            shares_off: false,
            sources_denied: false,
            listings_denied: false,
            softness_denied: false,
            accounts_off: false,
            filters_kept: false,
            waiting_off: false,
            versions: Versions::Honest,
            effort_percent: 100,
            handlers_unheard: Ppm(0),
            handlers_greed: 0,
            tcp_misread: Ppm(0),
            tcp_path_kept: false,
            tcp_timers_lost: false,
            revivals_refused: false,
        }
    }
}

/// Violations by hosts of another version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Versions {
    /// None.
    #[default]
    Honest,
    /// They do not show their version in a packet that authenticates.
    Denied,
    /// They use the common version all the same.
    Common,
    /// They use a third version.
    Third,
    /// They never use the common version again.
    Kept,
}
