//! Faults beyond those of single frames: what goes wrong, where, from when and how long.
//!
//! The whole schedule of a run is drawn before anything happens, so that a part of it can be left out
//! (`minimise`) without moving the rest. `world::faults` carries it out and says which channels each one touches.

mod draw;

use std::fmt;
use std::str::FromStr;

use punctual_analysis::Nanos;
use thiserror::Error;

pub use draw::draw;

use crate::time::SimTime;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From when.
    pub at: SimTime,
    /// How long; a crashed host is down for so long.
    pub lasts: Nanos,
    /// What.
    pub what: Mischief,
}

impl Fault {
    /// When it is over, unless it is a crash that waits for its moment.
    pub fn ends(&self) -> SimTime {
        self.at + self.lasts
    }
}

/// What goes wrong, and where. Hosts are named by their index, links by their index at that host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Nothing that `host` sends over `link` arrives; with `both`, nothing that comes the other way either.
    Partition {
        /// The sending host.
        host: usize,
        /// Its link.
        link: u16,
        /// Whether the other direction is cut too.
        both: bool,
    },
    /// The processor stands still; drivers go on receiving.
    Pause {
        /// Whose.
        host: usize,
    },
    /// The host loses everything and comes back with another epoch.
    Crash {
        /// Which.
        host: usize,
        /// In the middle of what.
        moment: Moment,
    },
    /// The clock jumps ahead, as it does for a guest that was moved or put to sleep.
    Jump {
        /// Whose.
        host: usize,
        /// How far.
        by: Nanos,
    },
    /// The clock stands still: all that a monotonic clock can show of a step backwards.
    Freeze {
        /// Whose.
        host: usize,
    },
    /// The wall clock, and with it the receive stamps of drivers, steps: frames look `by` older than they are.
    Restamp {
        /// Whose.
        host: usize,
        /// How much older.
        by: Nanos,
    },
    /// What `host` sends over `link` is kept back, and comes all at once in the end.
    Heap {
        /// The sending host.
        host: usize,
        /// Its link.
        link: u16,
    },
    /// What `host` says of the packets of channels that it sends is a lie.
    Lie {
        /// The liar.
        host: usize,
        /// About what.
        about: Lie,
    },
    /// Frames that nobody asked for come in over `link` from `host`.
    Noise {
        /// The host that they seem to come from.
        host: usize,
        /// Its link.
        link: u16,
        /// What they are.
        kind: Noise,
        /// Between two of them.
        interval: Nanos,
    },
    /// The host runs another version of the protocol, from one restart to the next.
    Version {
        /// Which.
        host: usize,
    },
    /// The applications of the host do not read what they receive.
    Deaf {
        /// Which.
        host: usize,
    },
    /// An assumption is broken, for so long: a stage cannot keep its promise.
    Breach(Breach),
}

/// An assumption that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The link drains at this percentage of its rate.
    SlowLink {
        /// Whose.
        host: usize,
        /// Its link.
        link: u16,
        /// Of the configured rate.
        percent: u32,
    },
    /// Somebody else's packets take this percentage of the link, in the device's queue among ours.
    Foreign {
        /// Whose.
        host: usize,
        /// Its link.
        link: u16,
        /// Of the link's rate.
        percent: u32,
    },
    /// Every packet travels so much longer.
    Longer {
        /// Whose.
        host: usize,
        /// Its link.
        link: u16,
        /// Than it does otherwise.
        by: Nanos,
    },
    /// Protocol work takes this percentage of what it really takes.
    SlowProcessor {
        /// Whose.
        host: usize,
        /// Of its costs.
        percent: u32,
    },
    /// The clock runs so much faster or slower than it did.
    Drift {
        /// Whose.
        host: usize,
        /// In parts per 10^9.
        ppb: i64,
    },
}

impl Breach {
    /// Whose stage or clock it is.
    pub const fn host(&self) -> usize {
        match self {
            Self::SlowLink { host, .. }
            | Self::Foreign { host, .. }
            | Self::Longer { host, .. }
            | Self::SlowProcessor { host, .. }
            | Self::Drift { host, .. } => *host,
        }
    }
    /// Which link of that host's, if it is a link.
    pub const fn link(&self) -> Option<u16> {
        match self {
            Self::SlowLink { link, .. } | Self::Foreign { link, .. } | Self::Longer { link, .. } => {
                Some(*link)
            }
            Self::SlowProcessor { .. } | Self::Drift { .. } => None,
        }
    }
}

/// When a host that is to crash does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once.
    Now,
    /// Right after it has handled so many signalling packets more; nothing that they caused has left yet.
    Handled(u32),
    /// Right after it has sent so many signalling packets more.
    Sent(u32),
}

/// What a neighbour lies about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Slack: more than there is, by this.
    SlackMore(Nanos),
    /// Slack: less than there is, by this.
    SlackLess(Nanos),
    /// Slack: anything.
    SlackRandom,
    /// Message numbers: far ones, now and then.
    Numbers,
}

/// Frames that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Signalling that does not authenticate.
    Signals,
    /// Signalling that was recorded on this link.
    Replays,
    /// The same again with the domain's key, as fresh packets of the host itself.
    Insider,
    /// Data of random bytes.
    Garbage,
    /// Data of a channel that passes here, with another cookie.
    Cookies,
    /// Data of channels that do not exist.
    Strangers,
}

impl Noise {
    /// Whether it comes to the signalling port.
    pub const fn is_signalling(self) -> bool {
        matches!(self, Self::Signals | Self::Replays | Self::Insider)
    }
}

/// Kinds of fault, for those who choose among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Single frames are lost, doubled, delayed, corrupted.
    Frames,
    /// [`Mischief::Partition`].
    Partition,
    /// [`Mischief::Pause`].
    Pause,
    /// [`Mischief::Crash`].
    Crash,
    /// [`Mischief::Jump`], [`Mischief::Freeze`], [`Mischief::Restamp`].
    Clock,
    /// [`Mischief::Heap`].
    Heap,
    /// [`Mischief::Lie`].
    Lie,
    /// [`Mischief::Noise`] on the signalling port.
    Flood,
    /// [`Mischief::Noise`] on the data port.
    Forge,
    /// [`Mischief::Version`].
    Version,
    /// [`Mischief::Deaf`], agents that never answer, sources that vanish, hundreds of requests at once.
    Apps,
    /// [`Mischief::Breach`]: one in a run, alone. Not among all kinds: those leave the assumptions as they are.
    Breach,
}

impl FaultKind {
    /// All of them, those last that are drawn only if they are asked for.
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
    /// All that leave the assumptions as they are.
    pub const ALL: Self = Self((1 << FaultKind::Breach as u16) - 1);

    /// With `kind`.
    #[must_use]
    pub const fn with(self, kind: FaultKind) -> Self {
        Self(self.0 | 1 << kind as u16)
    }

    /// Whether `kind` is among them.
    pub const fn has(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// Those that are among them.
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
