//! Senders that keep their rate by an ordinary timer, and the first messages of a channel.

use punctual_proto::api::Event;
use punctual_proto::{BitRate, Contract, Horizon, Instant, Nanos, Policing, Rate};
use punctual_rig::World;

const RATE: BitRate = BitRate(100_000_000);
const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;
/// Between messages of the senders here.
const INTERVAL: Nanos = Nanos::from_millis(1);

fn contract(per_second: u64) -> Contract {
    let rate = Rate::per_second(per_second).expect("a rate");
    Contract::new(64, rate, 1, MS(8)).expect("valid")
}

/// A timer of an ordinary host: late by up to 100 us, and by up to 2.3 ms once in a hundred times.
fn ordinary(number: u64) -> Nanos {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if number % 100 == 7 { US(hash % 2_300) } else { US(hash % 100) }
}

/// The result for a sender of a message each millisecond, as late as its timer is.
struct Run {
    /// From sending to delivery, by message.
    delays: Vec<Nanos>,
    /// Messages that the source counts as beyond the contract.
    delayed: u64,
}

impl Run {
    fn of(contract: Contract, count: u64, lateness: impl Fn(u64) -> Nanos) -> Self {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract).expect("room");
        let start = world.now + MS(50);
        let (mut last, mut logical) = (start, Instant::ZERO);
        let (mut sent, mut due, mut delays) = (Vec::new(), Vec::new(), vec![None; count as usize]);
        let mut take = |world: &World, sent: &[Instant], due: &[Instant]| {
            while open.inbox.recv(|_, info| {
                let number = info.number as usize;
                assert!(!info.demoted && info.delivered <= due[number], "message {number} is late");
                delays[number] = Some(info.delivered.since(sent[number]));
            }) {}
            assert_eq!(world.nodes[2].channel(open.sink).expect("open").counters.overruns, 0);
        };
        let interval = contract.interval();
        for number in 0..count {
            last = last.max(start + INTERVAL * number + lateness(number));
            world.run_until(last);
            assert!(open.outbox.send(&[7; 64], last), "the ring has room for message {number}");
            world.nodes[0].handle_ring(open.source, last);
            logical = last.max(logical);
            sent.push(last);
            due.push(logical + contract.deadline);
            logical = logical + (interval - Nanos(interval.0 / 256));
            take(&world, &sent, &due);
        }
        world.run_for(MS(200));
        take(&world, &sent, &due);
        let delays = delays.into_iter().map(|delay| delay.expect("delivered")).collect();
        Self { delays, delayed: world.nodes[0].channel(open.source).expect("open").counters.delayed }
    }

    fn quantile(&self, first: usize, of_thousand: usize) -> Nanos {
        let mut sorted = self.delays[first..].to_vec();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * of_thousand / 1_000]
    }
}

#[test]
fn a_late_timer_costs_nothing_at_the_contracts_rate() {
    let exact = Run::of(contract(1_000), 3_000, ordinary);
    let roomy = Run::of(contract(1_100), 3_000, ordinary);
    let (p50, of_roomy) = (exact.quantile(0, 500), roomy.quantile(0, 500));
    println!("p50 {p50} with the exact rate, {of_roomy} with 10 % headroom; {} policed", exact.delayed);
    assert!(p50 * 10 <= of_roomy * 12, "{p50} against {of_roomy}");
    assert!(exact.quantile(0, 990) * 10 <= roomy.quantile(0, 990) * 12, "p99 likewise");
    assert_eq!((exact.delayed, roomy.delayed), (0, 0), "nobody broke a contract");
}

/// A standstill of the sender that is longer than its allowance: what exceeds it is counted and made up.
#[test]
fn what_exceeds_the_allowance_is_made_up_at_one_in_256() {
    let stall = |number: u64| if number == 100 { MS(19) } else { Nanos::ZERO };
    let run = Run::of(contract(1_000), 3_000, stall);
    let before = run.quantile(0, 0);
    // 19 messages come at once, the last nearly in time; 9 ms exceed the allowance of 10 ms.
    assert!(run.delays[120] > MS(8), "{}", run.delays[120]);
    assert!((2_200..2_400).contains(&run.delayed), "{} of 9 * 256", run.delayed);
    assert!(run.delays[2_500..].iter().all(|delay| *delay == before), "back to {before}");
}

/// Without an allowance a message waits for its logical arrival, and that is counted.
#[test]
fn a_contract_may_do_without() {
    let none = Contract { jitter: Some(Nanos::ZERO), ..contract(1_000) };
    let run = Run::of(none, 1_000, |number| if number == 100 { US(500) } else { Nanos::ZERO });
    assert!((120..=128).contains(&run.delayed), "half an interval is made up by 128: {}", run.delayed);
    assert!(run.delays[101] > run.delays[99] + US(450) && run.delays[900] == run.delays[99]);
}

/// Hops that hold to the logical arrival serve nothing early; the promise is the same.
#[test]
fn regulated_channels_keep_their_promise_too() {
    let regulated = Contract { horizon: Horizon::Regulated, ..contract(1_000) };
    let run = Run::of(regulated, 1_000, ordinary);
    assert_eq!(run.delayed, 0);
}

/// A message within the allowance keeps the contract; one more does not.
#[test]
fn dropping_begins_where_the_allowance_ends() {
    let dropping = Contract { policing: Policing::Drop, jitter: Some(MS(3)), ..contract(1_000) };
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, dropping).expect("room");
    for number in 0..5 {
        assert!(open.outbox.send(&[number; 64], world.now), "room for message {number}");
    }
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(MS(30));
    let mut came = Vec::new();
    while open.inbox.recv(|bytes, _| came.push(bytes[0])) {}
    assert_eq!(came, [0, 1, 2, 3], "l of the fourth is less than 3 ms ahead, of the fifth more");
    assert_eq!(world.nodes[0].channel(open.source).expect("open").counters.dropped, 1);
}

/// The source sends from the first instant: its receiver is notified of the channel with the first message,
/// not when CONFIRM has had its turn on each link.
#[test]
fn the_first_message_is_as_good_as_the_confirmation() {
    for hosts in [3, 4] {
        let mut world = World::line(hosts, RATE);
        let last = hosts - 1;
        let open = world.open(0, last, contract(1_000)).expect("room");
        let begun = world.now;
        let mut established = None;
        for number in 0..100_u64 {
            assert!(open.outbox.send(&[number as u8; 64], world.now), "room");
            world.nodes[0].handle_ring(open.source, world.now);
            world.run_for(INTERVAL);
            while let Some(event) = world.events[last].pop_front() {
                if let Event::Established { channel } = event {
                    assert_eq!((channel, established), (open.sink, None), "told once");
                    established = Some(world.now);
                }
            }
            // From then on the application reads.
            if established.is_some() {
                while open.inbox.recv(|_, _| ()) {}
            }
        }
        let after = established.expect("told").since(begun);
        println!("{hosts} hosts: established {after} after open");
        assert!(after <= MS(2), "{hosts} hosts: {after}");
        let sink = world.nodes[last].channel(open.sink).expect("open").counters;
        assert_eq!((sink.overruns, sink.misses), (0, 0));
    }
}

/// A channel without messages is confirmed by CONFIRM; behind data, CONFIRM causes no second event.
#[test]
fn a_confirmation_is_sent_without_data_and_after_data() {
    for sends in [false, true] {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract(1_000)).expect("room");
        if sends {
            assert!(open.outbox.send(&[1; 64], world.now));
            world.nodes[0].handle_ring(open.source, world.now);
        }
        world.run_for(MS(300));
        let reported =
            world.events[2].iter().filter(|event| matches!(event, Event::Established { .. })).count();
        assert_eq!(reported, 1, "whether it sends: {sends}");
    }
}

/// Early messages are jitter for a policy that takes it into account, which costs other channels: this cost
/// arises only on request. So contracts without a jitter allowance admit as many channels as contracts that
/// exclude it.
#[test]
fn no_jitter_request_costs_no_more_than_a_jitter_of_zero() {
    use punctual_proto::config::{Admission, RunPolicy};
    for (admission, run) in [
        (Admission::FIXED_PRIORITY, RunPolicy::FixedPriority),
        (Admission::RMDP, RunPolicy::Rmdp),
        (Admission::D_ORDER, RunPolicy::Edf),
        (Admission::EDF, RunPolicy::Edf),
    ] {
        let fit = |jitter: Option<Nanos>| {
            let config = |index| {
                let mut config = punctual_rig::line_config(index, 2, BitRate(20_000_000));
                (config.cpu.admission, config.cpu.run) = (admission, run);
                config
            };
            let mut world = World::of((0..2).map(config).collect());
            let rate = Rate::every(MS(10)).expect("a rate");
            let contract = Contract { jitter, ..Contract::new(1_200, rate, 1, MS(12)).expect("valid") };
            let mut bounds = Vec::new();
            while let Ok(open) = world.open(0, 1, contract) {
                bounds.push(open.grant.stages.iter().map(|stage| stage.bound).collect::<Vec<_>>());
                assert!(bounds.len() < 64, "the link is full by then");
            }
            bounds
        };
        let (silent, none) = (fit(None), fit(Some(Nanos::ZERO)));
        assert!(none.len() > 2, "{admission:?}: {}", none.len());
        assert_eq!(silent, none, "{admission:?}");
    }
}
