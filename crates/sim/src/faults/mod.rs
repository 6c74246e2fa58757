//! Faults beyond those of single frames: kind, place, begin and duration.
//!
//! The whole schedule of a run is drawn before anything happens, so that a part of it can be left out
//! (`minimise`) without moving the rest. `world::faults` carries it out and determines which channels each
//! fault touches.

mod draw;

use std::fmt;
use std::str::FromStr;

use punctual_analysis::Nanos;
use thiserror::Error;

pub use draw::draw;

use crate::time::SimTime;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Begin of the fault.
    pub at: SimTime,
    /// Duration; a crashed host is down for this time.
    pub lasts: Nanos,
    /// Kind and place.
    pub what: FaultAction,
}

impl Fault {
    /// Its end, unless it is a crash that waits for its moment.
    pub fn ends(&self) -> SimTime {
        self.at + self.lasts
    }
}

/// Kind and place of a fault. Hosts are named by their index, links by their index at that host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// No packet that `host` sends over `link` arrives; with `both`, no packet in the other direction either.
    Partition {
        /// The sending host.
        host: usize,
        /// Its link.
        link: u16,
        /// Whether the other direction is cut too.
        both: bool,
    },
    /// The processor is stopped; drivers continue to receive.
    Pause {
        /// Index of the host.
        host: usize,
    },
    /// The host loses all state and restarts with another epoch.
    Crash {
        /// Index of the host.
        host: usize,
        /// Moment of the crash.
        moment: Moment,
    },
    /// The clock jumps ahead, as for a guest that was migrated or suspended.
    Jump {
        /// Index of the host.
        host: usize,
        /// Size of the jump.
        by: Nanos,
    },
    /// The clock stops, which is the only visible effect of a step backwards on a monotonic clock.
    Freeze {
        /// Index of the host.
        host: usize,
    },
    /// The wall clock, and with it the receive stamps of drivers, steps: frames appear `by` older than they
    /// are.
    Restamp {
        /// Index of the host.
        host: usize,
        /// Difference in age.
        by: Nanos,
    },
    /// Packets that `host` sends over `link` are held back, and arrive all at once at the end.
    Heap {
        /// The sending host.
        host: usize,
        /// Its link.
        link: u16,
    },
    /// `host` forges header values of the channel packets that it sends.
    Lie {
        /// Index of the host.
        host: usize,
        /// The forged value.
        about: Lie,
    },
    /// Unsolicited frames arrive over `link` from `host`.
    Noise {
        /// The host that they appear to come from.
        host: usize,
        /// Its link.
        link: u16,
        /// Kind of the frames.
        kind: Noise,
        /// Interval between two frames.
        interval: Nanos,
    },
    /// The host runs another version of the protocol, from one restart to the next.
    Version {
        /// Index of the host.
        host: usize,
    },
    /// The applications of the host do not read their messages.
    Deaf {
        /// Index of the host.
        host: usize,
    },
    /// A broken assumption for this duration: a stage cannot keep its promise.
    Breach(Breach),
}

/// A broken assumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The link drains at this percentage of its rate.
    SlowLink {
        /// Index of the host.
        host: usize,
        /// Its link.
        link: u16,
        /// Percentage of the configured rate.
        percent: u32,
    },
    /// Foreign packets take this percentage of the link, in the device's queue among ours.
    Foreign {
        /// Index of the host.
        host: usize,
        /// Its link.
        link: u16,
        /// Percentage of the link's rate.
        percent: u32,
    },
    /// Every packet travels longer by this time.
    Longer {
        /// Index of the host.
        host: usize,
        /// Its link.
        link: u16,
        /// Additional time.
        by: Nanos,
    },
    /// Protocol work takes this percentage of its true time.
    SlowProcessor {
        /// Index of the host.
        host: usize,
        /// Percentage of the true costs.
        percent: u32,
    },
    /// The clock runs faster or slower by this rate than before.
    Drift {
        /// Index of the host.
        host: usize,
        /// In parts per 10^9.
        ppb: i64,
    },
}

impl Breach {
    /// Index of the host whose stage or clock it is.
    pub const fn host(&self) -> usize {
        match self {
            Self::SlowLink { host, .. }
            | Self::Foreign { host, .. }
            | Self::Longer { host, .. }
            | Self::SlowProcessor { host, .. }
            | Self::Drift { host, .. } => *host,
        }
    }
    /// Index of the link, if it concerns a link.
    pub const fn link(&self) -> Option<u16> {
        match self {
            Self::SlowLink { link, .. } | Self::Foreign { link, .. } | Self::Longer { link, .. } => {
                Some(*link)
            }
            Self::SlowProcessor { .. } | Self::Drift { .. } => None,
        }
    }
}

/// Moment of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once.
    Now,
    /// Right after the host has handled this many further signalling packets; no packet that they caused has
    /// left yet.
    Handled(u32),
    /// Right after the host has sent this many further signalling packets.
    Sent(u32),
}

/// Value that a neighbour forges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Slack: larger than the true one, by this.
    SlackMore(Nanos),
    /// Slack: smaller than the true one, by this.
    SlackLess(Nanos),
    /// Slack: any value.
    SlackRandom,
    /// Message numbers: distant ones, sometimes.
    Numbers,
}

/// Unsolicited frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Signalling that does not authenticate.
    Signals,
    /// Signalling that was recorded on this link.
    Replays,
    /// Recorded signalling with a valid tag, as fresh packets of the host itself.
    Insider,
    /// Data of random bytes.
    Garbage,
    /// Data of a channel that passes this host, with another cookie.
    Cookies,
    /// Data of channels that do not exist.
    Strangers,
}

impl Noise {
    /// Whether they arrive at the signalling port.
    pub const fn is_signalling(self) -> bool {
        matches!(self, Self::Signals | Self::Replays | Self::Insider)
    }
}

/// Kinds of faults, for selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Single frames are lost, duplicated, delayed, corrupted.
    Frames,
    /// [`FaultAction::Partition`].
    Partition,
    /// [`FaultAction::Pause`].
    Pause,
    /// [`FaultAction::Crash`].
    Crash,
    /// [`FaultAction::Jump`], [`FaultAction::Freeze`], [`FaultAction::Restamp`].
    Clock,
    /// [`FaultAction::Heap`].
    Heap,
    /// [`FaultAction::Lie`].
    Lie,
    /// [`FaultAction::Noise`] on the signalling port.
    Flood,
    /// [`FaultAction::Noise`] on the data port.
    Forge,
    /// [`FaultAction::Version`].
    Version,
    /// [`FaultAction::Deaf`], agents that never reply, sources that vanish, hundreds of requests at once.
    Apps,
    /// [`FaultAction::Breach`]: one in a run, alone. Not among all kinds: those leave the assumptions as they are.
    Breach,
}

impl FaultKind {
    /// All kinds; the last ones are drawn only on request.
    pub const ALL: [Self; 12] = [
        Self::Frames,
        Self::Partition,
        Self::Pause,
        Self::Crash,
        Self::Clock,
        Self::Heap,
        Self::Lie,
        Self::Flood,
        Self::Forge,
        Self::Version,
        Self::Apps,
        Self::Breach,
    ];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Partition => "partition",
            Self::Pause => "pause",
            Self::Crash => "crash",
            Self::Clock => "clock",
            Self::Heap => "heap",
            Self::Lie => "lie",
            Self::Flood => "flood",
            Self::Forge => "forge",
            Self::Version => "version",
            Self::Apps => "apps",
            Self::Breach => "breach",
        }
    }
}

/// A set of kinds, written `all`, `none` or a list like `crash,partition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultKinds(u16);

impl FaultKinds {
    /// None.
    pub const NONE: Self = Self(0);
    /// All kinds that keep the assumptions.
    pub const ALL: Self = Self((1 << FaultKind::Breach as u16) - 1);

    /// This set with `kind`.
    #[must_use]
    pub const fn with(self, kind: FaultKind) -> Self {
        Self(self.0 | 1 << kind as u16)
    }

    /// Whether `kind` is among them.
    pub const fn has(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// The kinds in this set.
    pub fn iter(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl Default for FaultKinds {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for FaultKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            Self::NONE => f.write_str("none"),
            some => f.write_str(&some.iter().map(FaultKind::name).collect::<Vec<_>>().join(",")),
        }
    }
}

/// No set of kinds of fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{0}\" is no kind of fault: give all, none, or a list of frames, partition, pause, crash, clock, heap, lie, flood, forge, version, apps; or breach, alone"
)]
pub struct UnknownKind(String);

impl FromStr for FaultKinds {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        match text {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        text.split(',').try_fold(Self::NONE, |kinds, name| {
            let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name);
            kind.map(|kind| kinds.with(kind)).ok_or_else(|| UnknownKind(name.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for text in ["all", "none", "crash", "partition,clock"] {
            assert_eq!(text.parse::<FaultKinds>().expect("good").to_string(), text);
        }
        assert!("crash,sharks".parse::<FaultKinds>().is_err());
    }
}
