//! What one handler does for many connections: it answers late segments of the peers of those that are closed (in TIME-WAIT, or
//! in FIN-WAIT-2 without a program), and sends the resets of those that could not begin.
//!
//! Invariants: a connection is at most once in `ready` and once in `due`; one that was removed is in neither, so a number that is
//! used again has nothing of the connection before.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::Instant;
use punctual_proto::memory::Memory;

use super::{Endsystem, Segments};
use crate::connection::Connection;

/// Resets that wait for the handler. More are dropped: the peers of those find out when they send.
pub const RESETS_MAX: usize = 64;

/// A reset for the peer of a connection that cannot begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The IP packet.
    pub packet: Vec<u8>,
    /// The hardware address that the peer's segments came from.
    pub address: u64,
}

impl Reset {
    /// Ends a connection at once; the reset for its peer, at this hardware address.
    pub(super) fn ending(connection: &mut Connection, address: u64, now: Instant) -> Option<Self> {
        let mut packet = Vec::new();
        connection.abort();
        connection.output(now, &mut packet).then_some(Self { packet, address })
    }
}

/// The connections of one such handler, and when they have work.
#[derive(Debug, Default)]
pub struct Late {
    members: BTreeMap<u32, Member>,
    ready: VecDeque<u32>,
    due: BTreeSet<(Instant, u32)>,
    resets: VecDeque<Reset>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    is_ready: bool,
    due: Option<Instant>,
}

/// Sends to one hardware address.
struct To<'a, S: Segments + ?Sized>(&'a mut S, u64);

impl<S: Segments + ?Sized> Segments for To<'_, S> {
    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn put(&mut self, packet: &[u8], _: u64) {
        self.0.put(packet, self.1);
    }
}

impl Late {
    /// From now on a connection is served here.
    pub fn add(&mut self, index: u32) {
        self.members.entry(index).or_default();
    }

    /// A connection is over: nothing of it stays.
    pub fn remove(&mut self, index: u32) {
        let Some(member) = self.members.remove(&index) else { return };
        if member.is_ready {
            self.ready.retain(|ready| *ready != index);
        }
        if let Some(due) = member.due {
            self.due.remove(&(due, index));
        }
    }

    /// A packet came for a connection.
    pub fn wake(&mut self, index: u32) {
        if let Some(member) = self.members.get_mut(&index).filter(|member| !member.is_ready) {
            member.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// A connection has work without a packet at `due`, or none.
    pub fn set_due(&mut self, index: u32, due: Option<Instant>) {
        let Some(member) = self.members.get_mut(&index) else { return };
        if let Some(before) = core::mem::replace(&mut member.due, due) {
            self.due.remove(&(before, index));
        }
        self.due.extend(due.map(|due| (due, index)));
    }

    /// A reset is to leave.
    pub fn reset(&mut self, reset: Reset) {
        if self.resets.len() < RESETS_MAX {
            self.resets.push_back(reset);
        }
    }

    /// The connections whose time is over next, in order: in TIME-WAIT, those that came first.
    pub fn soonest(&self) -> impl Iterator<Item = u32> {
        self.due.iter().map(|(_, index)| *index)
    }

    /// When the first connection has work without a packet.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Whether the handler has work now.
    pub fn has_work(&self, now: Instant) -> bool {
        !self.resets.is_empty() || !self.ready.is_empty() || self.next_due().is_some_and(|due| due <= now)
    }

    /// The next connection with work.
    fn next(&mut self, now: Instant) -> Option<u32> {
        if let Some((_, index)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.set_due(index, None);
            return Some(index);
        }
        let index = self.ready.pop_front()?;
        if let Some(member) = self.members.get_mut(&index) {
            member.is_ready = false;
        }
        Some(index)
    }

    /// The handler: so many resets, segments that came, and replies. Returns the units that it took, and the connections that it
    /// served: for each of them the caller looks whether it is over, or tells [`Late::set_due`] when it has work.
    pub fn call<M: Memory>(
        &mut self,
        tcp: &mut Endsystem<M>,
        (units, now): (u32, Instant),
        out: &mut (impl Segments + ?Sized),
        address_of: impl Fn(u32) -> u64,
    ) -> (u32, Vec<u32>) {
        let (mut done, mut served) = (0, Vec::new());
        while done < units && out.has_room() {
            if let Some(Reset { packet, address }) = self.resets.pop_front() {
                out.put(&packet, address);
                done += 1;
                continue;
            }
            let Some(index) = self.next(now) else { break };
            let input = tcp.input(index, 1, now);
            let output = tcp.output(index, 1, now, &mut To(&mut *out, address_of(index)));
            done += (input.units + output.units).max(1);
            if input.more || output.more {
                self.wake(index);
            }
            served.push(index);
        }
        (done, served)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use punctual_rig::TestMemory;

    use super::*;
    use crate::secrets::Secrets;

    /// What leaves, with the hardware addresses.
    #[derive(Default)]
    struct Out(Vec<(Vec<u8>, u64)>);

    impl Segments for Out {
        fn has_room(&self) -> bool {
            self.0.len() < 3
        }

        fn put(&mut self, packet: &[u8], address: u64) {
            self.0.push((packet.to_vec(), address));
        }
    }

    fn late() -> Late {
        let mut late = Late::default();
        (1..=3).for_each(|index| late.add(index));
        late
    }

    /// What is done before its time, because a packet came, is not done again at that time; and the other way round.
    #[test]
    fn a_connection_is_served_once_for_a_packet_and_once_for_its_time() {
        let mut late = late();
        late.set_due(1, Some(Instant(50)));
        late.wake(1);
        late.wake(1);
        assert_eq!(late.next(Instant(10)), Some(1));
        assert_eq!((late.next(Instant(10)), late.next_due()), (None, Some(Instant(50))), "its time stays");
        assert_eq!(late.next(Instant(50)), Some(1));
        assert!(!late.has_work(Instant(99)));
        // Both at once.
        late.set_due(2, Some(Instant(60)));
        late.wake(2);
        late.wake(2);
        assert_eq!([(); 3].map(|()| late.next(Instant(60))), [Some(2), Some(2), None]);
    }

    /// The number of a connection that is over may be another's: no time and no packet of the first is left.
    #[test]
    fn nothing_stays_of_a_connection_that_is_over() {
        let mut late = late();
        late.set_due(1, Some(Instant(50)));
        late.set_due(2, Some(Instant(70)));
        late.wake(1);
        late.remove(1);
        assert_eq!((late.next(Instant(60)), late.next_due()), (None, Some(Instant(70))));
        late.wake(1);
        late.set_due(1, Some(Instant(50)));
        assert!(!late.has_work(Instant(60)), "it is none of these");
    }

    /// A call does so many units and no more. A reset is one, and so is a connection for which nothing was to be done.
    #[test]
    fn a_call_sends_resets_in_order_and_keeps_to_its_units() {
        let (mut late, mut out) = (late(), Out::default());
        let mut tcp = Endsystem::<TestMemory>::new(Secrets::new([1; 16]), 4, 2);
        let mut call = |late: &mut Late, out: &mut Out, units| {
            late.call(&mut tcp, (units, Instant(0)), out, |index| index.into())
        };
        (1..=5).for_each(|n| late.reset(Reset { packet: [n].to_vec(), address: n.into() }));
        assert_eq!(call(&mut late, &mut out, 2), (2, Vec::new()));
        assert_eq!(out.0, [(vec![1], 1), (vec![2], 2)]);
        assert_eq!(call(&mut late, &mut out, 9), (1, Vec::new()), "there is room for three packets");
        let mut out = Out::default();
        assert_eq!(call(&mut late, &mut out, 9), (2, Vec::new()));
        assert_eq!(out.0, [(vec![4], 4), (vec![5], 5)]);
        (1..=3).for_each(|index| late.wake(index));
        assert_eq!(call(&mut late, &mut out, 2), (2, vec![1, 2]));
        assert_eq!(call(&mut late, &mut out, 2), (1, vec![3]));
    }

    #[test]
    fn resets_are_bounded() {
        let mut late = late();
        assert!(!late.has_work(Instant(0)));
        for _ in 0..=RESETS_MAX {
            late.reset(Reset { packet: Vec::new(), address: 7 });
        }
        assert!(late.has_work(Instant(0)));
        assert_eq!(late.resets.len(), RESETS_MAX);
    }
}
