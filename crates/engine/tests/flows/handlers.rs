//! Connections as handlers of an engine (ADR 0054): every byte to and from a kernel at the other end, in every class, while the
//! engine's node admits, schedules and counts their segments; all is given back at their end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant as Time;

use punctual_engine::tcp::{
    Accepted, Ended, Flow, Rings, Segments, TcpBounds, TcpConfig, TcpConnect, TcpEvent, TcpId, TcpLimits,
    TcpListen, TcpParts, TcpRefusal, TcpState, TcpStatus, TcpTerms, TcpTimeWait,
};
use punctual_engine::{Engine, EngineConfig, EngineHandle};
use punctual_link::kernel::{HopRoute, HopState, PortHold};
use punctual_link::xdp::AttachMode;
use punctual_link::{Inlet, NextHop, Stream};
use punctual_proto::api::{RtuClass, RtuCost, RtuRefusal, RtuSending, RtuTarget, RtuTerms};
use punctual_proto::config::CpuCosts;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::RAW_TAG_BYTES;
use punctual_proto::{BitRate, Nanos};
use punctual_rig::{RemoteInbox, RemoteOutbox, line_config};

use crate::kernel::{LONG, accept, check, exchange, fill};
use crate::native::{FLOWS_MAX, open};
use crate::network::{A, B, C, Network, ip, privileged};

type Handle = EngineHandle<RemoteOutbox, RemoteInbox>;
type Parts = TcpParts<RemoteOutbox, RemoteInbox>;

const LINK: LinkId = LinkId(0);
const PORT: u16 = 8_080;
const CHUNK_BYTES: u32 = 2_048;
const SEGMENT_BYTES: u32 = 1_456;
const SLOTS: usize = 64;
/// Bytes of a stream that are on their way.
const WINDOW_BYTES: u64 = 100_000;

/// The end of a ring that an output handler fills.
struct Out(RemoteOutbox);

impl Segments for Out {
    fn has_room(&self) -> bool {
        self.0.free() > 0
    }

    fn put(&mut self, packet: &[u8], address: u64) {
        let message = [packet, &address.to_le_bytes()].concat();
        assert!(self.0.send(&message, crate::native::Native::now()), "there was room");
    }
}

fn start() -> Handle {
    let mut node = line_config(0, 2, BitRate(1_000_000_000));
    node.links[0].prediction_error = Nanos::from_secs(2);
    // As a profile of an ordinary machine has them.
    node.cpu.costs = CpuCosts {
        send_message: Nanos(1_000),
        send_packet: Nanos(500),
        send_packet_later: Nanos(500),
        forward_packet: Nanos(1_000),
        receive_packet: Nanos(1_000),
        deliver_message: Nanos(1_000),
        copy_kib: Nanos(100),
        cold_start: Nanos(20_000),
    };
    node.cpu.quantum_packets = 32;
    let link = Box::new(open(AttachMode::Native));
    let limits = TcpLimits { secret: [9; 16], connections_max: FLOWS_MAX, listeners_max: 2, paths_max: 0 };
    let config = EngineConfig { tcp: Some(limits), ..EngineConfig::new(node, vec![link], 1) };
    let handle = Engine::start(config).expect("an engine");
    let segments = RemoteOutbox::new(64, SEGMENT_BYTES as usize + RAW_TAG_BYTES);
    let TcpTerms { output: terms, sending, .. } = class(RtuClass::BestEffort);
    let (segments_out, segments_in) = (segments.clone(), Box::new(Out(segments)));
    let served = handle.serve_tcp(LINK, TcpTimeWait { terms, sending, segments_out, segments_in });
    served.expect("it runs").expect("granted");
    handle
}

fn class(class: RtuClass) -> TcpTerms {
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(5) };
    let terms = RtuTerms { class, deadline: None, quantum: 4, cost };
    let sending = RtuSending { to: RtuTarget::Link(LINK), packets: 1, payload_bytes: SEGMENT_BYTES };
    let inlet = Inlet { stream: Stream::Guaranteed, burst_packets: 1_000, interval_ns: 1_000, buffers: 256 };
    TcpTerms { input: terms, output: terms, sending, inlet }
}

fn low_delay() -> RtuClass {
    RtuClass::LowDelay { interval: Nanos::from_millis(10), units: 10, priority: None }
}

fn guaranteed() -> RtuClass {
    RtuClass::periodic(Nanos::from_millis(5), 40)
}

/// The program's ends of a connection.
struct Program {
    handle: Handle,
    outbox: RemoteOutbox,
    inbox: RemoteInbox,
    events: Receiver<TcpEvent>,
    _hold: Option<PortHold>,
}

fn parts(terms: TcpTerms) -> (Parts, RemoteOutbox, RemoteInbox, Receiver<TcpEvent>) {
    let (outbox, inbox) = (RemoteOutbox::new(SLOTS, 4_096), RemoteInbox::new(SLOTS, CHUNK_BYTES as usize));
    let segments = RemoteOutbox::new(256, SEGMENT_BYTES as usize + RAW_TAG_BYTES);
    let (news, events): (Sender<TcpEvent>, _) = channel();
    let parts = TcpParts {
        terms,
        rings: Rings { outbox: outbox.clone(), inbox: inbox.clone(), chunk_bytes: CHUNK_BYTES },
        segments_out: segments.clone(),
        segments_in: Box::new(Out(segments)),
        // A program that has stopped listening needs no events.
        notify: Box::new(move |event| drop(news.send(event))),
    };
    (parts, outbox, inbox, events)
}

/// The way to `remote`, as soon as the kernel has answered.
fn way(handle: &Handle, remote: SocketAddr) -> (NextHop, HopRoute) {
    let hop = handle.next_hop(LINK, remote.ip()).expect("it runs").expect("a link with flows");
    let until = Time::now() + LONG;
    loop {
        match hop.state() {
            Some(HopState::Known(way)) => return (hop, way),
            Some(HopState::Refused(why)) => panic!("{why}"),
            _ => assert!(Time::now() < until, "no way to {remote}"),
        }
        std::thread::yield_now();
    }
}

fn connect(handle: &Handle, remote: SocketAddr, terms: TcpTerms) -> Result<(TcpId, Program), TcpRefusal> {
    connect_from(handle, 45_000, remote, terms, Nanos::from_millis(100))
}

fn connect_from(
    handle: &Handle,
    port: u16,
    remote: SocketAddr,
    terms: TcpTerms,
    msl: Nanos,
) -> Result<(TcpId, Program), TcpRefusal> {
    let (hop, way) = way(handle, remote);
    let hold = PortHold::take(SocketAddr::new(way.source, port)).expect("a port that is free");
    let flow = Flow { local: hold.local(), remote };
    let (parts, outbox, inbox, events) = parts(terms);
    let config = TcpConfig { mtu_bytes: SEGMENT_BYTES as u16, msl, ..TcpConfig::default() };
    let index = handle.connect_tcp(TcpConnect { flow, link: LINK, hop, config, parts }).expect("it runs")?;
    Ok((index, Program { handle: handle.clone(), outbox, inbox, events, _hold: Some(hold) }))
}

impl Program {
    fn expect(&self, what: &str, is: impl Fn(&TcpEvent) -> bool) {
        loop {
            let event = self.events.recv_timeout(LONG).unwrap_or_else(|_| panic!("waited for: {what}"));
            // Whichever end closes first has a TIME-WAIT.
            if is(&event) {
                return;
            }
            // A TIME-WAIT that is over before the last segment has left is shown as the end.
            assert!(
                matches!(event, TcpEvent::TimeWait(_) | TcpEvent::Rests | TcpEvent::Ended(Ended::Closed)),
                "{what}"
            );
        }
    }

    /// Sends `bytes` as side `side`, closes, reads as many of the other side, and then the end.
    fn exchange(&self, id: TcpId, side: u8, bytes: u64) {
        let (mut sent, mut read, mut is_over) = (0, 0, false);
        let until = Time::now() + LONG;
        while !(is_over && sent == bytes) {
            let mut did = false;
            while sent < bytes {
                let mut chunk = vec![0; 4_000.min(bytes - sent) as usize];
                fill(side, sent, &mut chunk);
                if !self.outbox.send(&chunk, crate::native::Native::now()) {
                    break;
                }
                sent += chunk.len() as u64;
                did = true;
                if sent == bytes {
                    self.handle.close_tcp(id).expect("it runs");
                }
            }
            while self.inbox.recv(|chunk, _| {
                check(1 - side, read, chunk);
                read += chunk.len() as u64;
                is_over = chunk.is_empty();
            }) {
                did = true;
            }
            if did {
                self.handle.ready_tcp(id).expect("it runs");
            } else {
                assert!(Time::now() < until, "{sent} sent, {read} read: {:?}", self.handle.tcp_status(id));
                std::thread::yield_now();
            }
        }
        assert_eq!((sent, read), (bytes, bytes));
    }
}

fn until(what: &str, is_true: impl Fn() -> bool) {
    let limit = Time::now() + LONG;
    while !is_true() {
        assert!(Time::now() < limit, "{what}");
        std::thread::yield_now();
    }
}

/// Nothing of a connection is left: the only handler is that for late segments.
fn all_is_given_back(handle: &Handle) {
    is_left(handle, 1);
}

/// As before, beside a listener's.
fn all_but_listener_is_given_back(handle: &Handle) {
    is_left(handle, 2);
}

fn is_left(handle: &Handle, count: usize) {
    let handlers = handle.handlers().expect("it runs");
    assert_eq!(handlers.len(), count, "{handlers:?}");
    let uneven = handle
        .call(|node, _| node.accounts().into_iter().filter(|it| it.counted != it.held).collect::<Vec<_>>());
    assert_eq!(format!("{:?}", uneven.expect("it runs")), "[]");
}

fn connects(class_of: RtuClass, bytes: u64, address: &str) {
    let network = Network::new();
    let remote: SocketAddr = (ip(address), PORT).into();
    let listener = network.b.within(|| TcpListener::bind(remote)).expect("a listener");
    std::thread::scope(|scope| {
        let server = scope.spawn(|| exchange(&accept(&listener).0, 1, bytes));
        network.a.within(|| {
            let handle = start();
            let (index, program) = connect(&handle, remote, class(class_of)).expect("granted");
            program.expect("open", |event| matches!(event, TcpEvent::Open));
            program.exchange(index, 0, bytes);
            program.expect("the end", |event| matches!(event, TcpEvent::Ended(Ended::Closed)));
            program.expect("over", |event| matches!(event, TcpEvent::Over(_)));
            all_is_given_back(&handle);
            handle.stop().expect("it stops");
        });
        server.join().expect("the kernel's end");
    });
    assert_eq!(crate::network::resets(&network.a), 0, "the kernel here never saw a segment");
}

#[test]
fn every_class_carries_every_byte_to_a_kernel() {
    if !privileged() {
        return;
    }
    connects(RtuClass::BestEffort, 4_000_000, B[0]);
    connects(low_delay(), 1_000_000, B[0]);
    connects(guaranteed(), 1_000_000, B[1]);
}

/// Ends a stream also where the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends bytes and reads them back from a kernel that echoes, until `stop`, then closes. `count`: bytes that came back.
fn pump(program: &Program, id: TcpId, stop: &AtomicBool, count: &AtomicU64) {
    let (mut sent, mut read, mut moved) = (0_u64, 0_u64, Time::now());
    loop {
        let is_stopping = stop.load(Ordering::Relaxed);
        let before = sent + read;
        while sent - read < WINDOW_BYTES && !is_stopping {
            let mut chunk = [0; 4_000];
            fill(0, sent, &mut chunk);
            if !program.outbox.send(&chunk, crate::native::Native::now()) {
                break;
            }
            sent += chunk.len() as u64;
        }
        while program.inbox.recv(|chunk, _| {
            check(0, read, chunk);
            read += chunk.len() as u64;
        }) {}
        count.store(read, Ordering::Relaxed);
        if sent + read > before {
            moved = Time::now();
            program.handle.ready_tcp(id).expect("it runs");
        } else if is_stopping && read == sent {
            return program.handle.close_tcp(id).expect("it runs");
        } else {
            assert!(moved.elapsed() < LONG, "{sent} sent, {read} read: {:?}", program.handle.tcp_status(id));
            std::thread::yield_now();
        }
    }
}

/// Gives back what comes, until the other end closes.
fn echo(listener: &TcpListener) {
    let mut stream = accept(listener).0;
    let mut buffer = [0; 16_384];
    loop {
        match stream.read(&mut buffer).expect("bytes") {
            0 => return,
            bytes => stream.write_all(&buffer[..bytes]).expect("room"),
        }
    }
}

/// In mid-stream the kernel's route, its MTU, the router and the router's hardware address change: the connection follows, and
/// every byte arrives.
#[test]
fn a_stream_follows_route_neighbour_and_mtu() {
    if !privileged() {
        return;
    }
    (0..2).for_each(follows);
}

fn follows(version: usize) {
    let network = Network::with_router();
    let remote: SocketAddr = (ip(C[version]), PORT).into();
    let listener = network.c().within(|| TcpListener::bind(remote)).expect("a listener");
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&listener));
        network.a.within(|| {
            let handle = start();
            let (id, program) = connect(&handle, remote, class(RtuClass::BestEffort)).expect("granted");
            program.expect("open", |event| matches!(event, TcpEvent::Open));
            let (stop, count) = (&stop, &count);
            let _stops = Stops(stop);
            let streaming = scope.spawn(move || {
                pump(&program, id, stop, count);
                program
            });
            let goes_on = || {
                let from = count.load(Ordering::Relaxed);
                until("the stream goes on", || count.load(Ordering::Relaxed) > from + 4 * WINDOW_BYTES);
            };
            let has_mtu = |wanted: u32| {
                until("the new MTU", || {
                    let status = handle.tcp_status(id).expect("it runs");
                    status.is_some_and(|status| u32::from(status.connection.path_mtu_bytes) == wanted)
                });
                goes_on();
            };
            has_mtu(SEGMENT_BYTES);
            changes(&network, version, &has_mtu);
            let hop = handle.next_hop(LINK, remote.ip()).expect("it runs").expect("a link with flows");
            moves(&network, version, &hop, &goes_on);
            stop.store(true, Ordering::Relaxed);
            let program = streaming.join().expect("every byte");
            program.expect("over", |event| matches!(event, TcpEvent::Over(_)));
            handle.stop().expect("it stops");
        });
    });
}

/// The MTU of the route, then of the device, down and up.
fn changes(network: &Network, version: usize, has_mtu: &impl Fn(u32)) {
    let (to, by) = (["10.97.1.0/24", "fd00:97:1::/64"][version], B[version]);
    network.a.ip_batch(&format!("route replace {to} via {by} mtu 1300\n"));
    has_mtu(1_300);
    network.a.ip_batch(&format!("route replace {to} via {by}\n"));
    has_mtu(SEGMENT_BYTES);
    // The device's at both ends of the cable: a device drops longer packets that come, and tells their sender nothing.
    let set = |mtu: u32| {
        network.b.ip_batch(&format!("link set vb mtu {mtu}\n"));
        network.a.ip_batch(&format!("link set va mtu {mtu}\n"));
    };
    set(1_400);
    has_mtu(1_400);
    set(1_500);
    has_mtu(SEGMENT_BYTES);
}

/// Another router, then another hardware address of it, which the kernel has learnt.
fn moves(network: &Network, version: usize, hop: &NextHop, goes_on: &impl Fn()) {
    let (to, other) = (["10.97.1.0/24", "fd00:97:1::/64"][version], ["10.97.2.2", "fd00:97:2::2"][version]);
    let [here, there] = [["10.97.2.1/24", "10.97.2.2/24"], ["fd00:97:2::1/64", "fd00:97:2::2/64"]][version];
    let nodad = ["", " nodad"][version];
    network.a.ip_batch(&format!("address add {here} dev va{nodad}\n"));
    network.b.ip_batch(&format!("address add {there} dev vb{nodad}\n"));
    network.a.ip_batch(&format!("route replace {to} via {other}\n"));
    until(
        "another router",
        || matches!(hop.state(), Some(HopState::Known(route)) if route.next_hop == ip(other) && route.is_answered),
    );
    goes_on();
    let (new, before) = ("02:00:00:00:97:09", hop.destination());
    network.b.ip_batch(&format!("link set vb address {new}\n"));
    network.a.ip_batch(&format!("neighbour replace {other} lladdr {new} dev va nud reachable\n"));
    until("another address", || hop.destination().is_some_and(|it| Some(it) != before));
    goes_on();
}

/// Kernels connect to a listener; what they send before anybody has accepted them is not lost.
#[test]
fn a_listener_opens_connections_of_kernels() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let local: SocketAddr = (ip(A[0]), PORT).into();
    let bytes = 500_000;
    network.a.within(|| {
        let hold = PortHold::take(local).expect("a port that is free");
        let handle = start();
        let (opened, accepts) = channel();
        let listener =
            handle.listen_tcp(listen(local, move || opened.send(()).unwrap_or_default())).expect("it runs");
        let listener = listener.expect("granted");
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let stream = network.b.within(|| TcpStream::connect(local)).expect("to connect");
                        exchange(&stream, 1, bytes);
                    })
                })
                .collect();
            let mut programs = Vec::new();
            while programs.len() < 3 {
                let (parts, outbox, inbox, events) = parts(class(low_delay()));
                match handle.accept_tcp(listener, Box::new(parts)).expect("it runs").expect("room") {
                    Accepted::One(index, flow) => {
                        assert_eq!((flow.local, flow.remote.ip()), (local, ip(B[0])));
                        let program = Program { handle: handle.clone(), outbox, inbox, events, _hold: None };
                        programs.push((index, program));
                    }
                    Accepted::None(_) => accepts.recv_timeout(LONG).expect("a connection"),
                }
            }
            std::thread::scope(|scope| {
                for (index, program) in &mut programs {
                    scope.spawn(move || program.exchange(*index, 0, bytes));
                }
            });
            clients.into_iter().for_each(|client| client.join().expect("the kernel's end"));
            for (_, program) in &programs {
                program.expect("open", |event| matches!(event, TcpEvent::Open));
                program.expect("the end", |event| matches!(event, TcpEvent::Ended(Ended::Closed)));
                program.expect("over", |event| matches!(event, TcpEvent::Over(_)));
            }
        });
        handle.stop_listening_tcp(listener).expect("it runs");
        all_is_given_back(&handle);
        drop(hold);
        handle.stop().expect("it stops");
    });
    assert_eq!(crate::network::resets(&network.a), 0, "the kernel here never saw a segment");
}

/// What a listener has opened and the host cannot have: the peer's kernel, which waits for bytes, sees a reset at once, and not
/// when it sends.
#[test]
fn the_peer_of_a_connection_that_is_refused_is_reset() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let local: SocketAddr = (ip(A[0]), PORT).into();
    network.a.within(|| {
        let hold = PortHold::take(local).expect("a port that is free");
        let handle = start();
        let (opened, accepts) = channel();
        let notify = move || opened.send(()).unwrap_or_default();
        let listener = handle.listen_tcp(listen(local, notify)).expect("it runs").expect("granted");
        let connects = || {
            let stream = network.b.within(|| TcpStream::connect(local)).expect("to connect");
            stream.set_read_timeout(Some(LONG)).expect("a time");
            accepts.recv_timeout(LONG).expect("a connection");
            stream
        };
        let is_reset = |stream: TcpStream| {
            let error = Read::read(&mut &stream, &mut [0]).expect_err("a reset");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        };
        // Admission refuses its handlers.
        let stream = connects();
        let (whole, _, _, events) = parts(class(RtuClass::periodic(Nanos::from_millis(1), 400)));
        let accepted = handle.accept_tcp(listener, Box::new(whole)).expect("it runs");
        match accepted {
            Ok(Accepted::One(..)) => {
                let event = events.recv_timeout(LONG).expect("an answer");
                assert!(matches!(event, TcpEvent::Refused(TcpRefusal::Handler { .. })));
            }
            Ok(Accepted::None(_)) => panic!("one waits"),
            Err(refusal) => assert!(matches!(refusal, TcpRefusal::Handler { .. }), "{refusal}"),
        }
        is_reset(stream);
        all_but_listener_is_given_back(&handle);
        // Nobody accepts it before the listener ends.
        let stream = connects();
        handle.stop_listening_tcp(listener).expect("it runs");
        is_reset(stream);
        all_is_given_back(&handle);
        drop(hold);
        handle.stop().expect("it stops");
    });
    assert_eq!(crate::network::resets(&network.a), 0, "the kernel here never saw a segment");
}

fn listen(local: SocketAddr, notify: impl FnMut() + Send + 'static) -> TcpListen<RemoteOutbox> {
    let segments = RemoteOutbox::new(64, SEGMENT_BYTES as usize + RAW_TAG_BYTES);
    let TcpTerms { output, sending, inlet, .. } = class(low_delay());
    let msl = Nanos::from_millis(100);
    TcpListen {
        local,
        link: LINK,
        config: TcpConfig { mtu_bytes: SEGMENT_BYTES as u16, msl, ..TcpConfig::default() },
        backlog: 8,
        terms: output,
        sending,
        inlet,
        segments_out: segments.clone(),
        segments_in: Box::new(Out(segments)),
        notify: Box::new(notify),
    }
}

/// Each refusal names its cause, and leaves nothing behind.
#[test]
fn a_connection_that_cannot_be_carried_is_refused() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let remote: SocketAddr = (ip(B[0]), PORT).into();
    network.a.within(|| {
        let handle = start();
        let whole = RtuClass::periodic(Nanos::from_millis(1), 400);
        let refused = |class_of| connect(&handle, remote, class(class_of)).err().expect("refused");
        assert!(matches!(
            refused(whole),
            TcpRefusal::Handler { handler: "input", refusal: RtuRefusal::Processor(_) }
        ));
        // The processor has room for it, and the link has not.
        let fast = RtuClass::periodic(Nanos::from_micros(1_100), 90);
        let refusal = refused(fast);
        assert!(matches!(refusal, TcpRefusal::Handler { .. }), "{refusal}");
        all_is_given_back(&handle);
        // No listener is there.
        let (index, program) = connect(&handle, remote, class(low_delay())).expect("granted");
        program.expect("refused", |event| matches!(event, TcpEvent::Ended(Ended::Refused)));
        program.expect("over", |event| matches!(event, TcpEvent::Over(_)));
        assert_eq!(handle.tcp_status(index).expect("it runs"), None);
        all_is_given_back(&handle);
        handle.stop().expect("it stops");
    });
}

/// A peer that vanishes: the connection stays until it is aborted, then everything is given back.
#[test]
fn a_connection_is_aborted_at_once() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let remote: SocketAddr = (ip(B[0]), PORT).into();
    let listener = network.b.within(|| TcpListener::bind(remote)).expect("a listener");
    network.a.within(|| {
        let handle = start();
        let (index, program) = connect(&handle, remote, class(guaranteed())).expect("granted");
        program.expect("open", |event| matches!(event, TcpEvent::Open));
        let (kernels, _) = accept(&listener);
        kernels.set_read_timeout(Some(LONG)).expect("a time");
        assert_eq!(
            handle.tcp_status(index).expect("it runs").expect("open").connection.state,
            TcpState::Established
        );
        handle.abort_tcp(index).expect("it runs");
        program.expect("the end", |event| matches!(event, TcpEvent::Ended(Ended::Aborted)));
        program.expect("over", |event| matches!(event, TcpEvent::Over(_)));
        let error = std::io::Read::read(&mut &kernels, &mut [0]).expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        all_is_given_back(&handle);
        handle.stop().expect("it stops");
    });
}

/// A connection in TIME-WAIT holds no admission: where two do not fit at once, many do one after the other.
#[test]
fn a_closed_connection_holds_no_admission() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let remote: SocketAddr = (ip(B[0]), PORT).into();
    let listener = network.b.within(|| TcpListener::bind(remote)).expect("a listener");
    network.a.within(|| {
        let handle = start();
        let large = class(RtuClass::periodic(Nanos::from_millis(5), 24));
        let begin = |port| connect_from(&handle, port, remote, large.clone(), Nanos::from_secs(30));
        let mut last = None;
        for port in 45_000..45_006 {
            let (id, program) = begin(port).expect("granted");
            assert!(begin(port + 100).is_err(), "there is no room for two");
            program.expect("open", |event| matches!(event, TcpEvent::Open));
            let kernels = accept(&listener).0;
            std::thread::scope(|scope| {
                let server = scope.spawn(|| {
                    kernels.set_read_timeout(Some(LONG)).expect("a time");
                    let mut bytes = [0; 5_000];
                    std::io::Read::read_exact(&mut &kernels, &mut bytes).expect("all bytes");
                    check(0, 0, &bytes);
                    assert_eq!(std::io::Read::read(&mut &kernels, &mut bytes).expect("the end"), 0);
                });
                let mut bytes = [0; 2_500];
                for from in [0, 2_500] {
                    fill(0, from, &mut bytes);
                    assert!(program.outbox.send(&bytes, crate::native::Native::now()), "room");
                }
                handle.close_tcp(id).expect("it runs");
                server.join().expect("the kernel's end");
            });
            drop(kernels);
            program.expect("time-wait", |event| matches!(event, TcpEvent::TimeWait(_)));
            all_is_given_back(&handle);
            let TcpStatus { connection: status, bounds } =
                handle.tcp_status(id).expect("it runs").expect("it is not over");
            assert_eq!((status.state, status.ended), (TcpState::TimeWait, None));
            assert_eq!(bounds, TcpBounds::default(), "nothing is promised");
            last = Some((id, program));
        }
        let (id, program) = last.expect("a connection");
        handle.abort_tcp(id).expect("it runs");
        program.expect("the end", |event| matches!(event, TcpEvent::Ended(Ended::Aborted)));
        program.expect("over", |event| matches!(event, TcpEvent::Over(_)));
        // The number may be another connection's next: an old identifier harms none.
        let (next, program) = begin(45_200).expect("granted");
        assert_ne!(id, next);
        handle.abort_tcp(id).expect("it runs");
        program.expect("open", |event| matches!(event, TcpEvent::Open));
        assert_eq!(handle.tcp_status(id).expect("it runs"), None);
        assert_eq!(
            handle.tcp_status(next).expect("it runs").expect("open").connection.state,
            TcpState::Established
        );
        handle.stop().expect("it stops");
    });
}
