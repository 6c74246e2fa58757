//! Data packets with the right cookie from an attacker who is not the channel's source: off its path, on a
//! wrong link, or on the same link, with all packets visible. The attack can use up that channel's own
//! contract and corrupt its messages; no other channel is affected.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::Port;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Open, World, pattern};

const RATE: BitRate = BitRate(40_000_000);
const MILLI: Nanos = Nanos::from_millis(1);
/// The forwarder in a line of three, and its links.
const FORWARDER: usize = 1;
const FROM_SOURCE: LinkId = LinkId(0);
const FROM_SINK: LinkId = LinkId(1);

fn contract(bytes: u32, per_second: u64, deadline_ms: u64) -> Contract {
    Contract::new(bytes, Rate::per_second(per_second).unwrap(), 1, Nanos::from_millis(deadline_ms)).unwrap()
}

/// A channel in use at its full rate: sent messages with their times, and received ones.
struct Used {
    open: Open,
    contract: Contract,
    seed: u64,
    sent_at: Vec<Instant>,
    /// Numbers of messages that arrived in time, unaltered.
    good: Vec<u64>,
    /// Messages that arrived late or altered.
    bad: u64,
}

impl Used {
    fn new(world: &mut World, contract: Contract, seed: u64) -> Self {
        let open = world.open(0, 2, contract).expect("it fits");
        Self { open, contract, seed, sent_at: Vec::new(), good: Vec::new(), bad: 0 }
    }

    /// Sends due messages and takes received ones.
    fn act(&mut self, world: &mut World) {
        let bytes = self.contract.message_bytes_max as usize;
        if self.sent_at.last().is_none_or(|last| *last + self.contract.interval() <= world.now) {
            let number = self.sent_at.len() as u64;
            assert!(self.open.outbox.send(&pattern(self.seed, number, bytes), world.now));
            world.nodes[0].handle_ring(self.open.source, world.now);
            self.sent_at.push(world.now);
        }
        let Self { open, contract, seed, sent_at, good, bad } = self;
        while open.inbox.recv(|message, info| {
            let sent = sent_at.get(info.number as usize);
            let in_time = sent.is_some_and(|sent| info.delivered <= *sent + contract.deadline);
            if in_time && message == pattern(*seed, info.number, bytes) {
                good.push(info.number);
            } else {
                *bad += 1;
            }
        }) {}
    }

    /// Every message whose time has come has come, once and in order.
    fn assert_whole(&self, now: Instant) {
        let due = self.sent_at.iter().filter(|sent| **sent + self.contract.deadline <= now).count() as u64;
        assert_eq!(self.bad, 0);
        assert!(self.good.iter().copied().eq(0..self.good.len() as u64), "{:?}", self.good);
        assert!(self.good.len() as u64 >= due, "{} of {due}", self.good.len());
    }
}

/// A packet that states another length than those before it of the same message is dropped and counted, and the message is not
/// delivered. Others are.
#[test]
fn a_packet_that_contradicts_its_message_is_dropped_and_counted() {
    let mut world = World::line(3, RATE);
    let mut used = Used::new(&mut world, contract(4_000, 20, 50), 5);
    world.tap = Some(Box::new(|node, port, bytes| {
        if node == FORWARDER && port == Port::Data {
            let (mut header, _) = Header::parse(bytes).expect("a packet of ours");
            if (header.message, header.fragment) == (3, 1) {
                header.message_bytes -= 1;
                header.write(bytes);
            }
        }
        true
    }));
    for _ in 0..500 {
        used.act(&mut world);
        world.run_for(MILLI);
    }
    let counters = world.nodes[2].channel(used.open.sink).expect("it is open").counters;
    assert_eq!((counters.dropped, used.bad), (1, 0));
    assert_eq!(used.good, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
}

/// Observed packets of a channel: the first packet of its latest message into the forwarder, and guaranteed
/// packets onward.
#[derive(Default)]
struct Wire {
    seen: Vec<u8>,
    onward: u64,
}

/// Two channels over a forwarder, and an attacker's observations of the first one's packets.
fn watched(world: &mut World) -> ([Used; 2], Rc<RefCell<Wire>>) {
    let victim = Used::new(world, contract(20_000, 25, 60), 1);
    let other = Used::new(world, contract(10_000, 100, 30), 2);
    let path = world.nodes[0].channel(victim.open.source).expect("open").path;
    let wire = Rc::new(RefCell::new(Wire::default()));
    let noted = wire.clone();
    world.tap = Some(Box::new(move |from, port, bytes| {
        let header = (port == Port::Data).then(|| Header::parse(bytes)).and_then(Result::ok);
        if let Some((header, _)) = header.filter(|(header, _)| header.path == path) {
            let mut wire = noted.borrow_mut();
            match from {
                0 if header.fragment == 0 => wire.seen.clone_from(bytes),
                1 => wire.onward += u64::from(header.kind == Kind::Guaranteed && !header.demoted),
                _ => {}
            }
        }
        true
    }));
    ([victim, other], wire)
}

/// `packet` with its header changed.
fn forged(packet: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let (mut header, _) = Header::parse(packet).expect("a packet of the channel");
    change(&mut header);
    let mut bytes = packet.to_vec();
    header.write(&mut bytes[..HEADER_BYTES]);
    bytes
}

/// Lets both channels be used for `span`; `each` every quarter of a millisecond.
fn run(world: &mut World, used: &mut [Used], span: Nanos, mut each: impl FnMut(&mut World)) {
    let until = world.now + span;
    while world.now < until {
        used.iter_mut().for_each(|used| used.act(world));
        each(world);
        world.run_for(MILLI / 4);
    }
    used.iter_mut().for_each(|used| used.act(world));
}

#[test]
fn from_a_wrong_link_the_right_cookie_is_worth_nothing() {
    let mut world = World::line(3, RATE);
    let (mut used, wire) = watched(&mut world);
    run(&mut world, &mut used, MILLI * 200, |_| ());
    let mut count = 0;
    run(&mut world, &mut used, MILLI * 400, |world| {
        let packet = wire.borrow().seen.clone();
        let next = forged(&packet, |header| header.message += 1);
        for bytes in [&packet, &next] {
            world.inject(FORWARDER, FROM_SINK, Port::Data, bytes);
            count += 1;
        }
    });
    run(&mut world, &mut used, MILLI * 200, |_| ());
    used.iter().for_each(|used| used.assert_whole(world.now));
    let drops = world.nodes[FORWARDER].status(world.now).drops;
    assert_eq!((drops.wrong_link, drops.wrong_cookie, drops.unknown_path), (count, 0, 0));
}

#[test]
fn off_its_path_a_channels_packets_lead_nowhere() {
    let mut world = World::line(4, RATE);
    let mut used = [Used::new(&mut world, contract(20_000, 25, 60), 1)];
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = seen.clone();
    world.tap = Some(Box::new(move |_, port, bytes| {
        if port == Port::Data {
            noted.borrow_mut().clone_from(bytes);
        }
        true
    }));
    run(&mut world, &mut used, MILLI * 200, |_| ());
    let mut count = 0;
    run(&mut world, &mut used, MILLI * 200, |world| {
        let packet = forged(&seen.borrow(), |header| header.message += 1);
        world.inject(3, LinkId(0), Port::Data, &packet);
        count += 1;
    });
    used[0].assert_whole(world.now);
    let drops = world.nodes[3].status(world.now).drops;
    assert_eq!((drops.unknown_path, drops.wrong_link), (count, 0));
}

/// How an attacker forges an observed packet; the number is that of the forgery.
type Forgery = fn(&mut Header, u64);

#[test]
fn on_its_link_the_channel_alone_is_harmed_and_policing_holds() {
    let kinds: [(&str, Forgery); 4] = [
        ("the same packet again", |_, _| ()),
        ("the next messages, early", |header, count| {
            header.message += count / 15;
            header.fragment = (count % 15) as u16;
        }),
        ("numbers out of the air", |header, count| header.message += count << 20),
        ("endless slack", |header, count| {
            header.message += count;
            header.slack_ns = i64::MAX;
        }),
    ];
    for (what, forge) in kinds {
        let mut world = World::line(3, RATE);
        let (mut used, wire) = watched(&mut world);
        run(&mut world, &mut used, MILLI * 200, |_| ());
        let (flood, onward, mut count) = (MILLI * 500, wire.borrow().onward, 0);
        run(&mut world, &mut used, flood, |world| {
            for _ in 0..8 {
                count += 1;
                let packet = forged(&wire.borrow().seen, |header| forge(header, count));
                world.inject(FORWARDER, FROM_SOURCE, Port::Data, &packet);
            }
        });
        // Eight packets in a quarter of a millisecond are nine times what the link takes.
        let victim = used[0].contract;
        let packets = u64::from(Header::parse(&wire.borrow().seen).expect("a packet").0.fragments);
        let messages = 3 + flood.0 / (victim.interval().0 - victim.interval().0 / 128);
        let passed = wire.borrow().onward - onward;
        assert!(passed <= messages * packets, "{what}: {passed} packets, {packets} a message");
        let demoted: u64 = world.nodes[FORWARDER].channels().iter().map(|c| c.counters.demoted).sum();
        assert!(demoted > count / 2, "{what}: {demoted} of {count} were demoted");
        used[1].assert_whole(world.now);
        // The channel recovers: three messages are refused where numbers were forged, then all arrive in
        // time.
        run(&mut world, &mut used, Nanos::from_secs(1), |_| ());
        let before = used[0].good.len() as u64;
        run(&mut world, &mut used, Nanos::from_secs(1), |_| ());
        let came = used[0].good.len() as u64 - before;
        assert!(came >= 24, "{what}: {came} messages of a second, long after the last forgery");
        used[1].assert_whole(world.now);
    }
}
