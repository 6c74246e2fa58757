//! Packets on the wire, against their channel's grant.
//!
//! A packet leaves a link's queues at e - h or later, with e >= n; h counts the contract's jitter allowance.
//! Its slack is n + d less its departure, which is later still: so slack never exceeds d + h.

use punctual_analysis::{Contract, Horizon, Nanos};
use punctual_proto::api::{Grant, Port, StageGrant};
use punctual_proto::wire::{Header, Kind};

use super::World;
use crate::scenario::host_of;

/// d + h of each link of the route, by host.
pub(super) fn slack_max(contract: &Contract, grant: &Grant) -> Vec<(usize, i64)> {
    let stages = &grant.stages;
    let bounds = |stages: &[StageGrant]| stages.iter().map(|stage| stage.bound).sum::<Nanos>();
    let propagation = |stages: &[StageGrant]| stages.iter().map(|stage| stage.propagation_max).sum::<Nanos>();
    // A processor and a link at every host but the last.
    let links = (1..stages.len()).step_by(2);
    let most = |link: usize| match contract.horizon {
        Horizon::Regulated => stages[link].bound,
        Horizon::Cumulative if link == 1 => contract.jitter_allowance() + bounds(&stages[..2]),
        Horizon::Cumulative => {
            contract.jitter_allowance() + contract.deadline
                - bounds(&stages[link + 1..])
                - propagation(&stages[link..])
        }
    };
    links.filter_map(|link| Some((host_of(stages[link].node)?, most(link).0 as i64))).collect()
}

impl World {
    /// Checks that no packet leaves before its time.
    pub(super) fn check_time(&mut self, host: usize, port: Port, bytes: &[u8]) {
        if port == Port::Signalling {
            return;
        }
        let Ok((header, _)) = Header::parse(bytes) else {
            return self.violate(&format!("host {host} sends a packet that does not parse"));
        };
        if header.kind != Kind::Guaranteed || header.demoted {
            return;
        }
        let Some(&number) = self.paths.get(&header.path) else { return };
        let limits = &self.channels[number].slack_max;
        let Some(&(_, most)) = limits.iter().find(|(at, _)| *at == host) else { return };
        if header.slack_ns > most {
            let early = header.slack_ns - most;
            let channel = self.describe(number);
            self.violate(&format!(
                "{channel}: a packet of message {} leaves host {host} {early} ns before its time",
                header.message
            ));
        }
    }
}
