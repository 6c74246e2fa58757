//! How long one unit of the processor lasts, which parts of a configuration must cover it, and the quantum
//! that follows (ADR 0022). A unit is never interrupted: until it ends the processor checks neither arrivals
//! nor completions nor the clock.

use punctual_proto::Nanos;
use punctual_proto::config::{CpuConfig, LinkConfig, Pacing, cpu_model, payload_bytes_max};

use super::file::Profile;
use crate::processor::WORK_SLICE;

/// Maximum number of packets of a unit if the configuration has no `quantum`: the shortest quantum for which
/// checking for a more urgent handler costs at most 1.8 % (`punctual bench harts-preemption`).
pub const QUANTUM_MAX: u32 = 8;

/// Measured costs beside a unit; zero if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherCosts {
    /// A turn of the processor without its units.
    pub turn: Nanos,
    /// Time from an event until the thread runs.
    pub wake_up: Nanos,
}

impl OtherCosts {
    /// The costs around a unit that a profile contains.
    pub fn of(profile: &Profile) -> Self {
        Self { turn: Nanos(profile.turn_ns), wake_up: Nanos(profile.wake_up_ns) }
    }
}

/// The default quantum of a host: as many packets as the `reaction` of each of its `links` and
/// `release_latency` cover, at the costs in `cpu`; at most [`QUANTUM_MAX`], and 1 if not even one packet is
/// covered. `fragment_bytes`: payload of its own packets.
pub fn quantum_that_fits(
    cpu: &CpuConfig,
    fragment_bytes: u32,
    links: &[LinkConfig],
    around: OtherCosts,
) -> u32 {
    let fits = |quantum: &u32| {
        let unit = longest_unit(cpu, fragment_bytes, links, *quantum);
        release(unit, around) <= cpu.release_latency
            && links.iter().all(|link| reaction(link, unit, around) <= link.reaction)
    };
    (2..=QUANTUM_MAX).rev().find(fits).unwrap_or(1)
}

/// A warning for each time in the configuration that is shorter than its units and the measured costs around
/// them permit.
pub fn too_short(
    cpu: &CpuConfig,
    fragment_bytes: u32,
    links: &[LinkConfig],
    around: OtherCosts,
) -> Vec<String> {
    let mut found = Vec::new();
    let unit = longest_unit(cpu, fragment_bytes, links, cpu.quantum_packets);
    let needed = release(unit, around);
    let micros = |time: Nanos| time.0.div_ceil(1_000);
    let packets = match cpu.quantum_packets {
        0 | 1 => String::new(),
        more => format!(" of {more} packets"),
    };
    let fewer = if packets.is_empty() { "" } else { ", or a smaller quantum" };
    let wake_up = match around.wake_up {
        Nanos::ZERO => "the wake-up is not measured".into(),
        measured => format!("a wake-up takes {measured}"),
    };
    if cpu.release_latency < needed {
        let turn = WORK_SLICE + unit + around.turn;
        found.push(format!(
            "release_latency {} is too short: {wake_up} and a turn with a unit{packets} {turn}: set release_latency = \
             \"{}us\"{fewer} in [processor]",
            cpu.release_latency,
            micros(needed)
        ));
    }
    for link in links {
        let needed = reaction(link, unit, around);
        if link.reaction < needed {
            found.push(format!(
                "reaction {} of link \"{}\" is too short for a unit{packets}, which takes {unit}, and what comes before \
                 it: set reaction = \"{}us\"{fewer}",
                link.reaction,
                link.name,
                micros(needed)
            ));
        }
    }
    found
}

/// The longest unit where handlers finish `quantum` packets, as admission charges it.
fn longest_unit(cpu: &CpuConfig, fragment_bytes: u32, links: &[LinkConfig], quantum: u32) -> Nanos {
    let cpu = CpuConfig { quantum_packets: quantum, plan: Vec::new(), ..cpu.clone() };
    cpu_model(&cpu, payload_bytes_max(fragment_bytes, links)).best_effort_unit
}

/// An arrival is seen after the wake-up or after the turn that runs, which ends one unit after its slice.
fn release(unit: Nanos, around: OtherCosts) -> Nanos {
    (WORK_SLICE + unit + around.turn).max(around.wake_up + unit)
}

/// A completion is seen in the next turn, the clock's time after a wake-up; both after the unit that runs.
fn reaction(link: &LinkConfig, unit: Nanos, around: OtherCosts) -> Nanos {
    unit + if link.pace == Pacing::Clock { around.wake_up } else { around.turn }
}

#[cfg(test)]
mod tests {
    use punctual_proto::config::CpuCosts;
    use punctual_proto::ids::NodeId;
    use punctual_proto::{BitRate, Ppm};

    use super::*;

    const FRAGMENT_BYTES: u32 = 1_400;

    fn links(reactions_us: &[u64]) -> Vec<LinkConfig> {
        let link = |&us| LinkConfig {
            reaction: Nanos::from_micros(us),
            ..LinkConfig::new("l", NodeId(2), BitRate(1_000_000_000))
        };
        reactions_us.iter().map(link).collect()
    }

    fn fits(cpu: &CpuConfig, reactions_us: &[u64], around: OtherCosts) -> u32 {
        quantum_that_fits(cpu, FRAGMENT_BYTES, &links(reactions_us), around)
    }

    /// At the assumed costs a packet takes 12 us and 1 us of copies, its message 8 us.
    #[test]
    fn as_many_packets_as_the_shortest_reaction_covers() {
        let cpu = CpuConfig::default();
        let bare = OtherCosts::default();
        for (reactions_us, quantum) in
            [(&[112][..], 8), (&[111], 7), (&[100], 7), (&[100, 34], 2), (&[33], 1), (&[1], 1), (&[5_000], 8)]
        {
            assert_eq!(fits(&cpu, reactions_us, bare), quantum, "reactions of {reactions_us:?} us");
        }
        let measured = CpuConfig { costs: CpuCosts { forward_packet: Nanos(8_000), ..cpu.costs }, ..cpu };
        assert_eq!(fits(&measured, &[100], bare), 8, "cheaper packets");
    }

    #[test]
    fn what_comes_before_a_unit_takes_of_the_reaction() {
        let cpu = CpuConfig::default();
        let woken = OtherCosts { turn: Nanos::ZERO, wake_up: Nanos::from_micros(60) };
        assert_eq!(fits(&cpu, &[100], woken), 2);
        let mut completed = links(&[100]);
        completed[0].pace = Pacing::Completion;
        assert_eq!(quantum_that_fits(&cpu, FRAGMENT_BYTES, &completed, woken), 7, "it needs no wake-up");
        let turns = OtherCosts { turn: Nanos::from_micros(60), ..woken };
        assert_eq!(quantum_that_fits(&cpu, FRAGMENT_BYTES, &completed, turns), 2);
    }

    #[test]
    fn the_release_latency_covers_a_turn_with_its_last_unit() {
        let short =
            CpuConfig { release_latency: WORK_SLICE + Nanos::from_micros(47), ..CpuConfig::default() };
        assert_eq!(fits(&short, &[100], OtherCosts::default()), 3);
        assert_eq!(fits(&short, &[100], OtherCosts { turn: Nanos(1), wake_up: Nanos::ZERO }), 2);
    }

    #[test]
    fn longer_packets_of_others_count() {
        let mut wide = links(&[100]);
        wide[0].packet_bytes_max = 9_000;
        assert_eq!(quantum_that_fits(&CpuConfig::default(), FRAGMENT_BYTES, &wide, OtherCosts::default()), 5);
    }

    /// Whatever the costs: no time is too short for the quantum that fits, and one packet more would be too
    /// many.
    #[test]
    fn what_fits_is_never_warned_of() {
        for step in 0..200u64 {
            let costs = CpuCosts { receive_packet: Nanos(500 + step * 611), ..CpuCosts::default() };
            let links = links(&[40 + step % 90]);
            let around = OtherCosts { turn: Nanos(step * 37), wake_up: Nanos(step * 113) };
            let mut cpu = CpuConfig { costs, utilisation_max: Ppm::ONE, ..CpuConfig::default() };
            let found = quantum_that_fits(&cpu, FRAGMENT_BYTES, &links, around);
            let too_short = |cpu: &CpuConfig| !too_short(cpu, FRAGMENT_BYTES, &links, around).is_empty();
            cpu.quantum_packets = found;
            assert!(found == 1 || !too_short(&cpu), "step {step}: {found}");
            cpu.quantum_packets = found + 1;
            assert!(found == QUANTUM_MAX || too_short(&cpu), "step {step}: {found}");
        }
    }
}
