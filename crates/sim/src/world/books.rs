//! Leak checks: each count that a node keeps, against the sum over the objects that are counted, the frames
//! that a node was given, against those that it reports to hold, and the filters that its drivers have, against
//! its channels. A part that is counted without an object is leaked.

use punctual_proto::api::Account;
use punctual_proto::ids::LinkId;

use super::World;

impl World {
    /// Checks the accounts of every node.
    pub(super) fn check_books(&mut self) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_up {
                self.check_accounts(host);
                self.check_frames(host);
                self.check_filters(host);
            }
        }
    }

    fn check_accounts(&mut self, host: usize) {
        let accounts = self.hosts[host].node.accounts();
        for Account { what, link, counted, held } in accounts {
            let counted = counted + u64::from(self.options.sabotage.accounts_off);
            if counted != held {
                let link = link.map_or(String::new(), |link| format!(" of link {}", link.0));
                self.violate(&format!("host {host} counts {counted} {what}{link}, {held} are held"));
            }
        }
    }

    /// Checks the frames that a host's drivers have given to the node and that it has not dropped.
    fn check_frames(&mut self, host: usize) {
        for link in 0..self.hosts[host].taken.len() {
            let taken = u64::from(self.hosts[host].taken[link].get());
            let more = u64::from(self.options.sabotage.accounts_off);
            let held = self.hosts[host].node.frames_held(LinkId(link as u16)) + more;
            if taken != held {
                self.violate(&format!("host {host} has {taken} frames of link {link}, it knows of {held}"));
            }
        }
    }
    /// Checks that the drivers of a host have a filter for each channel that comes in, and no other.
    fn check_filters(&mut self, host: usize) {
        let member = &self.hosts[host];
        let wrong = member.filters.compare(member.node.filter_changes(), member.node.filtered());
        wrong.into_iter().for_each(|wrong| self.violate(&format!("host {host}: {wrong}")));
    }
}
