//! The segment that joins both hosts and a third one, the stranger.
//!
//! The stranger's packets go into b's device by a class of their own behind all packets from a, so that none
//! of a's are lost on the way. Together they have the rate of the link, in frames of Ethernet's minimum
//! length. The stranger has a's address and port: to b's kernel its packets are a's.
//!
//! Receive work of both hosts' devices runs in kernel threads above the processors ([`ReceiveThreads`]), whatever the driver.

use std::path::PathBuf;

use anyhow::Context;
use punctual::BitRate;
use punctual_link::Link;
use punctual_os::namespaces::{Namespace, next_number};

use crate::testbed::configuration::End;
use crate::testbed::network::{WIRE_EXTRA_BYTES, address};
use crate::testbed::receive::{ReceiveClass, ReceiveThreads};
use crate::testbed::{Options, Pair, Place, adapter};
use punctual_host::config::Driver;

/// The rate of the segment to b, in smallest frames 1,190,000 a second.
const RATE: BitRate = BitRate(800_000_000);
/// The device of the stranger.
const DEVICE: &str = "out";
/// Packets that wait for b's device, from a and from the stranger.
const QUEUE_PACKETS: u32 = 1_000;
/// Length of the flood's packets with their IP header, by which they are recognised.
const FLOOD_IP_BYTES: u32 = 20 + 8 + super::FLOOD_BYTES;
/// Least length of a frame, as the shaper counts it.
const FRAME_BYTES_MIN: u64 = 60 + WIRE_EXTRA_BYTES;

/// The machine of the stranger, and the settings of the hosts' devices. Dropped before the hosts.
pub(super) struct Segment {
    foreign_host: Namespace,
    wire: PathBuf,
    threads: ReceiveThreads,
}

impl Segment {
    /// Joins the stranger's machine to the hosts of `pair`, whose engines run on `driver`.
    ///
    /// # Errors
    /// If a device, a queue or a kernel thread is refused.
    pub fn join(pair: &Pair, driver: Driver) -> anyhow::Result<Self> {
        let network = pair.network().context("the hosts are machines of their own")?;
        let foreign_host = Namespace::create(next_number(), "stranger")?;
        let wire = network.wire();
        let port = format!(
            "link add s0 type veth peer name {DEVICE} netns {}\nlink set s0 up\n",
            foreign_host.name()
        );
        wire.feed("ip -batch -", &port)?;
        wire.feed("tc -batch -", &queues(RATE))?;
        // Packets of a port that segments none go through the receiver's NAPI instance, whatever its driver.
        for port in ["l0", "r0"] {
            wire.feed(&format!("ethtool -K {port} tso off"), "")?;
        }
        let addresses = format!(
            "link set {DEVICE} up\naddress add {}/30 dev {DEVICE}\n\
             neighbour replace {} lladdr {} dev {DEVICE} nud permanent\n",
            address(0, 1),
            address(0, 2),
            crate::testbed::network::hardware_address(2),
        );
        foreign_host.feed("ip -batch -", &addresses)?;
        let threads = ReceiveThreads::start(pair, driver, ReceiveClass::RealTime)?;
        Ok(Self { foreign_host, wire: wire.path(), threads })
    }

    /// A bare driver on the stranger's machine, whose packets b takes for a's: over xdp, the fastest way, if
    /// there is one.
    ///
    /// # Errors
    /// If it is refused.
    pub fn driver(&self, pair: &Pair, driver: Driver) -> anyhow::Result<Box<dyn Link>> {
        let end = End { address: address(0, 1), device: DEVICE.into() };
        let options = Options { driver, ..Options::default() };
        let place = Place { namespace: Some(self.foreign_host.path()), cpu: None };
        adapter::open(&place, &pair.text_at(end, &options))
    }

    /// The number of the flood's packets that b's device received until now.
    ///
    /// # Errors
    /// If `tc` does not report it.
    pub fn handed(&self) -> anyhow::Result<u64> {
        let printed = Place { namespace: Some(self.wire.clone()), cpu: None }
            .within(|| Ok(punctual_os::command::run("tc -s class show dev r0 classid 1:20")?))?;
        packets(&printed).with_context(|| format!("tc did not print what it sent: {printed}"))
    }

    /// CPU time of the kernel threads of b's device until now.
    pub fn receive_cpu(&self) -> punctual::Nanos {
        self.threads.far_cpu()
    }
}

/// The queues towards b: first all packets of a, then the flood.
fn queues(link: BitRate) -> String {
    let class = |handle: &str, rate: u64, prio: &str| {
        format!(
            "class add dev r0 parent {handle} htb rate {rate}bit ceil {ceil}bit burst 32k cburst 32k {prio} \
             overhead {WIRE_EXTRA_BYTES} mpu {FRAME_BYTES_MIN}\n",
            ceil = link.0
        )
    };
    let half = link.0 / 2;
    format!(
        "qdisc add dev s0 ingress\n\
         filter add dev s0 parent ffff: u32 match u32 0 0 action mirred egress redirect dev r0\n\
         qdisc add dev r0 root handle 1: htb default 10\n{}{}{}\
         qdisc add dev r0 parent 1:10 pfifo limit {QUEUE_PACKETS}\n\
         qdisc add dev r0 parent 1:20 pfifo limit {QUEUE_PACKETS}\n\
         filter add dev r0 parent 1: protocol ip prio 1 u32 match u16 {FLOOD_IP_BYTES} 0xffff at 2 flowid 1:20\n",
        class("1: classid 1:1", link.0, ""),
        class("1:1 classid 1:10", half, "prio 0"),
        class("1:1 classid 1:20", half, "prio 1"),
    )
}

/// Like " Sent 4300 bytes 100 pkt (dropped 7, overlimits 0 requeues 0)".
fn packets(printed: &str) -> Option<u64> {
    let line = printed.lines().find_map(|line| line.trim().strip_prefix("Sent "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_read() {
        let printed = "class htb 1:20 parent 1:1 prio 1 rate 200Mbit\n Sent 4300 bytes 100 pkt (dropped 7, overlimits 0)\n";
        assert_eq!(packets(printed), Some(100));
        assert_eq!(packets("nothing"), None);
    }
}
