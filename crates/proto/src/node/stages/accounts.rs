//! The accounts of admission: each count that it keeps, beside the sum over its channels. Signalling lists
//! the channels that may hold something: a reservation without a channel would stay until the host restarts.

use alloc::vec::Vec;

use super::{Held, SIGNALLING_KEY, Stages};
use crate::ids::{ChannelId, LinkId};
use crate::table::OfChannel;

/// One account: the name of the count, then the count that is kept and the true count.
type Entry = (&'static str, [usize; 2]);

impl Stages {
    /// Accounts of the processor and of all links. `may_hold`: whether a channel exists, or its stages were
    /// asked; `holders`: the existing channels.
    pub fn accounts(
        &self,
        may_hold: impl Fn(ChannelId) -> bool,
        holders: impl Iterator<Item = ChannelId>,
    ) -> Vec<Entry> {
        let answered = |id| self.asking.answers.iter().any(|answer| answer.channel() == id);
        let is_somebodys = |id: ChannelId| may_hold(id) || answered(id);
        let held: Vec<ChannelId> = self.held.iter().map(OfChannel::channel).collect();
        let (there, with): (Vec<_>, Vec<_>) = holders.partition(|id| self.held.get(*id).is_none());
        let taken = || self.plan.iter().filter_map(|planned| planned.taken);
        let bytes: u64 = self.held.iter().map(|held| held.buffers().bytes).sum();
        let mut accounts = Vec::from([
            ("reservations", [held.len(), held.iter().filter(|id| is_somebodys(**id)).count()]),
            ("channels with a reservation", [there.len() + with.len(), with.len()]),
            ("bytes of buffers", [self.buffer_bytes as usize, bytes as usize]),
            ("flows of the plan", [taken().count(), taken().filter(|id| is_somebodys(*id)).count()]),
            ("last words on bounds", [self.asking.relaxed.len(), self.relaxed_held()]),
        ]);
        accounts.extend(self.policy_accounts(None));
        accounts
    }

    /// Entries of a link: its frames, its pool, its policy.
    pub fn link_accounts(&self, link: LinkId) -> Vec<Entry> {
        let stage = &self.links[usize::from(link.0)];
        let buffers = || self.held.iter().map(Held::buffers);
        let comes_in = |of: Option<(LinkId, u32)>| of.is_some_and(|(on, _)| on == link);
        let frames: u32 = buffers().filter(|b| comes_in(b.frames)).map(|b| b.own_frames()).sum();
        let parts = buffers().filter(|buffers| buffers.part().is_some_and(|(on, ..)| on == link)).count();
        let mut accounts = Vec::from([
            ("reserved frames", [stage.frames as usize, frames as usize]),
            ("parts of a pool", [stage.pool.parts(), parts]),
        ]);
        accounts.extend(self.policy_accounts(Some(link)));
        accounts
    }

    fn relaxed_held(&self) -> usize {
        self.asking.relaxed.iter().filter(|(id, _)| self.held.get(*id).is_some()).count()
    }

    /// The account of a policy, of a link or of the processor, beside this host's signalling and its plan.
    /// `None` while the policy is away or has questions to answer.
    fn policy_accounts(&self, link: Option<LinkId>) -> Option<Entry> {
        let policies = self.asking.policies.as_ref().filter(|_| self.asking.questions.is_empty())?;
        let (policy, held) = match link {
            None => {
                let unplanned = self.held.iter().filter(|held| held.planned().is_none()).count();
                (&policies.cpu, unplanned + self.plan.len() + self.rtus.len())
            }
            Some(link) => {
                let over = |held: &&Held| held.link().is_some_and(|(on, _)| on == link);
                let senders = self.rtus.values().filter(|on| **on == Some(link)).count();
                (&policies.links[usize::from(link.0)], self.held.iter().filter(over).count() + senders)
            }
        };
        let signalling = usize::from(policy.bound(SIGNALLING_KEY).is_some());
        Some(("places of a policy", [policy.len(), held + signalling]))
    }
}
