//! A handler's place in the run order of each policy, as one number: the smaller, the more urgent.

use punctual_analysis::Nanos;
use punctual_analysis::contract::SPAN_MAX;

use super::parameters::Class;
use crate::limits::PRIORITY_LEVELS;

pub(super) const LEVEL_LOWEST: u8 = PRIORITY_LEVELS - 1;

/// A handler's place in the run order, without its budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) class: Class,
    pub(super) level: u8,
    pub(super) place: u8,
    pub(super) quantum_packets: u32,
    pub(super) period: Nanos,
}

/// A band, and the place within it.
pub(super) fn banded(band: u8, place: u64) -> u128 {
    u128::from(band) << 64 | u128::from(place)
}

const RATE_TICKET_BITS: u32 = 45;
const RATE_PLACE_BITS: u32 = 6;
const RATE_PERIOD_BITS: u32 = 42;

const _: () = assert!(SPAN_MAX.0 < 1 << RATE_PERIOD_BITS, "every period has its own place");
const _: () =
    assert!(3 + RATE_PERIOD_BITS + RATE_PLACE_BITS + RATE_TICKET_BITS <= 96, "what a heap's key holds");

/// Sort key by class, period, place within the rate group, and the order of arrival. Only channels have
/// periods. Tickets wrap after 2^45, which takes a year at a million per second.
pub(super) fn by_rate(class: Class, order: &Order, ticket: u64) -> u128 {
    let of_channel = matches!(class, Class::LowLatency | Class::Guaranteed | Class::Soft);
    let (period, place) =
        if of_channel { (order.period.min(SPAN_MAX), order.place) } else { (Nanos::ZERO, 0) };
    let place = u128::from(place.min((1 << RATE_PLACE_BITS) - 1));
    let ticket = u128::from(ticket & ((1 << RATE_TICKET_BITS) - 1));
    let rate = u128::from(class as u8) << RATE_PERIOD_BITS | u128::from(period.0);
    (rate << RATE_PLACE_BITS | place) << RATE_TICKET_BITS | ticket
}

/// Signalling on the top level, best effort on the lowest, channels on the 30 between by rank; the background
/// below all of them.
pub(super) fn level(class: Class, rank: u8) -> u8 {
    match class {
        Class::Signalling => 0,
        Class::LowLatency | Class::Guaranteed | Class::Soft => rank.saturating_add(1).min(LEVEL_LOWEST - 1),
        Class::BestEffort => LEVEL_LOWEST,
        Class::Background => PRIORITY_LEVELS,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// No part of a key reaches into another, and a key fits where a heap keeps it: the order of keys is that
    /// of their parts.
    #[test]
    fn keys_are_ordered_as_their_parts_are() {
        let of = |class, period, place, ticket| {
            let order = Order { class, level: 0, place, quantum_packets: 1, period: Nanos(period) };
            by_rate(class, &order, ticket)
        };
        let last = (1 << 45) - 1;
        let mut keys = Vec::new();
        for class in [Class::LowLatency, Class::Guaranteed, Class::Soft] {
            for period in [0, 1, SPAN_MAX.0 - 1, SPAN_MAX.0] {
                for place in [0, 1, 62, 63] {
                    keys.extend([0, 1, 2, last - 1, last].map(|ticket| of(class, period, place, ticket)));
                }
            }
        }
        assert!(keys.is_sorted_by(|one, next| one < next));
        for class in [Class::BestEffort, Class::Background] {
            let among = [0, 1, last].map(|ticket| of(class, SPAN_MAX.0, 63, ticket));
            assert!(keys.last() < among.first() && among.is_sorted_by(|one, next| one < next));
            keys.extend(among);
        }
        assert!(keys.last().is_some_and(|key| key >> 96 == 0), "a heap has room for 96 bits");
        // After the last ticket comes the first again.
        assert_eq!(
            [last + 1, last + 2].map(|ticket| of(Class::Guaranteed, 4, 6, ticket)),
            [0, 1].map(|ticket| of(Class::Guaranteed, 4, 6, ticket))
        );
        let banded = [
            (0, 0),
            (0, 1),
            (0, u64::MAX),
            (1, 0),
            (1, 7),
            (PRIORITY_LEVELS, 0),
            (PRIORITY_LEVELS, u64::MAX),
        ];
        let keys = banded.map(|(band, place)| super::banded(band, place));
        assert!(keys.is_sorted_by(|one, next| one < next) && keys.iter().all(|key| key >> 96 == 0));
    }
}
