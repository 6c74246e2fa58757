//! Reasons why a bound is no guarantee.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Why a bound is no guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degraded {
    /// The processor runs without a real-time class.
    NoRealTime,
    /// The processor's costs were measured on another machine or by another version.
    ForeignCosts,
    /// Other traffic of the link's device is not bounded.
    KernelTraffic,
    /// The stage breaks its promise now; the channels across it are guaranteed again once it has healed.
    Broken,
}

impl Degraded {
    /// The name in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRealTime => "no-real-time",
            Self::ForeignCosts => "foreign-costs",
            Self::KernelTraffic => "kernel-traffic",
            Self::Broken => "broken",
        }
    }
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRealTime => "no real-time class",
            Self::ForeignCosts => "costs of another machine",
            Self::KernelTraffic => "kernel traffic beside a link is not bounded",
            Self::Broken => "a stage breaks its promise now",
        })
    }
}
