//! Streams with kernels: opened from either end, next to us and behind a router, beside the kernel's own.

use std::net::{SocketAddr, TcpListener, TcpStream};

use punctual_link::{IpTarget, Link};

use crate::kernel::{accept, exchange};
use crate::native::{Native, WIDE};
use crate::network::{A, B, C, Host, Network, ip, privileged, resets};

const BYTES: u64 = 20_000_000;
const PORT: u16 = 8_080;

fn listener(host: &Host, address: &str) -> TcpListener {
    host.within(|| TcpListener::bind((ip(address), PORT))).expect("a listener")
}

/// A native connection from `a` to a kernel at `address` of `host`: bytes each way, and the end.
fn connects(a: &Host, host: &Host, address: &str, bytes: u64) {
    let listener = listener(host, address);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| exchange(&accept(&listener).0, 1, bytes));
        a.within(|| {
            let mut native = Native::open();
            let id = native.connect((ip(address), PORT).into());
            native.exchange(id, 0, bytes);
            native.end(id);
            assert_eq!(native.refused, 0, "a checksum of the kernel's is completed");
            assert_eq!(native.seen.keys().copied().collect::<Vec<_>>(), [IpTarget::Flow(0)]);
            assert_eq!(native.link.stream_drops(), Default::default());
        });
        server.join().expect("the kernel's end");
    });
}

/// A kernel at `host` connects to `address` of `a`.
fn accepts(a: &Host, host: &Host, address: &str, bytes: u64) {
    let local: SocketAddr = (ip(address), PORT).into();
    let (ready, listening) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            listening.recv().expect("a listener");
            let stream = host.within(|| TcpStream::connect(local)).expect("to connect");
            exchange(&stream, 1, bytes);
        });
        a.within(|| {
            let mut native = Native::open();
            native.listen(local, WIDE);
            ready.send(()).expect("the client waits");
            let id = native.accept(local);
            native.exchange(id, 0, bytes);
            native.end(id);
            assert_eq!(native.refused, 0);
            assert!(
                native.seen[&IpTarget::Listener(0)] >= 2,
                "a SYN and what completes it: {:?}",
                native.seen
            );
            assert!(native.seen[&IpTarget::Flow(0)] > 100, "the rest is the flow's: {:?}", native.seen);
        });
        client.join().expect("the kernel's end");
    });
}

/// The kernels of these hosts have sent no reset. The kernel at the peer's end may: it answers a segment that was sent again, and
/// that comes when its own socket is gone, with one (RFC 9293 3.10.7.1).
fn no_resets(hosts: &[&Host]) {
    assert_eq!(hosts.iter().map(|host| resets(host)).collect::<Vec<_>>(), vec![0; hosts.len()]);
}

#[test]
fn to_a_kernel_next_to_us() {
    if !privileged() {
        return;
    }
    for address in B {
        let network = Network::new();
        connects(&network.a, &network.b, address, BYTES);
        no_resets(&[&network.a]);
    }
}

#[test]
fn from_a_kernel_next_to_us() {
    if !privileged() {
        return;
    }
    for address in A {
        let network = Network::new();
        accepts(&network.a, &network.b, address, BYTES);
        no_resets(&[&network.a]);
    }
}

/// The next hop is the router's, the MTU the route's.
#[test]
fn through_a_router() {
    if !privileged() {
        return;
    }
    for (theirs, ours) in C.into_iter().zip(A) {
        let network = Network::with_router();
        connects(&network.a, network.c(), theirs, BYTES / 4);
        accepts(&network.a, network.c(), ours, BYTES / 4);
        no_resets(&[&network.a, &network.b]);
    }
}

/// The kernel's connections of the same device, address and peer go on untouched, and nothing of them is taken.
#[test]
fn beside_the_kernels_own() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let address = B[0];
    let [ours, theirs] = [PORT, PORT + 1]
        .map(|port| network.b.within(|| TcpListener::bind((ip(address), port))).expect("a listener"));
    std::thread::scope(|scope| {
        let servers = [
            scope.spawn(|| exchange(&accept(&ours).0, 1, BYTES)),
            scope.spawn(|| exchange(&accept(&theirs).0, 1, BYTES)),
        ];
        network.a.within(|| {
            let mut native = Native::open();
            let id = native.connect((ip(address), PORT).into());
            let stream = TcpStream::connect((ip(address), PORT + 1)).expect("to connect");
            let kernel = scope.spawn(move || exchange(&stream, 0, BYTES));
            native.exchange(id, 0, BYTES);
            kernel.join().expect("the kernel's bytes");
            native.end(id);
            assert_eq!(native.seen.keys().copied().collect::<Vec<_>>(), [IpTarget::Flow(0)]);
        });
        servers.into_iter().for_each(|server| server.join().expect("every byte"));
    });
    no_resets(&[&network.a, &network.b]);
}
