//! The streams of the demo, and its network.

use punctual::{BitRate, Contract, Nanos};

use crate::loads::{Arrivals, Content};
use crate::testbed::stream::contract;
use crate::testbed::{LinkSpec, NetworkSpec, StreamSpec};

/// The bottleneck r - b.
pub const BOTTLENECK: BitRate = BitRate(40_000_000);
/// The link a - r: wide enough for everything that is offered.
const ACCESS: BitRate = BitRate(120_000_000);
/// The delay of a packet by a full queue, as in a router of that rate.
const QUEUE: Nanos = Nanos::from_millis(150);
/// Turns of each system.
pub const SLICES: usize = 4;
/// One turn: a whole number of every stream's interval, and long enough for the queues to fill.
pub const SLICE: Nanos = Nanos::from_millis(2_400);
/// Rates are measured from here on in a turn.
pub const WARM_UP: Nanos = Nanos::from_millis(400);
/// The stream that breaks its contract, from half-way on.
pub const INTRUDER: &str = "second-video";
/// The channel too many, on systems that refuse none.
pub const EXTRA: &str = "extra-video";
/// The film.
pub const FILM: &str = "video";
/// The flood.
pub const BULK: &str = "bulk";

/// 25 a second: what every video's contract allows.
pub const FRAMES: Arrivals = Arrivals::Periodic { interval: Nanos::from_millis(40) };

const EXTRA_BYTES: u32 = 105_000;
const BULK_BYTES: usize = 1_400;
/// Header of a packet and what UDP, IP and Ethernet add on the wire.
const PACKET_EXTRA_BYTES: usize = 64 + 66;
const BULK_BURST: u32 = 8;

/// The line a - r - b.
pub fn network() -> NetworkSpec {
    let links = vec![LinkSpec::new(ACCESS, QUEUE), LinkSpec::new(BOTTLENECK, QUEUE)];
    NetworkSpec { hosts: vec!["a", "r", "b"], links }
}

/// The streams; an answering stream precedes the stream that it answers.
pub fn streams(film: &Content) -> Vec<StreamSpec> {
    let every = |interval_us| Arrivals::Periodic { interval: Nanos::from_micros(interval_us) };
    let loop_contract = contract(256, 100, 2, 10);
    let small = Content::of_size(256);
    let answer = StreamSpec {
        from: "b",
        to: "a",
        ..StreamSpec::guaranteed("answer", loop_contract, small.clone(), every(10_000))
    };
    let control = StreamSpec {
        answered_by: Some("answer"),
        ..StreamSpec::guaranteed("control", loop_contract, small, every(10_000))
    };
    let frame_bytes_max = u32::try_from(film.len_max()).unwrap_or(u32::MAX);
    let video = StreamSpec::guaranteed(FILM, contract(frame_bytes_max, 25, 2, 80), film.clone(), FRAMES);
    // About 5 Mbit/s by contract, three times that in fact.
    let intruder = StreamSpec::guaranteed(
        INTRUDER,
        contract(25_000, 25, 2, 80),
        Content::of_size(25_000),
        every(13_333),
    );
    vec![answer, control, video, intruder, bulk()]
}

/// Twice the capacity of the bottleneck, including headers.
fn bulk() -> StreamSpec {
    let wire_bytes = (BULK_BYTES + PACKET_EXTRA_BYTES) as u64;
    let interval = BitRate(2 * BOTTLENECK.0).time_of(wire_bytes);
    let arrivals = Arrivals::Bursty { interval, burst: BULK_BURST };
    StreamSpec::best_effort(BULK, Content::of_size(BULK_BYTES), arrivals)
}

/// A second film of the same kind: one too many for the bottleneck.
pub fn too_much() -> Contract {
    contract(EXTRA_BYTES, 25, 1, 80)
}

/// The source of the channel too many: it sends all that its contract allows, and no more.
pub fn extra() -> StreamSpec {
    StreamSpec::guaranteed(EXTRA, too_much(), Content::of_size(EXTRA_BYTES as usize), FRAMES)
}
