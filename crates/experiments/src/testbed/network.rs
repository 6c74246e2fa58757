//! A line of hosts with links of fixed rate between them.
//!
//! Each link is host - bridge - host: the bridge is in a namespace of its own and has a `tbf` on both egress
//! ports, so the hosts neither see nor bypass the rate. The shaper counts what Ethernet counts: 24 bytes a
//! frame more than the kernel sees (checksum, preamble, gap).

use std::net::Ipv4Addr;

use punctual_analysis::{BitRate, Nanos};

use punctual_link::kernel::Mac;
use punctual_os::command::ToolError;
use punctual_os::namespaces::{self, Namespace};

use super::forwarder::{Distance, Forwarder};

/// Bytes of a frame in addition to the packet, as the kernel counts it.
pub(super) const ETHERNET_BYTES: u64 = 14;
/// Default length of the longest IP packet.
const MTU: u32 = 1500;
/// What Ethernet adds to a frame on the wire.
pub const WIRE_EXTRA_BYTES: u64 = 24;
/// Frames that the shaper lets through at once after idling. More than the two that we pace out back to back
/// and enough to make up for a late timer; small enough to leave the rate as it is.
const SHAPER_BURST_FRAMES: u64 = 4;

/// The parts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// A bridge with a shaper on both egress ports.
    Shaped,
    /// The same shaper without a bridge: packets that come in at one port leave at the other. A frame belongs
    /// to the sender until it is on the wire, so completions come at its pace.
    Paced,
    /// Without a bridge and without a shaper: packets that come in at one port leave at the other, as fast as
    /// the machine copies.
    Open,
    /// One pair of devices: as fast as the machine copies. The rate is only in the hosts' configuration.
    Direct,
    /// Without a shaper: a thread carries every frame from one port to the other ([`Forwarder`]), later and not all of them.
    Far(Distance),
}

/// A link between neighbours of the line.
#[derive(Clone, Copy, Debug)]
pub struct LinkSpec {
    /// Rate in both directions, on the wire.
    pub rate: BitRate,
    /// Length of the queue in front of it: the delay of a packet by a full queue.
    pub queue: Nanos,
    /// Longest IP packet.
    pub mtu: u32,
    /// The parts that keep the rate.
    pub wire: Wire,
}

impl LinkSpec {
    /// A shaped link of Ethernet's packets.
    pub const fn new(rate: BitRate, queue: Nanos) -> Self {
        Self { rate, queue, mtu: MTU, wire: Wire::Shaped }
    }

    /// This emulated link, with completions at the rate of the wire.
    #[must_use]
    pub const fn paced(self) -> Self {
        Self { wire: Wire::Paced, ..self }
    }

    /// A link without any shaper, through a namespace of the wire; the hosts are configured with `rate`.
    pub const fn open(rate: BitRate) -> Self {
        Self { wire: Wire::Open, ..Self::new(rate, Nanos::ZERO) }
    }

    /// A direct link; the hosts are configured with `rate`.
    pub const fn direct(rate: BitRate) -> Self {
        Self { wire: Wire::Direct, ..Self::new(rate, Nanos::ZERO) }
    }

    /// A link without a shaper that takes time and loses frames; the hosts are configured with `rate`.
    pub const fn far(rate: BitRate, distance: Distance) -> Self {
        Self { wire: Wire::Far(distance), ..Self::new(rate, Nanos::ZERO) }
    }

    /// What its queue holds.
    pub(super) fn queue_bytes(&self) -> u64 {
        (u128::from(self.rate.0) * u128::from(self.queue.as_u64()) / 8_000_000_000).max(1) as u64
    }

    /// This emulated link, for longer packets.
    #[must_use]
    pub const fn with_mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }
}

/// Hosts in a line: `links[i]` joins `hosts[i]` and `hosts[i + 1]`.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// Names, short.
    pub hosts: Vec<&'static str>,
    /// One less than hosts.
    pub links: Vec<LinkSpec>,
}

/// One host of a network.
#[derive(Debug)]
pub struct Host {
    /// Name of the host.
    pub name: &'static str,
    /// Network namespace of the host.
    pub namespace: Namespace,
    /// Address towards the host before it in the line.
    pub address_left: Option<Ipv4Addr>,
    /// Address towards the next host.
    pub address_right: Option<Ipv4Addr>,
}

impl Host {
    /// An address to reach it by.
    pub fn address(&self) -> Ipv4Addr {
        self.address_left.or(self.address_right).unwrap_or(Ipv4Addr::LOCALHOST)
    }
}

/// A running network; removed when dropped.
#[derive(Debug)]
pub struct Network {
    /// The threads of links that are far; they end before their devices do.
    forwarders: Vec<Forwarder>,
    /// The hosts, in the order of the line.
    pub hosts: Vec<Host>,
    /// The emulated wires.
    wire: Namespace,
}

impl Network {
    /// Sets it up; every host but the ends forwards.
    ///
    /// # Errors
    /// If a namespace, device, address or shaper is refused; everything made until then is removed again.
    pub fn create(spec: &NetworkSpec) -> Result<Self, ToolError> {
        namespaces::remove_stale()?;
        let number = namespaces::next_number();
        let wire = Namespace::create(number, "wire")?;
        quiet(&wire)?;
        let mut hosts = Vec::with_capacity(spec.hosts.len());
        for (index, &name) in spec.hosts.iter().enumerate() {
            let namespace = Namespace::create(number, name)?;
            quiet(&namespace)?;
            let address_left = index.checked_sub(1).map(|link| address(link, 2));
            let address_right = (index < spec.links.len()).then(|| address(index, 1));
            hosts.push(Host { name, namespace, address_left, address_right });
        }
        let mut network = Self { forwarders: Vec::new(), hosts, wire };
        for (index, link) in spec.links.iter().enumerate() {
            network.join(index, link)?;
        }
        network.route()?;
        Ok(network)
    }

    /// The namespace of the emulated wires: link `i` has the ports `l<i>` and `r<i>` there.
    pub const fn wire(&self) -> &Namespace {
        &self.wire
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Lays link `index` between hosts `index` and `index + 1`.
    fn join(&mut self, index: usize, link: &LinkSpec) -> Result<(), ToolError> {
        let (left, right) = (&self.hosts[index], &self.hosts[index + 1]);
        let mtu = link.mtu;
        match link.wire {
            Wire::Shaped => self.bridge(index, link)?,
            Wire::Far(distance) => {
                self.wire.feed("ip -batch -", &self.ports_up(index, link))?;
                let forwarder = Forwarder::start(&self.wire, index, distance).map_err(|source| {
                    ToolError::Io { command: format!("forward frames between l{index} and r{index}"), source }
                })?;
                self.forwarders.push(forwarder);
            }
            Wire::Paced | Wire::Open => self.redirect(index, link)?,
            Wire::Direct => {
                let pair = format!(
                    "link add right mtu {mtu} type veth peer name left mtu {mtu} netns {}\n",
                    right.namespace.name()
                );
                left.namespace.feed("ip -batch -", &pair)?;
            }
        }
        configure(&left.namespace, "right", address(index, 1), address(index, 2), 2 * index + 1)?;
        configure(&right.namespace, "left", address(index, 2), address(index, 1), 2 * index + 2)
    }

    fn bridge(&self, index: usize, link: &LinkSpec) -> Result<(), ToolError> {
        let mtu = link.mtu;
        let bridge = format!(
            "link add br{index} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set br{index} up\n{}\
             link set l{index} master br{index} up\n\
             link set r{index} master br{index} up\n",
            self.ports(index, link),
        );
        self.wire.feed("ip -batch -", &bridge)?;
        self.shape(index, link)
    }

    fn redirect(&self, index: usize, link: &LinkSpec) -> Result<(), ToolError> {
        self.wire.feed("ip -batch -", &self.ports_up(index, link))?;
        let through = |from: &str, to: &str| {
            format!(
                "qdisc add dev {from}{index} ingress\n\
                 filter add dev {from}{index} parent ffff: u32 match u32 0 0 action mirred egress redirect dev {to}{index}\n"
            )
        };
        let both = format!("{}{}", through("l", "r"), through("r", "l"));
        self.wire.feed("tc -batch -", &both)?;
        if link.wire == Wire::Open { Ok(()) } else { self.shape(index, link) }
    }

    /// The same, ready to carry frames.
    fn ports_up(&self, index: usize, link: &LinkSpec) -> String {
        format!("{}link set l{index} up\nlink set r{index} up\n", self.ports(index, link))
    }

    /// The pairs of devices between the wire and its two hosts.
    fn ports(&self, index: usize, link: &LinkSpec) -> String {
        format!(
            "link add l{index} mtu {mtu} type veth peer name right mtu {mtu} netns {left}\n\
             link add r{index} mtu {mtu} type veth peer name left mtu {mtu} netns {right}\n",
            mtu = link.mtu,
            left = self.hosts[index].namespace.name(),
            right = self.hosts[index + 1].namespace.name(),
        )
    }

    fn shape(&self, index: usize, link: &LinkSpec) -> Result<(), ToolError> {
        let shapers = format!("{}{}", shaper(&format!("l{index}"), link), shaper(&format!("r{index}"), link));
        self.wire.feed("tc -batch -", &shapers).map(drop)
    }

    /// Static routes to everything that is not next door, and forwarding between.
    fn route(&self) -> Result<(), ToolError> {
        let last = self.hosts.len() - 1;
        for (index, host) in self.hosts.iter().enumerate() {
            let mut routes = String::new();
            for link in 0..last {
                let subnet = format!("10.77.{link}.0/30");
                if link + 1 < index {
                    routes += &format!("route add {subnet} via {}\n", address(index - 1, 1));
                } else if link > index {
                    routes += &format!("route add {subnet} via {}\n", address(index, 2));
                }
            }
            host.namespace.feed("ip -batch -", &routes)?;
            if index > 0 && index < last {
                set(&host.namespace, "ipv4/ip_forward", "1")?;
            }
        }
        Ok(())
    }
}

/// Both ends of link `link` are 10.77.LINK.{1,2}.
pub fn address(link: usize, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, u8::try_from(link).unwrap_or(u8::MAX), end)
}

/// A hardware address that is known before the device is made: no ARP on the links. The ends of link `i` are 2 i + 1 and
/// 2 i + 2.
pub fn hardware_address(end: usize) -> String {
    Mac::from_number(hardware_number(end)).to_string()
}

/// The same as a number.
pub const fn hardware_number(end: usize) -> u64 {
    0x0270_756e_0000 + end as u64
}

fn configure(
    namespace: &Namespace,
    device: &str,
    own: Ipv4Addr,
    peer: Ipv4Addr,
    end: usize,
) -> Result<(), ToolError> {
    let peer_end = if end % 2 == 1 { end + 1 } else { end - 1 };
    namespace
        .feed(
            "ip -batch -",
            &format!(
                "link set {device} address {}\n\
             link set {device} up\n\
             address add {own}/30 dev {device}\n\
             neighbour replace {peer} lladdr {} dev {device} nud permanent\n",
                hardware_address(end),
                hardware_address(peer_end),
            ),
        )
        .map(drop)
}

fn shaper(device: &str, link: &LinkSpec) -> String {
    let burst = shaper_burst(link);
    format!(
        "qdisc add dev {device} root tbf rate {rate}bit burst {burst} limit {limit} overhead {WIRE_EXTRA_BYTES}\n",
        rate = link.rate.0,
        limit = link.queue_bytes().max(2 * burst),
    )
}

/// Bytes that a shaper of `link` lets through at once after idling.
pub(super) fn shaper_burst(link: &LinkSpec) -> u64 {
    SHAPER_BURST_FRAMES * (u64::from(link.mtu) + ETHERNET_BYTES + WIRE_EXTRA_BYTES)
}

/// Disables IPv6: its multicast and duplicate address detection are traffic that the experiment does not
/// need.
fn quiet(namespace: &Namespace) -> Result<(), ToolError> {
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        return Ok(());
    }
    set(namespace, "ipv6/conf/all/disable_ipv6", "1")?;
    set(namespace, "ipv6/conf/default/disable_ipv6", "1")
}

fn set(namespace: &Namespace, key: &str, value: &str) -> Result<(), ToolError> {
    namespace
        .set_parameter(key, value)
        .map_err(|source| ToolError::Io { command: format!("write {value} to net/{key}"), source })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use rustix::net::sockopt::set_socket_recv_buffer_size_force;

    use super::*;
    use crate::testbed::Privilege;
    use punctual_os::clock::now;

    fn line(rate: u64, queue_ms: u64) -> NetworkSpec {
        let link = LinkSpec::new(BitRate(rate), Nanos::from_millis(queue_ms));
        NetworkSpec { hosts: vec!["a", "r", "b"], links: vec![link; 2] }
    }

    /// Whether namespaces can be made here; prints a message if not.
    fn privileged() -> bool {
        let privileged = Privilege::detect().is_ok_and(|privilege| privilege == Privilege::Root);
        if !privileged {
            punctual_skip::skipped!("network namespaces need root");
        }
        privileged
    }

    #[test]
    fn a_line_forwards_at_its_rate_and_leaves_nothing() {
        if !privileged() {
            return;
        }
        let network = Network::create(&line(20_000_000, 1_000)).expect("a network");
        let names: Vec<String> = network.hosts.iter().map(|host| host.namespace.name().to_owned()).collect();
        let (a, b) = (network.host("a").expect("a"), network.host("b").expect("b"));
        let target = (b.address(), 7_000);
        let receiver = b.namespace.within(|| UdpSocket::bind(target)).expect("a receiver");
        let sender = a.namespace.within(|| UdpSocket::bind("0.0.0.0:0")).expect("a sender");
        receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        // All packets may wait there: no thread receives any while this thread does not run.
        set_socket_recv_buffer_size_force(&receiver, 4 << 20).expect("a buffer");
        // 400 frames of 1538 B on the wire at 20 Mbit/s, the shaper's burst less: about 243 ms.
        let begun = now();
        for _ in 0..400 {
            sender.send_to(&[7; 1472], target).expect("a packet");
        }
        let mut buffer = [0; 2048];
        for packet in 0..400 {
            receiver.recv(&mut buffer).unwrap_or_else(|error| panic!("packet {packet}: {error}"));
        }
        let took = now().since(begun).as_millis_f64();
        assert!(took > 230.0, "400 packets in {took} ms: the link is too fast");
        drop(network);
        let left = namespaces::list();
        assert!(left.iter().all(|(name, _)| !names.contains(name)), "{left:?}");
    }

    #[test]
    fn leftovers_of_an_ended_run_are_removed() {
        if !privileged() {
            return;
        }
        // Above the largest pid that Linux assigns: certainly not running. Concurrent runs use another name.
        let name = format!("punctual-{}-0-{}", 1 << 23, std::process::id());
        punctual_os::command::run(&format!("ip netns add {name}")).expect("a namespace");
        namespaces::remove_stale().expect("a sweep");
        assert!(namespaces::list().iter().all(|(left, _)| *left != name));
    }
}
