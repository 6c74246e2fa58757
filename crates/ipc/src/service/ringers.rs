//! The ringers of the users whose programs are other processes, and what rings leave behind.
//!
//! Bells of root and of the daemon's own user, who are trusted with the daemon, are rung by the processor itself: one
//! thread less to go through. What their rings leave behind is their ringer's all the same.
//!
//! A user has one ringer for as long as any memory is its. Memory counts in its quota until it is unmapped, so that
//! whoever keeps its own ringer from its work gets no more of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_proto::node::api::UserId;

use super::quota::is_privileged;
use super::{Health, Host, Service};
use crate::api::Resource;
use crate::wake::{Alarm, Rank, Remains, Ringer, Ropes};

/// See the module.
#[derive(Default)]
pub(super) struct Ringers {
    /// Programs are other processes.
    pub apart: bool,
    users: HashMap<UserId, (Ringer, u64)>,
}

impl Ringers {
    /// Who rings the bells of a ring of `bytes` that is made for `user`, and closes it in the end.
    fn ropes(
        &mut self,
        user: UserId,
        bytes: u64,
        rank: impl FnOnce() -> Box<dyn Rank>,
        freed: &Alarm,
    ) -> io::Result<Ropes> {
        if !self.apart {
            return Ok(Ropes::Direct);
        }
        let (ringer, held) = match self.users.entry(user) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(new) => new.insert((Ringer::start(rank(), freed.clone())?, 0)),
        };
        *held += bytes;
        Ok(if is_privileged(user) { Ropes::Direct } else { Ropes::By(ringer.bells()) })
    }

    /// So much of the user's memory is gone. With the last of it its ringer ends.
    fn freed(&mut self, user: UserId, bytes: u64) {
        if let Some((_, held)) = self.users.get_mut(&user) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.users.remove(&user);
            }
        }
    }
}

/// A ring, or one of its doorbells.
struct Left {
    health: Option<Health>,
    doorbell: Option<Arc<OwnedFd>>,
    bytes: u64,
}

impl Remains for Left {
    fn is_alone(&self) -> bool {
        let doorbell = self.doorbell.as_ref().is_none_or(|doorbell| Arc::strong_count(doorbell) == 1);
        doorbell && self.health.as_ref().is_none_or(Health::is_alone)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<H: Host> Service<H> {
    /// Programs are other processes, which may do what they like to what they are given: the bells of each user are rung
    /// by a thread of their own.
    pub fn keep_apart(&mut self) {
        self.ringers.apart = true;
    }

    pub(super) fn ropes(&mut self, user: UserId, bytes: u64) -> io::Result<Ropes> {
        self.ringers.ropes(user, bytes, || self.host.rank(), &self.alarm)
    }

    /// A ring that nobody was given is gone.
    pub(super) fn forget_ring(&mut self, user: UserId, bytes: u64) {
        self.ringers.freed(user, bytes);
        self.accounts.give_back(user, Resource::BufferBytes, bytes);
    }

    /// Leaves to the user's ringer what a program still holds a part of: closing and unmapping it may take long.
    pub(super) fn bury(
        &mut self,
        user: UserId,
        health: Option<Health>,
        doorbell: Option<Arc<OwnedFd>>,
        bytes: u64,
    ) {
        if health.is_none() && doorbell.is_none() {
            return;
        }
        match self.ringers.users.get(&user) {
            Some((ringer, _)) => ringer.bury(Box::new(Left { health, doorbell, bytes })),
            None => {
                drop((health, doorbell));
                self.accounts.give_back(user, Resource::BufferBytes, bytes);
            }
        }
    }

    /// Memory that ringers have given back.
    pub(super) fn collect_freed(&mut self) {
        let freed = self.ringers.users.iter().map(|(user, (ringer, _))| (*user, ringer.take_freed()));
        for (user, bytes) in freed.filter(|(_, bytes)| *bytes > 0).collect::<Vec<_>>() {
            self.forget_ring(user, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ordinary thread.
    struct Ordinary;

    impl Rank for Ordinary {
        fn begin(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn raise(&mut self) {}
        fn lower(&mut self) {}
        fn follows(&self) -> bool {
            false
        }
    }

    #[test]
    fn bells_of_root_and_of_the_own_user_are_rung_by_the_processor_and_others_by_a_thread_of_their_user() {
        let own = UserId(rustix::process::geteuid().as_raw());
        let freed = Alarm::new().expect("an eventfd");
        let mut ringers = Ringers { apart: true, ..Ringers::default() };
        for (user, is_direct) in [(UserId(0), true), (own, true), (UserId(65_534), own == UserId(65_534))] {
            let ropes = ringers.ropes(user, 5, || Box::new(Ordinary), &freed).expect("a thread");
            assert_eq!(matches!(ropes, Ropes::Direct), is_direct, "{user:?}");
            assert!(ringers.users.contains_key(&user), "what its rings leave behind is its ringer's");
        }
        ringers.freed(UserId(65_534), 5);
        assert!(!ringers.users.contains_key(&UserId(65_534)));
    }
}
