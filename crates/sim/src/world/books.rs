//! What nobody holds: each count that a node keeps, against the sum over those that hold what is counted, and the frames
//! that it was given, against those that it says it has. What is counted and held by nobody is lost for good.

use punctual_proto::api::Account;
use punctual_proto::ids::LinkId;

use super::World;

impl World {
    /// Looks at the books of every node.
    pub(super) fn check_books(&mut self) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_up {
                self.check_accounts(host);
                self.check_frames(host);
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

    /// Frames that its drivers have given it and that it has not dropped.
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
}
