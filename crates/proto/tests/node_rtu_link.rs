//! What a call of a program's handler sends over its link: how many packets, and until when they must have
//! left.

use punctual_proto::api::{Port, RtuClass, RtuCost, RtuSent, RtuTerms, UpcallDone};
use punctual_proto::config::{Admission, Pacing};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::{HEADER_BYTES, WATCH_SLOT};
use punctual_proto::{BitRate, Instant, Nanos};
use punctual_rig::handlers::{Bench, cpu};
use punctual_rig::line_config;

const US: fn(u64) -> Nanos = Nanos::from_micros;
const NOW: Instant = Instant(1_000_000_000);
const RATE: BitRate = BitRate(100_000_000);
const LINK: LinkId = LinkId(0);
/// Payload of each packet.
const BYTES: u32 = 100;

/// A budget of four data units, `quantum` of them in one call.
fn terms(quantum: u32) -> RtuTerms {
    let class = RtuClass::LowDelay { interval: US(5_000), units: 4, priority: None };
    RtuTerms { class, deadline: None, quantum, cost: RtuCost { run: US(2), unit: US(5) } }
}

/// The first call of a handler that sends `packets` for each data unit and has `messages` in its ring. It was
/// given a quantum, and reports `units`.
fn after_a_call(
    bench: &mut Bench,
    quantum: u32,
    packets: u32,
    messages: usize,
    units: u32,
) -> (RtuSent, usize) {
    let id = bench.register_sender(terms(quantum), packets, BYTES).expect("granted");
    let (outbox, _) = bench.bodies[&id].sends.clone().expect("it sends");
    (0..messages).for_each(|_| assert!(outbox.send(&[7; BYTES as usize], NOW), "room"));
    bench.node.make_ready(id, NOW);
    let work = bench.node.begin_work(NOW).expect("it has work");
    assert_eq!((bench.node.upcall(&work), work.packets), (Some(id), quantum));
    let done = UpcallDone { units, more: false, took: US(7) };
    bench.node.finish_upcall(&work, done, NOW + done.took);
    let status = bench.node.handlers().find(|status| status.id == id).expect("a handler");
    (status.sent.expect("it sends"), outbox.waiting())
}

/// A call sends the packets of the data units that it reports: of one at least, and of none that it was not
/// given. The others stay in the ring.
#[test]
fn a_call_sends_for_the_units_that_it_was_given() {
    const MESSAGES: usize = 20;
    // No call is longer than the processor can bear.
    for (quantum, packets) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)] {
        for units in 0..=4 {
            let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
            let (sent, left) = after_a_call(&mut bench, quantum, packets, MESSAGES, units);
            let expected = packets * units.min(quantum).max(1);
            assert_eq!(
                (sent.packets, sent.packets_beyond, left),
                (expected.into(), 0, MESSAGES - expected as usize),
                "{units} of {quantum}, {packets} each"
            );
        }
    }
}

/// The packet of a first call leaves `beyond` its bound. The driver had no room so long before, if it ever
/// had none. Returns by how much the link was late, as far as the host knows, and how often the processor
/// was.
fn lateness(pace: Pacing, full_before: Option<Nanos>, beyond: Nanos) -> (Option<Nanos>, u64) {
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(Admission::EDF);
    config.links[0].pace = pace;
    let wire_bytes = BYTES + HEADER_BYTES as u32 + config.links[0].overhead_bytes;
    let mut bench = Bench::of(config);
    let (sent, _) = after_a_call(&mut bench, 1, 1, 1, 1);
    let last = NOW + sent.bound.expect("within its budget") + beyond;
    let begins = Instant(last.0 - RATE.time_of(u64::from(wire_bytes)).0);
    if let Some(before) = full_before {
        bench.node.handle_full(LINK, Instant(begins.0 - before.0));
    }
    let mut out = [0; 2_048];
    let packets = std::iter::from_fn(|| bench.node.poll_transmit(LINK, begins, &mut out));
    let data: Vec<_> = packets.filter(|packet| packet.port == Port::Data).collect();
    assert_eq!(data.iter().map(|packet| packet.wire_bytes).collect::<Vec<_>>(), [wire_bytes]);
    bench.node.handle_timeout(begins);
    let status = bench.node.status(begins);
    let late = status.late.iter().find(|stage| stage.towards.is_some());
    (late.map(|stage| stage.late.by_max), status.late_service.times)
}

/// A packet must have left by the bounds of processor and link after the release of its data unit. If the
/// adapter sets the pace, the link is late from the first nanosecond on.
#[test]
fn a_link_is_late_if_a_packet_leaves_behind_its_bound() {
    for beyond in [Nanos::ZERO, Nanos(1), US(3)] {
        let late = (beyond > Nanos::ZERO).then_some(beyond);
        assert_eq!(lateness(Pacing::Completion, None, beyond), (late, 0), "{beyond} too late");
    }
}

/// Where the clock sets the pace, a link is to blame if its driver has had no room a short time ago; else the
/// processor is.
#[test]
fn a_driver_that_had_no_room_lately_makes_its_link_late() {
    let (late, slot) = (US(3), WATCH_SLOT);
    for (full_before, is_links) in [
        (None, false),
        (Some(slot + Nanos(1)), false),
        (Some(slot), false),
        (Some(slot - Nanos(1)), true),
        (Some(Nanos::ZERO), true),
    ] {
        let expected = if is_links { (Some(late), 0) } else { (None, 1) };
        assert_eq!(lateness(Pacing::Clock, full_before, late), expected, "{full_before:?}");
    }
}
