//! SYN cookies (RFC 4987 3.6): when the backlog is full, the listener encodes the state of a SYN in the
//! numbers of its reply: time, an index into a table of segment sizes and a keyed hash in the sequence
//! number, the rest in the timestamp.

use punctual_analysis::Instant;

use crate::secrets::{Secrets, Use};
use crate::wire::{Flow, Segment};

/// Segment sizes that a cookie can encode (3 bits).
const SIZES: [u16; 8] = [536, 966, 1220, 1280, 1360, 1400, 1440, 1460];
/// A cookie is valid in the slot of 64 s in which it was made, and in the next.
const SLOT_NS: u64 = 64_000_000_000;
/// The value of four bits that means "no window scale".
const NO_SCALE: u32 = 15;
/// Bits of the timestamp that carry scale and SACK.
pub(crate) const OPTION_BITS: u32 = 0b1_1111;

fn slot(now: Instant) -> u64 {
    now.0 / SLOT_NS
}

fn number(secrets: &Secrets, flow: Flow, irs: u32, slot: u64, size: u32) -> u32 {
    let hash = secrets.hash(Use::Cookie, (flow, irs, slot, size)) as u32;
    ((slot as u32 & 31) << 27) | (size << 24) | (hash & 0xff_ffff)
}

/// The initial sequence number that replies to `syn` and encodes its segment size, rounded down.
pub(crate) fn bake(secrets: &Secrets, syn: &Segment, now: Instant) -> u32 {
    let mss = syn.mss.unwrap_or(536);
    let size = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0);
    number(secrets, syn.flow, syn.seq, slot(now), size as u32)
}

/// The segment size that the cookie in `ack`, the reply to our SYN-ACK, encodes; `None` if the cookie is
/// forged or too old.
pub(crate) fn check(secrets: &Secrets, ack: &Segment, now: Instant) -> Option<u16> {
    let cookie = ack.ack?.wrapping_sub(1);
    let irs = ack.seq.wrapping_sub(1);
    let size = (cookie >> 24) & 7;
    let slots = [slot(now), slot(now).wrapping_sub(1)];
    let is_good = slots.into_iter().any(|slot| number(secrets, ack.flow, irs, slot, size) == cookie);
    is_good.then(|| SIZES[size as usize])
}

/// The timestamp that replies to `syn`: the latest one up to `clock` whose lowest bits are its options. One behind `clock` would have
/// the peer drop what follows as old (RFC 7323 5.3), until the clock has come so far.
pub(crate) fn options(syn: &Segment, clock: u32) -> u32 {
    let scale = syn.scale.map_or(NO_SCALE, u32::from);
    let options = scale | (u32::from(syn.sack) << 4);
    let is_later = options > clock & OPTION_BITS;
    let stamp = (clock & !OPTION_BITS) | options;
    if is_later { stamp.wrapping_sub(OPTION_BITS + 1) } else { stamp }
}

/// Scale and SACK from the echoed clock value.
pub(crate) const fn read_options(clock: u32) -> (Option<u8>, bool) {
    let scale = clock & 15;
    let has_scale = scale != NO_SCALE;
    (if has_scale { Some(scale as u8) } else { None }, clock & 16 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::bare;

    const NOW: Instant = Instant(1_000_000_000_000);

    fn syn() -> Segment {
        let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() };
        Segment { seq: 77, mss: Some(1460), scale: Some(7), sack: true, ..bare(flow) }
    }

    #[test]
    fn a_cookie_comes_back_with_its_options() {
        let secrets = Secrets::new([1; 16]);
        let ack =
            Segment { seq: 78, ack: Some(bake(&secrets, &syn(), NOW).wrapping_add(1)), ..bare(syn().flow) };
        assert_eq!(check(&secrets, &ack, NOW), Some(1460));
        assert_eq!(read_options(options(&syn(), 0xffff_ffff)), (Some(7), true));
        let plain = Segment { scale: None, sack: false, ..syn() };
        assert_eq!(read_options(options(&plain, 0)), (None, false));
    }

    /// RFC 7323 5.3: a peer drops a segment whose timestamp is before the last one. So that of a cookie is not after the clock, and at
    /// most 31 ms before it.
    #[test]
    fn the_timestamp_of_a_cookie_is_never_ahead_of_the_clock() {
        for clock in (0..200).chain(u32::MAX - 100..=u32::MAX) {
            for (scale, sack) in
                [(None, false), (None, true), (Some(0), false), (Some(7), true), (Some(14), true)]
            {
                let stamp = options(&Segment { scale, sack, ..syn() }, clock);
                assert!(clock.wrapping_sub(stamp) <= OPTION_BITS, "{clock} {stamp}");
                assert_eq!(read_options(stamp), (scale, sack));
            }
        }
    }

    /// The layout of a cookie: five bits of time, three of the size, 24 of the hash. So cookies of neighbouring slots
    /// differ, whatever their hashes are.
    #[test]
    fn a_cookie_has_its_slot_and_its_size_in_its_first_byte() {
        let secrets = Secrets::new([1; 16]);
        for slots in [0, 1, 31, 32, 33, 1_000] {
            let cookie = bake(&secrets, &syn(), Instant(slots * SLOT_NS));
            assert_eq!((cookie >> 27, cookie >> 24 & 7), (slots as u32 % 32, 7), "slot {slots}");
        }
    }

    /// Each of the hash's 24 bits depends on the flow, so a forger has to guess all of them.
    #[test]
    fn every_bit_of_the_hash_varies() {
        let secrets = Secrets::new([1; 16]);
        let cookies = (1..100).map(|seq| bake(&secrets, &Segment { seq, ..syn() }, NOW));
        let (ones, zeros) = cookies.fold((0, 0), |(ones, zeros), cookie| (ones | cookie, zeros | !cookie));
        assert_eq!((ones & zeros) & 0xff_ffff, 0xff_ffff);
    }

    /// The table's first size is the one that every host accepts (RFC 9293 3.7.1); others are rounded down to
    /// the table's.
    #[test]
    fn a_segment_size_is_rounded_down_to_the_table() {
        let secrets = Secrets::new([1; 16]);
        let size = |mss| {
            let cookie = bake(&secrets, &Segment { mss, ..syn() }, NOW);
            check(&secrets, &Segment { seq: 78, ack: Some(cookie.wrapping_add(1)), ..bare(syn().flow) }, NOW)
        };
        assert_eq!(size(None), Some(536));
        assert_eq!(size(Some(100)), Some(536));
        assert_eq!(size(Some(965)), Some(536));
        assert_eq!(size(Some(966)), Some(966));
        assert_eq!(size(Some(9000)), Some(1460));
    }

    /// A cookie is valid for 64 to 128 s, only for its flow and first number.
    #[test]
    fn a_forged_or_old_cookie_is_refused() {
        let secrets = Secrets::new([1; 16]);
        let good = bake(&secrets, &syn(), NOW).wrapping_add(1);
        let ack = Segment { seq: 78, ack: Some(good), ..bare(syn().flow) };
        let after = |seconds: u64| Instant(NOW.0 + seconds * 1_000_000_000);
        assert!(check(&secrets, &ack, after(60)).is_some());
        assert_eq!(check(&secrets, &ack, after(128)), None);
        assert_eq!(check(&secrets, &Segment { seq: 79, ..ack }, NOW), None);
        assert_eq!(check(&Secrets::new([2; 16]), &ack, NOW), None);
        let guessed = (0..10_000u32).filter(|n| {
            let ack = Some(good.wrapping_add(1 + n * 65_537));
            check(&secrets, &Segment { ack, ..bare(syn().flow) }, NOW).is_some()
        });
        assert!(guessed.count() < 2, "24 bits of hash");
    }
}
