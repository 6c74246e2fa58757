//! Two hosts on a cable: an endsystem with TCP of its own, and a kernel at the other end. Network namespaces; needs root.
#![allow(dead_code, reason = "each test program uses a part")]

#[path = "../../../link/tests/common/host.rs"]
mod host;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use host::Host;
pub use host::privileged;
use punctual::tcp::Qos;
use punctual::{Endsystem, HostConfig, Nanos};

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const A: &str = "10.98.0.1";
pub const B: &str = "10.98.0.2";
pub const LOW_DELAY: Qos = Qos::LowDelay { interval: Nanos::from_millis(10), units: 8, priority: None };

pub fn address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), 8_080)
}

/// Hosts `a` and `b` on one cable.
pub fn cable() -> (Host, Host) {
    let (a, b) = (Host::new(), Host::new());
    a.run(&format!("ip link add va type veth peer name vb netns {}", b.name()));
    for (host, device, ip) in [(&a, "va", A), (&b, "vb", B)] {
        host.ip_batch(&format!("link set {device} up\naddress add {ip}/30 dev {device}\n"));
    }
    a.await_up("va");
    b.await_up("vb");
    (a, b)
}

/// An endsystem on `a`, in the namespace of this thread.
pub fn endsystem(flows: &str) -> Endsystem {
    endsystem_with("", flows)
}

/// The same with more keys of its processor.
pub fn endsystem_with(processor: &str, flows: &str) -> Endsystem {
    let text = format!(
        r#"
        node.name = "a"
        processor.best_effort_host = true
        processor.profile_measure = false
        {processor}
        processor.costs = {{ send_message = "1us", send_packet = "1us", send_packet_later = "1us", forward_packet = "1us",
                             receive_packet = "1us", deliver_message = "1us", copy_kib = "200ns", cold_start = "20us" }}
        signalling.key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        [[link]]
        name = "to-b"
        neighbour = "b"
        driver = "xdp"
        device = "va"
        local = "{A}"
        peer = "{B}"
        rate = "1Gbit/s"
        kernel_traffic = "exclusive"
        prediction_error = "500ms"
        {flows}
        "#
    );
    let config = punctual::config::parse(&text, std::path::Path::new("/test/a.toml"));
    let config: HostConfig = config.unwrap_or_else(|error| panic!("{error}"));
    Endsystem::embedded(&config).unwrap_or_else(|error| panic!("{error}"))
}

pub const FLOWS: &str = "flows_max = 16\nlisteners_max = 2\n";

/// A kernel's end of a connection that waits for a bounded time.
pub fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
    stream
}

pub fn bytes(side: u8, from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at * 13 + at / 255) as u8 ^ side).collect()
}

/// Writes `total` bytes as side 0, closes, and reads as many of side 1 meanwhile.
pub fn exchange(
    mut from: impl Read,
    mut to: impl Write + Send,
    close: impl FnOnce() + Send,
    sides: [u8; 2],
    total: usize,
) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            to.write_all(&bytes(sides[0], 0, total)).expect("written");
            close();
        });
        let mut read = Vec::new();
        from.read_to_end(&mut read).expect("read");
        assert!(read == bytes(sides[1], 0, total), "{} bytes, {total} expected", read.len());
    });
}
