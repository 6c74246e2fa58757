//! Channels that a host refuses before it asks any policy: packets that its link cannot carry, a broken stage, an unknown rate.

use alloc::format;

use punctual_analysis::Policing;

use super::Stages;
use crate::api::{RefuseCause, StageKind};
use crate::config;
use crate::limits::{FRAGMENT_BYTES_MAX, HEADER_BYTES};
use crate::signalling::LocalChannel;

impl Stages {
    pub(super) fn check_suitable(&self, local: &LocalChannel) -> Result<(), RefuseCause> {
        let fragment = local.fragment_bytes;
        let packets = local.contract.packets_max(fragment);
        if fragment == 0 || fragment > FRAGMENT_BYTES_MAX || packets > u32::from(u16::MAX) {
            let text = format!("{packets} packets of {fragment} B a message; at most {} packets", u16::MAX);
            return Err(RefuseCause::Unsuitable(text.into()));
        }
        let Some(link) = local.link_out else { return Ok(()) };
        let stage = &self.links[usize::from(link.0)];
        let needed = fragment.min(local.contract.message_bytes_max) + HEADER_BYTES as u32;
        if needed > stage.packet_bytes_max {
            let room = stage.packet_bytes_max;
            return Err(RefuseCause::Unsuitable(
                format!("packets of {needed} B, the link takes {room} B").into(),
            ));
        }
        // Packets that the contract lets demote must not be lost because of their size.
        let room = stage.packet_best_effort_bytes_max;
        if needed > room && local.contract.policing == Policing::Demote {
            let text = format!(
                "policing \"demote\" with packets of {needed} B, the link takes {room} B as best effort: choose \
                 another policing or smaller fragments"
            );
            return Err(RefuseCause::Unsuitable(text.into()));
        }
        Ok(())
    }

    /// Refuses a channel that would cross a broken stage, if the operator has configured that.
    pub(super) fn check_broken(&self, local: &LocalChannel) -> Result<(), RefuseCause> {
        if self.while_broken == config::WhileBroken::Degrade {
            return Ok(());
        }
        let link = local.link_out.and_then(|link| self.links[usize::from(link.0)].breach);
        let cpu = self.cpu.breach.map(|breach| (StageKind::cpu(local.role), breach));
        match cpu.or(link.map(|breach| (StageKind::Link, breach))) {
            Some((kind, breach)) => Err(RefuseCause::Broken { kind, breach }),
            None => Ok(()),
        }
    }

    /// Refuses a channel that would cross a link whose rate must be measured first.
    pub(super) fn check_rate(&self, local: &LocalChannel) -> Result<(), RefuseCause> {
        let why = local.link_out.and_then(|link| self.links[usize::from(link.0)].rate_unknown);
        why.map_or(Ok(()), |why| Err(RefuseCause::RateUnknown(why)))
    }
}
