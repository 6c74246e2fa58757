//! The rules of design 3, "Trust nobody", each against the neighbour that they are for.

use punctual_analysis::{
    Arrival, EffectiveArrivals, Instant, LogicalArrivals, Nanos, Policing, SourceVerdict, Verdict,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const INTERVAL: Nanos = Nanos(12_800_000);
/// I' = I·(1 - 1/128).
const PERIOD: Nanos = Nanos(12_700_000);
const JITTER: Nanos = Nanos(1_000_000);
const DEADLINE: Nanos = Nanos(80_000_000);

fn chain() -> EffectiveArrivals {
    EffectiveArrivals::new(PERIOD, Some(JITTER), 3, 3_000).with_early_max(DEADLINE)
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
    // The next message comes I' after the largest e, not after the first.
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
    // One number again and again: three packets are a message, the fourth is the next one.
    let mut chain = self::chain();
    let repeated = (0..9).map(|_| chain.accept(&packet(7, 1_000_000, 500_000)));
    let verdicts: Vec<bool> = repeated.map(|verdict| verdict != Verdict::Demoted).collect();
    assert_eq!(verdicts, [true, true, true, false, false, false, false, false, false]);
}

#[test]
fn bytes_beyond_s_count_as_the_next_message() {
    let mut chain = chain();
    let jumbo = Arrival { wire_bytes: 1_501, ..packet(0, 1_000_000, 500_000) };
    assert_eq!(accepted(chain.accept(&jumbo)), 1_000_000);
    assert_eq!(chain.accept(&jumbo), Verdict::Demoted);
    let oversized = Arrival { wire_bytes: 3_001, ..packet(9, 900_000_000, 900_000_000) };
    assert_eq!(chain.accept(&oversized), Verdict::Demoted);
}

#[test]
fn an_invented_slack_does_not_push_the_channel_into_the_future() {
    let mut chain = chain();
    assert_eq!(chain.accept(&packet(0, 3_600_000_000_000, 1_000_000)), Verdict::Demoted);
    assert_eq!(accepted(chain.accept(&packet(1, 2_000_000, 1_000_000))), 2_000_000);
}

#[test]
fn inside_a_host_nothing_is_demoted() {
    let mut chain = EffectiveArrivals::new(PERIOD, None, 3, 3_000);
    assert_eq!(accepted(chain.accept(&packet(0, 10_000_000, 90_000_000))), 90_000_000);
    assert_eq!(accepted(chain.accept(&packet(1, 10_000_000, 90_000_000))), 90_000_000 + PERIOD.0);
}

/// Whatever comes in, successive accepted messages start at least I' apart: all that admission relies on.
#[test]
fn effective_arrivals_never_come_faster_than_the_contract() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut chain, mut now, mut messages) = (chain(), 0_u64, Vec::<(u64, u32)>::new());
        for _ in 0..400 {
            now += rng.random_range(0..4_000_000);
            let nominal = (now + rng.random_range(0..100_000_000)).saturating_sub(20_000_000);
            let bytes = rng.random_range(1..2_000);
            let hostile = Arrival { wire_bytes: bytes, ..packet(rng.random_range(0..4), nominal, now) };
            if let Verdict::Accepted { effective } = chain.accept(&hostile) {
                messages.push((effective.0, bytes));
            }
        }
        assert!(messages.is_sorted_by_key(|&(effective, _)| effective), "seed {seed}");
        for (first, &(start, _)) in messages.iter().enumerate() {
            // In [e, e + I') lie no more than the packets of two messages, the one that began before and one.
            let within = messages[first..].iter().take_while(|&&(e, _)| e < start + PERIOD.0);
            let (count, bytes) = within.fold((0, 0), |(count, sum), &(_, bytes)| (count + 1, sum + bytes));
            assert!(count <= 6 && bytes <= 6_000, "seed {seed}: {count} packets, {bytes} B");
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
        let (mut chain, mut now) = (chain(), MS(1).0);
        for number in 0..rng.random_range(1..200) {
            now += rng.random_range(0..15_000_000);
            let nominal = (now + rng.random_range(0..90_000_000)).saturating_sub(JITTER.0);
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
fn the_source_regulates_and_tells_which_message_breaks_the_contract() {
    let mut source = LogicalArrivals::new(MS(10), 3);
    let at = |ms: u64| Instant(MS(ms).0);
    let burst: Vec<_> = (0..4).map(|_| source.accept(at(100), Policing::Delay)).collect();
    let expected = [100, 110, 120].map(|ms| SourceVerdict::Conforming { logical: at(ms) });
    assert_eq!(burst[..3], expected);
    assert_eq!(burst[3], SourceVerdict::Delayed { logical: at(130) });
    // What is dropped or demoted does not count against later messages.
    assert_eq!(source.accept(at(105), Policing::Drop), SourceVerdict::Dropped);
    assert_eq!(source.accept(at(105), Policing::Demote), SourceVerdict::Demoted);
    assert_eq!(source.accept(at(200), Policing::Drop), SourceVerdict::Conforming { logical: at(200) });
}

/// Conforming is exactly "at most B + R·t messages in any interval t".
#[test]
fn conformity_is_the_contract_word_for_word() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (interval, burst) = (Nanos(rng.random_range(1..20)), rng.random_range(1..5));
        let mut source = LogicalArrivals::new(interval, burst);
        let (mut now, mut taken) = (0, Vec::<u64>::new());
        for _ in 0..100 {
            now += rng.random_range(0..20);
            let keeps = |&first: &usize| {
                let messages = (taken.len() - first) as u64 + 1;
                messages <= u64::from(burst) + (now - taken[first]) / interval.0
            };
            let conforms = (0..taken.len()).all(|first| keeps(&first));
            let verdict = source.accept(Instant(now), Policing::Drop);
            assert_eq!(verdict != SourceVerdict::Dropped, conforms, "seed {seed} at {now}");
            if conforms {
                taken.push(now);
            }
        }
    }
}
