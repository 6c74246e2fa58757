//! Invariants of every host between two turns, in every test: checked again and again.

use punctual_proto::api::Port;
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::LinkId;
use punctual_proto::node::Node;
use punctual_proto::wire::{Header, Kind};
use punctual_proto::{Instant, Nanos};

use crate::rings::TestMemory;

/// The time of a check grows with a host's channels: it is not done at every step.
const EVERY: Nanos = Nanos::from_millis(50);

/// Counts of what the node has given to a driver.
#[derive(Clone, Debug, Default)]
struct Driver {
    overhead_bytes: u64,
    guaranteed: u64,
    best_effort: u64,
    signals: u64,
    wire_bytes: u64,
}

/// See the module. The tests that need every instruction for the node do without it.
#[derive(Debug)]
pub struct Audit {
    drivers: Vec<Vec<Driver>>,
    next: Instant,
}

impl Audit {
    /// Of new hosts.
    pub fn of(configs: &[NodeConfig]) -> Self {
        let driver = |overhead: u32| Driver { overhead_bytes: overhead.into(), ..Driver::default() };
        let of = |config: &NodeConfig| config.links.iter().map(|link| driver(link.overhead_bytes)).collect();
        Self { drivers: configs.iter().map(of).collect(), next: Instant(0) }
    }

    /// Counts a packet that the driver of a link got.
    pub fn sent(&mut self, node: usize, link: LinkId, port: Port, bytes: &[u8], wire_bytes: u32) {
        let driver = &mut self.drivers[node][usize::from(link.0)];
        match port {
            Port::Signalling => driver.signals += 1,
            Port::Data => {
                let (header, _) = Header::parse(bytes).expect("a valid packet");
                let is_guaranteed = header.kind == Kind::Guaranteed && !header.demoted;
                *if is_guaranteed { &mut driver.guaranteed } else { &mut driver.best_effort } += 1;
                assert_eq!(u64::from(wire_bytes), bytes.len() as u64 + driver.overhead_bytes);
            }
        }
        driver.wire_bytes += u64::from(wire_bytes);
    }

    /// A host begins to count from zero.
    pub fn restarted(&mut self, node: usize) {
        for driver in &mut self.drivers[node] {
            *driver = Driver { overhead_bytes: driver.overhead_bytes, ..Driver::default() };
        }
    }

    /// Every 50 ms at most: checks that each host's counts are the sums over the holders of what is counted, and that its
    /// counters of each link are what the driver got.
    ///
    /// # Panics
    /// If they are not.
    pub fn check(&mut self, nodes: &[Node<TestMemory>], now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        for (node, drivers) in nodes.iter().zip(&self.drivers) {
            let wrong: Vec<_> = node.accounts().into_iter().filter(|it| it.counted != it.held).collect();
            assert!(wrong.is_empty(), "counted and held differ at {now:?}: {wrong:?}");
            for (link, driver) in node.status(now).links.iter().zip(drivers) {
                let counted = [link.packets_guaranteed, link.packets_best_effort, link.packets_signalling];
                let given = [driver.guaranteed, driver.best_effort, driver.signals];
                assert_eq!(
                    (counted, link.wire_bytes),
                    (given, driver.wire_bytes),
                    "{} at {now:?}",
                    link.name
                );
            }
        }
    }
}
