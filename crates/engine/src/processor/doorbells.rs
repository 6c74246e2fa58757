//! The doorbells of the applications' outgoing rings, and which of them have rung.
//!
//! An application may ring as often as it likes; that must cost the others nothing. A doorbell that rings more often
//! than its [`Allowance`], which for a channel is its contract's rate and burst, is muted for [`SPACING`] (the kernel
//! stops telling us), then heard again; since they are watched edge-triggered and never read, watching it again
//! tells the ring that was muted. So no ring is lost, and beyond what was admitted one channel causes at most two
//! wake-ups each [`SPACING`].
//!
//! Nothing here waits for an application: the list of those who wait at the daemon's end of a doorbell, which `epoll_ctl`
//! locks, is nobody else's (`punctual_ipc::wake`), and whoever had it watched closes it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use punctual_proto::ids::ChannelId;
use punctual_proto::{Contract, Instant, Nanos};

use super::CHANNELS;
use crate::os::wait::Waiter;

/// Between two looks at a ring whose application rings too often. Part of the processor's release latency.
pub(super) const SPACING: Nanos = Nanos::from_micros(100);

/// How often a doorbell is heard at once: `burst` rings, and one more each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    burst: u32,
    interval: Nanos,
}

impl Allowance {
    /// A conforming sender rings once a message at most. Whoever has no contract is heard each [`SPACING`].
    pub fn of(contract: Option<&Contract>) -> Self {
        let (burst, interval) =
            contract.map_or((1, SPACING), |c| (c.burst_messages_max, c.policed_interval().min(SPACING)));
        Self { burst, interval }
    }
}

#[derive(Debug, Default)]
pub(super) struct Doorbells {
    watched: HashMap<ChannelId, Watched>,
    /// Grows to what one wake-up can tell, then never again.
    rung: Vec<ChannelId>,
    /// Muted ones with the time at which they are heard again, the earliest first.
    muted: VecDeque<(Instant, ChannelId)>,
}

#[derive(Debug)]
struct Watched {
    doorbell: Arc<OwnedFd>,
    allowance: Allowance,
    /// When its whole allowance is there again (GCRA's theoretical arrival time).
    rested_at: Instant,
}

impl Doorbells {
    pub fn watch(
        &mut self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        allowance: Allowance,
        waiter: &Waiter,
    ) -> io::Result<()> {
        waiter.watch(doorbell.as_fd(), CHANNELS | channel.0)?;
        self.watched.insert(channel, Watched { doorbell, allowance, rested_at: Instant::ZERO });
        Ok(())
    }

    pub fn unwatch(&mut self, channel: ChannelId, waiter: &Waiter) {
        if let Some(watched) = self.watched.remove(&channel) {
            waiter.unwatch(watched.doorbell.as_fd());
        }
    }

    /// The kernel says that a doorbell rang.
    pub fn rung(&mut self, channel: ChannelId, at: Instant, waiter: &Waiter) {
        let Some(watched) = self.watched.get_mut(&channel) else { return };
        let Allowance { burst, interval } = watched.allowance;
        if at + interval * u64::from(burst.saturating_sub(1)) < watched.rested_at {
            waiter.unwatch(watched.doorbell.as_fd());
            self.muted.push_back((at + SPACING, channel));
        } else {
            watched.rested_at = watched.rested_at.max(at) + interval;
            self.rung.push(channel);
        }
    }

    /// Hears those again whose time has come.
    pub fn unmute(&mut self, at: Instant, waiter: &Waiter) {
        while self.next_unmute().is_some_and(|due| due <= at) {
            let Some((_, channel)) = self.muted.pop_front() else { return };
            let Some(watched) = self.watched.get(&channel) else { continue };
            match waiter.watch(watched.doorbell.as_fd(), CHANNELS | channel.0) {
                Ok(()) => {}
                // The channel got another doorbell meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // The kernel has no memory now: look at the ring as if it had rung, and try again.
                Err(_) => {
                    self.rung.push(channel);
                    return self.muted.push_back((at + SPACING, channel));
                }
            }
        }
    }

    /// When the next muted one is heard again.
    pub fn next_unmute(&self) -> Option<Instant> {
        self.muted.front().map(|(due, _)| *due)
    }

    /// The next channel whose doorbell rang and that is still watched.
    pub fn next_rung(&mut self) -> Option<ChannelId> {
        while let Some(channel) = self.rung.pop() {
            if self.watched.contains_key(&channel) {
                return Some(channel);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::wait::Doorbell;

    /// What the kernel tells without waiting.
    fn told(waiter: &mut Waiter) -> usize {
        waiter.wait(Some(Nanos::ZERO)).expect("a look")
    }

    fn setup() -> (Doorbell, Doorbells, Waiter) {
        (Doorbell::new().expect("an eventfd"), Doorbells::default(), Waiter::new().expect("descriptors"))
    }

    fn copy(bell: &Doorbell) -> Arc<OwnedFd> {
        Arc::new(bell.as_fd().try_clone_to_owned().expect("a descriptor"))
    }

    #[test]
    fn a_ring_of_a_forgotten_channel_is_nobodys() {
        let (bell, mut doorbells, waiter) = setup();
        for channel in [1, 2].map(ChannelId) {
            doorbells.watch(channel, copy(&bell), Allowance::of(None), &waiter).expect("watched");
            doorbells.rung(channel, Instant(1), &waiter);
        }
        doorbells.unwatch(ChannelId(2), &waiter);
        assert_eq!(doorbells.next_rung(), Some(ChannelId(1)));
        assert_eq!(doorbells.next_rung(), None);
    }

    #[test]
    fn rings_within_the_contract_are_heard_at_once() {
        let (bell, mut doorbells, waiter) = setup();
        let (channel, interval) = (ChannelId(3), Nanos::from_micros(20));
        let allowance = Allowance { burst: 2, interval };
        doorbells.watch(channel, copy(&bell), allowance, &waiter).expect("watched");
        let mut at = Instant(1);
        doorbells.rung(channel, at, &waiter);
        for _ in 0..1_000 {
            doorbells.rung(channel, at, &waiter);
            assert_eq!((doorbells.next_rung(), doorbells.next_unmute()), (Some(channel), None));
            at = at + interval;
        }
        for _ in 0..2 {
            doorbells.rung(channel, at, &waiter);
        }
        assert!(doorbells.next_unmute().is_some(), "one more than the burst");
    }

    #[test]
    fn a_storm_of_rings_is_muted_and_its_last_ring_is_heard() {
        let (bell, mut doorbells, mut waiter) = setup();
        let channel = ChannelId(7);
        doorbells.watch(channel, copy(&bell), Allowance::of(None), &waiter).expect("watched");
        let mut at = Instant(1);
        bell.ring();
        assert_eq!(told(&mut waiter), 1);
        doorbells.rung(channel, at, &waiter);
        assert_eq!(doorbells.next_rung(), Some(channel));
        at = at + Nanos(1_000);
        bell.ring();
        assert_eq!(told(&mut waiter), 1);
        doorbells.rung(channel, at, &waiter);
        assert_eq!(doorbells.next_rung(), None, "too soon");
        for _ in 0..100 {
            bell.ring();
            assert_eq!(told(&mut waiter), 0, "muted");
        }
        let due = doorbells.next_unmute().expect("it will be heard");
        assert_eq!(due, at + SPACING);
        doorbells.unmute(due, &waiter);
        assert_eq!((told(&mut waiter), doorbells.next_unmute()), (1, None));
        doorbells.rung(channel, due, &waiter);
        assert_eq!(doorbells.next_rung(), Some(channel));
        assert_eq!(told(&mut waiter), 0, "and nothing more");
    }
}
