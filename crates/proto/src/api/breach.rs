//! Stages that break their promise: which, by how much, and what the likely cause is (ADR 0026).

use alloc::format;
use alloc::string::String;
use core::fmt;

use punctual_analysis::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use crate::breach::Lateness;
use crate::ids::NodeId;

/// A stage of the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StageName {
    /// Host that the stage belongs to.
    pub node: NodeId,
    /// Neighbour at the other end of the link; `None` for the host's processor.
    pub towards: Option<NodeId>,
}

impl StageName {
    /// The processor of a host.
    pub const fn processor(node: NodeId) -> Self {
        Self { node, towards: None }
    }
    /// The link of a host to a neighbour.
    pub const fn link(node: NodeId, towards: NodeId) -> Self {
        Self { node, towards: Some(towards) }
    }
    /// Place of the stage on a route, as the place of its host there; `None` if it is not on the route.
    pub fn place_on(&self, nodes: &[NodeId]) -> Option<usize> {
        let place = nodes.iter().position(|node| *node == self.node)?;
        let fits = self.towards.is_none_or(|towards| nodes.get(place + 1) == Some(&towards));
        fits.then_some(place)
    }
}

/// The probable cause of a breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The link drains more slowly than it is configured.
    SlowLink {
        /// Rate that came out of the link at its other end.
        drains: BitRate,
        /// Rate that admission counts on.
        configured: BitRate,
    },
    /// Packets of other programs or hosts leave on the link's device.
    ForeignTraffic {
        /// Rate of these packets.
        rate: BitRate,
    },
    /// All packets came through, but each took longer than the link may take.
    LongerTravel,
    /// The processor served its queue later than it may.
    SlowProcessor,
}

impl Cause {
    /// The name of the cause in machine-readable output, the same for all breaches of a kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SlowLink { .. } => "slow-link",
            Self::ForeignTraffic { .. } => "foreign-traffic",
            Self::LongerTravel => "longer-travel",
            Self::SlowProcessor => "slow-processor",
        }
    }

    /// How much information the cause adds to one that is known already: a cause with a rate adds more than
    /// one without.
    pub(crate) const fn kind(&self) -> u8 {
        match self {
            Self::LongerTravel | Self::SlowProcessor => 0,
            Self::SlowLink { .. } => 1,
            Self::ForeignTraffic { .. } => 2,
        }
    }

    /// Whether the rate in it differs from the known one by more than a quarter of either.
    pub(crate) fn differs(&self, known: &Self) -> bool {
        let rates = match (self, known) {
            (Self::SlowLink { drains, .. }, Self::SlowLink { drains: known, .. }) => (drains.0, known.0),
            (Self::ForeignTraffic { rate }, Self::ForeignTraffic { rate: known }) => (rate.0, known.0),
            _ => return false,
        };
        rates.0.abs_diff(rates.1) > rates.0.min(rates.1) / 4
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlowLink { drains, configured } => {
                let (drains, configured) = (Rounded(*drains), Rounded(*configured));
                write!(
                    f,
                    "drains at {drains} for us, configured {configured}: slower, or shared beyond this host"
                )
            }
            Self::ForeignTraffic { rate } => {
                write!(f, "carries foreign traffic of about {}", Rounded(*rate))
            }
            Self::LongerTravel => f.write_str("takes longer than its propagation_max and prediction_error"),
            Self::SlowProcessor => f.write_str("serves later than its bounds"),
        }
    }
}

/// How a stage breaks its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// Lateness in the second before the breach was announced.
    pub late: Lateness,
    /// The likely cause.
    pub cause: Cause,
}

/// A breach as reported to users and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenStage {
    /// Name of the host that the stage belongs to.
    pub host: String,
    /// The neighbour that the link leads to; `None` for the processor.
    pub towards: Option<String>,
    /// Lateness in the second before the breach was announced.
    pub late: Lateness,
    /// The likely cause.
    pub cause: Cause,
    /// Number of the reporting host's channels that pass the stage; `None` if it was not requested.
    #[serde(default)]
    pub channels: Option<u32>,
}

impl BrokenStage {
    /// The name of the stage.
    pub fn name(&self) -> String {
        stage_name(&self.host, self.towards.as_deref())
    }
}

impl fmt::Display for BrokenStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), Breach { late: self.late, cause: self.cause })
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { late: Lateness { times, by_max }, cause } = self;
        write!(f, "{cause}")?;
        match times {
            // It was measured, and nothing was sent since.
            0 => Ok(()),
            // Later lateness is counted elsewhere.
            _ => write!(f, "; at first up to {by_max} late, {times} times in a second"),
        }
    }
}

/// A stage that was late in the last minute but does not count as broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateStage {
    /// Name of the host that the stage belongs to.
    pub host: String,
    /// The neighbour that the link leads to; `None` for the processor.
    pub towards: Option<String>,
    /// Lateness in the last minute.
    pub late: Lateness,
    /// The evidence of the lateness.
    pub seen_in: SeenIn,
}

/// Evidence that a stage is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenIn {
    /// This host's own clock.
    OwnClock,
    /// HELLOs of the neighbour, which cannot be forged.
    Signalling,
    /// Packets of channels.
    Data,
}

impl fmt::Display for LateStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, towards, late: Lateness { times, by_max }, seen_in } = self;
        let name = stage_name(host, towards.as_deref());
        let times = if *times == 1 { "once".into() } else { format!("{times} times") };
        write!(f, "{name} was up to {by_max} late, {times} in the last minute")?;
        match seen_in {
            SeenIn::OwnClock | SeenIn::Signalling => Ok(()),
            SeenIn::Data => f.write_str(" (seen in data packets, which an attacker on the wire can forge)"),
        }
    }
}

fn stage_name(host: &str, towards: Option<&str>) -> String {
    towards.map_or_else(|| format!("processor of {host}"), |towards| format!("link {host}-{towards}"))
}

/// A rate in the units that users expect.
struct Rounded(BitRate);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = match self.0.0 {
            bits if bits < 1_000_000 => format!("{} kbit/s", bits.div_ceil(1_000)),
            bits if bits < 100_000_000 => format!("{:.1} Mbit/s", bits as f64 / 1e6),
            bits => format!("{:.0} Mbit/s", bits as f64 / 1e6),
        };
        f.write_str(&text)
    }
}

/// A neighbour's report to a host whose packets came late, with what that host needs to find the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateArrivals {
    /// Signalling packets, which cannot be forged, that certainly came later than allowed in the last second.
    pub late: Lateness,
    /// Rate of all traffic received over the link since the last check.
    pub received: BitRate,
    /// Length of the span that these counts cover.
    pub span: Nanos,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// A quarter more or less is still the same cause; one bit per second beyond that is another cause, and
    /// so is a cause of another kind.
    #[test]
    fn a_cause_is_another_one_beyond_a_quarter() {
        let foreign = |bps: u64| Cause::ForeignTraffic { rate: BitRate(bps) };
        let slow = |bps: u64| Cause::SlowLink { drains: BitRate(bps), configured: BitRate(9_000) };
        for of in [foreign as fn(u64) -> Cause, slow] {
            for (one, other, differs) in [
                (4_000, 4_000, false),
                (4_000, 5_000, false),
                (4_000, 5_001, true),
                (0, 1, true),
                (0, 0, false),
            ] {
                assert_eq!(of(one).differs(&of(other)), differs, "{one} {other}");
                assert_eq!(of(other).differs(&of(one)), differs, "{other} {one}");
            }
        }
        assert!(!foreign(1).differs(&slow(9_000)) && !Cause::LongerTravel.differs(&Cause::SlowProcessor));
    }

    #[test]
    fn a_stage_is_on_the_routes_that_lead_through_it() {
        let route = [NodeId(3), NodeId(1), NodeId(2)];
        assert_eq!(StageName::processor(NodeId(1)).place_on(&route), Some(1));
        assert_eq!(StageName::link(NodeId(1), NodeId(2)).place_on(&route), Some(1));
        for other in [StageName::link(NodeId(2), NodeId(1)), StageName::link(NodeId(3), NodeId(2))] {
            assert_eq!(other.place_on(&route), None);
        }
    }

    #[test]
    fn a_breach_is_printed_in_one_line() {
        let broken = BrokenStage {
            host: "a".into(),
            towards: Some("r".into()),
            late: Lateness { times: 9, by_max: Nanos::from_millis(12) },
            cause: Cause::SlowLink { drains: BitRate(20_000_000), configured: BitRate(95_000_000) },
            channels: None,
        };
        let text = broken.to_string();
        assert_eq!(
            text,
            "link a-r drains at 20.0 Mbit/s for us, configured 95.0 Mbit/s: slower, or shared beyond this host; at first up \
             to 12.00 ms late, 9 times in a second"
        );
        assert_eq!(broken.cause.name(), "slow-link");
    }

    #[test]
    fn a_lateness_is_printed_with_its_evidence() {
        let late = |times, seen_in| LateStage {
            host: "r".into(),
            towards: (seen_in != SeenIn::OwnClock).then(|| "b".into()),
            late: Lateness { times, by_max: Nanos::from_millis(150) },
            seen_in,
        };
        assert_eq!(
            late(1, SeenIn::OwnClock).to_string(),
            "processor of r was up to 150.00 ms late, once in the last minute"
        );
        let link = late(9, SeenIn::Signalling).to_string();
        assert_eq!(link, "link r-b was up to 150.00 ms late, 9 times in the last minute");
        assert!(late(9, SeenIn::Data).to_string().ends_with("can forge)"));
    }
}
