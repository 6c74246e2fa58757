//! Measures segments of TCP: connections between two endsystems on this thread, driven handler by handler (ADR 0054).
//!
//! What is timed is what the processor declares for such a handler: the call's body, with the copies to and from the
//! program's rings. Each segment is of the largest size and travels alone, connections take turns, and every one is
//! acknowledged. A call without a segment hands over what waited for room in the program's ring: as much as one may.

use std::io;
use std::net::SocketAddr;

use punctual_link::Pool;
use punctual_os::now;
use punctual_proto::memory::{MessageRead, Outbox};
use punctual_proto::{Instant, Nanos};
use punctual_tcp::endsystem::{CallOutcome, Endsystem, Rings as TcpRings, Segments};
use punctual_tcp::{Config, Flow, Secrets, State};

use super::{LANES, MeasureError, PathSamples, Plan, Rings, Series, WARM_UP};
use crate::memory::HostMemory;

/// Largest packet: a frame of Ethernet.
const PACKET_BYTES: u16 = 1_500;
/// Data of a segment of that size, behind headers of IPv4 and TCP with timestamps.
const SEGMENT_BYTES: usize = 1_448;
/// Messages of a program's ring in each direction, and the bytes of one.
const RING: (u32, u32) = (4, 4_096);
/// Segments that fill what one call hands over.
const HELD_SEGMENTS: usize = 12;
/// Connections are held up so often for each segment that is measured alone.
const HELD_SHARE: usize = 4;
/// Calls of handlers until two ends have nothing to say, at most.
const EXCHANGES_MAX: usize = 64;
/// Packets on the way at once: what two ends may send until the other one reads.
const PACKETS: u32 = 1_024;

type Memory<R> = HostMemory<<R as Rings>::Outbox, <R as Rings>::Inbox>;

/// A connection's end with its program's.
struct End<R: Rings> {
    index: u32,
    writer: R::Writer,
    reader: R::Reader,
}

/// Where an output handler puts its segment, and where it is taken out.
struct Wire<'a, R: Rings> {
    rings: &'a R,
    writer: R::Writer,
    outbox: R::Outbox,
}

impl<R: Rings> Segments for Wire<'_, R> {
    fn has_room(&self) -> bool {
        !self.outbox.is_ready()
    }

    fn put(&mut self, packet: &[u8], _: u64) {
        // It was empty.
        let _ = self.rings.send(&mut self.writer, packet);
    }
}

/// Two endsystems with connections between them.
struct Pair<'a, R: Rings> {
    hosts: [Endsystem<Memory<R>>; 2],
    wire: Wire<'a, R>,
    pool: Pool,
}

/// Takes the times of segments.
pub(super) fn measure<R: Rings>(
    rings: &R,
    plan: &Plan,
    until: Instant,
    samples: &mut PathSamples,
) -> Result<(), MeasureError> {
    let mut pair = Pair::new(rings)?;
    let mut lanes = Vec::with_capacity(LANES);
    for number in 0..LANES {
        lanes.push(pair.open(rings, number as u16)?);
    }
    let rounds = WARM_UP + 2 * plan.messages;
    for round in 0..rounds {
        let counts = (round >= WARM_UP).then_some(&mut *samples);
        pair.one(rings, &mut lanes[round % LANES], counts)?;
        if round % HELD_SHARE == 0 {
            let counts = (round >= WARM_UP).then_some(&mut *samples);
            pair.held(rings, &mut lanes[(round / HELD_SHARE) % LANES], counts)?;
        }
        if samples.of(Series::SegmentIn).len() >= plan.messages || now() > until {
            break;
        }
    }
    Ok(())
}

impl<'a, R: Rings> Pair<'a, R> {
    fn new(rings: &'a R) -> Result<Self, MeasureError> {
        let host = |number| Endsystem::new(Secrets::new([number; 16]), 0, 0).with_paths(LANES);
        let (outbox, writer) = rings.outgoing(1, PACKET_BYTES.into()).map_err(os)?;
        Ok(Self {
            hosts: [host(1), host(2)],
            wire: Wire { rings, writer, outbox },
            pool: Pool::new(PACKETS, PACKET_BYTES.into()),
        })
    }

    fn open(&mut self, rings: &R, number: u16) -> Result<[End<R>; 2], MeasureError> {
        let address = |host: u8| SocketAddr::from(([10, 99, 9, host], 50_000 + number));
        let mut end = |host: usize| -> Result<End<R>, MeasureError> {
            let (outbox, writer) = rings.outgoing(RING.0, RING.1).map_err(os)?;
            let (inbox, reader) = rings.incoming(RING.0, RING.1).map_err(os)?;
            let [local, remote] = [host, 1 - host].map(|host| address(host as u8 + 1));
            let config = Config {
                mtu_bytes: PACKET_BYTES,
                is_nodelay: true,
                ack_delay: Nanos::ZERO,
                ..Config::default()
            };
            let rings = TcpRings { outbox, inbox, chunk_bytes: RING.1 };
            let begun = self.hosts[host].connect_over_channels(Flow { local, remote }, &config, rings, now());
            let index = begun.map_err(|_| failed("a connection was refused"))?;
            Ok(End { index, writer, reader })
        };
        let ends = [end(0)?, end(1)?];
        self.settle(&ends);
        let is_open = |(host, end): (&Endsystem<_>, &End<R>)| {
            host.status(end.index).is_some_and(|status| status.state == State::Established)
        };
        if self.hosts.iter().zip(&ends).all(is_open) {
            Ok(ends)
        } else {
            Err(failed("a connection never opened"))
        }
    }

    /// One segment from the first end to the second one, and its acknowledgement.
    fn one(
        &mut self,
        rings: &R,
        ends: &mut [End<R>; 2],
        samples: Option<&mut PathSamples>,
    ) -> Result<(), MeasureError> {
        rings.send(&mut ends[0].writer, &[0x5a; SEGMENT_BYTES]).map_err(os)?;
        let indices = [ends[0].index, ends[1].index];
        let times = [self.output(0, indices[0]), self.carry(1, indices[1])];
        let acknowledged = [self.output(1, indices[1]), self.carry(0, indices[0])];
        let came = rings.receive(&mut ends[1].reader);
        self.settle(ends);
        let all = times.into_iter().chain(acknowledged).collect::<Option<Vec<_>>>();
        match (samples, all.as_deref()) {
            (Some(samples), Some(&[out, input, ack_out, ack_in])) if came => {
                samples.push(Series::SegmentOut, out);
                samples.push(Series::SegmentIn, input);
                samples.push(Series::AckOut, ack_out);
                samples.push(Series::AckIn, ack_in);
            }
            (Some(samples), _) => samples.lose(),
            (None, _) => {}
        }
        Ok(())
    }

    /// The program does not read, then reads, and a call hands over what waited.
    fn held(
        &mut self,
        rings: &R,
        ends: &mut [End<R>; 2],
        samples: Option<&mut PathSamples>,
    ) -> Result<(), MeasureError> {
        for _ in 0..RING.0 as usize + HELD_SEGMENTS {
            rings.send(&mut ends[0].writer, &[0x5a; SEGMENT_BYTES]).map_err(os)?;
            self.settle(ends);
        }
        while rings.receive(&mut ends[1].reader) {}
        let (_, took) = self.input(1, ends[1].index);
        if let Some(samples) = samples {
            samples.push(Series::SegmentCall, took);
        }
        while rings.receive(&mut ends[1].reader) || self.input(1, ends[1].index).0.delivered {}
        Ok(())
    }

    /// The output handler makes one segment; how long that takes in ns. `None` if there was none.
    fn output(&mut self, host: usize, index: u32) -> Option<u64> {
        let at = now();
        let worked = self.hosts[host].output(index, 1, at, &mut self.wire);
        let took = now().since(at).0;
        (worked.units > 0).then_some(took)
    }

    /// The input handler processes the segment on the wire; how long that takes in ns. `None` if there was none.
    fn carry(&mut self, host: usize, index: u32) -> Option<u64> {
        let (packet, _) = self.wire.outbox.take(now())?;
        let mut frame = self.pool.take()?;
        let bytes = packet.len() as usize;
        packet.copy_to(0, &mut frame.buffer_mut()[..bytes]);
        frame.set_len(bytes);
        drop(packet);
        self.hosts[host].arrived(index, frame, now()).ok()?;
        let (worked, took) = self.input(host, index);
        (worked.units > 0).then_some(took)
    }

    fn input(&mut self, host: usize, index: u32) -> (CallOutcome, u64) {
        let at = now();
        let worked = self.hosts[host].input(index, 1, at);
        (worked, now().since(at).0)
    }

    /// Both ends say what they have to say, unmeasured.
    fn settle(&mut self, ends: &[End<R>; 2]) {
        for _ in 0..EXCHANGES_MAX {
            let said = [0, 1].map(|host| {
                let made = self.output(host, ends[host].index).is_some();
                made && self.carry(1 - host, ends[1 - host].index).is_some()
            });
            if said == [false, false] {
                return;
            }
        }
    }
}

const fn os(error: io::Error) -> MeasureError {
    MeasureError::Os { what: "a ring for segments", error }
}

fn failed(what: &str) -> MeasureError {
    MeasureError::Failed(format!("segments of TCP: {what}"))
}
