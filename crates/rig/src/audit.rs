//! What must hold of every host between two turns, whatever a test does with it: it is looked at again and again.

use punctual_proto::api::Port;
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::LinkId;
use punctual_proto::node::Node;
use punctual_proto::wire::{Header, Kind};
use punctual_proto::{Instant, Nanos};

use crate::rings::TestMemory;

/// A look takes as long as a host has channels.
const EVERY: Nanos = Nanos::from_millis(50);

/// What a driver was given.
#[derive(Clone, Debug, Default)]
struct Driver {
    overhead_bytes: u64,
    guaranteed: u64,
    best_effort: u64,
    signals: u64,
    wire_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Audit {
    drivers: Vec<Vec<Driver>>,
    next: Instant,
}

impl Audit {
    /// Of hosts that are just made.
    pub fn of(configs: &[NodeConfig]) -> Self {
        let driver = |overhead: u32| Driver { overhead_bytes: overhead.into(), ..Driver::default() };
        let of = |config: &NodeConfig| config.links.iter().map(|link| driver(link.overhead_bytes)).collect();
        Self { drivers: configs.iter().map(of).collect(), next: Instant(0) }
    }

    /// The driver was given a packet.
    pub fn sent(&mut self, node: usize, link: LinkId, port: Port, bytes: &[u8], wire_bytes: u32) {
        let driver = &mut self.drivers[node][usize::from(link.0)];
        match port {
            Port::Signalling => driver.signals += 1,
            Port::Data => {
                let (header, _) = Header::parse(bytes).expect("a packet of ours");
                let is_guaranteed = header.kind == Kind::Guaranteed && !header.demoted;
                *if is_guaranteed { &mut driver.guaranteed } else { &mut driver.best_effort } += 1;
                assert_eq!(u64::from(wire_bytes), bytes.len() as u64 + driver.overhead_bytes);
            }
        }
        driver.wire_bytes += u64::from(wire_bytes);
    }

    /// A host counts anew.
    pub fn restarted(&mut self, node: usize) {
        for driver in &mut self.drivers[node] {
            *driver = Driver { overhead_bytes: driver.overhead_bytes, ..Driver::default() };
        }
    }

    /// Now and then: each host's counts are the sums over those who hold what is counted, and of its drivers it says what they
    /// were given.
    pub fn look(&mut self, nodes: &[Node<TestMemory>], now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        for (node, drivers) in nodes.iter().zip(&self.drivers) {
            let wrong: Vec<_> = node.accounts().into_iter().filter(|it| it.counted != it.held).collect();
            assert!(wrong.is_empty(), "held by nobody at {now:?}: {wrong:?}");
            for (link, driver) in node.status(now).links.iter().zip(drivers) {
                let told = [link.packets_guaranteed, link.packets_best_effort, link.packets_signalling];
                let given = [driver.guaranteed, driver.best_effort, driver.signals];
                assert_eq!((told, link.wire_bytes), (given, driver.wire_bytes), "{} at {now:?}", link.name);
            }
        }
    }
}
