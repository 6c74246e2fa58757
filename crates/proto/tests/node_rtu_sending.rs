//! What programs' handlers send (ADR 0051): a flow of the link scheduler with slots of its own, admitted by the link like a
//! channel, never lost for want of a slot; best effort beyond the budget.

use punctual_proto::api::{
    RateRefusal, RtuClass, RtuCost, RtuId, RtuNumber, RtuRefusal, RtuSending, RtuSent, RtuTarget, RtuTerms,
};
use punctual_proto::config::{Admission, Pacing};
use punctual_proto::ids::{Address, LinkId};
use punctual_proto::limits::{HEADER_BYTES, LEFTOVERS_MAX, RAW_TAG_BYTES, RTU_PACKETS_MAX};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Instant, Nanos};
use punctual_rig::handlers::{Bench, broken, cpu, left_late};
use punctual_rig::{TestInbox, TestOutbox, World, line_config, name};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;
const AT: fn(u64) -> Instant = |us| Instant(us * 1_000);
const RATE: BitRate = BitRate(100_000_000);

fn terms(class: RtuClass, quantum: u32) -> RtuTerms {
    RtuTerms { class, deadline: None, quantum, cost: RtuCost { run: US(2), unit: US(5) } }
}

fn low(interval: Nanos, units: u32) -> RtuTerms {
    terms(RtuClass::LowDelay { interval, units, priority: None }, 1)
}

fn sent(bench: &Bench, id: RtuId) -> RtuSent {
    let status = bench.node.handlers().find(|status| status.id == id).expect("a handler");
    status.sent.expect("it sends")
}

fn assert_accounts_balance(bench: &Bench) {
    let wrong: Vec<_> = bench.node.accounts().into_iter().filter(|it| it.counted != it.held).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Random sets under every order of the processor, beside best effort that fills the link: every packet of a PDU within its
/// budget has left by its promise.
#[test]
fn what_is_sent_within_a_budget_leaves_by_its_bound() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let packets: usize = (0..30).map(|seed| run_random(admission, seed)).sum();
        assert!(packets > 1_500, "{}: {packets}", admission.name);
    }
}

/// To a port, or over the link as it is.
fn random_target(random: &mut SplitMix64) -> RtuTarget {
    match random.next() % 2 {
        0 => RtuTarget::Port(Address { host: name("h2"), port: name("port") }),
        _ => RtuTarget::Link(LinkId(0)),
    }
}

fn random_sender(random: &mut SplitMix64) -> (RtuTerms, u32, u32) {
    let mut below = |most: u64| random.next() % most;
    let (period, units) = (US(1_000 + below(20) * 500), 1 + below(4) as u32);
    let class = match below(3) {
        0 => RtuClass::LowDelay { interval: period, units, priority: None },
        1 => RtuClass::periodic(period, units),
        _ => RtuClass::periodic(period, units).sporadic(),
    };
    let deadline = (below(3) == 0).then(|| Nanos(period.0 - below(period.0 / 4)));
    let quantum = 1 + below(4) as u32;
    (RtuTerms { deadline, ..terms(class, quantum) }, 1 + below(3) as u32, 32 + below(1_000) as u32)
}

fn run_random(admission: Admission, seed: u64) -> usize {
    let mut random = SplitMix64::new(seed);
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(admission);
    // The adapter has one packet at a time on every other link.
    config.links[0].pipeline_depth = if seed.is_multiple_of(2) { 1 } else { config.links[0].pipeline_depth };
    let mut bench = Bench::of(config.clone());
    let flood = terms(RtuClass::BestEffort, 1);
    let flood = bench.register_sender(flood, 4, 1_200).expect("best effort");
    bench.arrive(flood, AT(0), 200);
    let wished: Vec<_> = (0..12).map(|_| random_sender(&mut random)).collect();
    let ids: Vec<_> = (wished.iter())
        .filter_map(|(terms, packets, bytes)| {
            bench.register_sender_to(random_target(&mut random), *terms, *packets, *bytes).ok()
        })
        .collect();
    for id in &ids {
        let (units, period) = bench.bodies[id].terms.budget().expect("a budget");
        // Never more than the budget: nothing goes as best effort, and no message waits for the next period.
        for n in 0..30_000_000 / period.0 {
            bench.arrive(*id, Instant(n * period.0), 1 + (random.next() % u64::from(units)) as u32);
        }
    }
    bench.run_until(AT(45_000));
    assert_accounts_balance(&bench);
    for id in &ids {
        let (body, sent) = (&bench.bodies[id], sent(&bench, *id));
        assert_eq!(left_late(body), None, "{} seed {seed}: {:?}", admission.name, body.terms);
        assert_eq!(broken(body), None, "{} seed {seed}: {:?}", admission.name, body.terms);
        let packets = body.done.len() * body.sends.as_ref().expect("sends").1 as usize;
        assert_eq!((sent.packets, sent.packets_beyond, body.left.len()), (packets as u64, 0, packets));
        assert!(sent.slots_used_max <= sent.slots, "{sent:?}");
        assert_eq!(sent.bound, body.grant.sent);
    }
    assert!(bench.bodies[&flood].left.len() > 20, "best effort has the rest");
    let packets = ids.iter().map(|id| bench.bodies[id].left.len()).sum();
    let now = bench.now;
    ids.iter().for_each(|id| bench.node.remove_handler(*id, now));
    bench.node.remove_handler(flood, now);
    assert_accounts_balance(&bench);
    let fresh = Bench::of(config);
    let given = |bench: &Bench| bench.node.status(now).links[0].utilisation;
    assert_eq!(given(&bench), given(&fresh), "the link has everything back");
    packets
}

/// The accounts count each handle of a sender and each place of a handler, as long as it is there.
#[test]
fn handles_and_places_are_in_the_accounts() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
    let of = |bench: &Bench, what| {
        let mut found = bench.node.accounts().into_iter().filter(|account| account.what == what);
        let account = found.next().expect("it is there");
        assert!(found.next().is_none() && account.link.is_none(), "{what} is there once");
        (account.counted, account.held)
    };
    let counted = |bench: &Bench| [of(bench, "handles of senders"), of(bench, "places of handlers")];
    assert_eq!(counted(&bench), [(0, 0), (0, 0)]);
    let sender = bench.register_sender(low(MS(10), 2), 1, 200).expect("granted");
    assert_eq!(counted(&bench), [(1, 1), (1, 1)]);
    let silent = bench.register(low(MS(20), 1)).expect("granted");
    assert_eq!(counted(&bench), [(1, 1), (2, 2)]);
    let flood = bench.register_sender(terms(RtuClass::BestEffort, 1), 1, 200).expect("best effort");
    assert_eq!(counted(&bench), [(2, 2), (2, 2)]);
    let now = bench.now;
    [sender, silent, flood].into_iter().for_each(|id| bench.node.remove_handler(id, now));
    assert_eq!(counted(&bench), [(0, 0), (0, 0)]);
}

/// A link that reports no completion: bodies are called until the slots are full, then no more; nothing is lost.
#[test]
fn without_slots_no_body_is_called() {
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(Admission::EDF);
    config.links[0].pace = Pacing::Completion;
    let mut bench = Bench::of(config);
    let id = bench.register_sender(terms(RtuClass::periodic(MS(1), 2), 2), 3, 100);
    let id = id.expect("granted");
    bench.arrive(id, AT(0), 100);
    bench.run_until(AT(60_000));
    let slots = sent(&bench, id).slots as usize;
    assert_eq!((slots % 6, bench.bodies[&id].done.len()), (0, slots / 3), "three slots each");
    assert_eq!(sent(&bench, id).packets, slots as u64);
    for _ in 0..400 {
        let next = bench.now + US(500);
        bench.run_until(next);
        bench.node.handle_sent(LinkId(0), 1_500, bench.now);
    }
    let body = &bench.bodies[&id];
    assert_eq!((body.done.len(), body.left.len()), (100, 300));
    assert!(body.left.iter().map(|(index, _)| *index).is_sorted(), "in order");
    assert_accounts_balance(&bench);
    // The link kept it from running: that is no breach of the processor's promise.
    assert_eq!(bench.node.status(bench.now).broken, []);
}

#[test]
fn what_exceeds_the_budget_goes_as_best_effort() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
    let id = bench.register_sender(low(MS(10), 2), 1, 200).expect("granted");
    bench.arrive(id, AT(0), 10);
    bench.run_until(AT(8_000));
    let sent = sent(&bench, id);
    assert_eq!((sent.packets, sent.packets_beyond), (2, 8));
    let status = bench.node.status(bench.now);
    assert_eq!((status.links[0].packets_guaranteed, status.links[0].packets_best_effort), (2, 8));
}

/// A packet that leaves as it is may fill the link's packets, and counts with what the link adds.
#[test]
fn a_packet_that_leaves_as_it_is_has_no_header() {
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(Admission::EDF);
    let overhead = config.links[0].overhead_bytes;
    let most = config.links[0].packet_bytes_max - RAW_TAG_BYTES as u32;
    let mut bench = Bench::of(config);
    let to = || RtuTarget::Link(LinkId(0));
    let too_long = bench.register_sender_to(to(), low(MS(10), 1), 1, most + 1);
    let refusal = RtuRefusal::Range { what: RtuNumber::PayloadBytes, least: 1, most: most.into() };
    assert_eq!(too_long, Err(refusal));
    let id = bench.register_sender_to(to(), low(MS(10), 1), 1, most).expect("granted");
    bench.arrive(id, AT(0), 1);
    bench.run_until(AT(5_000));
    assert_eq!(bench.bodies[&id].left.len(), 1);
    assert_eq!(bench.last_wire_bytes, 32 + overhead, "the message of the bench has 32 bytes");
    let unknown = bench.register_sender_to(RtuTarget::Link(LinkId(1)), low(MS(10), 1), 1, 100);
    assert_eq!(unknown, Err(RtuRefusal::NoRoute), "there is one link");
}

/// What exceeds a budget goes as best effort: no packet of a handler may be longer than a packet of best effort.
#[test]
fn a_packet_that_best_effort_may_not_send_is_refused() {
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(Admission::EDF);
    let most = 600;
    config.links[0].packet_best_effort_bytes_max = Some(most + HEADER_BYTES as u32);
    let mut bench = Bench::of(config);
    let refusal = RtuRefusal::Range { what: RtuNumber::PayloadBytes, least: 1, most: most.into() };
    assert_eq!(bench.register_sender(low(MS(10), 1), 1, most + 1), Err(refusal));
    let id = bench.register_sender(low(MS(10), 1), 1, most).expect("granted");
    bench.arrive(id, AT(0), 3);
    bench.run_until(AT(5_000));
    assert_eq!((sent(&bench, id).packets, sent(&bench, id).packets_beyond), (1, 2));
}

#[test]
fn messages_that_are_longer_than_declared_are_dropped_and_counted() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
    let id = bench.register_sender(low(MS(1), 1), 2, 23).expect("granted");
    bench.arrive(id, AT(0), 1);
    bench.run_until(AT(900));
    assert_eq!((sent(&bench, id).too_long, sent(&bench, id).packets), (2, 0));
    assert_accounts_balance(&bench);
}

/// More in the ring than its PDUs may send: the rest goes with later PDUs, within the budget.
#[test]
fn what_there_is_no_room_for_stays_in_the_ring() {
    let mut bench = Bench::with_link(cpu(Admission::RMDP), RATE);
    let class = RtuClass::periodic(MS(2), 1);
    let id = bench.register_sender(terms(class, 1), 2, 100).expect("granted");
    let (outbox, _) = bench.bodies[&id].sends.clone().expect("it sends");
    (0..10).for_each(|_| assert!(outbox.send(&[0; 24], AT(0))));
    bench.node.make_ready(id, AT(0));
    bench.run_until(AT(3_000));
    assert!(sent(&bench, id).packets <= 4, "two a period");
    bench.run_until(AT(14_000));
    assert_eq!((sent(&bench, id).packets, outbox.waiting()), (10, 0));
}

#[test]
fn a_link_that_is_full_refuses_with_an_offer() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), BitRate(10_000_000));
    let heavy = low(MS(2), 1);
    let refusal = bench.register_sender(heavy, 4, 1_300).expect_err("5.2 KB in 2 ms are 21 Mbit/s");
    let RtuRefusal::Link(offer) = refusal else { panic!("{refusal}") };
    let period = offer.period_possible.expect("a longer period would do");
    assert!(bench.register_sender(low(period, 1), 4, 1_300).is_ok(), "{period}");
    assert_accounts_balance(&bench);
    assert_eq!(bench.node.handlers().count(), 1, "who was refused holds nothing");
}

#[test]
fn what_a_link_cannot_carry_is_refused_in_one_line() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
    let text = |refusal: RtuRefusal| refusal.to_string();
    let refused = bench.register_sender(low(MS(10), 1), 0, 100).expect_err("no packets");
    assert_eq!(text(refused), format!("packets: give 1 to {RTU_PACKETS_MAX}"));
    let refused = bench.register_sender(low(MS(10), 1), 1, 65_000).expect_err("a jumbo packet");
    assert!(text(refused).starts_with("payload_bytes: give 1 to "), "{refused}");
    let to = Address { host: name("h9"), port: name("port") };
    let sending = RtuSending { to: RtuTarget::Port(to), packets: 1, payload_bytes: 100 };
    let refused = bench.node.register_sender(low(MS(10), 1), &sending, TestOutbox::new(1, 1), AT(0));
    assert_eq!(refused, Err(RtuRefusal::NoRoute));
    let mut config = line_config(0, 2, RATE);
    config.links[0].rate_auto = true;
    let refused = Bench::of(config).register_sender(low(MS(10), 1), 1, 100).expect_err("unknown");
    assert_eq!(refused, RtuRefusal::Rate(RateRefusal::NoNeighbour));
    assert_accounts_balance(&bench);
}

#[test]
fn packets_of_a_budget_go_to_their_limit_and_not_beyond() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), BitRate(10_000_000_000));
    let units = 1_024;
    let flood = terms(RtuClass::periodic(MS(900), units), 1);
    let beyond = RTU_PACKETS_MAX / units + 1;
    assert_eq!(
        bench.register_sender(flood, beyond, 24),
        Err(RtuRefusal::Range { what: RtuNumber::Packets, least: 1, most: RTU_PACKETS_MAX.into() })
    );
    bench.register_sender(flood, beyond - 1, 24).expect("as many as there may be");
}

/// A link that reports no completion: what is beyond a budget, or has none, waits in its ring for room in the link's queue,
/// and goes on in order when there is room.
#[test]
fn without_room_no_body_is_called_beyond_its_budget() {
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(Admission::EDF);
    config.links[0].pace = Pacing::Completion;
    config.links[0].best_effort_flow_bytes_max = 4_000;
    let mut bench = Bench::of(config);
    let ids = [(); 3].map(|()| bench.register_sender(terms(RtuClass::BestEffort, 1), 1, 1_000));
    let ids = ids.map(|id| id.expect("best effort"));
    ids.iter().for_each(|id| bench.arrive(*id, AT(0), 400));
    bench.run_until(AT(60_000));
    let done = |bench: &Bench| ids.map(|id| bench.bodies[&id].done.len());
    let waiting = done(&bench);
    assert!(waiting.iter().all(|done| (5..40).contains(done)), "{waiting:?}");
    bench.run_until(AT(90_000));
    assert_eq!(done(&bench), waiting, "no room came");
    for _ in 0..4_000 {
        let next = bench.now + US(200);
        bench.run_until(next);
        bench.node.handle_sent(LinkId(0), 1_500, bench.now);
    }
    for id in ids {
        let body = &bench.bodies[&id];
        assert_eq!((body.done.len(), body.left.len()), (400, 400));
        assert!(body.left.iter().map(|(index, _)| *index).is_sorted(), "in order");
        assert_eq!(sent(&bench, id).packets_beyond, 400);
    }
    assert_accounts_balance(&bench);
}

/// A body may send less for a PDU than it has declared: that is no work left.
#[test]
fn a_pdu_may_send_fewer_packets_than_declared() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
    let id = bench.register_sender(low(MS(1), 2), 3, 100).expect("granted");
    let (outbox, _) = bench.bodies[&id].sends.clone().expect("it sends");
    bench.body(id).sends = Some((outbox, 1));
    (0..20).for_each(|n| bench.arrive(id, AT(n * 500), 1));
    bench.run_until(AT(15_000));
    assert_eq!((sent(&bench, id).packets, bench.counters(id).calls), (20, 20));
    assert_eq!((left_late(&bench.bodies[&id]), broken(&bench.bodies[&id])), (None, None));
}

#[test]
fn each_link_counts_its_own_senders() {
    let mut config = line_config(1, 3, RATE);
    config.cpu = cpu(Admission::EDF);
    let mut bench = Bench::of(config);
    let mut register = |host: &str, port: &str| {
        let to = Address { host: name(host), port: name(port) };
        let sending = RtuSending { to: RtuTarget::Port(to), packets: 2, payload_bytes: 100 };
        bench.node.register_sender(low(MS(1), 1), &sending, TestOutbox::new(8, 100), AT(0)).expect("room")
    };
    let ids = [("h1", "a"), ("h3", "a"), ("h3", "b")].map(|(host, port)| register(host, port));
    let links = ids.map(|id| sent(&bench, id).link);
    assert_eq!(links, [LinkId(0), LinkId(1), LinkId(1)]);
    assert_accounts_balance(&bench);
    bench.node.remove_handler(ids[1], AT(0));
    assert_accounts_balance(&bench);
}

/// The queue of a handler that is removed may hold many packets: the node frees all of them, in slices.
#[test]
fn what_a_removed_handler_has_queued_is_freed_in_slices() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), BitRate(10_000_000));
    let class = RtuClass::periodic(MS(900), 100);
    let id = bench.register_sender(terms(class, 10), 3, 100).expect("granted");
    bench.arrive(id, AT(0), 100);
    bench.run_until(AT(5_000));
    let waiting = 300 - bench.bodies[&id].left.len();
    assert!(waiting > 2 * LEFTOVERS_MAX as usize, "{waiting}");
    let now = bench.now;
    bench.node.remove_handler(id, now);
    let mut slices = 0;
    while bench.node.has_leftovers() {
        assert!(bench.node.poll_timeout().is_some_and(|due| due <= now), "it goes on at once");
        bench.node.handle_timeout(now);
        assert_accounts_balance(&bench);
        slices += 1;
    }
    assert!(slices >= waiting / LEFTOVERS_MAX as usize, "{slices} for {waiting}");
}

/// A handler is sending from the message in its ring to the last bit of it, and not if it cannot send.
#[test]
fn a_handler_is_sending_while_it_has_messages_and_at_no_other_time() {
    let mut bench = Bench::with_link(cpu(Admission::EDF), BitRate(10_000_000));
    let silent = bench.register(low(MS(1), 1)).expect("granted");
    let id = bench.register_sender(low(MS(20), 2), 4, 1_000).expect("granted");
    let is_sending = |bench: &Bench| [silent, id].map(|id| bench.node.is_sending(id));
    assert_eq!(is_sending(&bench), [false, false]);
    let (outbox, _) = bench.bodies[&id].sends.clone().expect("it sends");
    assert!(outbox.send(&[0; 24], AT(0)));
    assert_eq!(is_sending(&bench), [false, true], "in the ring");
    bench.body(id).sends = Some((outbox.clone(), 3));
    bench.arrive(silent, AT(0), 1);
    bench.arrive(id, AT(0), 1);
    bench.run_until(AT(100));
    assert_eq!((outbox.waiting(), is_sending(&bench)), (0, [false, true]), "in the link's queue");
    bench.run_until(AT(19_000));
    assert_eq!((bench.bodies[&id].left.len(), is_sending(&bench)), (3, [false, false]));
    let now = bench.now;
    bench.node.remove_handler(id, now);
    assert_eq!(is_sending(&bench), [false, false]);
}

/// A call that the link has not delayed shows a late processor, whether its handler sends or not.
#[test]
fn a_sender_that_had_slots_and_is_late_is_late_by_its_processor() {
    let late_calls = |sends: bool| {
        let mut bench = Bench::with_link(cpu(Admission::EDF), RATE);
        let id =
            if sends { bench.register_sender(low(MS(1), 1), 1, 100) } else { bench.register(low(MS(1), 1)) };
        let id = id.expect("granted");
        // Best effort whose calls take 5 ms instead of 5 us.
        let hog = bench.register(terms(RtuClass::BestEffort, 1)).expect("best effort");
        bench.body(hog).percent = 100_000;
        for n in 0..20 {
            bench.arrive(hog, AT(n * 10_000), 1);
            bench.arrive(id, AT(n * 10_000 + 100), 1);
        }
        bench.run_until(AT(250_000));
        (bench.counters(id).late, bench.node.status(bench.now).late_service.times)
    };
    let [silent, sender] = [false, true].map(late_calls);
    assert_eq!(sender, silent);
    assert!(sender.0 >= 20 && sender.1 > 0, "{sender:?}");
}

/// A link that sends a fifth of what it has promised keeps a sender from running: the sender is late, its processor is not.
#[test]
fn a_sender_that_waits_for_its_link_is_not_late_by_its_processor() {
    let mut config = line_config(0, 2, RATE);
    config.cpu = cpu(Admission::EDF);
    config.links[0].pace = Pacing::Completion;
    let mut bench = Bench::of(config);
    let two = terms(RtuClass::periodic(MS(1), 2).sporadic(), 2);
    let id = bench.register_sender(two, 3, 100).expect("granted");
    bench.arrive(id, AT(0), 1_000);
    for n in 1..=400 {
        bench.run_until(AT(n * 5_000));
        // The packets of one call.
        bench.node.handle_sent(LinkId(0), 6 * bench.last_wire_bytes, bench.now);
    }
    let late = bench.counters(id).late;
    assert!(late > 300, "the link kept it from running: {late}");
    assert_eq!(bench.node.status(bench.now).late_service.times, 0);
}

/// The bound of a processor is long because a long call may be before a handler's. If there is none, its packet is made early,
/// and an idle link sends it early: what both stages may take together allows that.
#[test]
fn a_packet_that_is_made_early_leaves_early() {
    for admission in [Admission::RMDP, Admission::EDF, Admission::FIXED_PRIORITY, Admission::D_ORDER] {
        let mut bench = Bench::with_link(cpu(admission), RATE);
        let cost = RtuCost { run: US(2), unit: MS(4) };
        let long = RtuTerms { cost, ..terms(RtuClass::periodic(MS(20), 1), 1) };
        bench.register(long).expect("a long call fits");
        let id = bench.register_sender(low(MS(10), 1), 1, 100).expect("granted");
        let grant = bench.bodies[&id].grant;
        let [bound, sent] = [grant.bound, grant.sent].map(|bound| bound.expect("a bound"));
        let link = sent - bound;
        assert!(bound > link * 2, "{bound} of {sent}");
        for n in 0..10 {
            bench.arrive(id, AT(15_000 * n), 1);
        }
        bench.run_until(AT(200_000));
        let body = &bench.bodies[&id];
        assert_eq!((body.done.len(), body.left.len()), (10, 10));
        for ((came, done), (_, left)) in body.done.iter().zip(&body.left) {
            assert!(left.since(*done) <= link, "{}: {came:?} {done:?} {left:?}, {link}", admission.name);
        }
    }
}

/// A port tells a handler's messages apart by their numbers: it gets each of them, those of one call and those of the next.
#[test]
fn every_message_of_a_handler_arrives_at_its_port() {
    let mut world = World::line(2, RATE);
    // The audit counts packets by the kind in their headers: a handler's bear that of best effort, within a budget too.
    world.audit = None;
    world.run_for(MS(100));
    let (inbox, outbox) = (TestInbox::new(16, 100), TestOutbox::new(16, 100));
    world.nodes[1].bind_best_effort(name("port"), 100, inbox.clone()).expect("free");
    let to = RtuTarget::Port(Address { host: name("h2"), port: name("port") });
    let sending = RtuSending { to, packets: 3, payload_bytes: 100 };
    let class = RtuClass::periodic(MS(10), 1);
    let id = world.nodes[0].register_sender(terms(class, 1), &sending, outbox.clone(), world.now);
    let id = id.expect("can be granted");
    (0..9).for_each(|n| assert!(outbox.send(&[n; 100], world.now)));
    world.nodes[0].make_ready(id, world.now);
    world.run_for(MS(100));
    let arrived: Vec<u8> = inbox.take_all().iter().map(|message| message[0]).collect();
    assert_eq!(arrived, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}
