//! What the header of each packet says that a host makes: of a channel's messages within the contract and
//! beyond it, of a flow's, and of a program's handler's. Only times depend on when the packets leave.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::{Port, RtuClass, RtuCost, RtuSending, RtuTarget, RtuTerms};
use punctual_proto::ids::{Cookie, NodeId, PathId};
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Policing, Rate};
use punctual_rig::{TestOutbox, World, name};

/// Bytes of a message of three packets.
const BYTES: u32 = 3_000;
/// Length of each of its packets: a fragment has 1,400 B at most.
const CUT: [u32; 3] = [1_400, 1_400, 200];

type Seen = Rc<RefCell<Vec<Header>>>;

/// A line h1 - h2 - h3, and the headers of all data packets that h1 sends.
fn watched() -> (World, Seen) {
    let mut world = World::line(3, BitRate(40_000_000));
    world.run_for(Nanos::from_secs(1));
    let seen = Seen::default();
    let headers = seen.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        if let (0, Port::Data, Ok((header, payload))) = (node, port, Header::parse(bytes)) {
            assert_eq!(payload.len(), header.payload_bytes as usize);
            headers.borrow_mut().push(header);
        }
        true
    }));
    (world, seen)
}

/// The header of a packet of this kind without a message, for nobody.
fn header(kind: Kind, path: PathId, cookie: Cookie, sent: Instant) -> Header {
    Header {
        kind,
        demoted: false,
        unpromised: false,
        path,
        cookie,
        message: 0,
        fragment: 0,
        fragments: 0,
        message_bytes: 0,
        slack_ns: 0,
        logical_arrival: sent,
        age: Age::NONE,
        payload_bytes: 0,
        clock_error: ClockError::NONE,
        destination: NodeId(0),
    }
}

/// The headers of message `number`, which is sent in pieces of these lengths; `common`: what all packets have
/// in common.
fn of_message(common: Header, number: u64, cut: &[u32]) -> Vec<Header> {
    let (fragments, message_bytes) = (cut.len() as u16, cut.iter().sum());
    let header = |(fragment, &payload_bytes)| Header {
        message: number,
        fragment,
        fragments,
        message_bytes,
        payload_bytes,
        ..common
    };
    (0..).zip(cut).map(header).collect()
}

/// A channel's packets name their path and no host: forwarders know the way. Those beyond the contract say
/// so, and have neither slack nor age, which only mean something where a stage has promised a bound.
#[test]
fn a_channels_packets_say_what_they_belong_to_and_whether_they_are_promised() {
    let (mut world, seen) = watched();
    let contract = Contract::new(BYTES, Rate::per_second(20).expect("a rate"), 1, Nanos::from_millis(100));
    let contract =
        Contract { policing: Policing::Demote, jitter: Some(Nanos::ZERO), ..contract.expect("in range") };
    let open = world.open(0, 2, contract).expect("it fits");
    world.run_for(Nanos::from_millis(100));
    let sent = world.now;
    open.outbox.push_beyond_room(&[7; BYTES as usize], 3, sent);
    world.nodes[0].handle_ring(open.source, sent);
    world.run_for(Nanos::from_millis(100));
    let (_, path, cookie) = world.nodes[2].filtered().next().expect("the channel comes in there");
    let promised = header(Kind::Guaranteed, path, cookie, sent);
    let demoted = Header { demoted: true, unpromised: true, ..promised };
    let (first, others): (Vec<_>, Vec<_>) = seen.take().into_iter().partition(|header| !header.demoted);
    assert!(first.iter().all(|header| header.slack_ns > 0 && header.age != Age::NONE), "{first:?}");
    let untimed: Vec<_> =
        first.into_iter().map(|header| Header { slack_ns: 0, age: Age::NONE, ..header }).collect();
    assert_eq!(untimed, of_message(promised, 0, &CUT));
    assert_eq!(others, [of_message(demoted, 1, &CUT), of_message(demoted, 2, &CUT)].concat());
}

/// A flow's packets name the port and the host that they are for. A message that is too long is dropped, and
/// its number is missing: the receiver can tell that one is.
#[test]
fn a_flows_packets_say_whom_they_are_for() {
    let (mut world, seen) = watched();
    let outbox = TestOutbox::new(4, BYTES as usize + 1);
    let to = "bulk@h3".parse().expect("an address");
    let sent = world.now;
    for bytes in [BYTES, BYTES + 1, 10] {
        assert!(outbox.send(&vec![7; bytes as usize], sent));
    }
    world.nodes[0].open_best_effort(to, BYTES, outbox, sent).expect("a route");
    world.run_for(Nanos::from_millis(100));
    let path = seen.borrow().first().expect("a packet").path;
    assert_eq!((path.node, path.epoch), (NodeId(1), punctual_proto::ids::Epoch(1)));
    let common = Header {
        clock_error: ClockError::UNKNOWN,
        destination: NodeId(3),
        ..header(Kind::BestEffort, path, Cookie(name("bulk").port_hash()), sent)
    };
    assert_eq!(seen.take(), [of_message(common, 0, &CUT), of_message(common, 2, &[10])].concat());
    assert_eq!(world.nodes[0].status(world.now).drops.too_large, 1);
}

/// A handler's packets are a flow's, of one message each.
#[test]
fn a_handlers_packets_are_numbered_messages_to_a_port() {
    let (mut world, seen) = watched();
    // The audit counts packets by the kind in their headers: a handler's bear that of best effort, within a
    // budget too.
    world.audit = None;
    let outbox = TestOutbox::new(4, 100);
    let to = RtuTarget::Port("bulk@h3".parse().expect("an address"));
    let sending = RtuSending { to, packets: 3, payload_bytes: 100 };
    let class = RtuClass::periodic(Nanos::from_millis(10), 1);
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(5) };
    let terms = RtuTerms { class, deadline: None, quantum: 1, cost };
    let sent = world.now;
    let id = world.nodes[0].register_sender(terms, &sending, outbox.clone(), sent).expect("it fits");
    // The second one is too long: it takes no number, because the handler itself learns that it is dropped.
    for bytes in [100, 101, 10] {
        assert!(outbox.send(&vec![7; bytes], sent));
    }
    world.nodes[0].make_ready(id, sent);
    world.run_for(Nanos::from_millis(100));
    let seen = seen.take();
    let told: Vec<_> = seen
        .iter()
        .map(|header| {
            let part = (header.fragment, header.fragments);
            (header.kind, header.message, part, header.message_bytes, header.payload_bytes)
        })
        .collect();
    let message = |number, bytes| (Kind::BestEffort, number, (0, 1), bytes, bytes);
    assert_eq!(told, [message(0, 100), message(1, 10)]);
    let port = (Cookie(name("bulk").port_hash()), NodeId(3));
    assert!(seen.iter().all(|header| (header.cookie, header.destination) == port));
}
