//! Two ends of a link, connected by a medium that the test controls.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_analysis::BitRate;

use super::*;
use crate::config::CpuConfig;
use crate::ids::{ChannelNumber, Epoch, Name};

const MILLI: u64 = 1_000_000;
const KEY: [u8; 32] = [7; 32];

fn config(node: u32) -> NodeConfig {
    let neighbour = NodeId(3 - node);
    NodeConfig {
        id: NodeId(node),
        name: Name::new(&alloc::format!("h{node}")).expect("a name"),
        epoch: Epoch(1),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: alloc::vec![LinkConfig::new("link", neighbour, BitRate(40_000_000))],
        cpu: CpuConfig::default(),
        directory: Vec::new(),
        routes: Vec::new(),
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 1 << 20,
        wakeup_margin: Nanos::ZERO,
    }
}

/// Ends 0 and 1. Packets arrive at once and in order.
struct Two {
    now: Instant,
    key: Key,
    ends: [Peer; 2],
    /// Number of losses that each end has reported; `heard` has the messages that it has received.
    lost: [u32; 2],
    received_messages: [Vec<Message>; 2],
    packets: u64,
    /// Packets to an end are lost while this is true.
    deaf: [bool; 2],
    /// What the clock of an end is ahead of `now`.
    ahead: [Nanos; 2],
}

impl Two {
    fn new() -> Self {
        let now = Instant(1_000 * MILLI);
        let end = |node: u32| {
            let config = config(node);
            Peer::new(&config, &config.links[0], u64::from(node), now)
        };
        Self {
            now,
            key: Key::new(&KEY),
            ends: [end(1), end(2)],
            lost: [0; 2],
            received_messages: [Vec::new(), Vec::new()],
            packets: 0,
            deaf: [false; 2],
            ahead: [Nanos::ZERO; 2],
        }
    }

    /// The time on the clock of an end.
    fn clock(&self, index: usize) -> Instant {
        self.now + self.ahead[index]
    }

    /// Two ends that have met.
    fn met() -> Self {
        let mut two = Self::new();
        two.run(2_000);
        assert_eq!((two.alive(), two.lost), ([true; 2], [0; 2]));
        two
    }

    fn alive(&self) -> [bool; 2] {
        self.ends.each_ref().map(|end| end.presence() == Presence::Alive)
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + Nanos(MILLI);
            for index in 0..2 {
                let now = self.clock(index);
                let change = self.ends[index].handle_timeout(false, now);
                self.lost[index] += u32::from(change.is_some());
            }
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        loop {
            let mut air = VecDeque::new();
            for index in 0..2 {
                let (now, mut out) = (self.clock(index), [0; 2_000]);
                while let Some((len, _)) = self.ends[index].poll_packet(&self.key, now, now, &mut out) {
                    air.push_back((1 - index, out[..len].to_vec()));
                }
            }
            if air.is_empty() {
                break;
            }
            self.packets += air.len() as u64;
            let deaf = self.deaf;
            air.retain(|(to, _)| !deaf[*to]);
            air.into_iter().for_each(|(to, bytes)| self.deliver(to, &bytes));
        }
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        let packet = self.key.open(bytes).expect("an authentic packet");
        let now = self.clock(to);
        let end = &mut self.ends[to];
        let change = end.handle(&packet, now, now);
        self.lost[to] += u32::from(matches!(change, Ok(Some(_))));
        self.received_messages[to].extend(core::iter::from_fn(|| end.next_message()));
    }

    /// Sends a segment that no correct sender sends, as end 1, a member of the domain.
    fn segment_of_1(&mut self, bytes: &[u8]) {
        let known = self.ends[0].association.as_ref().expect("they know each other");
        let number = known.stream.received().next;
        let packet = self.ends[1].packet(Body::Segment { number, bytes });
        let (key, mut out) = (self.key.clone(), [0; 2_000]);
        let len = key.write(&packet, &key.seal_key(packet.from, packet.to, packet.life), &mut out);
        self.ends[1].after_packet();
        self.deliver(0, &out[..len.expect("it fits")]);
    }
}

fn confirm(number: u32) -> Message {
    let path = PathId { node: NodeId(2), channel: ChannelNumber(number), epoch: Epoch(1) };
    Message::Confirm { path }
}

#[test]
fn a_stream_of_garbage_gives_the_neighbour_up_and_a_new_one_begins() {
    // A message longer than allowed, and bytes that are no message.
    for garbage in [&[0xff, 0xff][..], &[3, 0, 0xff, 0xff, 0xff]] {
        let mut two = Two::met();
        two.ends[1].queue_message(&confirm(1));
        two.run(10);
        assert_eq!(two.received_messages[0], [confirm(1)]);
        two.segment_of_1(garbage);
        two.run(3_000);
        assert_eq!((two.alive(), two.lost), ([true; 2], [1; 2]), "{garbage:?}");
        two.ends[1].queue_message(&confirm(2));
        two.ends[0].queue_message(&confirm(3));
        two.run(10);
        assert_eq!(two.received_messages, [[confirm(1), confirm(2)].to_vec(), [confirm(3)].to_vec()]);
    }
}

#[test]
fn messages_queued_before_the_neighbour_is_up_arrive_once() {
    let mut two = Two::new();
    two.deaf = [true; 2];
    two.ends[0].queue_message(&confirm(1));
    two.run(1_000);
    assert!(two.received_messages[1].is_empty() && two.ends[0].is_reachable());
    two.deaf = [false; 2];
    two.run(2_000);
    assert_eq!((two.received_messages[1].clone(), two.lost), ([confirm(1)].to_vec(), [0; 2]));
}

/// A neighbour that is silent for the time limit, and no sooner, is down. No message to it is sent or kept
/// then.
#[test]
fn silence_ends_a_neighbour_after_its_time_and_drops_its_messages() {
    let mut two = Two::met();
    two.deaf = [true; 2];
    let ends = two.ends[0].last_received + two.ends[0].silence();
    two.run(ends.since(two.now).0 / MILLI - 20);
    assert!(two.alive()[0]);
    two.ends[0].queue_message(&confirm(1));
    while two.alive()[0] {
        two.run(1);
    }
    assert!(two.now.minus(ends).unsigned_abs() <= MILLI, "{:?} instead of {ends:?}", two.now);
    assert_eq!((two.lost[0], two.ends[0].is_reachable(), two.ends[0].is_quiet()), (1, false, true));
    two.ends[0].queue_message(&confirm(2));
    assert!(two.ends[0].outbox.is_empty() && two.ends[0].send.is_empty(), "to the dead nothing is said");
    two.deaf = [false; 2];
    two.run(3_000);
    assert_eq!((two.alive(), two.received_messages[1].len()), ([true; 2], 0));
    two.ends[0].queue_message(&confirm(3));
    two.run(10);
    assert_eq!(two.received_messages[1], [confirm(3)]);
}

/// Idle neighbours send little: one exchange of three packets an interval, and acknowledgements of messages.
#[test]
fn idle_neighbours_exchange_three_packets_an_interval_and_an_answer_for_each_message() {
    let mut two = Two::met();
    let interval = two.ends[0].hellos.interval.0 / MILLI;
    let before = two.packets;
    two.run(100 * interval);
    let exchanges = (two.packets - before) / 3;
    assert!((80..=101).contains(&exchanges), "{exchanges} in 100 intervals");
    let before = two.packets;
    two.ends[0].queue_message(&confirm(1));
    two.exchange();
    assert_eq!(two.packets - before, 2, "the segment and its acknowledgement");
    assert!(two.ends.iter().all(|end| end.is_quiet() && !end.has_packet()));
}

/// Once half of the queue is used, nothing new is begun, so that the ends of channels can still be sent.
/// Beyond the limit the neighbour is given up.
#[test]
fn what_waits_for_a_neighbour_begins_nothing_new_and_then_ends_it() {
    let config = config(1);
    let mut peer = Peer::new(&config, &config.links[0], 7, Instant(1));
    let channels: Vec<_> = (1 << 20..(1 << 20) + 1_000).map(ChannelNumber).collect();
    let refresh = Message::Refresh { node: NodeId(1), epoch: Epoch(1), channels };
    while peer.has_room() {
        assert!(peer.outbox().bytes() < SIGNAL_WAITING_BYTES_MAX / 2 && !peer.broken);
        peer.queue_message(&refresh);
    }
    assert!(!peer.takes(Source { node: NodeId(3), user: Default::default() }));
    while peer.outbox().bytes() <= SIGNAL_WAITING_BYTES_MAX {
        assert!(!peer.broken, "{} B wait", peer.outbox().bytes());
        peer.queue_message(&refresh);
    }
    assert!(peer.broken);
}

/// Exactly as much as may wait gives nobody up; a byte more does.
#[test]
fn what_may_wait_is_counted_to_the_byte() {
    let config = config(1);
    let bytes_of = |channels: usize| {
        let channels = alloc::vec![ChannelNumber(1); channels];
        Message::Refresh { node: NodeId(1), epoch: Epoch(1), channels }
    };
    let beside = bytes_of(1_000).encode().expect("short").len() - 1_000;
    for (more, broken) in [(0, false), (1, true)] {
        let mut peer = Peer::new(&config, &config.links[0], 7, Instant(1));
        loop {
            let left = SIGNAL_WAITING_BYTES_MAX + more - peer.outbox().bytes();
            // The first messages go to the stream.
            if left <= 7_000 {
                peer.queue_message(&bytes_of(left - beside));
                break;
            }
            peer.queue_message(&bytes_of(4_000));
        }
        assert_eq!((peer.outbox().bytes(), peer.broken), (SIGNAL_WAITING_BYTES_MAX + more, broken));
    }
    for (bytes, room) in
        [(0, true), (SIGNAL_WAITING_BYTES_MAX / 2 - 1, true), (SIGNAL_WAITING_BYTES_MAX / 2, false)]
    {
        let mut peer = Peer::new(&config, &config.links[0], 7, Instant(1));
        while peer.outbox().bytes() < bytes {
            let left = bytes - peer.outbox().bytes();
            peer.queue_message(&bytes_of(if left <= 7_000 { left - beside } else { 4_000 }));
        }
        assert_eq!((peer.outbox().bytes(), peer.has_room()), (bytes, room));
    }
}

/// A peer is quiet if it has no message that the neighbour would receive. Messages that wait for their place,
/// and unacknowledged ones, count while the neighbour is up.
#[test]
fn a_session_is_quiet_once_all_is_acknowledged_or_the_neighbour_is_down() {
    let mut two = Two::met();
    assert!(two.ends[0].is_quiet());
    two.deaf = [true; 2];
    two.ends[0].queue_message(&confirm(1));
    assert!(!two.ends[0].send.is_empty() && two.ends[0].outbox.is_empty());
    assert!(!two.ends[0].is_quiet(), "it has its place and was not sent");
    two.run(10);
    assert!(!two.ends[0].is_quiet(), "nobody has heard it");
    (2..400).for_each(|number| two.ends[0].queue_message(&confirm(number)));
    assert!(!two.ends[0].outbox.is_empty() && !two.ends[0].is_quiet());
    two.deaf = [false; 2];
    two.run(1_000);
    assert!(two.ends[0].is_quiet() && two.received_messages[1].len() == 399);
    let mut alone = Two::new();
    alone.ends[0].queue_message(&confirm(1));
    assert!(alone.ends[0].is_quiet() && !alone.ends[0].send.is_empty(), "nobody is there to hear it");
}

/// The number of probes per interval of HELLOs is limited by their part of the signalling budget.
#[test]
fn probes_are_as_frequent_as_the_budget_allows() {
    let of = |packets_per_second, hello_interval| {
        probe_interval(&SignallingConfig {
            packets_per_second,
            hello_interval,
            ..SignallingConfig::default()
        })
    };
    let second = Nanos::from_secs(1);
    let often = Nanos::from_secs(10) / PROBES_PER_HELLO;
    assert_eq!(of(1_000_000, Nanos::from_secs(10)), often);
    for packets_per_second in [1, 3, 50] {
        let budget = second / u64::from(packets_per_second) * PROBES_BUDGET_DIVISOR;
        assert_eq!(of(packets_per_second, Nanos::from_millis(1)), budget, "{packets_per_second}");
        assert_eq!(of(packets_per_second, budget * PROBES_PER_HELLO), budget);
        assert_eq!(of(packets_per_second, (budget + Nanos(1)) * PROBES_PER_HELLO), budget + Nanos(1));
    }
    assert_eq!(of(0, Nanos(1)), second * PROBES_BUDGET_DIVISOR, "no rate is one a second");
}

/// A message that cannot be encoded gives the neighbour up, because a stream with a gap would be worse.
#[test]
fn what_does_not_encode_gives_the_neighbour_up() {
    let mut two = Two::met();
    let channels = (0..100_000).map(ChannelNumber).collect();
    two.ends[0].queue_message(&Message::Refresh { node: NodeId(1), epoch: Epoch(1), channels });
    assert!(!two.ends[0].is_reachable() && two.ends[0].poll_timeout(false) == Instant::ZERO);
    two.run(3_000);
    assert_eq!((two.alive(), two.lost), ([true; 2], [1; 2]), "and they meet again");
}

/// A neighbour that never replies gets HELLOs for hours: only the last nonces are stored, and from then on
/// only a reply to one of these counts.
#[test]
fn a_silent_neighbour_takes_no_memory() {
    let mut two = Two::met();
    two.deaf = [true; 2];
    let nonces = |two: &Two| two.ends[0].hellos.nonces.iter().copied().collect::<Vec<_>>();
    let mut greeted = Vec::new();
    for _ in 0..3 * NONCES {
        two.run(2_000);
        let known = nonces(&two);
        assert!(known.len() <= NONCES && known.is_sorted_by_key(|(_, sent)| *sent), "{known:?}");
        let new: Vec<_> = known.into_iter().filter(|new| !greeted.contains(new)).collect();
        greeted.extend(new);
    }
    assert_eq!(nonces(&two), greeted[greeted.len() - NONCES..], "the last ones");
    assert!(greeted.len() > 2 * NONCES, "{} greetings", greeted.len());
}

mod giving_up;
mod leaving_behind;
mod pace;

/// A clock that is set, forwards or back: by the former offset every HELLO would be too late at one of the two ends. No
/// HELLO counts as late while the offset is in doubt, and the new one is known soon.
#[test]
fn a_clock_that_is_set_makes_no_neighbour_late() {
    for ahead in [400, 1_600] {
        let mut two = Two::new();
        two.ahead[1] = Nanos::from_secs(1);
        two.run(10_000);
        assert_eq!(two.alive(), [true; 2]);
        two.ahead[1] = Nanos::from_millis(ahead);
        two.run(30_000);
        let breaks = two.ends.each_ref().map(|end| end.travel.clock.breaks());
        assert!(breaks.iter().all(|breaks| *breaks > 0), "{ahead} ms: {breaks:?}");
        for (index, end) in two.ends.iter().enumerate() {
            let now = two.clock(index);
            let offset = end.travel.clock.offset(now).expect("they talk");
            let truth = two.clock(1 - index).minus(now);
            assert!(
                offset.offset_ns.abs_diff(truth) <= offset.error.0,
                "{ahead} ms, end {index}: {offset:?}"
            );
            let late = end.travel.watch.recent(now);
            assert_eq!(late.times, 0, "{ahead} ms, end {index}");
        }
    }
}
