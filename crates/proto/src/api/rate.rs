//! The drain rate of a link, as measured with the neighbour's help, and why a measurement failed (ADR 0030).

use core::fmt;

use punctual_analysis::{BitRate, Instant, Ppm};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A link's drain rate as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredRate {
    /// Bits of the wire a second, by this host's count of overhead.
    #[serde(rename = "rate_bps")]
    pub rate: BitRate,
    /// Largest error of `rate`.
    #[serde(rename = "error_ppm")]
    pub error: Ppm,
    /// This host could not fill the link: the link drains at least this rate.
    pub at_least: bool,
    /// Time of the measurement, on this host's clock.
    #[serde(rename = "at_ns")]
    pub at: Instant,
}

impl MeasuredRate {
    /// Highest rate at which the link may drain.
    pub fn at_most(&self) -> BitRate {
        let error = u128::from(self.rate.0) * u128::from(self.error.0) / 1_000_000;
        BitRate(self.rate.0.saturating_add(u64::try_from(error).unwrap_or(u64::MAX)))
    }
    /// Lowest rate at which the link may drain.
    pub const fn lower_bound(&self) -> BitRate {
        self.rate.less(self.error)
    }
}

/// Why a link's drain rate was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "kebab-case")]
pub enum RateRefusal {
    /// Guaranteed channels use the link.
    #[error("{}", in_use(*.channels, *.there))]
    InUse {
        /// Number of the channels.
        channels: u32,
        /// True if the neighbour has state of the channels and this host does not.
        there: bool,
    },
    /// This host or the neighbour is measuring already.
    #[error("this host or the neighbour is measuring a link now: try again in a second")]
    Busy,
    /// The neighbour is down.
    #[error("the neighbour does not answer: start punctuald there, and check that its link leads here")]
    NoNeighbour,
    /// The neighbour was up and did not report what it received.
    #[error("the neighbour did not report what it received: check whether the link loses packets")]
    NoAnswer,
    /// Too few packets came through for a result.
    #[error("too few packets arrived to measure a rate: check whether the link loses packets")]
    TooFew,
    /// The packets did not come through evenly.
    #[error(
        "packets arrived so unevenly that the rate may be wrong by {:.0} %: stop other traffic and work on \
         both hosts, or configure the rate",
        f64::from(error.0) / 10_000.0
    )]
    Uneven {
        /// Largest error of the rate.
        #[serde(rename = "error_ppm")]
        error: Ppm,
    },
    /// The link cannot carry signalling at the rate that was measured.
    #[error(
        "the link drains too slowly to carry its own signalling: lower packets_per_second of [signalling]"
    )]
    TooSlow,
}

fn in_use(channels: u32, there: bool) -> alloc::string::String {
    let whose = if there { ", as the neighbour reports" } else { "" };
    let them = match channels {
        1 => "a guaranteed channel uses".into(),
        _ => alloc::format!("{channels} guaranteed channels use"),
    };
    alloc::format!(
        "{them} the link{whose}: a measurement would harm their guarantees; try again without channels"
    )
}

/// Origin of a link's rate, and its measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateStatus {
    /// The rate that admission, pace and slack use: configured, or measured.
    #[serde(rename = "rate_bps")]
    pub rate: BitRate,
    /// Error of `rate`. Admission, pace and slack use the rate less this error.
    #[serde(rename = "error_ppm")]
    pub error: Ppm,
    /// `rate = "auto"`: the rate is the measured one, and nothing is admitted before there is one.
    pub auto: bool,
    /// The last measurement.
    pub measured: Option<MeasuredRate>,
    /// The drain rate that was recently observed in use.
    pub observed: Option<MeasuredRate>,
    /// Why the last attempt failed.
    pub refused: Option<RateRefusal>,
}

impl RateStatus {
    /// Whether admission can rely on the rate: it is configured, or was measured.
    pub const fn is_known(&self) -> bool {
        !self.auto || self.measured.is_some()
    }
}

impl fmt::Display for MeasuredRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bits: f64| bits / 1e6;
        let error = self.rate.0 as f64 * f64::from(self.error.0) / 1e6;
        let least = if self.at_least { "at least " } else { "" };
        write!(f, "{least}{:.1} Mbit/s +-{:.1}", mbit(self.rate.0 as f64), mbit(error))
    }
}
