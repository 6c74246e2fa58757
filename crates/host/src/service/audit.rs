//! Compares this host's counters with what is actually held, for root and the daemon's own user only: a walk
//! over all of a node's state keeps its processor busy meanwhile.

use punctual_ipc::api::{Audit, Waiting, WrongCount};
use punctual_proto::api::Account;

use super::{Host, HostGone, Service};

/// Hosts with more channels than that are not checked: their messages have precedence.
const CHANNELS_MAX: u32 = 256;

impl<H: Host> Service<H> {
    /// Compares all counts; `None` if this host has too many channels (`channels`).
    pub(super) fn audit(&self, channels: u32) -> Result<Option<Audit>, HostGone> {
        if channels > CHANNELS_MAX {
            return Ok(None);
        }
        let (accounts, waiting) = self.on_node(|node, _| (node.accounts(), node.waiting()))?;
        let mut accounts: Vec<Account> = accounts.into_iter().chain(self.own_accounts()).collect();
        accounts.extend(self.host.filter_accounts()?);
        let is_wrong = |account: &&Account| account.counted != account.held;
        let wrong = accounts.iter().filter(is_wrong).map(|account| WrongCount {
            what: account.what.to_owned(),
            link: account.link,
            counted: account.counted,
            held: account.held,
        });
        let waiting = waiting.into_iter().filter(|(_, count)| *count > 0);
        Ok(Some(Audit {
            compared: accounts.len() as u32,
            wrong: wrong.collect(),
            waiting: waiting
                .map(|(what, count)| Waiting { what: what.to_owned(), count: count as u64 })
                .collect(),
        }))
    }

    /// The users' quotas without the parts of connected clients. Resources of a disconnected client are
    /// counted until they are freed.
    fn own_accounts(&self) -> [Account; 3] {
        let users = self.accounts.statuses();
        let of = |what, counted, held: usize| Account { what, link: None, counted, held: held as u64 };
        let ends = users.iter().map(|user| user.channels).sum();
        let listeners = users.iter().map(|user| user.listeners).sum();
        let clients = users.iter().map(|user| user.clients).sum();
        [
            of("programs of users", clients, self.clients.len()),
            of("listeners of users", listeners, self.listeners.len() + self.cleanup.listeners()),
            of("ends of users", ends, self.ends.len() - self.waiting.len()),
        ]
    }
}
