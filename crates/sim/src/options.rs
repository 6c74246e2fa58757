//! What a run is told besides its seed.

use punctual_analysis::{Nanos, Ppm};
use serde::{Deserialize, Serialize};

use crate::faults::{Fault, FaultKind, FaultKinds};
use crate::resident::Scales;
use crate::topology::Topology;

/// How a run is set up. The default draws everything from the seed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Hosts, links and perhaps channels; drawn where missing.
    pub topology: Option<Topology>,
    /// What kind of run it is; drawn where missing.
    pub class: Option<Class>,
    /// Which faults the links have.
    pub faults: FaultChoice,
    /// What else goes wrong, and when.
    pub schedule: ScheduleChoice,
    /// How large drawn networks are.
    pub sizes: SizeChoice,
    /// Ways in which the world breaks what was configured, so that the checker has something to find.
    pub sabotage: Sabotage,
    /// What applications send, and how long.
    pub traffic: Traffic,
    /// Whether to keep a readable timeline.
    pub trace: bool,
    /// Every host asks again and again what its links drain: what is said must be true, and harm nobody. Drawn networks
    /// without it stay as they are.
    pub measure: bool,
    /// Every host has programs' handlers of all classes, beside channels. Networks without them stay as they are.
    pub handlers: bool,
    /// What tells how much memory is in use: then it must not grow while applications send.
    pub memory: Option<Scales>,
}

/// Kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Everything is drawn for itself.
    Mixed,
    /// Every margin is small: channels take the smallest deadline that there is and send all that they may at
    /// once, best effort floods every link, and the hardware is as slow as it may be.
    Tight,
    /// Guaranteed traffic takes all of the links that it may have, beside a crowd of best-effort flows.
    Crowded,
    /// Kernel traffic has what is not admitted, and takes all of it.
    Lent,
    /// Channels of soft guarantee beside hard ones, on stages that admit by the probability of a miss.
    Soft,
}

/// What applications send, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// What the plan says, for a drawn second.
    #[default]
    Drawn,
    /// The same for so long.
    For(Nanos),
    /// Little, while channels come and go.
    Uptime(Nanos),
    /// At full rate between clocks that part as fast as they may.
    Drift(Nanos),
}

/// Which faults the links have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultChoice {
    /// One seed in four has some.
    #[default]
    Drawn,
    /// These.
    These(Faults),
}

impl Options {
    /// Faults of `kinds` alone; every seed draws some of them.
    #[must_use]
    pub fn with_faults(self, kinds: FaultKinds) -> Self {
        let frames = kinds.has(FaultKind::Frames);
        let faults = if frames { FaultChoice::Drawn } else { FaultChoice::These(Faults::NONE) };
        Self { faults, schedule: ScheduleChoice::Kinds(kinds), ..self }
    }
}

/// Which faults there are besides those of single frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScheduleChoice {
    /// Of all kinds, in half of the seeds; none if the faults of frames are given.
    #[default]
    Drawn,
    /// Of these kinds, in every seed.
    Kinds(FaultKinds),
    /// These.
    These(Vec<Fault>),
}

/// How large drawn networks are.
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

/// What happens to frames on their way, each with its chance a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// It is lost.
    pub loss: Ppm,
    /// It arrives twice.
    pub duplicate: Ppm,
    /// It arrives up to `delay_max` late, and overtakes nothing that follows: reordering.
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

    /// Whether nothing can happen.
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
    /// Real drain rates in percent of what is configured; 100 is honest.
    pub link_rate_percent: u32,
    /// Chance a frame that a payload byte changes behind the checksum's back.
    pub silent_corruption: Ppm,
    /// Chance a frame that it is lost and nobody admits it.
    pub silent_loss: Ppm,
    /// Burst that drivers let through in percent of what nodes say; 100 is honest.
    pub burst_percent: u32,
    /// Chance a message that an application finds it twice.
    pub deliver_twice: Ppm,
    /// Chance a message that another application finds it.
    pub misdeliver: Ppm,
    /// Nodes have reserved a byte already before anything is open.
    pub books_off: bool,
    /// Nodes have given away a part of their processor already before anything is open.
    pub shares_off: bool,
    /// Whoever looks for the source of a channel does not find it.
    pub sources_denied: bool,
    /// Sources do not list what they have opened.
    pub listings_denied: bool,
    /// What hosts call a soft channel they should call a hard one.
    pub softness_denied: bool,
    /// Nodes count one more of everything than there is, and of the frames that they were given one more.
    pub accounts_off: bool,
    /// One more waits for an answer at each node than does.
    pub waiting_off: bool,
    /// How hosts of another version are none.
    pub versions: Versions,
    /// What calls may do in percent of what is documented; 100 is honest.
    pub effort_percent: u32,
    /// Chance that a node does not hear of the work of a program's handler.
    pub handlers_unheard: Ppm,
    /// PDUs that programs' handlers process beyond those that they are given.
    pub handlers_greed: u32,
    /// The receivers of channels that were admitted once say no in the end.
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
            waiting_off: false,
            versions: Versions::Honest,
            effort_percent: 100,
            handlers_unheard: Ppm(0),
            handlers_greed: 0,
            revivals_refused: false,
        }
    }
}

/// How hosts of another version break what that means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Versions {
    /// Not at all.
    #[default]
    Honest,
    /// They do not say so in a way that anybody can believe.
    Denied,
    /// They speak the common one all the same.
    Common,
    /// They speak a third one.
    Third,
    /// They never speak the common one again.
    Kept,
}
