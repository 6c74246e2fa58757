//! The ringers of the users whose programs are other processes, and the remains of rings.
//!
//! The processor itself rings the bells of root and of the daemon's own user, who are as trusted as the
//! daemon: that saves one thread switch. The remains of their rings still go to their ringer.
//!
//! A user has one ringer as long as it has any memory. Memory and descriptors count in its quotas until they
//! are unmapped and closed, so a user that delays its own ringer gets no more of them. Memory that programs
//! may still hold also counts until they let go ([`super::files`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_ipc::api::{ApiError, Resource};
use punctual_ipc::wake::{Alarm, Rank, RingMemory, RingPath, Ringer};
use punctual_proto::api::UserId;

use super::end::Held;
use super::quota::is_privileged;
use super::{Health, Host, Service};

/// See the module.
#[derive(Default)]
pub(super) struct Ringers {
    /// Programs are other processes.
    pub apart: bool,
    users: HashMap<UserId, (Ringer, u64)>,
}

impl Ringers {
    /// How the bells of a ring of `bytes` for `user` are rung. The ringer that rings them also closes the
    /// ring in the end.
    fn ring_path(
        &mut self,
        user: UserId,
        bytes: u64,
        rank: impl FnOnce() -> Box<dyn Rank>,
        freed: &Alarm,
    ) -> io::Result<RingPath> {
        if !self.apart {
            return Ok(RingPath::Direct);
        }
        let (ringer, held) = match self.users.entry(user) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(new) => new.insert((Ringer::start(rank(), freed.clone())?, 0)),
        };
        *held += bytes;
        Ok(if is_privileged(user) { RingPath::Direct } else { RingPath::Ringer(ringer.bells()) })
    }

    /// Notes that a ring of the user takes `bytes` more.
    pub fn grew(&mut self, user: UserId, bytes: u64) {
        if let Some((_, held)) = self.users.get_mut(&user) {
            *held += bytes;
        }
    }

    /// Records that `bytes` of the user's memory were freed. The ringer ends with the last of them.
    pub fn freed(&mut self, user: UserId, bytes: u64) {
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
    held: Held,
}

impl RingMemory for Left {
    fn is_alone(&self) -> bool {
        let doorbell = self.doorbell.as_ref().is_none_or(|doorbell| Arc::strong_count(doorbell) == 1);
        doorbell && self.health.as_ref().is_none_or(Health::is_alone)
    }

    fn bytes(&self) -> u64 {
        self.held.bytes
    }

    fn descriptors(&self) -> u64 {
        self.held.descriptors
    }
}

impl<H: Host> Service<H> {
    /// Programs are other processes, which may do anything with their descriptors: a thread of its own rings
    /// the bells of each user.
    ///
    /// # Errors
    /// If the holders of ring files cannot be watched.
    pub fn keep_apart(&mut self) -> io::Result<()> {
        self.ringers.apart = true;
        self.host.serve_tcp(&self.tcp_alarm)?;
        self.files.keep_apart()
    }

    pub(super) fn ring_path(&mut self, user: UserId, bytes: u64) -> io::Result<RingPath> {
        self.ringers.ring_path(user, bytes, || self.host.rank(), &self.alarm)
    }

    /// Gives back the quota of a ring that was passed to no client.
    pub(super) fn forget_ring(&mut self, user: UserId, held: Held) {
        self.ringers.freed(user, held.bytes);
        self.give_back_held(user, held);
    }

    pub(super) fn give_back_held(&mut self, user: UserId, held: Held) {
        self.accounts.give_back(user, Resource::BufferBytes, held.bytes);
        self.accounts.give_back(user, Resource::Descriptors, held.descriptors);
    }

    /// Takes quota for a ring from its user. The quota of files without holders was given back before.
    pub(super) fn take_held(&mut self, user: UserId, held: Held) -> Result<(), ApiError> {
        self.try_take_held(user, held).or_else(|error| {
            self.collect_gone().map_err(|_| error)?;
            self.try_take_held(user, held)
        })
    }

    fn try_take_held(&mut self, user: UserId, held: Held) -> Result<(), ApiError> {
        self.take(user, Resource::BufferBytes, held.bytes)?;
        let taken = self.accounts.take(user, Resource::Descriptors, held.descriptors);
        taken.inspect_err(|_| self.accounts.give_back(user, Resource::BufferBytes, held.bytes))
    }

    /// Leaves a ring of which a program still holds a part to the user's ringer: closing and unmapping it may
    /// take long.
    pub(super) fn release_later(
        &mut self,
        user: UserId,
        health: Option<Health>,
        doorbell: Option<Arc<OwnedFd>>,
        held: Held,
    ) {
        if health.is_none() && doorbell.is_none() {
            return;
        }
        match self.ringers.users.get(&user) {
            Some((ringer, _)) => ringer.release(Box::new(Left { health, doorbell, held })),
            None => {
                drop((health, doorbell));
                self.give_back_held(user, held);
            }
        }
    }

    /// Memory and descriptors that ringers have given back.
    pub(super) fn collect_freed(&mut self) {
        let freed = self.ringers.users.iter().map(|(user, (ringer, _))| {
            let (bytes, descriptors) = ringer.take_freed();
            (*user, Held { bytes, descriptors })
        });
        for (user, held) in freed.filter(|(_, held)| *held != Held::default()).collect::<Vec<_>>() {
            self.forget_ring(user, held);
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
            let ring_path = ringers.ring_path(user, 5, || Box::new(Ordinary), &freed).expect("a thread");
            assert_eq!(matches!(ring_path, RingPath::Direct), is_direct, "{user:?}");
            assert!(ringers.users.contains_key(&user), "what its rings leave behind is its ringer's");
        }
        ringers.freed(UserId(65_534), 5);
        assert!(!ringers.users.contains_key(&UserId(65_534)));
    }
}
