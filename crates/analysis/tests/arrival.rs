//! Arrival: the regulator at the source, and the e-chain against honest and hostile neighbours (design 3).

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use punctual_analysis::arrival::{
    Arrival, EffectiveArrivals, LogicalArrivals, SourceVerdict as Source, Verdict,
};
use punctual_analysis::{Instant, Nanos, Policing};

const INTERVAL: u64 = 10_000;
const POLICED: Nanos = Nanos(INTERVAL - INTERVAL / 128);
const DEADLINE: u64 = 50_000;
const JITTER: u64 = 500;
const BYTES: u32 = 1_000;

fn sent(at: u64, regulator: &mut LogicalArrivals, policing: Policing) -> Source {
    regulator.accept(Instant(at), policing)
}

#[test]
fn a_burst_waits_for_itself() {
    let mut regulator = LogicalArrivals::new(Nanos(INTERVAL), 3);
    for i in 0..3 {
        let logical = Instant(i * INTERVAL);
        assert_eq!(sent(0, &mut regulator, Policing::Delay), Source::Conforming { logical });
    }
    let logical = Instant(3 * INTERVAL);
    assert_eq!(sent(0, &mut regulator, Policing::Delay), Source::Delayed { logical });
    let logical = Instant(9 * INTERVAL);
    assert_eq!(sent(9 * INTERVAL, &mut regulator, Policing::Delay), Source::Conforming { logical });
}

#[test]
fn what_is_dropped_or_demoted_does_not_count_against_later_messages() {
    for (policing, verdict) in [(Policing::Drop, Source::Dropped), (Policing::Demote, Source::Demoted)] {
        let mut regulator = LogicalArrivals::new(Nanos(INTERVAL), 1);
        assert_eq!(sent(0, &mut regulator, policing), Source::Conforming { logical: Instant(0) });
        for _ in 0..10 {
            assert_eq!(sent(5, &mut regulator, policing), verdict);
        }
        let logical = Instant(INTERVAL);
        assert_eq!(sent(INTERVAL, &mut regulator, policing), Source::Conforming { logical });
    }
}

fn stage() -> EffectiveArrivals {
    EffectiveArrivals::new(POLICED, Some(Nanos(JITTER)), 2, 2 * u64::from(BYTES))
        .with_early_max(Nanos(DEADLINE))
}

fn packet(message: u64, nominal: u64, received: u64) -> Arrival {
    Arrival { message, wire_bytes: BYTES, nominal: Instant(nominal), received: Instant(received) }
}

/// The number of a message's turn, however often a neighbour repeats numbers: two packets a message.
fn repeated(chain: &mut EffectiveArrivals, number: u64, at: u64) -> Verdict {
    chain.accept(&packet(number, at, at))
}

#[test]
fn packets_beyond_the_contract_under_one_number_are_the_next_message() {
    let mut chain = stage();
    for _ in 0..2 {
        assert_eq!(repeated(&mut chain, 7, 0), Verdict::Accepted { effective: Instant(0) });
    }
    assert_eq!(repeated(&mut chain, 7, 0), Verdict::Demoted, "a third packet needs another interval");
    assert_eq!(repeated(&mut chain, 7, 0), Verdict::Demoted, "and so does the rest of its message");
    let next = Verdict::Accepted { effective: Instant(INTERVAL) };
    assert_eq!(repeated(&mut chain, 7, INTERVAL), next);
}

#[test]
fn a_packet_later_than_its_jitter_takes_its_message_along_and_moves_nothing() {
    let mut chain = stage();
    assert_eq!(chain.accept(&packet(0, 0, JITTER + 1)), Verdict::Demoted);
    assert_eq!(chain.accept(&packet(0, JITTER, JITTER)), Verdict::Demoted);
    let on_time = Verdict::Accepted { effective: Instant(2 * JITTER) };
    assert_eq!(chain.accept(&packet(1, JITTER, 2 * JITTER)), on_time);
}

/// An honest message: whether it pauses, how far its n lies behind what it should be, and how early it comes.
type Honest = (u64, u64, u64);

fn honest(count: usize) -> impl Strategy<Value = Vec<Honest>> {
    prop::collection::vec((0..=3u64, 0..=JITTER, 0..=DEADLINE + JITTER), count)
}

/// Packets of an honest neighbour from `start` on, with n as it should be; two packets a message.
fn honest_packets(start: u64, messages: &[Honest]) -> Vec<(u64, Arrival)> {
    let mut nominal = start;
    let mut packets = Vec::new();
    for (i, &(pause, error, early)) in messages.iter().enumerate() {
        nominal += INTERVAL + if pause == 3 { INTERVAL / 2 } else { 0 };
        let (n, received) = (nominal + error, nominal + JITTER - early);
        let number = 1_000_000 + i as u64;
        packets.extend([(nominal, packet(number, n, received)); 2]);
    }
    packets
}

/// What a hostile neighbour sends: number, slack (any lie), and how long after the packet before it.
fn hostile() -> impl Strategy<Value = Vec<(u64, i64, u64)>> {
    let small = -(DEADLINE as i64)..DEADLINE as i64;
    let slack = prop_oneof![4 => small, 1 => -2_000_000..2_000_000i64];
    prop::collection::vec((0..5u64, slack, 0..5_000u64), 0..200)
}

fn hostile_packets(start: u64, lies: &[(u64, i64, u64)]) -> Vec<Arrival> {
    let mut now = start;
    let arrival = |&(number, slack, pause): &(u64, i64, u64)| {
        now += pause;
        packet(number, now.saturating_add_signed(slack), now)
    };
    lies.iter().map(arrival).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// "At most B + R·t messages in any time t", exactly.
    #[test]
    fn conforming_is_what_the_contract_says(
        pauses in prop::collection::vec(0..2 * INTERVAL, 1..60),
        burst in 1u32..5,
    ) {
        let mut regulator = LogicalArrivals::new(Nanos(INTERVAL), burst);
        let (mut now, mut taken): (u64, Vec<u64>) = (0, Vec::new());
        for pause in pauses {
            now += pause;
            let allowed = |first: usize| {
                let there = (taken.len() - first + 1) as u64;
                there.saturating_sub(u64::from(burst)) * INTERVAL <= now - taken[first]
            };
            let conforms = (0..taken.len()).all(allowed);
            let verdict = sent(now, &mut regulator, Policing::Drop);
            prop_assert_eq!(verdict != Source::Dropped, conforms);
            if conforms {
                taken.push(now);
            }
        }
    }

    /// An honest stream at the contract's edge is never demoted, and e is never later than n as it should be + J.
    #[test]
    fn an_honest_stream_is_never_demoted(messages in honest(150)) {
        let mut chain = stage();
        for (nominal, packet) in honest_packets(1_000_000, &messages) {
            let verdict = chain.accept(&packet);
            let Verdict::Accepted { effective } = verdict else {
                return Err(TestCaseError::fail(format!("demoted: {packet:?}")));
            };
            prop_assert!(effective <= Instant(nominal + JITTER), "{effective:?}, should be near {nominal}");
        }
    }

    /// Whatever comes in, the effective arrivals of successive messages lie at least I' apart: no window of the
    /// stage gets more than admission has counted.
    #[test]
    fn whatever_comes_in_the_load_stays_within_the_contract(lies in hostile()) {
        let mut chain = stage();
        let accepted: Vec<Instant> = hostile_packets(1_000_000, &lies).iter()
            .filter_map(|packet| match chain.accept(packet) {
                Verdict::Accepted { effective } => Some(effective),
                Verdict::Demoted => None,
            })
            .collect();
        for pair in accepted.windows(3) {
            prop_assert!(pair[2] >= pair[0] + POLICED, "three packets within I': {pair:?}");
        }
        prop_assert!(accepted.is_sorted());
    }

    /// Behind a hostile neighbour that behaves again the channel is back after D + 2·I + 129·J.
    #[test]
    fn the_channel_recovers_from_its_neighbour(lies in hostile(), messages in honest(150)) {
        let mut chain = stage();
        let lies = hostile_packets(1_000_000, &lies);
        for packet in &lies {
            chain.accept(packet);
        }
        let behaves = lies.last().map_or(1_000_000, |packet| packet.received.0);
        let recovered = behaves + DEADLINE + 2 * INTERVAL + 129 * JITTER;
        for (nominal, packet) in honest_packets(behaves + DEADLINE, &messages) {
            let is_demoted = chain.accept(&packet) == Verdict::Demoted;
            prop_assert!(!is_demoted || nominal < recovered, "demoted {} after", nominal - behaves);
        }
    }
}
