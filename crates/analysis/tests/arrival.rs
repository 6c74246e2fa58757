//! Arrival: the regulator at the source, and each policing rule against the neighbour that it is for; then
//! any contract, any honest stream and any forged values.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use punctual_analysis::{
    Arrival, ArrivalTerms, ArrivalsWithin, Contract, EffectiveArrivals, Instant, LogicalArrivals, Nanos,
    Policing, Ppb, Rate, SourceVerdict, Statistical, Verdict,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const PACKETS: u32 = 3;
const BYTES: u32 = 3_000;
const MS: fn(u64) -> Nanos = Nanos::from_millis;
const INTERVAL: Nanos = Nanos(12_800_000);
/// I' = I·(1 - 1/128).
const PERIOD: Nanos = Nanos(12_700_000);
const JITTER: Nanos = Nanos(1_000_000);
const DEADLINE: Nanos = Nanos(80_000_000);

const TERMS: ArrivalTerms = ArrivalTerms {
    period: PERIOD,
    jitter: JITTER,
    packets_max: PACKETS,
    wire_bytes_max: BYTES as u64,
    early_max: DEADLINE,
};

/// A chain under those terms.
#[derive(Default)]
struct Chain(EffectiveArrivals);

impl Chain {
    fn accept(&mut self, packet: &Arrival) -> Verdict {
        self.0.accept(&TERMS, packet)
    }
}

fn chain() -> Chain {
    Chain::default()
}

fn packet(message: u64, nominal_ns: u64, received_ns: u64) -> Arrival {
    Arrival { message, wire_bytes: 1_000, nominal: Instant(nominal_ns), received: Instant(received_ns) }
}

fn accepted(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Accepted { effective } => effective.0,
        Verdict::Demoted => panic!("demoted"),
    }
}

#[test]
fn an_honest_packet_counts_from_its_nominal_arrival() {
    let mut chain = chain();
    assert_eq!(accepted(chain.accept(&packet(0, 50_000_000, 40_000_000))), 50_000_000);
    // The next fragment with a smaller n does not fall back; a later receive time counts.
    assert_eq!(accepted(chain.accept(&packet(0, 49_000_000, 49_000_000))), 50_000_000);
    assert_eq!(accepted(chain.accept(&packet(0, 50_000_000, 50_500_000))), 50_500_000);
    // The next message is I' after the largest e, not after the first.
    assert_eq!(accepted(chain.accept(&packet(1, 62_800_000, 62_000_000))), 63_200_000);
}

#[test]
fn a_late_packet_takes_the_rest_of_its_message_along_and_moves_nothing() {
    let mut chain = chain();
    assert_eq!(chain.accept(&packet(0, 10_000_000, 11_000_001)), Verdict::Demoted);
    assert_eq!(chain.accept(&packet(0, 12_000_000, 11_000_002)), Verdict::Demoted);
    assert_eq!(accepted(chain.accept(&packet(1, 11_500_000, 11_100_000))), 11_500_000);
}

#[test]
fn a_flood_under_new_old_or_repeated_numbers_is_demoted() {
    let mut chain = chain();
    let mut effective: Vec<u64> = Vec::new();
    for number in [7, 8, 7, 8, 7, 9, 0, u64::MAX, 7] {
        if let Verdict::Accepted { effective: e } = chain.accept(&packet(number, 1_000_000, 500_000)) {
            effective.push(e.0);
        }
    }
    assert_eq!(effective, [1_000_000]);
}

#[test]
fn packets_beyond_the_contract_under_one_number_are_the_next_message() {
    let mut chain = chain();
    let repeated = (0..9).map(|_| chain.accept(&packet(7, 1_000_000, 500_000)));
    let verdicts: Vec<bool> = repeated.map(|verdict| verdict != Verdict::Demoted).collect();
    assert_eq!(verdicts, [true, true, true, false, false, false, false, false, false]);
    // An interval later the number is good for another message, though it never changed.
    let nominal = 1_000_000 + INTERVAL.0;
    assert_eq!(accepted(chain.accept(&packet(7, nominal, nominal))), nominal);
}

#[test]
fn bytes_beyond_s_count_as_the_next_message() {
    let mut chain = chain();
    let jumbo = Arrival { wire_bytes: 1_501, ..packet(0, 1_000_000, 500_000) };
    assert_eq!(accepted(chain.accept(&jumbo)), 1_000_000);
    assert_eq!(chain.accept(&jumbo), Verdict::Demoted);
    let oversized = Arrival { wire_bytes: 3_001, ..packet(9, 900_000_000, 900_000_000) };
    assert_eq!(chain.accept(&oversized), Verdict::Demoted);
    // A single packet that is larger than a message does not move e.
    assert_eq!(accepted(chain.accept(&packet(10, 20_000_000, 20_000_000))), 20_000_000);
}

#[test]
fn an_invented_slack_does_not_push_the_channel_into_the_future() {
    let mut chain = chain();
    assert_eq!(chain.accept(&packet(0, 3_600_000_000_000, 1_000_000)), Verdict::Demoted);
    assert_eq!(accepted(chain.accept(&packet(1, 2_000_000, 1_000_000))), 2_000_000);
}

/// Whatever a stage before it in the host does, e of successive messages lie I' apart and never before they reach it.
#[test]
fn inside_a_host_messages_keep_their_distance() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut within = ArrivalsWithin::new(PERIOD, PACKETS);
        let (mut reached, mut message, mut packets) = (Instant(1), 0_u64, 0);
        let (mut begun, mut last) = (Instant::ZERO, Instant::ZERO);
        for step in 0..200 {
            reached = reached + Nanos(rng.random_range(0..15_000_000));
            let next = (message + rng.random_range(0..4)).saturating_sub(1);
            let is_same = step > 0 && next == message && packets < PACKETS;
            (message, packets) = (next, if is_same { packets + 1 } else { 1 });
            let effective = within.accept(message, reached);
            let due = if is_same || step == 0 { begun } else { last + PERIOD };
            assert!(effective >= reached.max(due), "seed {seed}, step {step}: {effective:?}");
            assert!(
                effective == reached || effective == last.max(due),
                "seed {seed}, step {step}: held for nothing"
            );
            (begun, last) = (if is_same { begun } else { effective }, effective);
        }
    }
}

/// After any misbehaviour the channel is back within its bounds D + 2·I + 129·J after the neighbour behaves.
#[test]
fn a_channel_recovers_within_the_bound() {
    let recovery = DEADLINE + INTERVAL * 2 + JITTER * 129;
    let mut disturbed = 0;
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut chain, mut now) = (chain(), MS(1_000).0);
        for number in 0..rng.random_range(1..200) {
            now += rng.random_range(0..15_000_000);
            let slack = match rng.random_range(0..5) {
                0 => rng.random_range(-900_000_000..3_600_000_000_i64),
                _ => rng.random_range(-1_000_000..90_000_000),
            };
            let nominal = now.saturating_add_signed(slack);
            chain.accept(&packet(rng.random_range(0..=number), nominal, now));
        }
        // From here on honest: n every I, received at most J after it, or early.
        for number in 0..60 {
            let nominal = now + JITTER.0 + number * INTERVAL.0;
            let received = nominal + JITTER.0 - rng.random_range(0..=2 * JITTER.0);
            let honest = packet(1_000 + number, nominal, received);
            let kept = match chain.accept(&honest) {
                Verdict::Accepted { effective } => effective.0 <= nominal + JITTER.0,
                Verdict::Demoted => false,
            };
            disturbed += u32::from(!kept);
            assert!(kept || nominal < now + recovery.0, "seed {seed}, message {number}");
        }
    }
    assert!(disturbed > 100, "the attack must have done something: {disturbed}");
}

#[test]
fn the_source_regulates_and_reports_which_message_breaks_the_contract() {
    let mut source = LogicalArrivals::new(MS(10), 3);
    let at = |ms: u64| Instant(MS(ms).0);
    // Time by which a message catches up: 10 ms / 256.
    let made_up = Nanos(39_062);
    let after = |count: u64| at(100) + (MS(10) - made_up) * count;
    let burst: Vec<_> = (0..4).map(|_| source.accept(at(100), Policing::Delay)).collect();
    let expected = [0, 1, 2].map(|count| SourceVerdict::Conforming { logical: after(count) });
    assert_eq!(burst[..3], expected);
    assert_eq!(burst[3], SourceVerdict::Delayed { logical: after(3) });
    // A dropped or demoted message does not count against later ones.
    for _ in 0..10 {
        assert_eq!(source.accept(at(105), Policing::Drop), SourceVerdict::Dropped);
        assert_eq!(source.accept(at(105), Policing::Demote), SourceVerdict::Demoted);
    }
    assert_eq!(source.accept(at(120), Policing::Drop), SourceVerdict::Conforming { logical: after(4) });
    assert_eq!(source.accept(at(200), Policing::Delay), SourceVerdict::Conforming { logical: at(200) });
}

/// A message each 10 ms, each 40 ms in the mean.
fn soft_contract() -> Contract {
    let plain = Contract::new(100, Rate::every(MS(10)).unwrap(), 1, MS(50)).unwrap();
    let (mean_rate, miss_ratio) = (Rate::every(MS(40)).unwrap(), Ppb::new(1_000).unwrap());
    let statistical = Statistical { mean_rate, mean_over: MS(200), miss_ratio };
    Contract { statistical: Some(statistical), ..plain }
}

#[test]
fn the_source_polices_the_mean_of_a_soft_contract() {
    let contract = soft_contract();
    contract.validate().unwrap();
    let mut source = LogicalArrivals::of(&contract);
    let sent: Vec<_> = (100..)
        .map(|count| Instant(MS(10).0 * count))
        .take(200)
        .filter(|&at| matches!(source.accept(at, Policing::Drop), SourceVerdict::Conforming { .. }))
        .collect();
    // At the peak until the allowance is spent, then at the mean.
    assert_eq!(sent[6].since(sent[0]), MS(60));
    assert!(sent[8..].windows(2).all(|pair| pair[1].since(pair[0]) == MS(40)), "{sent:?}");
    for (first, begin) in sent.iter().enumerate() {
        for (count, at) in sent[first..].iter().enumerate() {
            // By when they were sent; their logical arrivals, up to the jitter allowance later, keep the mean exactly.
            let allowed = at.since(*begin) + MS(200) + contract.jitter_allowance();
            assert!(count as u64 <= allowed.0 / MS(40).0, "{count} since {begin:?}");
        }
    }
    let mut delayed = LogicalArrivals::of(&contract);
    let last = (0..20).map(|_| delayed.accept(Instant(0), Policing::Delay)).last();
    assert_eq!(last, Some(SourceVerdict::Delayed { logical: Instant(MS(19 * 40 - 200).0) }));
}

/// Whatever times a sender claims, its messages are served no more often than its mean allows.
#[test]
fn a_sender_that_claims_old_times_is_served_no_faster_than_its_mean() {
    let contract = soft_contract();
    // It keeps its mean by what it claims, or claims that everything was sent at once, long ago.
    for claimed_apart in [MS(40), Nanos::ZERO] {
        let mut source = LogicalArrivals::of(&contract);
        let served: Vec<_> = (0..500)
            .map(|count| {
                let (claimed, seen) =
                    (Instant(0) + claimed_apart * count, Instant(0) + MS(100_000 + 10 * count));
                match source.accept_seen(claimed, seen, Policing::Delay) {
                    SourceVerdict::Conforming { logical } | SourceVerdict::Delayed { logical } => logical,
                    verdict => panic!("{verdict:?}"),
                }
            })
            .collect();
        for (first, begin) in served.iter().enumerate() {
            for (count, at) in served[first..].iter().enumerate() {
                let allowed = (at.since(*begin) + MS(200)).0 / MS(40).0;
                assert!(count as u64 <= allowed, "{count} messages behind {begin:?}: {allowed} may");
            }
        }
    }
}

/// An honest message: whether it pauses, how far its n is behind the nominal value, and how early it arrives.
type Honest = (bool, u64, u64);

fn honest() -> impl Strategy<Value = Vec<Honest>> {
    prop::collection::vec((prop::bool::weighted(0.25), 0..=JITTER.0, 0..=DEADLINE.0 + JITTER.0), 100)
}

/// Packets of a hostile neighbour: number, bytes, slack (any value), and time since the previous packet.
fn hostile() -> impl Strategy<Value = Vec<(u64, u32, i64, u64)>> {
    let small = -(DEADLINE.0 as i64)..DEADLINE.0 as i64;
    let slack = prop_oneof![4 => small, 1 => -900_000_000..3_600_000_000_i64];
    let bytes = prop_oneof![Just(1_000), 1..2_000_u32];
    prop::collection::vec((0..5_u64, bytes, slack, 0..4_000_000_u64), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Conforming is exactly "at most B + R·t messages in any time t".
    #[test]
    fn messages_conform_exactly_if_the_contract_allows_them(
        pauses in prop::collection::vec(0..20_u64, 1..60), interval in 1..20_u64, burst in 1..5_u32,
    ) {
        let mut source = LogicalArrivals::new(Nanos(interval), burst);
        let (mut now, mut taken) = (0, Vec::<u64>::new());
        for pause in pauses {
            now += pause;
            let keeps = |first: usize| {
                let messages = (taken.len() - first) as u64 + 1;
                messages <= u64::from(burst) + (now - taken[first]) / interval
            };
            let conforms = (0..taken.len()).all(keeps);
            let verdict = source.accept(Instant(now), Policing::Drop);
            prop_assert_eq!(verdict != SourceVerdict::Dropped, conforms);
            if conforms {
                taken.push(now);
            }
        }
    }

    /// An honest stream at the contract's edge is never demoted, and e is never later than n as it should be + J.
    #[test]
    fn an_honest_stream_is_never_demoted(messages in honest()) {
        let (mut chain, mut should_be) = (chain(), 1_000_000_000);
        for (number, &(pauses, error, early)) in messages.iter().enumerate() {
            should_be += INTERVAL.0 + if pauses { INTERVAL.0 / 2 } else { 0 };
            for _ in 0..PACKETS {
                let honest = packet(number as u64, should_be + error, should_be + JITTER.0 - early);
                let Verdict::Accepted { effective } = chain.accept(&honest) else {
                    return Err(TestCaseError::fail(format!("demoted: {honest:?}")));
                };
                prop_assert!(effective.0 <= should_be + JITTER.0, "{effective:?}, should be {should_be}");
            }
        }
    }

    /// Whatever arrives, the effective arrivals of successive messages are at least I' apart: no window of
    /// the stage has more load than admission has counted.
    #[test]
    fn whatever_comes_in_the_load_stays_within_the_contract(lies in hostile()) {
        let (mut chain, mut now, mut taken) = (chain(), 1_000_000_000, Vec::<(u64, u32)>::new());
        for (number, wire_bytes, slack, pause) in lies {
            now += pause;
            let lie = Arrival { wire_bytes, ..packet(number, now.saturating_add_signed(slack), now) };
            if let Verdict::Accepted { effective } = chain.accept(&lie) {
                taken.push((effective.0, wire_bytes));
            }
        }
        prop_assert!(taken.is_sorted_by_key(|&(effective, _)| effective));
        for (first, &(begin, _)) in taken.iter().enumerate() {
            // The interval [e, e + I') has no more than one message may carry.
            let within = taken[first..].iter().take_while(|&&(effective, _)| effective < begin + PERIOD.0);
            let (packets, bytes) = within.fold((0, 0), |(packets, sum), &(_, bytes)| (packets + 1, sum + bytes));
            prop_assert!(packets <= PACKETS && bytes <= BYTES, "{packets} packets, {bytes} B");
        }
    }
}

/// A host that was stopped for 5 I receives six messages at once; its sender continues at the full rate.
#[test]
fn a_sender_at_full_rate_returns_to_its_own_arrivals_after_its_host_was_stopped() {
    let (stall, wakeup) = (INTERVAL * 5, MS(1));
    let mut source = LogicalArrivals::new(INTERVAL, 1);
    let mut before = None;
    let mut lag = Nanos::ZERO;
    for number in 0..=5 * 256 + 10 {
        let sent = Instant(1_000_000_000) + INTERVAL * number;
        let seen = sent.max(Instant(1_000_000_000) + stall);
        let SourceVerdict::Conforming { logical } = source.accept_seen(sent, seen - wakeup, Policing::Delay)
        else {
            panic!("message {number} keeps its contract")
        };
        assert!(logical >= sent && logical >= seen - wakeup, "message {number}");
        if let Some(before) = before {
            // More than I' apart: what admission counts with.
            assert!(logical.since(before) > PERIOD, "message {number}");
        }
        (before, lag) = (Some(logical), logical.since(sent));
    }
    assert_eq!(lag, Nanos::ZERO);
}

/// A timer that is late is made up for by the sender's next messages: it does not keep the largest lateness for good.
#[test]
fn a_late_timer_is_made_up_for() {
    let contract = Contract::new(100, Rate::every(INTERVAL).unwrap(), 1, MS(50)).unwrap();
    let contract = Contract { jitter: Some(MS(6)), ..contract };
    let mut source = LogicalArrivals::of(&contract);
    let mut before: Option<Instant> = None;
    for number in 0..400 {
        let late = if number == 100 { MS(5) } else { Nanos::ZERO };
        let sent = Instant(1_000_000_000) + INTERVAL * number + late;
        let SourceVerdict::Conforming { logical } = source.accept(sent, Policing::Drop) else {
            panic!("message {number} keeps its contract")
        };
        // More than I' apart: what admission counts with. Never further ahead than the allowance.
        assert!(before.is_none_or(|before| logical.since(before) > PERIOD), "message {number}");
        let left = MS(5) - Nanos(INTERVAL.0 / 256) * number.saturating_sub(100);
        assert_eq!(logical.since(sent), if number > 100 { left } else { Nanos::ZERO }, "message {number}");
        before = Some(logical);
    }
}

/// A sender that runs its clock's rate ahead of time gets B and what the allowance holds, and no more.
#[test]
fn the_allowance_is_no_second_burst() {
    let contract = Contract::new(100, Rate::every(INTERVAL).unwrap(), 2, MS(50)).unwrap();
    let contract = Contract { jitter: Some(INTERVAL * 3), ..contract };
    let mut source = LogicalArrivals::of(&contract);
    let taken = |source: &mut LogicalArrivals, at: Instant| {
        (0..20).filter(|_| source.accept(at, Policing::Drop) != SourceVerdict::Dropped).count()
    };
    assert_eq!(taken(&mut source, Instant(1_000_000_000)), 2 + 3);
    assert_eq!(taken(&mut source, Instant(1_000_000_000) + INTERVAL), 1);
}

#[test]
fn an_allowance_is_a_part_of_the_contract() {
    let of = |interval| Contract::new(100, Rate::every(interval).unwrap(), 1, MS(50)).unwrap();
    assert_eq!(of(MS(40)).jitter_allowance(), MS(10));
    assert_eq!(of(Nanos(100_000)).jitter_allowance(), Nanos(1_000_000), "ten intervals");
    let asked = Contract { jitter: Some(MS(20)), ..of(MS(1)) };
    assert_eq!((asked.jitter_allowance(), asked.early_service()), (MS(20), MS(20)));
    let regulated = Contract { horizon: punctual_analysis::Horizon::Regulated, ..asked };
    assert_eq!(regulated.early_service(), Nanos::ZERO);
    let absurd = Contract { jitter: Some(Nanos::MAX), ..asked };
    assert!(absurd.validate().unwrap_err().to_string().contains("at most an hour"));
}

/// A sender that forges its send times gets no message served before it was received, nor two closer than I'.
#[test]
fn claims_of_long_ago_gain_nothing() {
    let mut source = LogicalArrivals::new(INTERVAL, 1);
    let seen = Instant(1_000_000_000);
    let mut before = Instant::ZERO;
    for number in 0..100 {
        let claimed = Instant(0) + INTERVAL * (number / 3);
        match source.accept_seen(claimed, seen, Policing::Delay) {
            SourceVerdict::Conforming { logical } | SourceVerdict::Delayed { logical } => {
                assert!(logical >= seen && logical.since(before) > PERIOD, "message {number}");
                before = logical;
            }
            other => panic!("{other:?}"),
        }
    }
}
