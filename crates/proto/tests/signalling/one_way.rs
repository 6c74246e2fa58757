//! Media whose two directions differ: in one of them packets are lost, come late or do not come at all; the
//! other one is as before.

use std::collections::BTreeMap;

use crate::network::{MILLI, Network};

/// What happens to packets in one direction.
#[derive(Clone, Copy, Debug)]
pub enum OneWay {
    /// One direction of each link loses this share, in percent.
    Loses(u64),
    /// One direction of each link takes so much longer, in ns.
    IsLate(u64),
    /// One direction of one link loses everything.
    IsCut,
}

impl OneWay {
    /// Each of them for one number of three.
    pub const fn of(number: u64) -> Self {
        match number % 3 {
            0 => Self::Loses(40),
            1 => Self::IsLate(60 * MILLI),
            _ => Self::IsCut,
        }
    }
}

impl Network {
    /// From now on one direction, drawn, of each link is worse than the other, or of one link if it is cut.
    pub fn worsen_one_way(&mut self, how: OneWay) {
        let mut links = self.links();
        if matches!(how, OneWay::IsCut) {
            links = vec![links[self.random.below(links.len() as u64) as usize]];
        }
        for (one, other) in links {
            let way = if self.random.below(2) == 0 { (one, other) } else { (other, one) };
            let (map, value) = match how {
                OneWay::Loses(percent) => (&mut self.lossy, percent),
                OneWay::IsLate(delay) => (&mut self.late, delay),
                OneWay::IsCut => (&mut self.lossy, 100),
            };
            map.insert(way, value);
        }
    }

    /// Both directions of all links are alike again; counts of what was lost or late start again.
    pub fn mend(&mut self) {
        (self.lossy, self.late, self.worse) = Default::default();
    }

    /// Whether packets were lost or late since the last [`Self::mend`], and on each link in one direction only.
    pub fn was_worse_one_way(&self) -> bool {
        let worse = &self.worse;
        !worse.is_empty() && worse.keys().all(|(from, to)| !worse.contains_key(&(*to, *from)))
    }

    /// Each link once, by its hosts.
    fn links(&self) -> Vec<(usize, usize)> {
        let ends = |(from, host): (usize, &crate::network::Host)| -> Vec<(usize, usize)> {
            host.links.iter().map(|(to, _)| (from, *to)).filter(|(from, to)| from < to).collect()
        };
        self.hosts.iter().enumerate().flat_map(ends).collect()
    }
}

/// A direction that is worse shows in the counts of that direction, and a perfect medium in none.
#[test]
fn one_direction_fails_and_the_other_does_not() {
    for seed in 0..12 {
        let mut network = Network::line(seed, 4, |_, _| {});
        network.run(3_000 * MILLI);
        assert!(!network.was_worse_one_way(), "seed {seed}");
        network.worsen_one_way(OneWay::of(seed));
        network.run(30_000 * MILLI);
        assert!(network.was_worse_one_way(), "seed {seed}");
        let directions: BTreeMap<_, _> = network.lossy.iter().chain(&network.late).collect();
        assert!(network.worse.keys().eq(directions.into_keys()), "seed {seed}");
        network.mend();
        network.loss_percent = 50;
        network.run(3_000 * MILLI);
        assert!(
            !network.was_worse_one_way() && !network.worse.is_empty(),
            "seed {seed}: both directions lose"
        );
    }
}
