//! Arrivals against models that keep the whole history, in spans of a few nanoseconds: each limit is met exactly, missed by
//! one, and exceeded by one.

use punctual_analysis::{
    Arrival, ArrivalTerms, EffectiveArrivals, Instant, LogicalArrivals, Nanos, Policing, SourceVerdict,
    Verdict,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// All that a stage has received of one message.
struct Message {
    number: u64,
    packets: u32,
    wire_bytes: u64,
    demoted: bool,
    /// The largest e.
    effective: Option<u64>,
}

/// The messages of a channel, by the rules as [`EffectiveArrivals`] states them.
#[derive(Default)]
struct History(Vec<Message>);

impl History {
    /// The packet's e; none if it is demoted.
    fn accept(&mut self, terms: &ArrivalTerms, packet: &Arrival) -> Option<u64> {
        let bytes = u64::from(packet.wire_bytes);
        let continues = self.0.last().is_some_and(|message| {
            message.number == packet.message
                && message.packets < terms.packets_max
                && message.wire_bytes + bytes <= terms.wire_bytes_max
        });
        if !continues {
            let (number, demoted, effective) = (packet.message, false, None);
            self.0.push(Message { number, packets: 0, wire_bytes: 0, demoted, effective });
        }
        let earlier = self.0[..self.0.len() - 1].iter().rev().find_map(|message| message.effective);
        let earliest = earlier.map_or(0, |effective| effective + terms.period.0);
        let message = self.0.last_mut().expect("there is one now");
        (message.packets, message.wire_bytes) = (message.packets + 1, message.wire_bytes + bytes);
        let (nominal, received, jitter) = (packet.nominal.0, packet.received.0, terms.jitter.0);
        let reached = nominal.max(received);
        let is_late = received > nominal + jitter;
        let is_too_soon = earliest > reached + jitter;
        let is_ahead = nominal > received + terms.early_max.0 + jitter;
        let is_too_large = bytes > terms.wire_bytes_max || terms.packets_max == 0;
        message.demoted |= is_late || is_too_soon || is_ahead || is_too_large;
        if message.demoted {
            return None;
        }
        message.effective = Some(reached.max(earliest).max(message.effective.unwrap_or(0)));
        message.effective
    }
}

#[test]
fn a_stage_polices_packets_by_their_history() {
    let (mut kept, mut demoted) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let terms = ArrivalTerms {
            period: Nanos(rng.random_range(1..6)),
            jitter: Nanos(rng.random_range(0..3)),
            packets_max: rng.random_range(0..4),
            wire_bytes_max: rng.random_range(0..12),
            early_max: Nanos(rng.random_range(0..5)),
        };
        let (mut arrivals, mut history) = (EffectiveArrivals::default(), History::default());
        let (mut now, mut number) = (1, 0_u64);
        for step in 0..60 {
            now += rng.random_range(0..4);
            number = (number + rng.random_range(0..4)).saturating_sub(2);
            let packet = Arrival {
                message: number,
                wire_bytes: rng.random_range(0..7),
                nominal: Instant(now + rng.random_range(0..8)),
                received: Instant(now + rng.random_range(0..4)),
            };
            let expected = history.accept(&terms, &packet);
            let verdict = match expected {
                Some(effective) => Verdict::Accepted { effective: Instant(effective) },
                None => Verdict::Demoted,
            };
            assert_eq!(
                arrivals.accept(&terms, &packet),
                verdict,
                "seed {seed}, {step}: {packet:?} {terms:?}"
            );
            (kept, demoted) = (kept + u32::from(expected.is_some()), demoted + u32::from(expected.is_none()));
        }
    }
    assert!(kept > 10_000 && demoted > 10_000, "{kept} {demoted}");
}

/// A source claims the arrival that follows from its senders' times and its spacing alone, however late its host is; messages
/// that it does not take change nothing.
#[test]
fn a_source_claims_its_own_arrivals() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..500 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let interval = [1, 2, 255, 256, 257, 1_000][rng.random_range(0..6)];
        let burst = rng.random_range(1..4);
        let (spacing, tolerance) = (interval - interval / 256, interval * u64::from(burst - 1));
        let mut source = LogicalArrivals::new(Nanos(interval), burst);
        let (mut sent, mut own, mut served) = (1, None::<u64>, None::<u64>);
        for step in 0..60 {
            sent += rng.random_range(0..2 * interval);
            let earliest = sent.saturating_sub(interval) + rng.random_range(0..2 * interval);
            let policing = [Policing::Delay, Policing::Drop, Policing::Demote][rng.random_range(0..3)];
            let next = own.map_or(sent, |own| sent.max(own + spacing));
            let logical = served.map_or(next, |served| next.max(served + spacing)).max(earliest);
            let at = Instant(logical);
            let expected = match (next - sent <= tolerance, policing) {
                (true, _) => SourceVerdict::Conforming { logical: at },
                (false, Policing::Delay) => SourceVerdict::Delayed { logical: at },
                (false, Policing::Drop) => SourceVerdict::Dropped,
                (false, Policing::Demote) => SourceVerdict::Demoted,
            };
            let what = format!("seed {seed}, {step}");
            assert_eq!(source.peek(Instant(sent)), Instant(next), "{what}");
            assert_eq!(source.accept_seen(Instant(sent), Instant(earliest), policing), expected, "{what}");
            if matches!(expected, SourceVerdict::Dropped | SourceVerdict::Demoted) {
                refused += 1;
            } else {
                (own, served, taken) = (Some(next), Some(logical), taken + 1);
            }
            assert_eq!(source.claimed(), Instant(own.unwrap_or(0)), "{what}");
        }
    }
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}
