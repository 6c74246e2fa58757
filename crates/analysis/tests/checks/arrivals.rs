//! Packets of a hostile neighbour, against the only property of arrivals that admission uses.

use punctual_analysis::{Arrival, ArrivalTerms, EffectiveArrivals, Instant, Nanos, Verdict};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const PERIOD: Nanos = Nanos(12_700_000);
const JITTER: Nanos = Nanos(1_000_000);
const DEADLINE: Nanos = Nanos(80_000_000);
const PACKETS: u32 = 3;
const BYTES: u32 = 3_000;

/// Whatever arrives, no period has more accepted packets or bytes than one message of the contract.
pub fn excess(seed: u64) -> Option<String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut chain = EffectiveArrivals::default();
    let terms = ArrivalTerms {
        period: PERIOD,
        jitter: JITTER,
        packets_max: PACKETS,
        wire_bytes_max: BYTES.into(),
        early_max: DEADLINE,
    };
    let (mut now_ns, mut taken) = (1_000_000_000_u64, Vec::new());
    let numbers = rng.random_range(1..=5);
    for _ in 0..rng.random_range(1..100) {
        now_ns += rng.random_range(0..4_000_000);
        let slack_ns = rng.random_range(-(DEADLINE.0 as i64)..=DEADLINE.0 as i64);
        let packet = Arrival {
            message: rng.random_range(0..numbers),
            wire_bytes: rng.random_range(1..2_000),
            nominal: Instant(now_ns.saturating_add_signed(slack_ns)),
            received: Instant(now_ns),
        };
        if let Verdict::Accepted { effective } = chain.accept(&terms, &packet) {
            taken.push((effective.0, packet.wire_bytes));
        }
    }
    (0..taken.len()).find_map(|first| {
        let until_ns = taken[first].0 + PERIOD.0;
        let within = taken[first..].iter().take_while(|(effective_ns, _)| *effective_ns < until_ns);
        let (packets, bytes) = within.fold((0, 0), |(packets, sum), (_, bytes)| (packets + 1, sum + bytes));
        let too_much = packets > PACKETS || bytes > BYTES;
        too_much.then(|| {
            format!(
                "{packets} packets of {bytes} B taken within one period, a message has {PACKETS} of {BYTES} B"
            )
        })
    })
}
