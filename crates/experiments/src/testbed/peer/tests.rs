//! Both sides on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use punctual::{BitRate, Nanos};
use punctual_os::clock::{now, wait_until};

use super::words::{Hello, Lines};
use super::{Remote, serve};
use crate::loads::call::{Ask, Plan, SocketCaller};
use crate::loads::{Caller, Class, MessageSender};
use crate::testbed::configuration::End;
use crate::testbed::orders::Echo;
use crate::testbed::stream::contract;
use crate::testbed::{
    Answer, Conditions, Hosting, LinkSpec, Network, NetworkSpec, Options, Order, Pair, PairSetup, Peer,
    Place, Privilege, RoleId, Through, Wait, Wanted, driver,
};
use punctual_host::config::Driver;

fn server() -> (String, JoinHandle<anyhow::Result<()>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        serve::session(stream, Place::default())
    });
    (address, thread)
}

/// A port that no other process has: derived from its id, and below those that the kernel assigns
/// (`ip_local_port_range`).
fn own_port() -> u16 {
    24_000 + (std::process::id() % 8_000) as u16
}

#[test]
fn roles_are_started_there_and_end_with_the_connection() {
    let (address, thread) = server();
    let mut remote = Remote::connect(&address).expect("a peer");
    let error = remote.ends().expect_err("loopback is no link").to_string();
    assert!(error.contains("this very machine"), "{error}");
    let port = own_port();
    let echo = Order::Echo(Echo {
        role: 1,
        through: Through::Kernel { port },
        answers: None,
        wait: Wait::Block,
        class: Class::Ordinary,
        bytes_max: 100,
    });
    assert_eq!(remote.order(&echo).expect("heard"), Answer::Done);
    let server = std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut caller = SocketCaller::new(server, Wait::Block).expect("a socket");
    // A call that is answered later than an experiment waits is lost.
    let until = now() + Nanos::from_secs(20);
    while !caller.call(&[7; 64]).expect("a call") {
        assert!(now() < until, "it answers");
    }
    let unknown = remote.order(&Order::Counted { role: 9 }).expect("heard");
    assert!(matches!(unknown, Answer::Failed { why } if why.contains('9')), "an order that makes no sense");
    drop(remote);
    std::net::UdpSocket::bind(server).expect("its port is free again");
    thread.join().expect("no panic").expect("a clean end");
}

#[test]
fn another_version_is_reported_on_both_sides() {
    let (address, thread) = server();
    let stream = std::net::TcpStream::connect(&address).expect("a peer");
    let mut lines = Lines::new(stream).expect("lines");
    let end = End { address: Ipv4Addr::LOCALHOST, device: "lo".into() };
    let theirs = Hello { punctual: "9.9.9".into(), ..Hello::ours(end) };
    lines.send_words(&theirs).expect("said");
    let ours: Hello = lines.receive_words().expect("heard").expect("a hello");
    let error = theirs.check(&ours).expect_err("they differ").to_string();
    assert!(error.contains("9.9.9") && error.contains("same version"), "{error}");
    let error = thread.join().expect("no panic").expect_err("refused").to_string();
    assert!(error.contains("9.9.9"), "{error}");
}

#[test]
fn nonsense_and_silence_are_one_line() {
    let (address, thread) = server();
    let mut stream = std::net::TcpStream::connect(&address).expect("a peer");
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n").expect("said");
    let error = thread.join().expect("no panic").expect_err("refused").to_string();
    assert!(error.contains("bench --serve"), "{error}");
    let unused_address = format!("{}:{}", Ipv4Addr::LOCALHOST, own_port());
    let error = Remote::connect(&unused_address).err().expect("nobody").to_string();
    assert!(error.contains("punctual bench --serve"), "{error}");
}

/// Two namespaces as two machines: one serves, the other runs a pair over it, over every driver.
#[test]
fn a_pair_works_over_machines() {
    if !Privilege::detect().is_ok_and(|privilege| privilege == Privilege::Root) {
        punctual_skip::skipped!("network namespaces need root");
        return;
    }
    for driver in Driver::ALL.into_iter().filter(|driver| driver.has_wire() && driver::is_built(*driver)) {
        let link = LinkSpec::direct(BitRate(1_000_000_000));
        let spec = NetworkSpec { hosts: vec!["a", "b"], links: vec![link] };
        let network = Network::create(&spec).expect("a network");
        let address = network.hosts[1].address();
        let far = Place { namespace: Some(network.hosts[1].namespace.path()), cpu: None };
        let (sender, ready) = std::sync::mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let server = far.spawn("server", Class::Ordinary, move || {
            let listener = TcpListener::bind((address, 0))?;
            sender.send(listener.local_addr()?.port())?;
            serve::sessions(&listener, || is_over.load(Ordering::Relaxed))
        });
        let port = ready.recv().expect("it listens");
        let near = Place { namespace: Some(network.hosts[0].namespace.path()), cpu: None };
        let peer = Peer { address: format!("{address}:{port}"), rate: Some(link.rate) };
        let wanted = Wanted {
            quick: true,
            smoke: false,
            directory: std::env::temp_dir(),
            progress: false,
            driver: Some(driver),
            peer: Some(peer),
        };
        let conditions = Conditions { wanted, real_time: false, driver };
        near.within(|| every_way(&PairSetup { link, pinned: true }, &conditions))
            .unwrap_or_else(|error| panic!("{driver:?}: {error:#}"));
        over.store(true, Ordering::Relaxed);
        server.expect("a thread").join().expect("no panic").expect("a clean end");
    }
}

/// Uses a pair in all ways in which the experiments of two hosts do.
fn every_way(setup: &PairSetup, conditions: &Conditions) -> anyhow::Result<()> {
    // The worlds of an experiment are there at the same time.
    let mut other = Pair::create(setup, conditions)?;
    let mut pair = Pair::create(setup, conditions)?;
    let options = Options { driver: conditions.driver, ..Options::default() };
    let engine = pair.start_engines(&options, Hosting::Embedded)?;
    let contract = contract(64, 1_000, 2, 100);
    let mut ours = pair.call_channels(engine, contract, [Wait::Block, Wait::Direct], Class::Ordinary)?;
    anyhow::ensure!(is_answered(ours.as_mut())?, "a call over channels");
    for pair in [&mut pair, &mut other] {
        let (mut plain, _) = pair.call_sockets(Wait::Block, Class::Ordinary)?;
        anyhow::ensure!(is_answered(plain.as_mut())?, "a call over sockets");
    }
    let looped = pair.loop_directly(engine, contract, 64, Nanos::from_millis(100))?;
    anyhow::ensure!(!looped.is_empty(), "round trips without a thread");
    arrives(&mut pair, |pair| pair.send_sockets(8_192, Class::Ordinary), 8_192)?;
    arrives(&mut pair, |pair| pair.send_engine(engine, Some(contract), 64, Class::Ordinary), 64)?;
    arrives(&mut pair, |pair| pair.send_engine(engine, None, 8_192, Class::Ordinary), 8_192)
}

/// Whether some call is answered; an answer that comes after the experiment's timeout is lost.
fn is_answered(caller: &mut dyn Caller) -> anyhow::Result<bool> {
    let interval = Nanos::from_millis(10);
    let until = now() + Nanos::from_secs(20);
    while now() < until {
        let plan = Plan { until: now() + interval * 5, bytes: 64, interval };
        if !caller.run(plan, 1)?.samples.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One message of `bytes` is counted by the sink at the other end.
fn arrives(
    pair: &mut Pair,
    open: impl FnOnce(&mut Pair) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)>,
    bytes: usize,
) -> anyhow::Result<()> {
    let (mut sender, sink) = open(pair)?;
    sender.offer(&vec![7; bytes])?;
    let until = now() + Nanos::from_secs(10);
    while pair.counted(sink)?.bytes < bytes as u64 && now() < until {
        wait_until(now() + Nanos::from_millis(5))?;
    }
    let counted = pair.counted(sink)?.bytes;
    anyhow::ensure!(counted == bytes as u64, "{counted} of {bytes} bytes arrived");
    Ok(())
}
