//! Two bare nodes on a null device: no driver, no clock, no thread. For the cost of protocol processing alone; [`driven`]
//! puts a driver below the source.
//!
//! Time is virtual: a message comes every interval of its contract, and every packet takes no time. What the source
//! hands to its device can be thrown away (it is the null device of HARTS 5.2.1) or brought to the sink.

mod driven;

use anyhow::{Context, anyhow};
use punctual_proto::api::Port;
use punctual_proto::config::{Admission, CpuConfig, NodeConfig, Pacing, RunPolicy, SignallingConfig};
use punctual_proto::ids::LinkId;
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Open, TestMemory, World, line_config};

/// The hosts.
const SOURCE: usize = 0;
const SINK: usize = 1;
/// The link between the hosts.
const LINK: LinkId = LinkId(0);
/// Faster than any processing: nothing waits for the pace.
const RATE: BitRate = BitRate(1_000_000_000_000);
/// Interval between two messages.
const INTERVAL: Nanos = Nanos::from_millis(10);
const DEADLINE: Nanos = Nanos::from_millis(100);
/// Deadline of the urgent channel. It is so much shorter that the channel's handler is more urgent, however each D is shared
/// among the stages (most of the longer D goes to the link).
const URGENT_DEADLINE: Nanos = Nanos::from_millis(5);
const URGENT_BYTES: u32 = 64;
const HEADER_BYTES: u32 = 64;
const PACKET_BYTES_MIN: u32 = 1_464;

/// One channel, and the message that its application sends again and again.
struct Lane {
    open: Open,
    message: Vec<u8>,
}

/// Source and sink with a channel of long messages and an urgent one of single packets.
pub struct Nodes {
    world: World,
    long: Lane,
    urgent: Lane,
    buffer: Vec<u8>,
    delivered: u64,
}

impl Nodes {
    /// A channel of messages of `packets` packets of `fragment_bytes`, under `policy`.
    ///
    /// # Errors
    /// If the channel does not open.
    pub fn open(policy: RunPolicy, packets: u32, fragment_bytes: u32) -> anyhow::Result<Self> {
        Self::start(policy, 1, packets, fragment_bytes)
    }

    /// The same by deadline, where handlers finish `quantum` packets before they yield.
    ///
    /// # Errors
    /// As [`Nodes::open`].
    pub fn with_quantum(quantum: u32, packets: u32, fragment_bytes: u32) -> anyhow::Result<Self> {
        Self::start(RunPolicy::Edf, quantum, packets, fragment_bytes)
    }

    fn start(policy: RunPolicy, quantum: u32, packets: u32, fragment_bytes: u32) -> anyhow::Result<Self> {
        let config = |host| {
            let mut config = config(host, policy, fragment_bytes);
            config.cpu.quantum_packets = quantum;
            config
        };
        let mut world = World::of(vec![config(SOURCE), config(SINK)]);
        // The audit of accounts would be measured, too.
        world.audit = None;
        (world.propagation, world.completes) = (Nanos::ZERO, true);
        // Neighbours meet.
        world.run_for(Nanos::from_secs(1));
        let long = Lane::open(&mut world, packets * fragment_bytes, DEADLINE)?;
        let urgent = Lane::open(&mut world, URGENT_BYTES, URGENT_DEADLINE)?;
        Ok(Self { world, long, urgent, buffer: vec![0; packet_bytes(fragment_bytes) as usize], delivered: 0 })
    }

    fn source(&mut self) -> &mut Node<TestMemory> {
        &mut self.world.nodes[SOURCE]
    }

    /// The application's next message is there, its time has come; not yet looked at.
    pub fn offer(&mut self) {
        // The neighbours must hear each other. One step handles all that was due: the less work between two messages, the
        // more of what is counted is theirs.
        self.world.skip(INTERVAL);
        self.long.put(self.world.now);
    }

    /// The source hears that messages of the long channel wait.
    fn ring(&mut self) {
        self.world.nodes[SOURCE].handle_ring(self.long.open.source, self.world.now);
    }

    /// Protocol processing of what was offered: fragments into the link scheduler's queues. Returns its units.
    pub fn process(&mut self) -> u32 {
        self.ring();
        let (now, mut units) = (self.world.now, 0);
        while let Some(work) = self.source().begin_work(now) {
            self.source().finish_work(work, now);
            units += 1;
        }
        units
    }

    /// The link scheduler hands every packet to the device, which throws it away. Returns the packets.
    pub fn discard(&mut self) -> u32 {
        let Self { world: World { nodes, now, .. }, buffer, .. } = self;
        let mut packets = 0;
        while let Some(sent) = nodes[SOURCE].poll_transmit(LINK, *now, buffer) {
            packets += u32::from(sent.port == Port::Data);
            nodes[SOURCE].handle_sent(LINK, sent.wire_bytes, *now);
        }
        packets
    }

    /// Brings everything to where it goes and does all work there; the sink's application takes what has come.
    pub fn exchange(&mut self) {
        self.ring();
        self.world.run_for(Nanos::ZERO);
        while self.long.open.inbox.recv(|_, _| self.delivered += 1) {}
    }

    /// Messages that the sink's application got.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}

impl Lane {
    fn open(world: &mut World, bytes: u32, deadline: Nanos) -> anyhow::Result<Self> {
        let rate = Rate::every(INTERVAL).context("the interval is out of range")?;
        let contract = Contract::new(bytes, rate, 2, deadline)?;
        let open = world.open(SOURCE, SINK, contract);
        let open = open.map_err(|refused| anyhow!("the null device's channel: {refused:?}"))?;
        Ok(Self { open, message: vec![7; bytes as usize] })
    }

    /// # Panics
    /// If messages were put, but not processed.
    fn put(&self, now: Instant) {
        assert!(
            self.open.outbox.send(&self.message, now),
            "the ring of a channel has room for its next message"
        );
    }
}

/// Longest packet of the null device: packets of signalling must fit, too.
fn packet_bytes(fragment_bytes: u32) -> u32 {
    PACKET_BYTES_MIN.max(fragment_bytes + HEADER_BYTES)
}

fn config(host: usize, policy: RunPolicy, fragment_bytes: u32) -> NodeConfig {
    let mut config = line_config(host, 2, RATE);
    let link = &mut config.links[0];
    link.packet_bytes_max = packet_bytes(fragment_bytes);
    link.pace = Pacing::Completion;
    link.propagation_max = Nanos::ZERO;
    link.prediction_error = Nanos::from_millis(5);
    let admission = if policy == RunPolicy::Fifo { Admission::FIFO } else { Admission::EDF };
    NodeConfig {
        fragment_bytes,
        cpu: CpuConfig { run: policy, admission, ..CpuConfig::default() },
        signalling: SignallingConfig { lease: Nanos::from_secs(3_600), ..SignallingConfig::default() },
        buffer_bytes_max: 256 << 20,
        wakeup_margin: Nanos::ZERO,
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_its_packets_and_arrives() {
        for policy in [RunPolicy::Fifo, RunPolicy::Edf] {
            let mut nodes = Nodes::open(policy, 3, 2_048).expect("a channel");
            nodes.offer();
            nodes.exchange();
            assert_eq!(nodes.delivered(), 1);
            nodes.offer();
            assert!(nodes.process() >= 3, "one unit a packet at least");
            assert_eq!(nodes.discard(), 3);
            nodes.exchange();
            assert_eq!(nodes.delivered(), 1, "it was thrown away");
        }
    }
}
