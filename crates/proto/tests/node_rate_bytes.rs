//! A measurement fills a link for a third of a second, and with so many bytes at most (`limits::RATE_BYTES_MAX`): of a link of
//! 20 Gbit/s that is less.

mod common;

use common::{Frame, Pool, TestMemory, line_config};
use punctual_proto::api::{PacketOut, Port};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::{RATE_BYTES_MAX, RATE_TIME};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Instant, Nanos};

const LINK: LinkId = LinkId(0);
const RATE: BitRate = BitRate(20_000_000_000);
const STEP: Nanos = Nanos::from_micros(20);

/// Two neighbours whose packets are large. Packets of signalling arrive at once, others are counted and lost.
struct Pair {
    nodes: Vec<Node<TestMemory>>,
    pool: Pool,
    out: Vec<u8>,
    now: Instant,
    /// Bytes of the wire of h1's data.
    filled: u64,
}

impl Pair {
    fn new() -> Self {
        let now = Instant(1_000_000_000);
        let node = |index| {
            let mut config = line_config(index, 2, RATE);
            config.links[0].packet_bytes_max = 60_000;
            Node::new(config, index as u64, now).expect("a configuration")
        };
        Self { nodes: (0..2).map(node).collect(), pool: Pool::new(64), out: vec![0; 60_000], now, filled: 0 }
    }

    fn run(&mut self, until: Instant) {
        while self.now < until {
            self.now = self.now + STEP;
            (0..2).for_each(|index| self.turn(index));
        }
    }

    fn turn(&mut self, index: usize) {
        let now = self.now;
        self.nodes[index].handle_timeout(now);
        while let Some(work) = self.nodes[index].begin_work(now) {
            self.nodes[index].finish_work(work, now);
        }
        while let Some(sent) = self.nodes[index].poll_transmit(LINK, now, &mut self.out) {
            let PacketOut::Written(len) = sent.packet else { panic!("nothing passes") };
            if sent.port == Port::Signalling {
                let frame: Frame = self.pool.frame(&self.out[..len]);
                self.nodes[1 - index].handle_frame(LINK, sent.port, now, frame, now);
            } else {
                self.filled += u64::from(sent.wire_bytes);
            }
        }
    }
}

#[test]
fn a_measurement_sends_so_many_bytes_and_then_none() {
    let mut pair = Pair::new();
    pair.run(pair.now + Nanos::from_secs(2));
    pair.nodes[0].measure_rate(LINK, pair.now).expect("nobody uses it");
    while pair.filled == 0 {
        pair.run(pair.now + STEP);
    }
    let began = pair.now;
    // A link of that rate could send 750 MB.
    pair.run(began + RATE_TIME / 4 * 3);
    let filled = pair.filled;
    assert!(filled <= RATE_BYTES_MAX && filled + 61_000 > RATE_BYTES_MAX, "{filled} B");
    let nothing_waits =
        |pair: &Pair| !pair.nodes[0].best_effort_waits(LINK) && !pair.nodes[0].may_transmit(LINK);
    assert!(nothing_waits(&pair));
    pair.run(began + RATE_TIME - STEP);
    assert!(
        pair.filled == filled && nothing_waits(&pair),
        "the link is everybody's for the rest of the time"
    );
}
