//! The run's only source of randomness: all draws depend on the seed.

use punctual_analysis::{Nanos, Ppm};
use punctual_proto::signalling::SplitMix64;

/// A stream of draws. Streams of different labels are independent, so that an extra draw in one part of a run
/// does not move the others.
#[derive(Clone, Debug)]
pub struct Dice(Xoshiro256);

/// Purpose of a stream. Each use has a label of its own, otherwise two parts of a run would have the same
/// draws.
///
/// Recorded seeds depend on these numbers, so a new use needs a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The network.
    Topology,
    /// Its hosts, links and faults of frames.
    Hosts,
    /// Channels, floods and times.
    Channels,
    /// Activations and caps.
    Activations,
    /// Packet sizes.
    Sizes,
    /// The schedule of faults.
    Schedule,
    /// Misbehaving applications.
    Applications,
    /// Channels that are opened and closed for days.
    Uptime,
    /// Runs with small margins, or without free capacity.
    Tight,
    /// Soft channels.
    Soft,
    /// Hours of full-rate traffic.
    Drift,
    /// Kernel traffic whose share follows admission.
    Kernel,
    /// Receivers' requests for channels.
    Requests,
    /// TCP connections.
    Tcp,
    /// What happens to TCP segments on the wire, and when programs read, write and accept.
    TcpWorld,
    /// Secrets of a host's TCP, and of its listeners' terms.
    TcpHost(u64),
    /// Reaction times of a host's shapers.
    Shaper(u64),
    /// Durations of a host's decisions of admission.
    Decisions(u64),
    /// Programs' handlers of a host.
    Handlers(u64),
    /// Events in the world.
    World,
    /// Faults of frames.
    Faults,
    /// A host's processor.
    Processor(u64),
    /// A host's adapter.
    Adapter(u64, u64),
    /// The sender of an attempt.
    Sender(u64),
    /// A host's own secrets.
    Node(u64),
}

impl Draw {
    /// Its label.
    pub const fn label(self) -> u64 {
        match self {
            Self::Topology => 1,
            Self::Hosts => 2,
            Self::Channels => 3,
            Self::Activations => 4,
            Self::Sizes => 5,
            Self::Schedule => 6,
            Self::Applications => 7,
            Self::Uptime => 8,
            Self::Tight => 9,
            Self::Soft => 10,
            Self::Drift => 11,
            Self::Kernel => 12,
            Self::Requests => 13,
            Self::Tcp => 14,
            Self::TcpWorld => 15,
            Self::Processor(host) => (1 << 20) + host,
            Self::Adapter(host, link) if host < 1 << 13 && link < 1 << 8 => (1 << 21) + (host << 8) + link,
            Self::Adapter(host, link) => (1 << 41) + (host << 16) + link,
            Self::Shaper(host) => (1 << 43) + host,
            Self::Decisions(host) => (1 << 44) + host,
            Self::Handlers(host) => (1 << 45) + host,
            Self::TcpHost(host) => (1 << 46) + host,
            Self::World => 1 << 22,
            Self::Faults => 1 << 23,
            Self::Sender(attempt) => (1 << 24) + attempt,
            Self::Node(host) => (1 << 40) + host,
        }
    }
}

impl Dice {
    /// The stream of `seed` for one use.
    pub fn of(seed: u64, draw: Draw) -> Self {
        Self::new(seed, draw.label())
    }

    /// The stream `label` of `seed`.
    pub fn new(seed: u64, label: u64) -> Self {
        Self(Xoshiro256::new(mix(seed ^ mix(label))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next()
    }

    /// Evenly from `low` to `high`, both included; `low` where `high` is smaller.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low { low } else { low + self.0.up_to(high - low) }
    }

    /// A span from `low` to `high`, both included. One draw in four is an extreme, because worst cases are
    /// there.
    pub fn span(&mut self, low: Nanos, high: Nanos) -> Nanos {
        match self.between(0, 7) {
            0 => low.min(high),
            1 => high,
            _ => Nanos(self.between(low.0, high.0)),
        }
    }

    /// From `low` to `high` so that every factor of two is equally likely; `low` at least 1.
    pub fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let octaves = (high / low).max(1).ilog2();
        let base = low << self.between(0, u64::from(octaves)) as u32;
        self.between(base, (base * 2).min(high))
    }

    /// True with probability `chance`.
    pub fn chance(&mut self, chance: Ppm) -> bool {
        chance.0 > 0 && self.between(0, 999_999) < u64::from(chance.0)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as u64 - 1) as usize]
    }
}

/// xoshiro256++ (Blackman and Vigna 2019). Implemented here, including the drawing of ranges, because
/// libraries do not guarantee stable results over versions and machines, and recorded seeds must give the
/// same draws forever.
#[derive(Clone, Debug)]
struct Xoshiro256([u64; 4]);

impl Xoshiro256 {
    /// Its state from SplitMix64, as its authors recommend.
    fn new(seed: u64) -> Self {
        let mut seeds = SplitMix64::new(seed);
        Self(std::array::from_fn(|_| seeds.next()))
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let next = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        next
    }

    /// Uniform from 0 to `most`: the high half of a product, and a second one if the low half might carry
    /// (Canon's method; the bias is less than 2^-64).
    fn up_to(&mut self, most: u64) -> u64 {
        let Some(count) = most.checked_add(1) else { return self.next() };
        let halves = |product: u128| ((product >> 64) as u64, product as u64);
        let (high, low) = halves(u128::from(self.next()) * u128::from(count));
        if low <= count.wrapping_neg() {
            return high;
        }
        let (carry, _) = halves(u128::from(self.next()) * u128::from(count));
        high + u64::from(low.checked_add(carry).is_none())
    }
}

/// Spreads every bit of `value` over all bits.
pub const fn mix(value: u64) -> u64 {
    SplitMix64::new(value).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_range_and_repeat() {
        let (mut one, mut two) = (Dice::new(7, 1), Dice::new(7, 1));
        for _ in 0..10_000 {
            let x = one.log_between(16, 40_000);
            assert!((16..=40_000).contains(&x), "{x}");
            assert_eq!(x, two.log_between(16, 40_000));
            assert!(one.span(Nanos(3), Nanos(9)) <= Nanos(9) && two.span(Nanos(3), Nanos(9)) >= Nanos(3));
        }
        assert_ne!(Dice::new(7, 1).bits(), Dice::new(7, 2).bits());
    }

    /// The numbers of the authors' own program, <https://prng.di.unimi.it/xoshiro256plusplus.c>.
    #[test]
    fn the_generator_is_the_published_one() {
        let mut generator = Xoshiro256([1, 2, 3, 4]);
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
            14_011_001_112_246_962_877,
            12_406_186_145_184_390_807,
            15_849_039_046_786_891_736,
            10_450_023_813_501_588_000,
        ];
        assert_eq!(expected.map(|_| generator.next()), expected);
    }

    #[test]
    fn ranges_have_their_ends_and_are_drawn_evenly() {
        let mut dice = Dice::new(3, 1);
        let mut counts = [0_u32; 5];
        (0..50_000).for_each(|_| counts[dice.between(10, 14) as usize - 10] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        // Two thirds of all numbers: half of the draws need the second product.
        let most = u64::MAX / 3 * 2;
        let below = (0..10_000).filter(|_| dice.between(0, most) <= most / 2).count();
        assert!((4_800..5_200).contains(&below), "{below}");
        assert_ne!(dice.between(0, u64::MAX), dice.between(0, u64::MAX));
    }

    #[test]
    fn every_use_has_a_label_of_its_own() {
        use Draw::*;
        // Exhaustive, so that a new use fails to compile until it has a place.
        let next = |draw: &Draw| {
            Some(match draw {
                Topology => Hosts,
                Hosts => Channels,
                Channels => Activations,
                Activations => Sizes,
                Sizes => Schedule,
                Schedule => Applications,
                Applications => Uptime,
                Uptime => Tight,
                Tight => Soft,
                Soft => Drift,
                Drift => Kernel,
                Kernel => Requests,
                Requests => Tcp,
                Tcp => TcpWorld,
                TcpWorld => World,
                World => Faults,
                Faults | Processor(_) | Adapter(..) | Sender(_) | Node(_) | Shaper(_) | Decisions(_)
                | Handlers(_) | TcpHost(_) => {
                    return None;
                }
            })
        };
        let single = std::iter::successors(Some(Topology), next);
        let mut labels: Vec<u64> = single.map(Draw::label).collect();
        let hosts = crate::topology::HOSTS_MAX as u64;
        for host in 0..=hosts {
            labels.extend([Processor(host).label(), Node(host).label()]);
            labels.extend([Shaper(host).label(), Decisions(host).label(), Handlers(host).label()]);
            labels.push(TcpHost(host).label());
            labels.extend([0, 1, 254, 255, 256, 257, 9_999].map(|link| Adapter(host, link).label()));
        }
        labels.extend((0..2_000_000).step_by(997).map(|attempt| Sender(attempt).label()));
        let count = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }

    #[test]
    fn chance_has_its_ends() {
        let mut dice = Dice::new(1, 1);
        assert!((0..1000).all(|_| !dice.chance(Ppm(0))));
        assert!((0..1000).all(|_| dice.chance(Ppm::ONE)));
    }
}
