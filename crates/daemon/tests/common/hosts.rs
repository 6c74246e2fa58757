//! Two daemons over kernel UDP sockets on loopback, on addresses and ports of this process alone, and a channel between them
//! that must not notice anything.

use std::net::Ipv4Addr;
use std::path::Path;

use punctual::{Channel, Consent, Endsystem, MessageInfo, Receiver};

use super::program::Program;
use super::text::{HELLO, Text};
use super::{PATIENCE, contract, meet};

/// Below the range from which the kernel assigns ports.
const FIRST_PORT: u16 = 20_000;
/// For data and signalling at both ends.
const PORTS_PER_CABLE: u16 = 4;

/// Lines of `[[link]]` for one end, 0 or 1, of a cable. Other processes have other addresses: 22 bits of their ids.
pub fn udp(cable: u16, end: u16) -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    let [own, peer] =
        [end, 1 - end].map(|end| FIRST_PORT + cable * PORTS_PER_CABLE + end * PORTS_PER_CABLE / 2);
    format!(
        "driver = \"udp\"\nlocal = \"{address}\"\npeer = \"{address}\"\n\
         data_port = {own}\nsignalling_port = {}\npeer_data_port = {peer}\npeer_signalling_port = {}\n",
        own + 1,
        peer + 1,
    )
}

/// Does `work` with the configuration of `a` or `b` on a cable that no other test of the program has.
pub fn with_text<R>(folder: &Path, name: &str, cable: u16, work: impl FnOnce(Text<'_>) -> R) -> R {
    let link = format!("{}rate = \"100Mbit/s\"", udp(cable, u16::from(name == "b")));
    let socket = folder.join(format!("{name}.sock"));
    work(Text {
        name,
        socket: &socket,
        processor: "profile_measure = false",
        daemon: "",
        hello: HELLO,
        signalling: "",
        link: &link,
    })
}

/// Settings that a test changes.
pub struct Wanted<'a> {
    /// More keys of `[daemon]` of `a`.
    pub daemon: &'a str,
    /// Interval of HELLOs. A neighbour is considered down after five times as long without one.
    pub hello: &'a str,
    /// Deadline of the channel.
    pub deadline_ms: u64,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Self { daemon: "", hello: HELLO, deadline_ms: 300 }
    }
}

/// Two daemons with a channel between them that must not notice anything.
pub struct Hosts {
    pub a: Program,
    b: Program,
    pub channel: Channel,
    pub receiver: Receiver,
    /// One on each.
    pub connections: [Endsystem; 2],
}

impl Hosts {
    /// The command line of `a` is made by `line`.
    pub fn start(folder: &Path, cable: u16, wanted: &Wanted<'_>, line: impl FnOnce(&str) -> String) -> Self {
        let &Wanted { daemon, hello, deadline_ms } = wanted;
        let a = with_text(folder, "a", cable, |text| {
            Program::start(folder, Text { daemon, hello, ..text }, line)
        });
        let b = with_text(folder, "b", cable, |text| {
            Program::start(folder, Text { hello, ..text }, str::to_owned)
        });
        let (on_a, on_b) = (a.connect(), b.connect());
        meet([&on_a, &on_b]);
        let listener = on_b.listen("bystander", |_| Consent::Accept).expect("a listener");
        let channel = on_a.open("bystander@b", contract(200, 50, deadline_ms)).expect("a channel");
        let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        Self { a, b, channel, receiver, connections: [on_a, on_b] }
    }

    /// API socket of `b`.
    pub fn socket_of_b(&self) -> &Path {
        &self.b.socket
    }

    /// Packets that b has sent: only HELLOs to its neighbour if there is no other traffic.
    pub fn sent_by_b(&self) -> u64 {
        self.connections[1].status().expect("status").engine.links[0].packets_out
    }

    /// The same, once it has answered the packets that `a` sent before it was stopped: no packet was sent
    /// between two queries.
    pub fn settled_sent_by_b(&self) -> u64 {
        let mut sent = self.sent_by_b();
        loop {
            let now = self.sent_by_b();
            if now == sent {
                return sent;
            }
            sent = now;
        }
    }

    /// One message goes through the channel.
    pub fn are_undisturbed(&mut self) -> MessageInfo {
        self.channel.send(b"undisturbed").expect("sent");
        let mut buffer = [0; 200];
        let info = self.receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!(&buffer[..info.len as usize], b"undisturbed");
        info
    }
}
