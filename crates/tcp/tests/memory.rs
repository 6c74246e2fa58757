//! What an idle connection of an endsystem holds besides its buffers, by allocated memory.

mod in_use;

use std::net::SocketAddr;

use in_use::in_use_bytes;
use punctual_analysis::{Instant, Nanos};
use punctual_rig::{Pool, TestInbox, TestMemory, TestOutbox};
use punctual_tcp::endsystem::{Endsystem, Rings, Segments};
use punctual_tcp::{Config, Flow, Secrets, State};

/// Connections of each of two endsystems.
const CONNECTIONS: usize = 10_000;
const BUFFER_BYTES: usize = 4_096;
/// The target of the project: 16 KiB.
const HELD_BYTES_MAX: usize = 16 << 10;

/// What an output handler makes.
#[derive(Default)]
struct Out(Vec<Vec<u8>>);

impl Segments for Out {
    fn has_room(&self) -> bool {
        true
    }

    fn put(&mut self, packet: &[u8], _: u64) {
        self.0.push(packet.to_vec());
    }
}

fn address(host: u8, number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, host, 1], 1_024 + number as u16))
}

/// Ten thousand connections are opened, carry a byte each way and are idle then.
#[test]
fn an_idle_connection_holds_little_besides_its_buffers() {
    let now = Instant(1_000_000_000);
    let config = Config {
        receive_bytes: BUFFER_BYTES,
        send_bytes: BUFFER_BYTES,
        is_nodelay: true,
        ..Config::default()
    };
    let mut hosts: [Endsystem<TestMemory>; 2] =
        [1, 2].map(|n| Endsystem::new(Secrets::new([n; 16]), 0, 0).with_paths(CONNECTIONS));
    let rings = || (TestOutbox::new(1, 16), TestInbox::new(1, 16));
    let mut programs: Vec<_> = (0..CONNECTIONS).map(|_| [rings(), rings()]).collect();
    let pool = Pool::new(64, 2_048);
    let empty_bytes = in_use_bytes();
    for (number, ends) in programs.iter().enumerate() {
        for (host, (outbox, inbox)) in ends.iter().enumerate() {
            let [local, remote] = [host, 1 - host].map(|host| address(host as u8, number));
            let rings = Rings { outbox: outbox.clone(), inbox: inbox.clone(), chunk_bytes: 16 };
            let begun = hosts[host].connect_over_channels(Flow { local, remote }, &config, rings, now);
            assert_eq!(begun.ok(), u32::try_from(number).ok());
        }
    }
    let mut exchange = |index: u32, now: Instant| {
        let mut any = true;
        while any {
            any = false;
            for host in [0, 1] {
                let mut out = Out::default();
                hosts[host].output(index, 4, now, &mut out);
                for packet in out.0 {
                    any |= hosts[1 - host].arrived(index, pool.frame(&packet), now).is_ok();
                }
                hosts[1 - host].input(index, 4, now);
            }
        }
        hosts.iter().all(|host| host.status(index).is_some_and(|it| it.state == State::Established))
    };
    let later = now + Nanos::from_millis(100);
    for (index, ends) in (0..).zip(&mut programs) {
        assert!(exchange(index, now), "connection {index} opens");
        ends.iter().for_each(|(outbox, _)| assert!(outbox.send(b"x", now)));
        assert!(exchange(index, now) && exchange(index, later));
        ends.iter().for_each(|(_, inbox)| assert!(inbox.recv(|bytes, _| assert_eq!(bytes, b"x"))));
    }
    let held = in_use_bytes() - empty_bytes;
    let each = held / (2 * CONNECTIONS);
    // Of bytes to send there are two copies (`recovery`).
    let besides = each - 3 * BUFFER_BYTES;
    println!("{each} B for each connection, {besides} B besides its buffers");
    assert!(besides <= HELD_BYTES_MAX, "{besides} B besides the buffers");
}
