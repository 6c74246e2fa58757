//! TCP whose path is reserved, over `memory` links: a stream each way, through a forwarder, in every class; refusals, and ends.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::time::Instant;

use punctual::tcp::{Promise, Qos, State, TcpError, TcpStream};
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
    let route = |to: &str| format!(r#"route = [{{ via = ["r", "{to}"] }}]"#);
    let configs = [
        config("a", &format!("link = [{}]\n{}", link("l", "r"), route("b"))),
        config("r", &format!("link = [{}, {}]", link("l", "a"), link("m", "b"))),
        config("b", &format!("link = [{}]\n{}", link("m", "r"), route("a"))),
    ];
    let boxed = |link: MemoryLink| Box::new(link) as Box<dyn Link>;
    let links = [vec![boxed(ar)], vec![boxed(ra), boxed(rb)], vec![boxed(br)]];
    let mut links = links.into_iter();
    let hosts = configs
        .map(|config| Endsystem::embedded_with(&config, links.next().expect("one each")).expect("an engine"));
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
    let accepting =
        std::thread::spawn(move || listener.accept_timeout(PATIENCE).expect("accepted").expect("one"));
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
            while read.len() < count || written < count {
                if written < count {
                    let size = (count - written).min(4_000);
                    stream.write_all(&bytes(side, written, size)).expect("written");
                    written += size;
                    if written == count {
                        stream.shutdown(Shutdown::Write).expect("closed");
                    }
                }
                // What comes may be ahead of what this side has written.
                if read.len() == count {
                    continue;
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
    for end in ends {
        end.join().expect("no panic");
    }
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
    // A best-effort host promises nothing, and neither does a path through it.
    assert_eq!((status.state, status.promise), (State::Established, Promise::ThisHost));
    exchange(client, server, 300_000);
    all_is_given_back(&[&a, &b]);
}

fn all_is_given_back(hosts: &[&Endsystem]) {
    until("channels and connections are given back", || {
        let has_none = |host: &&Endsystem| {
            let connections = host.tcp_connections().expect("connections");
            host.channels().expect("channels").is_empty() && connections.is_empty()
        };
        hosts.iter().all(has_none)
    });
}

#[test]
fn every_class_goes_through_a_forwarder() {
    let [a, r, b] = row();
    let low = Qos::LowDelay { interval: Nanos::from_millis(10), units: 10, priority: None };
    for (qos, count) in [(guaranteed(), 200_000), (low, 100_000), (Qos::BestEffort, 100_000)] {
        let (client, server) = connect(&a, &b, qos, Some(Nanos::from_millis(200)));
        let [connection] = &a.tcp_connections().expect("connections")[..] else { panic!("one connection") };
        assert!(connection.path.is_some(), "{connection:?}");
        assert_eq!(r.channels().expect("channels").len(), 2, "both channels pass");
        exchange(client, server, count);
        all_is_given_back(&[&a, &r, &b]);
    }
}

#[test]
fn several_connections_between_two_hosts_are_not_mixed_up() {
    let (a, b) = pair();
    let listener = b.bind_tcp_reserved(PORT, guaranteed(), None, 8).expect("a listener");
    let echo = std::thread::spawn(move || {
        for _ in 0..4 {
            let mut stream = listener.accept_timeout(PATIENCE).expect("accepted").expect("one");
            let mut buffer = [0; 9];
            stream.read_exact(&mut buffer).expect("read");
            stream.write_all(&buffer).expect("written");
            stream.shutdown(Shutdown::Write).expect("closed");
            assert!(stream.wait_sent(PATIENCE).expect("sent"));
        }
    });
    let clients: Vec<_> = (0..4)
        .map(|number: u8| {
            let a = a.clone();
            std::thread::spawn(move || {
                let mut stream = a.connect_tcp_reserved("80@b", guaranteed(), None).expect("connected");
                stream.set_read_timeout(Some(PATIENCE));
                stream.write_all(&[number; 9]).expect("written");
                let mut buffer = Vec::new();
                stream.read_to_end(&mut buffer).expect("read");
                assert_eq!(buffer, [number; 9]);
                stream.local_addr().port()
            })
        })
        .collect();
    let mut ports: Vec<u16> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
    echo.join().expect("no panic");
}

fn refusal(result: Result<TcpStream, TcpError>) -> TcpError {
    result.err().expect("a refusal")
}

/// A refusal names the hop, the reason and an offer; nothing is left of what was reserved before.
#[test]
fn what_the_path_cannot_carry_is_refused() {
    let [a, r, b] = row();
    let most = Qos::Guaranteed { rate: BitRate(900_000_000), period: Nanos::from_millis(10) };
    let _listener = b.bind_tcp_reserved(PORT, most, None, 4).expect("a listener");
    let refused = refusal(a.connect_tcp_reserved("80@b", most, None));
    assert!(matches!(refused, TcpError::Path(_)) && refused.to_string().contains("by host"), "{refused}");
    let short = Some(Nanos::from_micros(1));
    let _short = b.bind_tcp_reserved(81, guaranteed(), short, 4).expect("a listener");
    let refused = refusal(a.connect_tcp_reserved("81@b", guaranteed(), short)).to_string();
    assert!(refused.contains("a deadline of") && refused.contains("the whole route needs"), "{refused}");
    let refused = refusal(a.connect_tcp_reserved("82@b", guaranteed(), None)).to_string();
    assert!(refused.contains("tcp.82"), "{refused}");
    let refused = refusal(a.connect_tcp_reserved("81@b", guaranteed(), None)).to_string();
    assert!(refused.contains("another quality of service"), "{refused}");
    for peer in ["80", "x@b", "0@b"] {
        assert!(a.connect_tcp_reserved(peer, guaranteed(), None).is_err(), "{peer}");
    }
    let unknown = refusal(a.connect_tcp_reserved("80@c", guaranteed(), None)).to_string();
    assert!(unknown.contains('c'), "{unknown}");
    all_is_given_back(&[&a, &r, &b]);
}

/// The peer's process ends: the connection ends with what came before, and everything is given back.
#[test]
fn a_lost_path_ends_the_connection() {
    let [a, r, b] = row();
    let (mut client, mut server) = connect(&a, &b, guaranteed(), Some(Nanos::from_millis(200)));
    server.write_all(b"last words").expect("written");
    assert!(server.wait_sent(PATIENCE).expect("sent"));
    drop(server);
    drop(b);
    client.set_read_timeout(Some(PATIENCE));
    let mut read = Vec::new();
    // In order or not: the peer's engine may have had no time to close.
    let ended = client.read_to_end(&mut read);
    assert_eq!(read, b"last words");
    if ended.is_ok() {
        assert!(client.write_all(&[0; 100]).is_ok());
    }
    drop(client);
    all_is_given_back(&[&a, &r]);
}

/// Unread bytes reset the peer, and a program may reset it.
#[test]
fn ends_are_seen_at_the_other_side() {
    let (a, b) = pair();
    let (client, mut server) = connect(&a, &b, guaranteed(), None);
    client.abort().expect("reset");
    server.set_read_timeout(Some(PATIENCE));
    let error = server.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    drop((client, server));
    all_is_given_back(&[&a, &b]);
}
