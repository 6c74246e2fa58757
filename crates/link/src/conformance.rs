//! The requirements of every driver, as one test suite over a pair of connected links.
//!
//! A driver's test calls [`check_all`] with a function that opens a pair; each check opens its own. A driver
//! that reads packet headers calls [`check_driver`] and states how packets must begin.

use std::collections::VecDeque;

use punctual_os::clock::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Link, LinkError, Port, Received};

/// How the pair of a check is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest packet.
    pub packet_bytes_max: usize,
    /// Receive buffers of each end.
    pub frames: u32,
    /// Packets of the longest size that may queue between the ends, roughly.
    pub queue_packets: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { packet_bytes_max: 1_464, frames: 256, queue_packets: 256 }
    }
}

/// What a driver requires of packets, and how it behaves without free buffers.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Longest packets to try.
    pub packet_bytes_max: &'static [usize],
    /// Length of the header that it reads in each packet.
    pub header_bytes: usize,
    /// Writes that over the first bytes of a packet.
    pub write_header: fn(&mut [u8]),
    /// Whether packets for which no buffer is left are dropped and reported by [`Link::stream_drops`],
    /// instead of waiting in its queue.
    pub drops_when_dry: bool,
}

/// A driver that takes any bytes.
const ANY_BYTES: Properties = Properties {
    packet_bytes_max: &[1_464, 9_000, 65_000],
    header_bytes: 0,
    write_header: |_| {},
    drops_when_dry: false,
};

/// Wire overhead of a packet in these checks.
const OVERHEAD_BYTES: u32 = 66;
/// How long something that must happen may take: far beyond any delay of a loaded host.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Runs every check on a driver that takes any bytes.
///
/// # Panics
/// If the driver does not conform.
pub fn check_all<L: Link, F: Fn(Settings) -> (L, L)>(open: F) {
    check_driver(ANY_BYTES, open);
}

/// Runs every check.
///
/// # Panics
/// If the driver does not conform.
pub fn check_driver<L: Link, F: Fn(Settings) -> (L, L)>(of: Properties, open: F) {
    order_is_kept(of, &open);
    sizes_up_to_the_longest_pass_unchanged(of, &open);
    batches_and_their_limits_hold(of, &open);
    a_dry_pool_reports_each_lost_packet(of, &open);
    ports_stay_apart(of, &open);
    completions_add_up(of, &open);
    receive_times_are_the_drivers(of, &open);
    a_full_queue_loses_counts_and_recovers(of, &open);
    an_absent_peer_is_no_error(of, &open);
}

/// A received packet, as a check compares it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    port: Port,
    bytes: Vec<u8>,
    received_ns: u64,
}

fn send(link: &mut impl Link, port: Port, bytes: &[u8]) -> u32 {
    let wire_bytes = bytes.len() as u32 + OVERHEAD_BYTES;
    let until = monotonic_ns() + PATIENCE_NS;
    loop {
        if let Some(buffer) = link.transmit_buffer() {
            buffer[..bytes.len()].copy_from_slice(bytes);
            link.transmit(port, bytes.len(), wire_bytes).expect("the packet fits");
            return wire_bytes;
        }
        link.flush().expect("the link works");
        assert!(monotonic_ns() < until, "the driver stays full");
    }
}

fn flush(link: &mut impl Link) {
    let until = monotonic_ns() + PATIENCE_NS;
    loop {
        link.flush().expect("the link works");
        if !link.is_pending() {
            return;
        }
        assert!(monotonic_ns() < until, "the medium never takes what is queued");
    }
}

/// Waits until the link reports that a packet came.
fn wait_readable(link: &impl Link) {
    let descriptors = link.descriptors();
    let mut watched: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: (PATIENCE_NS / 1_000_000_000) as i64, tv_nsec: 0 };
    let ready = poll(&mut watched, Some(&timeout)).expect("poll");
    assert!(ready > 0, "nothing came");
}

/// Receives until `count` packets are there.
fn gather(link: &mut impl Link, count: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut batch = Vec::with_capacity(16);
    let until = monotonic_ns() + PATIENCE_NS;
    while seen.len() < count {
        if link.receive(&mut batch, 16).expect("the link works") == 0 {
            assert!(monotonic_ns() < until, "{} of {count} packets came", seen.len());
            std::thread::yield_now();
        }
        seen.extend(batch.drain(..).map(seen_of));
    }
    seen
}

fn seen_of(received: Received) -> Seen {
    Seen { port: received.port, bytes: received.frame.as_ref().to_vec(), received_ns: received.received_ns }
}

impl Properties {
    /// A packet of `len` bytes, or a few more, that has its number behind its header and is distinct from any
    /// other.
    fn numbered(self, number: u64, len: usize) -> Vec<u8> {
        let filler = (0..).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8);
        let body = number.to_le_bytes().into_iter().chain(filler.skip(8));
        let len = len.max(self.header_bytes + 8);
        let mut packet: Vec<u8> = std::iter::repeat_n(0, self.header_bytes).chain(body).take(len).collect();
        (self.write_header)(&mut packet);
        packet
    }

    fn number_of(self, seen: &Seen) -> u64 {
        u64::from_le_bytes(seen.bytes[self.header_bytes..][..8].try_into().expect("a numbered packet"))
    }
}

fn order_is_kept<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    let (mut a, mut b) = open(Settings::default());
    let mut next = 0;
    for round in 0..50 {
        let count = 1 + round % 40;
        for number in next..next + count {
            send(&mut a, Port::Data, &of.numbered(number, 64));
        }
        flush(&mut a);
        for seen in gather(&mut b, count as usize) {
            assert_eq!((seen.port, of.number_of(&seen)), (Port::Data, next));
            next += 1;
        }
    }
}

fn sizes_up_to_the_longest_pass_unchanged<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    for &packet_bytes_max in of.packet_bytes_max {
        let (mut a, mut b) = open(Settings { packet_bytes_max, frames: 64, queue_packets: 8 });
        assert_eq!((a.packet_bytes_max(), b.packet_bytes_max()), (packet_bytes_max, packet_bytes_max));
        let sizes = [64, 65, 255, 256, 1_400, packet_bytes_max - 1, packet_bytes_max];
        for (number, size) in sizes.into_iter().enumerate() {
            let packet = of.numbered(number as u64, size);
            send(&mut a, Port::Data, &packet);
            flush(&mut a);
            assert_eq!(gather(&mut b, 1)[0].bytes, packet);
            send(&mut b, Port::Signalling, &packet);
            flush(&mut b);
            assert_eq!(gather(&mut a, 1)[0].bytes, packet);
        }
        let buffer = a.transmit_buffer().expect("an idle driver has room");
        assert_eq!(buffer.len(), packet_bytes_max);
        let refused = a.transmit(Port::Data, packet_bytes_max + 1, 0);
        assert!(matches!(refused, Err(LinkError::TooLong { .. })), "{refused:?}");
    }
}

fn batches_and_their_limits_hold<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    let (mut a, mut b) = open(Settings::default());
    for number in 0..100 {
        send(&mut a, Port::Data, &of.numbered(number, 100));
    }
    flush(&mut a);
    wait_readable(&b);
    let mut batch = Vec::with_capacity(7);
    let mut seen = VecDeque::new();
    let until = monotonic_ns() + PATIENCE_NS;
    while seen.len() < 100 {
        let count = b.receive(&mut batch, 7).expect("the link works");
        assert_eq!(count, batch.len());
        assert!(count <= 7 && monotonic_ns() < until);
        seen.extend(batch.drain(..).map(seen_of));
        assert_eq!(batch.capacity(), 7, "a batch grew");
    }
    assert!(seen.iter().enumerate().all(|(n, packet)| of.number_of(packet) == n as u64));
    assert_eq!(b.receive(&mut batch, 7).expect("the link works"), 0);
    assert_eq!((a.statistics().packets_out, b.statistics().packets_in), (100, 100));
}

fn a_dry_pool_reports_each_lost_packet<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    let (mut a, mut b) = open(Settings { frames: 40, ..Settings::default() });
    for number in 0..100 {
        send(&mut a, Port::Data, &of.numbered(number, 200));
    }
    flush(&mut a);
    let mut held = Vec::new();
    let until = monotonic_ns() + PATIENCE_NS;
    while b.statistics().pool_dry == 0 && b.stream_drops().no_buffer == 0 {
        b.receive(&mut held, 16).expect("the link works");
        assert!(monotonic_ns() < until, "a pool of 40 frames gave {}", held.len());
    }
    while b.receive(&mut held, 16).expect("a dry pool is no error") > 0 {}
    assert!((1..=40).contains(&held.len()), "{} frames of 40", held.len());
    let mut seen: Vec<Seen> = held.drain(..).map(seen_of).collect();
    let mut dropped = 0;
    while of.drops_when_dry && dropped < 100 - seen.len() as u64 {
        dropped = b.stream_drops().no_buffer;
        assert!(monotonic_ns() < until, "{} received, {dropped} reported as dropped", seen.len());
    }
    assert!(dropped <= 60, "{dropped} of 100 dropped for want of 40 buffers");
    seen.extend(gather(&mut b, 100 - dropped as usize - seen.len()));
    for number in 100..140 {
        send(&mut a, Port::Data, &of.numbered(number, 200));
    }
    flush(&mut a);
    seen.extend(gather(&mut b, 40));
    let came = (0..100 - dropped).chain(100..140);
    assert!(seen.iter().map(|packet| of.number_of(packet)).eq(came), "all that came, in order");
}

fn ports_stay_apart<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    let (mut a, mut b) = open(Settings::default());
    for number in 0..60u64 {
        let port = if number % 3 == 0 { Port::Signalling } else { Port::Data };
        send(&mut a, port, &of.numbered(number, 64 + number as usize));
    }
    flush(&mut a);
    let seen = gather(&mut b, 60);
    for (port, is_there) in [(Port::Signalling, true), (Port::Data, false)] {
        let numbers: Vec<u64> =
            seen.iter().filter(|packet| packet.port == port).map(|packet| of.number_of(packet)).collect();
        let expected: Vec<u64> = (0..60).filter(|number| (number % 3 == 0) == is_there).collect();
        assert_eq!(numbers, expected, "{port:?}");
    }
}

fn completions_add_up<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    let (mut a, mut b) = open(Settings::default());
    assert_eq!(a.completed(), 0);
    let mut queued = 0u64;
    let mut completed = 0u64;
    for number in 0..200u64 {
        let port = if number % 5 == 0 { Port::Signalling } else { Port::Data };
        queued += u64::from(send(&mut a, port, &of.numbered(number, 64 + number as usize * 7)));
        flush(&mut a);
        completed += u64::from(a.completed());
        assert!(completed <= queued);
        gather(&mut b, 1);
    }
    let until = monotonic_ns() + PATIENCE_NS;
    while completed < queued {
        completed += u64::from(a.completed());
        assert!(monotonic_ns() < until, "{completed} of {queued} B completed");
    }
    assert_eq!((completed, a.completed()), (queued, 0));
}

fn receive_times_are_the_drivers<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    /// How long packets are left in the driver.
    const LEFT_NS: u64 = 3_000_000;
    /// Two clocks of the kernel are read one after the other.
    const CLOCKS_NS: u64 = 1_000_000;
    let (mut a, mut b) = open(Settings::default());
    let mut last_ns = 0;
    for number in 0..10 {
        let before_ns = monotonic_ns();
        send(&mut a, Port::Data, &of.numbered(number, 64));
        flush(&mut a);
        wait_readable(&b);
        let there_ns = monotonic_ns();
        while monotonic_ns() < there_ns + LEFT_NS {
            std::hint::spin_loop();
        }
        let seen = gather(&mut b, 1).remove(0);
        let now_ns = monotonic_ns();
        assert!(seen.received_ns >= last_ns && seen.received_ns <= now_ns, "{seen:?} at {now_ns}");
        let possible = before_ns - CLOCKS_NS..=there_ns + CLOCKS_NS;
        assert!(possible.contains(&seen.received_ns), "{seen:?}, was there within {possible:?}");
        last_ns = seen.received_ns;
    }
}

fn a_full_queue_loses_counts_and_recovers<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    const SENT: u64 = 2_000;
    let (mut a, mut b) = open(Settings { queue_packets: 32, ..Settings::default() });
    for number in 0..SENT {
        send(&mut a, Port::Data, &of.numbered(number, 1_400));
    }
    flush(&mut a);
    let mut numbers = Vec::new();
    let mut batch = Vec::with_capacity(16);
    wait_readable(&b);
    while b.receive(&mut batch, 16).expect("a full queue is no error") > 0 {
        numbers.extend(batch.drain(..).map(seen_of).map(|packet| of.number_of(&packet)));
    }
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, once");
    assert!(!numbers.is_empty() && (numbers.len() as u64) < SENT, "{} of {SENT}", numbers.len());
    for number in SENT..SENT + 3 {
        send(&mut a, Port::Data, &of.numbered(number, 64));
        flush(&mut a);
        let seen = gather(&mut b, 1).remove(0);
        assert_eq!(of.number_of(&seen), number);
    }
    let lost = a.statistics().overflows + b.statistics().overflows + b.stream_drops().no_buffer;
    assert_eq!(lost, SENT - numbers.len() as u64, "what is lost is counted");
}

fn an_absent_peer_is_no_error<L: Link>(of: Properties, open: &impl Fn(Settings) -> (L, L)) {
    let (mut a, b) = open(Settings::default());
    drop(b);
    let mut batch = Vec::with_capacity(16);
    let mut queued = 0u64;
    let mut completed = 0u64;
    for number in 0..1_000 {
        queued += u64::from(send(&mut a, Port::Data, &of.numbered(number, 64)));
        queued += u64::from(send(&mut a, Port::Signalling, &of.numbered(number, 64)));
        flush(&mut a);
        assert_eq!(a.receive(&mut batch, 16).expect("a missing neighbour is no error"), 0);
    }
    let until = monotonic_ns() + PATIENCE_NS;
    while completed < queued {
        completed += u64::from(a.completed());
        assert!(monotonic_ns() < until, "{completed} of {queued} B completed");
    }
    assert_eq!(completed, queued);
}
