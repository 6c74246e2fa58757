//! Shapes of drawn networks: the pairs of hosts that links join.

use std::collections::BTreeSet;

use crate::dice::Dice;

/// Most links of one host of a random network; a node supports 64.
const DEGREE_MAX: usize = 16;
/// Most leaves of one host of a star; further ones are attached to the leaves.
const LEAVES_MAX: usize = 48;

/// Shape of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Line,
    Star,
    Ring,
    /// A random tree and a few further links, for the smallest networks.
    Mesh,
    /// k-ary: half of a pod's switches are connected to its hosts, the other half to the core (Al-Fares et
    /// al. 2008).
    FatTree,
    /// A random tree and half as many links more.
    Random,
}

/// Links between hosts that are numbered from 0.
type Edges = Vec<(usize, usize)>;

impl Shape {
    pub const SMALL: [Self; 4] = [Self::Line, Self::Star, Self::Ring, Self::Mesh];
    pub const LARGE: [Self; 5] = [Self::Line, Self::Star, Self::Ring, Self::FatTree, Self::Random];

    /// Number of hosts, `hosts` at most (and at least two), and their links.
    pub fn lay_out(self, hosts: usize, dice: &mut Dice) -> (usize, Edges) {
        let line = (1..hosts).map(|n| (n - 1, n));
        let edges = match self {
            Self::Line => line.collect(),
            Self::Star => (1..hosts).map(|n| ((n - 1) / LEAVES_MAX, n)).collect(),
            Self::Ring => line.chain((hosts > 2).then_some((hosts - 1, 0))).collect(),
            Self::Mesh => mesh(hosts, dice),
            Self::FatTree => return fat_tree(hosts),
            Self::Random => random(hosts, dice),
        };
        (hosts, edges)
    }
}

fn mesh(hosts: usize, dice: &mut Dice) -> Edges {
    let mut edges: Edges = (1..hosts).map(|n| (dice.between(0, n as u64 - 1) as usize, n)).collect();
    for _ in 0..dice.between(1, 3) {
        let (a, b) = (dice.between(0, hosts as u64 - 2) as usize, hosts - 1);
        if !edges.contains(&(a, b)) {
            edges.push((a, b));
        }
    }
    edges
}

fn random(hosts: usize, dice: &mut Dice) -> Edges {
    let mut edges = BTreeSet::new();
    let mut degrees = vec![0; hosts];
    let join = |edges: &mut BTreeSet<_>, degrees: &mut [usize], a: usize, b: usize| {
        let fits = a != b && degrees[a] < DEGREE_MAX && degrees[b] < DEGREE_MAX;
        let new = fits && edges.insert((a.min(b), a.max(b)));
        if new {
            degrees[a] += 1;
            degrees[b] += 1;
        }
        new
    };
    for n in 1..hosts {
        // Its predecessor always has a place left.
        let near = dice.between(n.saturating_sub(50) as u64, n as u64 - 1) as usize;
        if !join(&mut edges, &mut degrees, near, n) {
            join(&mut edges, &mut degrees, n - 1, n);
        }
    }
    for _ in 0..hosts / 2 {
        let (a, b) = (dice.between(0, hosts as u64 - 1), dice.between(0, hosts as u64 - 1));
        join(&mut edges, &mut degrees, a as usize, b as usize);
    }
    edges.into_iter().collect()
}

/// The largest fat tree that has no more than `hosts` hosts, switches included, but at least k = 2.
fn fat_tree(hosts: usize) -> (usize, Edges) {
    let size = |k: usize| k * k * k / 4 + k * k + k * k / 4;
    let k = (2..).step_by(2).take_while(|k| size(*k) <= hosts).last().unwrap_or(2);
    let half = k / 2;
    // Numbered: hosts, then each pod's lower switches and its upper ones, then the core.
    let leaves = half * half * k;
    let lower = |pod: usize, n: usize| leaves + pod * k + n;
    let upper = |pod: usize, n: usize| leaves + pod * k + half + n;
    let core = |group: usize, n: usize| leaves + k * k + group * half + n;
    let mut edges = Vec::new();
    for pod in 0..k {
        for a in 0..half {
            for b in 0..half {
                edges.push((pod * half * half + a * half + b, lower(pod, a)));
                edges.push((lower(pod, a), upper(pod, b)));
                edges.push((upper(pod, a), core(a, b)));
            }
        }
    }
    (size(k), edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(hosts: usize, edges: &Edges) -> usize {
        let mut known = vec![false; hosts];
        let mut open = vec![0];
        known[0] = true;
        let mut links: Vec<Vec<usize>> = vec![Vec::new(); hosts];
        for &(a, b) in edges {
            links[a].push(b);
            links[b].push(a);
        }
        while let Some(here) = open.pop() {
            for &next in &links[here] {
                if !std::mem::replace(&mut known[next], true) {
                    open.push(next);
                }
            }
        }
        known.into_iter().filter(|known| *known).count()
    }

    #[test]
    fn every_shape_joins_all_its_hosts_once_and_with_few_links_each() {
        for shape in [Shape::SMALL.as_slice(), &Shape::LARGE].concat() {
            for wanted in [3, 7, 64, 200, 2_000] {
                let (hosts, edges) = shape.lay_out(wanted, &mut Dice::new(7, wanted as u64));
                assert!(hosts <= wanted.max(7) && hosts * 4 >= wanted, "{shape:?}: {hosts} of {wanted}");
                assert_eq!(reached(hosts, &edges), hosts, "{shape:?} of {hosts}");
                let unique: BTreeSet<_> = edges.iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
                assert_eq!(unique.len(), edges.len(), "{shape:?} of {hosts}");
                let degree = |n| edges.iter().filter(|(a, b)| *a == n || *b == n).count();
                let most = (0..hosts.min(200)).map(degree).max().unwrap_or(0);
                assert!(shape == Shape::Mesh || most <= LEAVES_MAX + 1, "{shape:?} of {hosts}: {most} links");
            }
        }
    }
}
