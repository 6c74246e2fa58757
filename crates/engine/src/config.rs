//! The parts that an engine is made of.

use punctual_link::Link;
use punctual_os::calls::Forbidden;
use punctual_os::heap;
use punctual_os::realtime::RealTime;
use punctual_proto::Nanos;
use punctual_proto::config::NodeConfig;

use crate::tcp::TcpLimits;

/// The parts that an engine is made of.
pub struct EngineConfig {
    /// The host.
    pub node: NodeConfig,
    /// Links of the host, in the order of `node.links`.
    pub links: Vec<Box<dyn Link>>,
    /// The system settings that the processor requires.
    pub real_time: RealTime,
    /// How long the processor polls the links' rings before it sleeps; [`Nanos::MAX`]: it never sleeps. It is
    /// useful only on a CPU core of its own, see [`punctual_os::realtime::check_spin`].
    pub spin: Nanos,
    /// Seed of the node's random numbers: unpredictable in a real host, fixed in tests.
    pub seed: u64,
    /// What happens at a system call of the processor's thread that is not in its list.
    pub forbidden_calls: Forbidden,
    /// Memory that the processor's own heap holds ready; `None`: it allocates as all other threads do.
    pub heap: Option<heap::Sizes>,
    /// TCP of this host's own; `None`: it runs none.
    pub tcp: Option<TcpLimits>,
}

impl EngineConfig {
    /// An ordinary thread without a heap of its own that does not spin and may make any system call.
    pub const fn new(node: NodeConfig, links: Vec<Box<dyn Link>>, seed: u64) -> Self {
        let real_time = RealTime::BEST_EFFORT_HOST;
        Self {
            node,
            links,
            real_time,
            spin: Nanos::ZERO,
            seed,
            forbidden_calls: Forbidden::Allow,
            heap: None,
            tcp: None,
        }
    }
}
