//! Best effort at this host: flows that start here, ports that are bound here, and the queue of packets that
//! wait for the processor. Best effort has no guarantees. Every queue is bounded, so that a flood delays only
//! its own flow.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;
use punctual_analysis::{Instant, Nanos, Ppm};

use super::outgoing::{Arrival, Messages};
use super::{Flow, Waiting};
use crate::api::DropCounters;
use crate::fragment::{Outcome, Reassembly, Rejection};
use crate::ids::PathId;
use crate::limits::{
    ARRIVALS_AHEAD_MAX, ARRIVALS_OF_PATH_MAX, ARRIVALS_PACKETS_MAX, ARRIVALS_SHARES,
    BEST_EFFORT_MESSAGES_MAX, BEST_EFFORT_SENDERS_MAX, FRAGMENT_BYTES_MIN,
};
use crate::linksched::BestEffortKey;
use crate::memory::{Inbox, Memory, MessageInfo, MessageRead, Outbox, Timeliness};
use crate::sched::Bucket;
use crate::wire::Header;

/// The message type of a host's outgoing rings.
pub(in crate::node) type Message<M> = <<M as Memory>::Outbox as Outbox>::Message;
/// The slot type of a host's incoming rings.
pub(in crate::node) type Slot<M> = <<M as Memory>::Inbox as Inbox>::Slot;

/// The queue that packets of a path join as best effort; demoted channels are flows of their own.
pub(in crate::node) fn key_of(path: PathId) -> BestEffortKey {
    BestEffortKey(u64::from(path.node.0) << 32 | u64::from(path.channel.0))
}

impl<M: Memory> Flow<M> {
    /// Takes messages from the application's ring as far as there is room. Returns their number. Counts in
    /// `drops` messages that are longer than the flow allows, or that need too many fragments.
    pub fn drain(
        &mut self,
        messages: &mut Messages<Message<M>>,
        messages_max: u32,
        drops: &mut DropCounters,
        now: Instant,
    ) -> u32 {
        let mut taken = 0;
        while taken < messages_max {
            let ready = (!self.outgoing.is_full()).then_some(&mut self.outbox);
            let Some((message, sent)) = ready.and_then(|outbox| outbox.take(now)) else { break };
            taken += 1;
            let number = self.number_next;
            self.number_next += 1;
            let kept = message.len() <= self.message_bytes_max
                && self.outgoing.push(messages, message, number, Arrival::at(sent));
            drops.too_large += u64::from(!kept);
        }
        taken
    }
}

/// A sender's messages in progress at a bound port.
struct Sender<S> {
    path: PathId,
    fragment_bytes: u32,
    reassembly: Reassembly<S>,
    used: Instant,
}

/// A port that is bound here.
pub(in crate::node) struct Binding<M: Memory> {
    message_bytes_max: u32,
    inbox: M::Inbox,
    senders: Vec<Sender<Slot<M>>>,
}

impl<S> Sender<S> {
    /// Whether a packet is fragmented as this sender's messages are. The sender's fragment size is unknown
    /// until it has sent a message of several fragments.
    fn takes(&self, header: &Header, size: u32) -> bool {
        if header.fragments == 1 { size <= self.fragment_bytes } else { size == self.fragment_bytes }
    }
}

/// The reassembly of one sender.
fn reassembly<M: Memory>(fragment_bytes: u32, message_bytes_max: u32) -> Reassembly<Slot<M>> {
    Reassembly::new(BEST_EFFORT_MESSAGES_MAX, fragment_bytes, message_bytes_max)
}

impl<M: Memory> Binding<M> {
    pub fn new(message_bytes_max: u32, inbox: M::Inbox) -> Self {
        Self { message_bytes_max, inbox, senders: Vec::with_capacity(BEST_EFFORT_SENDERS_MAX) }
    }

    /// The most that a port takes of its node's memory beside its ring, in bytes: the largest number of
    /// senders, each with the largest number of fragments of a message.
    pub fn room_bytes(message_bytes_max: u32) -> u64 {
        let sender = reassembly::<M>(FRAGMENT_BYTES_MIN, message_bytes_max).room_bytes();
        (BEST_EFFORT_SENDERS_MAX * (size_of::<Sender<Slot<M>>>() + sender)) as u64
    }

    /// Why a packet cannot be for this port. This is checked before any state is kept for the sender, because
    /// a sender is not authenticated.
    fn rejection(&self, header: &Header) -> Option<Rejection> {
        if header.message_bytes > self.message_bytes_max {
            return Some(Rejection::TooLong);
        }
        let cut = header.fragment_bytes().filter(|_| header.fragments > 1);
        cut.is_some_and(|bytes| bytes < FRAGMENT_BYTES_MIN).then_some(Rejection::FragmentSize)
    }

    /// Adds a fragment to its message and delivers the message once it is complete. Counts in `drops`
    /// fragments that the receiver cannot take.
    pub fn accept(&mut self, header: &Header, payload: &[u8], now: Instant, drops: &mut DropCounters) {
        let outcome = match self.rejection(header) {
            Some(rejection) => Outcome::Rejected(rejection),
            None => {
                let index = self.sender(header, now);
                let (sender, inbox) = (&mut self.senders[index], &mut self.inbox);
                sender.reassembly.accept(header, payload, || inbox.reserve())
            }
        };
        match outcome {
            Outcome::Complete { slot, .. } => {
                let info = MessageInfo {
                    number: header.message,
                    len: header.message_bytes,
                    logical_arrival: header.logical_arrival,
                    clock_error: None,
                    deadline: now,
                    delivered: now,
                    demoted: true,
                    unpromised: true,
                    timeliness: Timeliness::Unmeasured,
                };
                self.inbox.publish(slot, info);
            }
            Outcome::NoSlot => drops.receiver_full += 1,
            Outcome::Stored | Outcome::Duplicate | Outcome::Stale => {}
            Outcome::Rejected(Rejection::TooLong) => drops.too_large += 1,
            Outcome::Rejected(Rejection::FragmentSize | Rejection::LengthChanged) => drops.malformed += 1,
        }
    }

    /// The sender's place. A new sender replaces the one that has been idle longest.
    fn sender(&mut self, header: &Header, now: Instant) -> usize {
        // A sender needs no room for reassembly until it has sent a message of several fragments.
        let whole = self.message_bytes_max;
        let cut = |header: &Header| header.fragment_bytes().unwrap_or(whole);
        let size = if header.fragments == 1 { whole } else { cut(header) };
        let known = self.senders.iter().position(|s| s.path == header.path);
        if let Some(index) = known {
            if self.senders[index].takes(header, cut(header)) {
                self.senders[index].used = now;
                return index;
            }
            self.senders.swap_remove(index);
        } else if self.senders.len() >= BEST_EFFORT_SENDERS_MAX
            && let Some(oldest) = (0..self.senders.len()).min_by_key(|i| self.senders[*i].used)
        {
            self.senders.swap_remove(oldest);
        }
        let reassembly = reassembly::<M>(size, self.message_bytes_max);
        self.senders.push(Sender { path: header.path, fragment_bytes: size, reassembly, used: now });
        self.senders.len() - 1
    }
}

/// Packets of best effort and demoted ones, in the order of their arrival, bounded for each path.
pub(in crate::node) struct Arrivals<F> {
    packets: VecDeque<Waiting<F>>,
    of_path: HashMap<PathId, u32>,
    /// Each flow's share of the processor, by the hash of its path. Flows with the same hash share one share
    /// (stochastic fairness, McKenney 1990), so that forged paths need no memory. Empty without a cap.
    shares: Vec<Bucket>,
}

/// Place in which a flow's share is kept.
fn place_of(path: PathId) -> usize {
    let mixed = key_of(path).0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - ARRIVALS_SHARES.ilog2())) as usize
}

impl<F> Arrivals<F> {
    pub fn new(flow_cap: Ppm) -> Self {
        Self {
            shares: Bucket::of(flow_cap).map_or_else(Vec::new, |bucket| vec![bucket; ARRIVALS_SHARES]),
            packets: VecDeque::with_capacity(ARRIVALS_PACKETS_MAX),
            of_path: HashMap::with_capacity(ARRIVALS_PACKETS_MAX),
        }
    }

    /// Queues a packet; `false` if its path has too many waiting, or all together.
    pub fn push(&mut self, packet: Waiting<F>) -> bool {
        let waiting = self.of_path.get(&packet.header.path).copied().unwrap_or(0);
        if self.packets.len() >= ARRIVALS_PACKETS_MAX || waiting >= ARRIVALS_OF_PATH_MAX {
            return false;
        }
        self.of_path.insert(packet.header.path, waiting + 1);
        self.packets.push_back(packet);
        true
    }

    /// Whether any of a flow's share of the processor is left.
    pub fn has_share(&self, path: PathId, now: Instant) -> bool {
        self.shares.get(place_of(path)).is_none_or(|share| share.spent_until(now).is_none())
    }

    /// Charges `cost` to the flow of the head packet.
    pub fn charge_head(&mut self, cost: Nanos, now: Instant) {
        let place = self.packets.front().map(|packet| place_of(packet.header.path));
        if let Some(share) = place.and_then(|place| self.shares.get_mut(place)) {
            share.charge(cost, now);
        }
    }

    /// Whether the processor may soon run out of shares.
    pub fn is_short(&self) -> bool {
        self.packets.len() < ARRIVALS_AHEAD_MAX
    }

    /// All packets that wait.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting<F>> {
        self.packets.iter()
    }

    /// Whether a packet of a path waits.
    pub fn has(&self, path: &PathId) -> bool {
        self.of_path.contains_key(path)
    }

    /// Number of packets of all paths that are counted.
    pub fn counted(&self) -> u64 {
        self.of_path.values().map(|waiting| u64::from(*waiting)).sum()
    }

    pub fn peek(&self) -> Option<&Waiting<F>> {
        self.packets.front()
    }

    pub fn pop(&mut self) -> Option<Waiting<F>> {
        let packet = self.packets.pop_front()?;
        if let Some(waiting) = self.of_path.get_mut(&packet.header.path) {
            *waiting -= 1;
            if *waiting == 0 {
                self.of_path.remove(&packet.header.path);
            }
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ChannelNumber, Cookie, Epoch, LinkId, NodeId};
    use crate::node::plane::filler_header;

    fn waiting(path: u32, number: u64) -> Waiting<()> {
        let path = PathId { node: NodeId(1), channel: ChannelNumber(path), epoch: Epoch(1) };
        let header = filler_header(path, NodeId(2), Cookie(3), number, 100, Instant(number));
        Waiting { frame: (), header, received: Instant(number), link: LinkId(0) }
    }

    /// Packets wait in the order of their arrival, whatever their paths. The check ahead shows the packet that
    /// comes next. Each path has a bounded number of packets.
    #[test]
    fn packets_wait_in_order_and_in_bounded_numbers_of_each_path() {
        let mut arrivals = Arrivals::new(Ppm::ONE);
        let mut taken = VecDeque::new();
        for number in 0..5_000_u64 {
            let path = (number * number % 37) as u32;
            let (of_path, all) =
                (taken.iter().filter(|(other, _)| *other == path).count(), arrivals.iter().count());
            let is_taken = arrivals.push(waiting(path, number));
            let fits = of_path < ARRIVALS_OF_PATH_MAX as usize && all < ARRIVALS_PACKETS_MAX;
            assert_eq!(is_taken, fits);
            if is_taken {
                taken.push_back((path, number));
            }
            assert_eq!(arrivals.is_short(), taken.len() < ARRIVALS_AHEAD_MAX);
            // Packets leave more slowly than they arrive, then faster.
            for _ in 0..if number % 1_000 < 700 { number % 2 } else { 3 } {
                let seen = arrivals.peek().map(|packet| packet.header.message);
                let popped = arrivals.pop().map(|packet| packet.header.message);
                assert_eq!((seen, popped), (popped, taken.pop_front().map(|(_, number)| number)));
            }
            assert_eq!(arrivals.counted(), taken.len() as u64);
        }
    }

    /// Only the flow of the head packet is charged.
    #[test]
    fn the_flow_of_the_head_is_charged() {
        let mut arrivals = Arrivals::new(Ppm(10_000));
        let paths = [1, 2].map(|path| waiting(path, 0).header.path);
        assert!(arrivals.push(waiting(1, 0)) && arrivals.push(waiting(2, 1)));
        let now = Instant(1_000_000_000);
        arrivals.charge_head(Nanos::from_secs(1), now);
        assert_eq!(paths.map(|path| arrivals.has_share(path, now)), [false, true]);
    }

    /// Flows are charged by place. The number of forged flows is unbounded, so a flow that has spent its
    /// share must delay only few others.
    #[test]
    fn more_flows_than_places_share_places() {
        let mut arrivals = Arrivals::new(Ppm(10_000));
        assert!(arrivals.push(waiting(1, 0)));
        let now = Instant(1_000_000_000);
        arrivals.charge_head(Nanos::from_secs(1), now);
        let others = 2..2 + 16 * ARRIVALS_SHARES as u32;
        let held = others.filter(|path| !arrivals.has_share(waiting(*path, 0).header.path, now)).count();
        assert!((1..64).contains(&held), "{held} of {} wait with it", 16 * ARRIVALS_SHARES);
    }

    /// Every bit of a path's node and channel counts: each path has a queue of its own, and paths that differ
    /// in one bit have different places. A sender of many flows must not share its place with another host
    /// only because of its number.
    #[test]
    fn paths_that_differ_in_one_bit_have_different_places() {
        let path = |bits: u64| PathId {
            node: NodeId((bits >> 32) as u32),
            channel: ChannelNumber(bits as u32),
            epoch: Epoch(1),
        };
        for bits in [0, 1 << 32 | 1, 7 << 32 | 0x8000_0005, u64::MAX] {
            assert_eq!(key_of(path(bits)), BestEffortKey(bits));
            for bit in 0..u64::BITS {
                let places = [bits, bits ^ 1 << bit].map(|bits| place_of(path(bits)));
                assert!(places[0] != places[1] && places[0] < ARRIVALS_SHARES, "bit {bit} of {bits:x}");
            }
        }
    }
}
