//! The best configuration by hand on every host: strict priority in front of each link.
//!
//! Each host's device gets a `tbf` just below the link's rate, so that the queue forms on the host and not in
//! the link, with a `pfifo_fast` child. The child uses a packet's priority, which the kernel takes from the
//! type of service: at the sender from its socket, at a router from the packet.

use punctual_analysis::BitRate;
use punctual_os::command::ToolError;

use super::network::{ETHERNET_BYTES, LinkSpec, Network, NetworkSpec, WIRE_EXTRA_BYTES, shaper_burst};

/// The share of a link's rate that the hosts' shapers use, so that no packet waits where priorities have no
/// effect.
const SHARE_PERCENT: u64 = 99;

/// Puts priority queues in front of all links of `network`, which was made from `spec`.
///
/// # Errors
/// If `ip` or `tc` refuses.
pub fn prioritise(network: &Network, spec: &NetworkSpec) -> Result<(), ToolError> {
    for (index, link) in spec.links.iter().enumerate() {
        for (host, device) in [(index, "right"), (index + 1, "left")] {
            let namespace = &network.hosts[host].namespace;
            // The bands take their length from the device as they are made.
            let packets = queue_packets(link);
            namespace.feed("ip -batch -", &format!("link set dev {device} txqueuelen {packets}\n"))?;
            namespace.feed("tc -batch -", &queues(device, link))?;
        }
    }
    Ok(())
}

fn queues(device: &str, link: &LinkSpec) -> String {
    let rate = BitRate(link.rate.0 / 100 * SHARE_PERCENT);
    let burst = shaper_burst(link);
    format!(
        "qdisc add dev {device} root handle 1: tbf rate {}bit burst {burst} limit {} overhead {WIRE_EXTRA_BYTES}\n\
         qdisc add dev {device} parent 1:1 handle 2: pfifo_fast\n",
        rate.0,
        2 * burst,
    )
}

/// Length of each band's queue: as many packets of the largest size as the link's own queue holds.
fn queue_packets(link: &LinkSpec) -> u64 {
    let frame = u64::from(link.mtu) + ETHERNET_BYTES + WIRE_EXTRA_BYTES;
    (link.queue_bytes() / frame).max(1)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use punctual_analysis::Nanos;
    use rustix::net::sockopt::{set_ip_tos, set_socket_recv_buffer_size_force};

    use super::*;
    use crate::loads::kernel::Precedence;
    use crate::testbed::Privilege;

    /// How many of them wait: half a second at the slow link's rate.
    const WAITING: usize = 200;

    /// After how many others a packet of `precedence` comes that was sent behind [`WAITING`] of the low class.
    fn position(rates: [u64; 2], precedence: Precedence) -> usize {
        let links = rates.map(|rate| LinkSpec::new(BitRate(rate), Nanos::from_secs(2))).into();
        let spec = NetworkSpec { hosts: vec!["a", "r", "b"], links };
        let network = Network::create(&spec).expect("a network");
        prioritise(&network, &spec).expect("priority queues");
        let (a, b) = (network.host("a").expect("a"), network.host("b").expect("b"));
        let target = (b.address(), 7_000);
        let receiver = b.namespace.within(|| UdpSocket::bind(target)).expect("a receiver");
        set_socket_recv_buffer_size_force(&receiver, 4 << 20).expect("a buffer");
        receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let sender = |precedence: Precedence| {
            let socket = a.namespace.within(|| UdpSocket::bind("0.0.0.0:0")).expect("a sender");
            set_ip_tos(&socket, precedence.type_of_service()).expect("a type of service");
            rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, 4 << 20).expect("a buffer");
            socket
        };
        let (low, other) = (sender(Precedence::Low), sender(precedence));
        for _ in 0..WAITING {
            low.send_to(&[0; 1_472], target).expect("a packet");
        }
        other.send_to(&[1; 1_472], target).expect("a packet");
        let mut buffer = [0; 2_048];
        (0..=WAITING)
            .position(|_| {
                receiver.recv(&mut buffer).expect("a packet");
                buffer[0] == 1
            })
            .expect("the other one")
    }

    #[test]
    fn the_high_class_overtakes_at_the_sender_and_at_the_router() {
        if !Privilege::detect().is_ok_and(|privilege| privilege == Privilege::Root) {
            punctual_skip::skipped!("network namespaces need root");
            return;
        }
        let (slow, fast) = (5_000_000, 500_000_000);
        for (place, rates) in [("sender", [slow, fast]), ("router", [fast, slow])] {
            assert_eq!(position(rates, Precedence::Low), WAITING, "{place}: one class is a queue");
            let high = position(rates, Precedence::High);
            assert!(high < WAITING / 2, "{place}: the high class came after {high} of {WAITING}");
        }
    }
}
