//! Measuring the paths: real nodes, a source, a forwarder and a sink, driven step by step on the calling thread.
//!
//! The steps are those of the processor's turn with a clock reading between them. Every packet is sent alone:
//! its system calls are its own, and its receiver finds one packet at a time. Channels take turns, so that a
//! message finds the caches in the state that other messages left. The links are as fast as the drivers: no
//! packet waits for a pace. The additional time of the first units after an idle time is measured separately
//! ([`cold`]), as are segments of TCP ([`segments`]).

mod cold;
mod host;
mod samples;
mod segments;
mod wires;
mod xdp;

use std::io;

use punctual_os::now;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};
use thiserror::Error;

use self::cold::Others;
use self::host::{Host, Step};
use super::summary::BLOCK_UNITS;
use crate::error::EngineError;

pub use self::samples::{PathSamples, Series};
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
        samples.add(Series::Turn, chain.idle_turn());
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
        samples.lose();
        chain.drain(rings, lane, now() + LOST);
        return Ok(());
    }
    let before = now();
    let came = rings.receive(&mut lane.reader);
    let read = now();
    if !came {
        samples.lose();
        chain.drain(rings, lane, now() + LOST);
        return Ok(());
    }
    samples.push(Series::SendMessage, taken.since(put).0);
    let all = |steps: &[Step]| steps.iter().map(|step| step.all_ns).collect::<Vec<_>>();
    match shape {
        Shape::Small => {
            samples.push(Series::ApiSend, put.since(begun).0);
            samples.push(Series::ApiReceive, read.since(before).0);
            samples.push(Series::SendFirstSmall, send[0].all_ns);
            samples.push(Series::TransmitSmall, send[0].driver_ns);
            samples.push(Series::ForwardSmall, forward[0].all_ns);
            samples.push(Series::InputFirst, receive[0].driver_ns);
            samples.push(Series::ReceiveLastSmall, receive[0].all_ns);
        }
        Shape::Large => {
            samples.push(Series::SendFirstLarge, send[0].all_ns);
            samples.push(Series::TransmitLarge, send[0].driver_ns);
            samples.push(Series::ForwardLarge, forward[0].all_ns);
            samples.push(Series::ReceiveSingleLarge, receive[0].all_ns);
        }
        Shape::Run => {
            samples.add(Series::SendLaterLarge, all(&send[1..]));
            samples.add(Series::ForwardLarge, all(&forward[1..]));
            samples.add(Series::InputLater, receive[1..].iter().map(|step| step.driver_ns));
            samples.add(Series::ReceiveMiddleLarge, all(&receive[..RUN_PACKETS - 1]));
        }
    }
    Ok(())
}
