//! Compares AF_XDP with kernel UDP on one veth pair, interleaved in one run: round trips, packets per second,
//! and the cost of a byte on each path. `cargo bench -p punctual-link --bench xdp`; needs root.

#[path = "../tests/xdp/bed.rs"]
mod bed;
#[path = "../tests/common/host.rs"]
mod host;

use std::time::Instant;

use bed::{Cable, Family, Host, best_effort};
use punctual_link::xdp::{XdpLink, XdpMemory, XdpOptions};
use punctual_link::{Link, Port, Received, UdpLink};
use rustix::event::{PollFd, PollFlags, poll};

const HEADERS_BYTES: u32 = 66;
const BATCH_PACKETS: usize = 32;

/// How much is measured: a full `cargo bench`, or a short run that checks that the benchmark works.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    trips: usize,
    packets: usize,
}

fn main() {
    if !bed::privileged() {
        return;
    }
    let effort = if std::env::args().any(|argument| argument == "--bench") {
        Effort { rounds: 10, trips: 2_000, packets: 100_000 }
    } else {
        Effort { rounds: 1, trips: 20, packets: 500 }
    };
    round_trips(effort);
    rates(effort);
    forwarders(effort);
}

/// Both drivers on one cable at different times; the cable stays.
struct Beds {
    hosts: [Host; 2],
    cable: Cable,
}

impl Beds {
    fn new() -> Self {
        let (hosts, cable) = bed::pair(1_500);
        Self { hosts, cable }
    }

    fn xdp(&self) -> [XdpLink; 2] {
        [0, 1].map(|end| open(&self.hosts[end], &self.cable.xdp(Family::V4, end)))
    }

    fn udp(&self) -> [UdpLink; 2] {
        [0, 1].map(|end| {
            let options = self.cable.udp(Family::V4, end);
            self.hosts[end].within(|| UdpLink::open(&options)).expect("a link over udp")
        })
    }
}

fn open(host: &Host, options: &XdpOptions) -> XdpLink {
    let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
    host.within(|| XdpLink::open(options, &memory)).expect("a link over xdp")
}

fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![7; len];
    best_effort(&mut packet);
    packet
}

fn queue(link: &mut impl Link, packet: &[u8]) -> bool {
    let Some(buffer) = link.transmit_buffer() else { return false };
    buffer[..packet.len()].copy_from_slice(packet);
    link.transmit(Port::Data, packet.len(), packet.len() as u32 + HEADERS_BYTES).expect("it fits");
    true
}

fn send(link: &mut impl Link, packet: &[u8]) {
    assert!(queue(link, packet), "an idle driver has room");
    link.flush().expect("works");
    link.completed();
}

fn spin_for_one(link: &mut impl Link, out: &mut Vec<Received>) {
    while link.receive(out, 8).expect("works") == 0 {}
    out.clear();
}

fn sleep_for_one(link: &mut impl Link, out: &mut Vec<Received>) {
    while link.receive(out, 8).expect("works") == 0 {
        let descriptors = link.descriptors();
        let mut watched: Vec<PollFd<'_>> =
            descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        assert!(poll(&mut watched, Some(&patience)).expect("poll") > 0, "no packet came");
    }
    out.clear();
}

/// One thread drives both ends, so there is no wake-up: this measures the stacks alone.
fn spinning([a, b]: &mut [impl Link; 2], len: usize, trips: usize, times_ns: &mut Vec<u64>) {
    let (packet, mut out) = (packet(len), Vec::with_capacity(8));
    for _ in 0..trips {
        let start = Instant::now();
        send(a, &packet);
        spin_for_one(b, &mut out);
        send(b, &packet);
        spin_for_one(a, &mut out);
        times_ns.push(start.elapsed().as_nanos() as u64);
    }
}

/// Two threads that sleep until something comes.
fn blocking<L: Link>(links: &mut [L; 2], len: usize, trips: usize, times_ns: &mut Vec<u64>) {
    let [a, b] = links;
    let packet = packet(len);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = Vec::with_capacity(8);
            for _ in 0..trips {
                sleep_for_one(b, &mut out);
                send(b, &packet);
            }
        });
        let mut out = Vec::with_capacity(8);
        for _ in 0..trips {
            let start = Instant::now();
            send(a, &packet);
            sleep_for_one(a, &mut out);
            times_ns.push(start.elapsed().as_nanos() as u64);
        }
    });
}

fn quantile_us(times_ns: &mut [u64], of: f64) -> f64 {
    times_ns.sort_unstable();
    times_ns[((times_ns.len() - 1) as f64 * of) as usize] as f64 / 1_000.0
}

fn round_trips(effort: Effort) {
    let beds = Beds::new();
    for len in [64, 1_400] {
        let mut times: [Vec<u64>; 4] = Default::default();
        for _ in 0..effort.rounds {
            let mut xdp = beds.xdp();
            spinning(&mut xdp, len, effort.trips, &mut times[0]);
            blocking(&mut xdp, len, effort.trips, &mut times[1]);
            drop(xdp);
            let mut udp = beds.udp();
            spinning(&mut udp, len, effort.trips, &mut times[2]);
            blocking(&mut udp, len, effort.trips, &mut times[3]);
        }
        let names = ["xdp, spinning", "xdp, blocking", "udp, spinning", "udp, blocking"];
        for (name, times) in names.into_iter().zip(&mut times) {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|of| quantile_us(times, of));
            println!("round trip {len:>4} B, {name}: p50 {p50:.1} us, p99 {p99:.1}, p99.9 {p999:.1}");
        }
        let [xdp_spinning, xdp_blocking, udp_spinning, udp_blocking] =
            times.each_mut().map(|times| quantile_us(times, 0.5));
        for (way, ratio) in
            [("spinning", xdp_spinning / udp_spinning), ("blocking", xdp_blocking / udp_blocking)]
        {
            println!("    xdp, {way}: {ratio:.2} of udp's p50");
        }
    }
}

/// Batches from one end to the other, both driven by one thread: packets per second of one core, none of them lost.
fn rate([a, b]: &mut [impl Link; 2], len: usize, packets: usize) -> f64 {
    let (packet, mut out) = (packet(len), Vec::with_capacity(BATCH_PACKETS));
    let start = Instant::now();
    let mut received = 0;
    while received < packets {
        let mut missing = (0..BATCH_PACKETS).take_while(|_| queue(a, &packet)).count();
        received += missing;
        a.flush().expect("works");
        a.completed();
        while missing > 0 {
            missing -= b.receive(&mut out, BATCH_PACKETS).expect("works");
            out.clear();
        }
    }
    received as f64 / start.elapsed().as_secs_f64()
}

fn rates(effort: Effort) {
    let beds = Beds::new();
    for len in [64, 1_400] {
        let mut sums = [0.0; 2];
        for _ in 0..effort.rounds {
            sums[0] += rate(&mut beds.xdp(), len, effort.packets);
            sums[1] += rate(&mut beds.udp(), len, effort.packets);
        }
        for (name, sum) in ["xdp", "udp (sendmmsg, recvmmsg)"].into_iter().zip(sums) {
            let kpps = sum / effort.rounds as f64 / 1_000.0;
            println!("sent and received on one core {len:>4} B, {name}: {kpps:.0} kpps");
        }
        println!("    xdp: {:.2} times udp's", sums[0] / sums[1]);
    }
}

/// Through a forwarder, one packet at a time on one thread: in place against a copy.
fn forwarders(effort: Effort) {
    let hosts = [Host::new(), Host::new(), Host::new()];
    let first = Cable::lay(1, 1_500, [&hosts[0], &hosts[1]]);
    let second = Cable::lay(2, 1_500, [&hosts[1], &hosts[2]]);
    let ends = [first.xdp(Family::V4, 1), second.xdp(Family::V4, 0)];
    let memory = XdpMemory::new(ends.iter().map(XdpOptions::frames_needed).sum(), 2_048).expect("memory");
    let [mut left, mut right] =
        ends.map(|options| hosts[1].within(|| XdpLink::open(&options, &memory)).expect("a link"));
    let mut source = open(&hosts[0], &first.xdp(Family::V4, 0));
    let mut sink = open(&hosts[2], &second.xdp(Family::V4, 1));
    let mut out = Vec::with_capacity(8);
    for len in [64, 1_400] {
        let packet = packet(len);
        let mut times: [Vec<u64>; 2] = Default::default();
        for trip in 0..effort.rounds * effort.trips {
            send(&mut source, &packet);
            let start = Instant::now();
            while left.receive(&mut out, 1).expect("works") == 0 {}
            let frame = out.pop().expect("one packet").frame;
            if trip % 2 == 0 {
                right.transmit_frame(Port::Data, frame, len as u32).expect("in place");
            } else {
                queue(&mut right, frame.as_ref());
                drop(frame);
            }
            times[trip % 2].push(start.elapsed().as_nanos() as u64);
            right.flush().expect("works");
            right.completed();
            spin_for_one(&mut sink, &mut out);
        }
        for (name, times) in ["in place", "by a copy"].into_iter().zip(&mut times) {
            println!(
                "forwarding {len:>4} B {name}, without the kernel: p50 {:.2} us",
                quantile_us(times, 0.5)
            );
        }
    }
}
