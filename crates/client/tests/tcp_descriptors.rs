//! Descriptors of connections in an embedded endsystem: a process may have few. One test: it counts those of its process. Network
//! namespaces; needs root.

mod cable;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use cable::{B, FLOWS, PATIENCE, address, cable, endsystem, privileged};
use punctual::tcp::Qos;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("this process").count()
}

/// A bell for each direction, and the socket that holds the port.
const OF_A_CONNECTION: usize = 3;

#[test]
fn a_connection_takes_three_descriptors_and_gives_them_back() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let listener = b.within(|| TcpListener::bind(address(B))).expect("a listener");
    a.within(|| {
        let endsystem = endsystem(FLOWS);
        let connect = || {
            let ours = endsystem.connect_tcp(address(B), Qos::BestEffort).expect("granted");
            (ours, listener.accept().expect("a connection").0)
        };
        // With the first one comes what all of them share.
        let _first = connect();
        let before = descriptors();
        let open: Vec<_> = (0..8).map(|_| connect()).collect();
        let of_kernels = open.len();
        assert_eq!(descriptors() - before, open.len() * OF_A_CONNECTION + of_kernels);
        let (ours, kernels): (Vec<_>, Vec<_>) = open.into_iter().unzip();
        // The kernel closes first, so that no TIME-WAIT is here.
        drop(kernels);
        drop(ours);
        let begun = Instant::now();
        while descriptors() > before {
            assert!(begun.elapsed() < PATIENCE, "{} descriptors are left", descriptors() - before);
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}
