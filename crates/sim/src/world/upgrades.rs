//! Hosts that change to another version and back, and channels that are requested across them.

use punctual_analysis::Nanos;
use punctual_proto::api::Port;
use punctual_proto::signalling::tag;

use super::versions::{CHECK_INTERVAL, FOREIGN};
use super::{Act, Event, World};
use crate::options::Versions;
use crate::time::SimTime;

/// Channels that are requested across a host of another version.
const ASKED: usize = 3;

impl World {
    /// From now on `host` uses another version, or the common one again.
    pub(super) fn set_version(&mut self, host: usize, foreign: bool) {
        self.hosts[host].is_foreign = foreign;
        self.hosts[host].version_since = self.now;
    }

    /// Whether packets of `host` are of another version.
    fn uses_foreign_version(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        match self.options.sabotage.versions {
            Versions::Common => false,
            Versions::Kept => host.version_since > SimTime(0),
            Versions::Honest | Versions::Denied | Versions::Third => host.is_foreign,
        }
    }

    /// Converts a frame of `host` to `peer` to the version of its sender; signalling still authenticates.
    pub(super) fn translate(&self, host: usize, peer: usize, port: Port, bytes: &mut [u8]) {
        if self.uses_foreign_version(host) == self.uses_foreign_version(peer) {
            return;
        }
        let versions = self.options.sabotage.versions;
        bytes[0] ^= if versions == Versions::Third { FOREIGN | 1 << 5 } else { FOREIGN };
        let key = &self.scenario.hosts[host].config.signalling.domain_key;
        if port == Port::Data || versions == Versions::Denied {
            return;
        }
        if let Some((signed, signature)) = bytes.split_last_chunk_mut() {
            *signature = tag(key, signed);
        }
    }

    /// Checks the neighbours of a host whose version has just changed, unless another fault interferes.
    pub(super) fn watch_versions(&mut self, fault: usize) {
        let begins = self.now + self.version_noticed();
        let ends = self.scenario.schedule[fault].ends();
        if begins + CHECK_INTERVAL >= ends || !self.is_alone(fault) {
            return;
        }
        self.queue.schedule(begins, Event::Act(Act::LookAcross { fault }));
        let mut asked = 0;
        for plan in 0..self.scenario.channels.len() {
            let wanted = &self.scenario.channels[plan];
            if asked < ASKED
                && !wanted.storm
                && wanted.opens_at < ends
                && self.must_cross(wanted.from, wanted.to)
            {
                asked += 1;
                self.queue.schedule(begins + Nanos(asked as u64), Event::Act(Act::Ask { plan }));
            }
        }
    }
}
