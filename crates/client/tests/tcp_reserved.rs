//! TCP whose path is reserved, over `memory` links: a stream each way, through a forwarder, in every class; refusals, and ends.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::tcp::{Ended, Promise, Qos, State, TcpError, TcpStream};
use punctual::{BitRate, Endsystem, HostConfig, Nanos};
use punctual_host::config::parse;
use punctual_link::{Link, MemoryLink, MemoryOptions};
use support::{PATIENCE, pair};

const PORT: u16 = 80;

fn guaranteed() -> Qos {
    Qos::Guaranteed { rate: BitRate(8_000_000), period: Nanos::from_millis(20) }
}

fn bytes(side: u8, from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at * 7 + at / 251) as u8 ^ side).collect()
}

/// Hosts a, r and b in a row.
fn row() -> [Endsystem; 3] {
    let config = |name: &str, links: &str| -> HostConfig {
        let text = format!(
            r#"
            node.name = "{name}"
            processor.best_effort_host = true
            processor.profile_measure = false
            signalling = {{ key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", hello = "1s" }}
            host = [{{ name = "a", id = 1 }}, {{ name = "r", id = 2 }}, {{ name = "b", id = 3 }}]
            {links}
            "#
        );
        parse(&text, Path::new("row.toml")).expect("a configuration")
    };
    let link = |name: &str, neighbour: &str| {
        format!(
            r#"{{ name = "{name}", neighbour = "{neighbour}", driver = "memory", rate = "400Mbit/s",
                 prediction_error = "500ms" }}"#
        )
    };
    let ends = || MemoryLink::pair(MemoryOptions::default()).expect("a link");
    let ((ar, ra), (rb, br)) = (ends(), ends());
    let route = |to: &str| format!(r#"route = [{{ to = "{to}", via = [["r"]] }}]"#);
    let configs = [
        config("a", &format!("link = [{}]\n{}", link("l", "r"), route("b"))),
        config("r", &format!("link = [{}, {}]", link("l", "a"), link("m", "b"))),
        config("b", &format!("link = [{}]\n{}", link("m", "r"), route("a"))),
    ];
    let boxed = |link: MemoryLink| Box::new(link) as Box<dyn Link>;
    let links = [vec![boxed(ar)], vec![boxed(ra), boxed(rb)], vec![boxed(br)]];
    let mut links = links.into_iter();
    let hosts = configs.map(|config| {
        Endsystem::embedded_with(&config, links.next().expect("one each")).expect("an engine")
    });
    let until = Instant::now() + PATIENCE;
    while !hosts.iter().all(|host| host.status().expect("status").node.links.iter().all(|link| link.alive)) {
        assert!(Instant::now() < until, "the hosts never saw one another");
        std::thread::yield_now();
    }
    hosts
}

/// Both ends of a connection from a to b.
fn connect(a: &Endsystem, b: &Endsystem, qos: Qos, deadline: Option<Nanos>) -> (TcpStream, TcpStream) {
    let listener = b.bind_tcp_reserved(PORT, qos, deadline, 4).expect("a listener");
    let accepting = std::thread::spawn(move || listener.accept_timeout(PATIENCE).expect("accepted").expect("one"));
    let client = a.connect_tcp_reserved("80@b", qos, deadline).expect("connected");
    (client, accepting.join().expect("no panic"))
}

/// Both sides write so many bytes and close; each reads what the other one wrote.
fn exchange(client: TcpStream, server: TcpStream, count: usize) {
    let ends = [(client, 0_u8), (server, 0xff)].map(|(mut stream, side)| {
        std::thread::spawn(move || {
            stream.set_read_timeout(Some(PATIENCE));
            stream.set_write_timeout(Some(PATIENCE));
            let (mut written, mut read) = (0, Vec::new());
            while read.len() < count {
                if written < count {
                    let size = (count - written).min(4_000);
                    stream.write_all(&bytes(side, written, size)).expect("written");
                    written += size;
                    if written == count {
                        stream.shutdown(Shutdown::Write).expect("closed");
                    }
                }
                let mut buffer = [0; 8_000];
                let size = stream.read(&mut buffer).expect("read");
                assert!(size > 0, "the end after {} B", read.len());
                read.extend_from_slice(&buffer[..size]);
            }
            assert!(read == bytes(!side, 0, count), "every byte");
            assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
            stream
        })
    });
    ends.map(|end| end.join().expect("no panic"));
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn two_hosts_exchange_a_stream() {
    let (a, b) = pair();
    let (client, server) = connect(&a, &b, guaranteed(), None);
    assert_eq!(client.peer_addr().to_string(), "[fd70:756e:6374::2]:80");
    assert_eq!(client.local_addr(), server.peer_addr());
    let status = client.status().expect("a status").expect("open");
    let d = Nanos::from_millis(20);
    assert_eq!((status.state, status.promise), (State::Established, Promise::Path { sending: d, receiving: d }));
    exchange(client, server, 300_000);
    until("all channels are given back", || {
        [&a, &b].iter().all(|host| host.channels().expect("channels").is_empty())
    });
}
