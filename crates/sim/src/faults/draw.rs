//! The schedule of a seed.

use punctual_analysis::{Nanos, Ppm};

use super::{Breach, Fault, FaultAction, FaultKind, FaultKinds, Lie, Moment, Noise};
use crate::dice::Dice;
use crate::time::SimTime;

/// Longest pause, partition, stall or down-time: long enough for leases to expire and neighbours to be given
/// up.
const LASTS_MAX: Nanos = Nanos::from_millis(1_800);
/// Signalling packets until an armed crash: a handshake of few hops takes fewer.
const MOMENT_PACKETS_MAX: u64 = 24;

/// Faults of `kinds` that begin at `from` or later and end by `until`; `links` of each host. A schedule has
/// few faults of few kinds, because the tolerated effects of several at once would hide those of one.
pub fn draw(
    kinds: FaultKinds,
    links: &[usize],
    from: SimTime,
    until: SimTime,
    dice: &mut Dice,
) -> Vec<Fault> {
    let kinds: Vec<FaultKind> =
        kinds.iter().filter(|kind| !matches!(kind, FaultKind::Frames | FaultKind::Apps)).collect();
    if kinds.is_empty() {
        return Vec::new();
    }
    if kinds == [FaultKind::Breach] {
        return breach(links, from, until, dice);
    }
    let count = dice.between(1, 3) + dice.between(0, 3) * dice.between(0, 1);
    let mut chosen = dice.pick(&kinds);
    let mut faults = Vec::new();
    for _ in 0..count {
        if dice.chance(Ppm(400_000)) {
            chosen = dice.pick(&kinds);
        }
        let at = SimTime(dice.between(from.0, until.0.saturating_sub(1_000_000).max(from.0)));
        let longest = until.since(at).min(LASTS_MAX);
        let lasts = Nanos(dice.log_between(1_000_000, longest.0.max(1_000_001)).min(longest.0));
        faults.push(Fault { at, lasts, what: what(chosen, links, dice) });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// A single fault, long enough to be reported: from the middle of the traffic to its end.
fn breach(links: &[usize], from: SimTime, until: SimTime, dice: &mut Dice) -> Vec<Fault> {
    let third = until.since(from).0 / 3;
    let at = SimTime(dice.between(from.0 + third, from.0 + third * 3 / 2));
    let host = dice.between(0, links.len() as u64 - 1) as usize;
    let link = dice.between(0, (links[host] as u64).max(1) - 1) as u16;
    let what = match dice.between(0, 8) {
        0..=2 => Breach::SlowLink { host, link, percent: dice.between(10, 70) as u32 },
        3 | 4 => Breach::Foreign { host, link, percent: dice.between(40, 150) as u32 },
        5 | 6 => Breach::Longer { host, link, by: Nanos(dice.log_between(2_000_000, 60_000_000)) },
        7 => Breach::SlowProcessor { host, percent: dice.between(300, 2_000) as u32 },
        _ => {
            let ppb = dice.between(150_000, 900_000) as i64;
            Breach::Drift { host, ppb: if dice.chance(Ppm(500_000)) { ppb } else { -ppb } }
        }
    };
    vec![Fault { at, lasts: until.since(at), what: FaultAction::Breach(what) }]
}

fn what(kind: FaultKind, links: &[usize], dice: &mut Dice) -> FaultAction {
    let host = dice.between(0, links.len() as u64 - 1) as usize;
    let link = dice.between(0, (links[host] as u64).max(1) - 1) as u16;
    match kind {
        FaultKind::Partition => FaultAction::Partition { host, link, both: dice.chance(Ppm(500_000)) },
        FaultKind::Pause => FaultAction::Pause { host },
        FaultKind::Crash => FaultAction::Crash { host, moment: moment(dice) },
        FaultKind::Clock => clock(host, dice),
        FaultKind::Heap => FaultAction::Heap { host, link },
        FaultKind::Lie => FaultAction::Lie { host, about: lie(dice) },
        FaultKind::Flood => {
            let kind = dice.pick(&[Noise::Signals, Noise::Replays, Noise::Insider]);
            FaultAction::Noise { host, link, kind, interval: Nanos(dice.log_between(100_000, 5_000_000)) }
        }
        FaultKind::Version => FaultAction::Version { host },
        FaultKind::Breach | FaultKind::Forge | FaultKind::Frames | FaultKind::Apps => {
            let kind = dice.pick(&[Noise::Garbage, Noise::Cookies, Noise::Cookies, Noise::Strangers]);
            FaultAction::Noise { host, link, kind, interval: Nanos(dice.log_between(200_000, 20_000_000)) }
        }
    }
}

fn moment(dice: &mut Dice) -> Moment {
    let packets = dice.between(1, MOMENT_PACKETS_MAX) as u32;
    match dice.between(0, 4) {
        0 => Moment::Now,
        1 | 2 => Moment::Handled(packets),
        _ => Moment::Sent(packets),
    }
}

fn clock(host: usize, dice: &mut Dice) -> FaultAction {
    let by = Nanos(dice.log_between(1_000, 3_000_000_000));
    match dice.between(0, 2) {
        0 => FaultAction::Jump { host, by },
        1 => FaultAction::Freeze { host },
        // Drivers accept no stamp that is older than a second.
        _ => FaultAction::Restamp { host, by: by.min(Nanos::from_secs(1)) },
    }
}

fn lie(dice: &mut Dice) -> Lie {
    let by = Nanos(dice.log_between(1_000, 2_000_000_000));
    match dice.between(0, 3) {
        0 => Lie::SlackMore(by),
        1 => Lie::SlackLess(by),
        2 => Lie::SlackRandom,
        _ => Lie::Numbers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_repeat_stay_in_their_time_and_come_in_every_kind() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let draw = || {
                draw(FaultKinds::ALL, &[1, 2, 1], SimTime(5), SimTime(3_000_000_000), &mut Dice::new(seed, 1))
            };
            let faults = draw();
            assert_eq!(faults, draw());
            assert!(!faults.is_empty() && faults.is_sorted_by_key(|fault| fault.at), "seed {seed}");
            for fault in faults {
                assert!(fault.at >= SimTime(5) && fault.ends() <= SimTime(3_000_000_000), "seed {seed}");
                let text = format!("{:?}", fault.what);
                kinds.insert(text.split(' ').next().map(String::from));
            }
        }
        assert_eq!(kinds.len(), 10, "{kinds:?}");
        assert!(draw(FaultKinds::NONE, &[1, 1], SimTime(0), SimTime(1), &mut Dice::new(1, 1)).is_empty());
    }
}
