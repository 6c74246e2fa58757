//! Measuring the paths: real nodes, a source, a forwarder and a sink, driven step by step on the calling thread.
//!
//! The steps are those of the processor's turn with a clock reading between them. Every packet is sent alone:
//! its system calls are its own, and its receiver finds one packet at a time. Channels take turns, so that a
//! message finds the caches in the state that other messages left. The links are as fast as the drivers: no
//! packet waits for a pace. The additional time of the first units after an idle time is measured separately
//! ([`cold`]), as are segments of TCP ([`segments`]).

mod cold;
mod host;
mod segments;
mod wires;
mod xdp;

use std::io;

use punctual_os::now;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::words::counted;
use punctual_proto::{Instant, Nanos};
use thiserror::Error;

use self::cold::Others;
use self::host::{Host, Step};
use super::file::Costs;
use super::summary::{BLOCK_UNITS, HOLE_NS, Summary};
use crate::error::EngineError;

pub use self::wires::{Wires, udp_wires};
pub use self::xdp::xdp_wires;

/// Channels that take turns.
const LANES: usize = 8;
/// Payload of the smallest packets that are measured.
pub(super) const SMALL_BYTES: usize = 64;
/// Payload of the largest.
pub(super) const LARGE_BYTES: usize = 1_400;
/// Packets of the longest messages that are measured.
pub(super) const RUN_PACKETS: usize = 4;
/// Interval between two messages of one channel: the contract's interval with room for its policing.
pub(super) const INTERVAL: Nanos = Nanos::from_micros(400);
const GAP: Nanos = Nanos::from_micros(450);
/// What messages after idle times may take besides.
const COLD_WITHIN: Nanos = Nanos::from_secs(2);
/// What segments of TCP may take besides.
const SEGMENTS_WITHIN: Nanos = Nanos::from_secs(2);
/// Messages of each shape before any counts.
const WARM_UP: usize = 64;
/// A message that has not come by then has met a hole and was demoted: it does not count.
const LOST: Nanos = Nanos::from_millis(20);

/// How an application's rings are made and used, which the engine does not implement.
pub trait Rings {
    /// The engine's end of an outgoing ring.
    type Outbox: Outbox + 'static;
    /// The engine's end of an incoming ring.
    type Inbox: Inbox + 'static;
    /// The application's end of an outgoing ring.
    type Writer;
    /// The application's end of an incoming ring.
    type Reader;

    /// An outgoing ring.
    ///
    /// # Errors
    /// If memory or descriptors are short.
    fn outgoing(&self, messages: u32, bytes_max: u32) -> io::Result<(Self::Outbox, Self::Writer)>;
    /// An incoming ring.
    ///
    /// # Errors
    /// See [`Rings::outgoing`].
    fn incoming(&self, messages: u32, bytes_max: u32) -> io::Result<(Self::Inbox, Self::Reader)>;
    /// Sends a message as the application does.
    ///
    /// # Errors
    /// If the ring is full or broken.
    fn send(&self, writer: &mut Self::Writer, message: &[u8]) -> io::Result<()>;
    /// Takes a message as the application does; `false` if none is there.
    fn receive(&self, reader: &mut Self::Reader) -> bool;
}

/// Source, forwarder and sink.
struct Chain<R: Rings> {
    source: Host<R>,
    forwarder: Host<R>,
    sink: Host<R>,
}

/// A channel with the applications' ends of its rings.
struct Lane<R: Rings> {
    source: ChannelId,
    writer: R::Writer,
    reader: R::Reader,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Messages of each shape that count.
    pub messages: usize,
    /// Messages after an idle time each.
    pub cold: usize,
    /// Ends earlier, with the samples so far.
    pub within: Nanos,
}

impl Plan {
    /// Plan for the start of a host: about a second.
    pub const SHORT: Self = Self { messages: 960, cold: 3 * BLOCK_UNITS, within: Nanos::from_millis(600) };
}

/// The measurement could not be made.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// Rings, sockets or threads.
    #[error("cannot measure this machine: {what}: {error}")]
    Os {
        /// The attempted operation.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// A driver.
    #[error("cannot measure this machine: {0}")]
    Link(#[from] punctual_link::LinkError),
    /// The nodes do not start.
    #[error("cannot measure this machine: {0}")]
    Engine(#[from] EngineError),
    /// The real-time class of the measuring thread.
    #[error("cannot measure this machine: {0}")]
    RealTime(#[from] punctual_os::realtime::RealTimeError),
    /// A channel was not opened, or too few messages came through.
    #[error("cannot measure this machine: {0}")]
    Failed(String),
}

/// The times of every step, in ns, in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSamples {
    /// The application puts a small message into its ring.
    pub api_send: Vec<u64>,
    /// The application takes a small message out of its ring.
    pub api_receive: Vec<u64>,
    /// The source takes a message out of the ring and polices it.
    pub send_message: Vec<u64>,
    /// The first packet of a message, small: fragment, schedule, hand to the driver.
    pub send_first_small: Vec<u64>,
    /// The first packet of a message, largest: fragment, schedule, hand to the driver.
    pub send_first_large: Vec<u64>,
    /// Later packets of a message, largest.
    pub send_later_large: Vec<u64>,
    /// A small packet through the forwarder: from the driver to the driver.
    pub forward_small: Vec<u64>,
    /// A largest packet through the forwarder: from the driver to the driver.
    pub forward_large: Vec<u64>,
    /// A largest packet that does not complete a message: from the driver to reassembly.
    pub receive_middle_large: Vec<u64>,
    /// A small packet that is a message: from the driver to the receiver's ring.
    pub receive_last_small: Vec<u64>,
    /// A largest packet that is a message: from the driver to the receiver's ring.
    pub receive_single_large: Vec<u64>,
    /// A turn without its work: a check of the descriptors, at the node and at the clock.
    pub turn: Vec<u64>,
    /// Part of `send_first_small` that the link scheduler and the driver take.
    pub transmit_small: Vec<u64>,
    /// Part of `send_first_large` that the link scheduler and the driver take.
    pub transmit_large: Vec<u64>,
    /// Part of `receive_last_small` that the driver and the classification take.
    pub input_first: Vec<u64>,
    /// Time of the driver and the classification for later packets of a message, largest.
    pub input_later: Vec<u64>,
    /// The first message after an idle time: taken out of the ring, and its packet out of the source.
    pub cold_send: Vec<u64>,
    /// The packet of `cold_send` through the forwarder, whose code and data are still cold.
    pub cold_forward: Vec<u64>,
    /// The packet of `cold_send` into the sink, whose code and data are still cold.
    pub cold_receive: Vec<u64>,
    /// Waking the receiver, which sleeps.
    pub cold_wake: Vec<u64>,
    /// The four cold times together.
    pub cold_all: Vec<u64>,
    /// The output handler of a TCP connection makes a largest segment of what its program has written.
    pub segment_out: Vec<u64>,
    /// The input handler of a TCP connection processes such a segment, up to the program's ring.
    pub segment_in: Vec<u64>,
    /// The output handler makes an acknowledgement.
    pub ack_out: Vec<u64>,
    /// The input handler processes an acknowledgement.
    pub ack_in: Vec<u64>,
    /// The input handler, without a segment, hands over as much as one call may.
    pub segment_call: Vec<u64>,
    /// Messages that did not come.
    pub lost: u64,
}

/// Shape of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Small,
    Large,
    Run,
}

impl Shape {
    const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Run];

    fn bytes(self) -> usize {
        match self {
            Self::Small => SMALL_BYTES,
            Self::Large => LARGE_BYTES,
            Self::Run => LARGE_BYTES * RUN_PACKETS,
        }
    }
    fn packets(self) -> usize {
        if self == Self::Run { RUN_PACKETS } else { 1 }
    }
}

/// Measures over `wires`.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure<R: Rings>(rings: &R, wires: Wires, plan: Plan) -> Result<PathSamples, MeasureError> {
    let started = now();
    let mut chain = Chain::<R>::new(wires)?;
    let mut lanes = Vec::with_capacity(LANES);
    for number in 0..LANES {
        lanes.push(chain.open(rings, number)?);
    }
    let mut samples = PathSamples::default();
    let mut sent = [now(); LANES];
    let rounds = (plan.messages + WARM_UP) * Shape::ALL.len();
    for round in 0..rounds {
        let lane = round % LANES;
        let shape = Shape::ALL[round % Shape::ALL.len()];
        spin_until(sent[lane] + GAP);
        if round == WARM_UP * Shape::ALL.len() {
            samples = PathSamples::default();
        }
        chain.settle();
        sent[lane] = now();
        one(&mut chain, rings, &mut lanes[lane], shape, &mut samples)?;
        chain.idle_turn(&mut samples.turn);
        if now().since(started) > plan.within {
            break;
        }
    }
    let mut others = Others::new().map_err(|error| MeasureError::Os { what: "a sleeper", error })?;
    // What a hole or a loss took is measured again, or one of them would leave less than a block.
    let mut lane = 0;
    while samples.cold_that_count() < plan.cold && now().since(started) <= plan.within + COLD_WITHIN {
        chain.settle();
        cold::one(&mut chain, rings, &mut lanes[lane], &mut others, &mut samples)?;
        lane = (lane + 1) % LANES;
    }
    segments::measure(rings, &plan, now() + SEGMENTS_WITHIN, &mut samples)?;
    samples.check(&plan, now().since(started))?;
    Ok(samples)
}

fn spin_until(until: Instant) {
    while now() < until {
        std::hint::spin_loop();
    }
}

/// Sends one message of a shape step by step, and takes its times.
fn one<R: Rings>(
    chain: &mut Chain<R>,
    rings: &R,
    lane: &mut Lane<R>,
    shape: Shape,
    samples: &mut PathSamples,
) -> Result<(), MeasureError> {
    let message = [0x5a; LARGE_BYTES * RUN_PACKETS];
    let begun = now();
    rings
        .send(&mut lane.writer, &message[..shape.bytes()])
        .map_err(|error| MeasureError::Os { what: "sending into a ring", error })?;
    let put = now();
    chain.source.ring(lane.source);
    let taken = now();
    let packets = shape.packets();
    let send: Vec<Step> = (0..packets).map_while(|_| chain.send_one()).collect();
    let forward: Vec<Step> = (0..send.len()).map_while(|_| chain.forward_one()).collect();
    let receive: Vec<Step> = (0..forward.len()).map_while(|_| chain.receive_one()).collect();
    if receive.len() < packets {
        samples.lost += 1;
        chain.drain(rings, lane, now() + LOST);
        return Ok(());
    }
    let before = now();
    let came = rings.receive(&mut lane.reader);
    let read = now();
    if !came {
        samples.lost += 1;
        chain.drain(rings, lane, now() + LOST);
        return Ok(());
    }
    samples.send_message.push(taken.since(put).0);
    let all = |steps: &[Step]| steps.iter().map(|step| step.all_ns).collect::<Vec<_>>();
    match shape {
        Shape::Small => {
            samples.api_send.push(put.since(begun).0);
            samples.api_receive.push(read.since(before).0);
            samples.send_first_small.push(send[0].all_ns);
            samples.transmit_small.push(send[0].driver_ns);
            samples.forward_small.push(forward[0].all_ns);
            samples.input_first.push(receive[0].driver_ns);
            samples.receive_last_small.push(receive[0].all_ns);
        }
        Shape::Large => {
            samples.send_first_large.push(send[0].all_ns);
            samples.transmit_large.push(send[0].driver_ns);
            samples.forward_large.push(forward[0].all_ns);
            samples.receive_single_large.push(receive[0].all_ns);
        }
        Shape::Run => {
            samples.send_later_large.extend(all(&send[1..]));
            samples.forward_large.extend(all(&forward[1..]));
            samples.input_later.extend(receive[1..].iter().map(|step| step.driver_ns));
            samples.receive_middle_large.extend(all(&receive[..RUN_PACKETS - 1]));
        }
    }
    Ok(())
}

impl PathSamples {
    /// Every series with its name.
    pub fn series(&self) -> [(&'static str, &[u64]); 26] {
        [
            ("api_send", &self.api_send),
            ("api_receive", &self.api_receive),
            ("send_message", &self.send_message),
            ("send_first_small", &self.send_first_small),
            ("send_first_large", &self.send_first_large),
            ("send_later_large", &self.send_later_large),
            ("forward_small", &self.forward_small),
            ("forward_large", &self.forward_large),
            ("receive_middle_large", &self.receive_middle_large),
            ("receive_last_small", &self.receive_last_small),
            ("receive_single_large", &self.receive_single_large),
            ("transmit_small", &self.transmit_small),
            ("transmit_large", &self.transmit_large),
            ("input_first", &self.input_first),
            ("input_later", &self.input_later),
            ("turn", &self.turn),
            ("cold_send", &self.cold_send),
            ("cold_forward", &self.cold_forward),
            ("cold_receive", &self.cold_receive),
            ("cold_wake", &self.cold_wake),
            ("cold_all", &self.cold_all),
            ("segment_out", &self.segment_out),
            ("segment_in", &self.segment_in),
            ("ack_out", &self.ack_out),
            ("ack_in", &self.ack_in),
            ("segment_call", &self.segment_call),
        ]
    }

    /// Adds what another measurement took.
    pub fn extend(&mut self, other: &Self) {
        let pairs = [
            (&mut self.api_send, &other.api_send),
            (&mut self.api_receive, &other.api_receive),
            (&mut self.send_message, &other.send_message),
            (&mut self.send_first_small, &other.send_first_small),
            (&mut self.send_first_large, &other.send_first_large),
            (&mut self.send_later_large, &other.send_later_large),
            (&mut self.forward_small, &other.forward_small),
            (&mut self.forward_large, &other.forward_large),
            (&mut self.receive_middle_large, &other.receive_middle_large),
            (&mut self.receive_last_small, &other.receive_last_small),
            (&mut self.receive_single_large, &other.receive_single_large),
            (&mut self.transmit_small, &other.transmit_small),
            (&mut self.transmit_large, &other.transmit_large),
            (&mut self.input_first, &other.input_first),
            (&mut self.input_later, &other.input_later),
            (&mut self.turn, &other.turn),
            (&mut self.cold_send, &other.cold_send),
            (&mut self.cold_forward, &other.cold_forward),
            (&mut self.cold_receive, &other.cold_receive),
            (&mut self.cold_wake, &other.cold_wake),
            (&mut self.cold_all, &other.cold_all),
            (&mut self.segment_out, &other.segment_out),
            (&mut self.segment_in, &other.segment_in),
            (&mut self.ack_out, &other.ack_out),
            (&mut self.ack_in, &other.ack_in),
            (&mut self.segment_call, &other.segment_call),
        ];
        for (ours, theirs) in pairs {
            ours.extend(theirs);
        }
        self.lost += other.lost;
    }

    /// Cold samples outside holes.
    fn cold_that_count(&self) -> usize {
        self.cold_all.iter().filter(|ns| **ns < HOLE_NS).count()
    }

    /// Whether enough came through to charge by; `taken` is how long it took.
    fn check(&self, plan: &Plan, taken: Nanos) -> Result<(), MeasureError> {
        let short = |came: u64, of: &str| {
            let (lost, why) = (self.lost, "were lost: the machine is overloaded");
            Err(MeasureError::Failed(format!(
                "only {} {of} in {taken}, {lost} {why}",
                counted(came, "message")
            )))
        };
        let came = self.send_first_small.len().min(self.receive_middle_large.len()) as u64;
        if came < WARM_UP as u64 || self.lost > came {
            return short(came, "came through");
        }
        // Without a full block of cold samples the profile would state no cost of a cold processor.
        let cold = self.cold_that_count();
        if cold < plan.cold.min(BLOCK_UNITS) {
            return short(cold as u64, "after idle times came through");
        }
        let segments = self.segment_in.len().min(self.segment_call.len());
        if segments < BLOCK_UNITS {
            return short(segments as u64, "of TCP came through");
        }
        Ok(())
    }

    /// The unit costs that produce the measured times: the copy from the difference between small and largest
    /// packets (on the most expensive path), later packets without their copy, delivery from the additional
    /// time of completing a message.
    pub fn costs(&self) -> Costs {
        let block = |series: &[u64]| Summary::of(series).block_ns;
        let median = |series: &[u64]| Summary::of(series).median_ns;
        let copied = (LARGE_BYTES - SMALL_BYTES) as u64;
        let per_kib = |small: &[u64], large: &[u64]| {
            (median(large).saturating_sub(median(small)) * 1_024).div_ceil(copied)
        };
        let copy_kib_ns = per_kib(&self.send_first_small, &self.send_first_large)
            .max(per_kib(&self.forward_small, &self.forward_large))
            .max(per_kib(&self.receive_last_small, &self.receive_single_large));
        let less_copy = |ns: u64| ns.saturating_sub(copy_kib_ns * copied / 1_024).max(1);
        // Times of the same message between others.
        let hot = [&self.send_message, &self.send_first_small, &self.forward_small, &self.receive_last_small];
        let hot = hot.into_iter().map(|series| block(series)).sum();
        let first = block(&self.send_first_small).max(1);
        let middle = less_copy(block(&self.receive_middle_large));
        let segments = [&self.segment_out, &self.segment_in, &self.ack_out, &self.ack_in];
        Costs {
            send_message_ns: block(&self.send_message).max(1),
            send_packet_ns: first,
            send_packet_later_ns: less_copy(block(&self.send_later_large)).min(first),
            forward_packet_ns: block(&self.forward_small).max(1),
            receive_packet_ns: middle,
            deliver_message_ns: block(&self.receive_last_small).saturating_sub(middle),
            copy_kib_ns,
            cold_start_ns: block(&self.cold_all).saturating_sub(hot),
            segment_ns: segments.into_iter().map(|series| block(series)).max().unwrap_or(0).max(1),
            segment_call_ns: block(&self.segment_call).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cold: &[u64], segments: usize) -> Result<(), String> {
        let (warm, segments) = (vec![1_000; WARM_UP], vec![1_000; segments]);
        let samples = PathSamples {
            send_first_small: warm.clone(),
            receive_middle_large: warm,
            cold_all: cold.to_vec(),
            segment_in: segments.clone(),
            segment_call: segments,
            ..PathSamples::default()
        };
        samples.check(&Plan::SHORT, Nanos::from_secs(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cold_processor_that_was_not_measured_is_an_error() {
        assert_eq!(check(&[40_000; BLOCK_UNITS], BLOCK_UNITS), Ok(()));
        for cold in [&[][..], &[40_000; BLOCK_UNITS - 1], &[HOLE_NS; BLOCK_UNITS]] {
            let refused = check(cold, BLOCK_UNITS).expect_err("nothing to charge by");
            assert!(refused.contains("after idle times"), "{refused}");
        }
    }

    #[test]
    fn segments_that_were_not_measured_are_an_error() {
        let refused = check(&[40_000; BLOCK_UNITS], BLOCK_UNITS - 1).expect_err("nothing to charge by");
        assert!(refused.contains("of TCP"), "{refused}");
    }
}
