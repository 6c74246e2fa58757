//! `punctual relay` between kernels: the relay runs on a host of its own network namespace, TCP of the kernel is at both ends.
//! Needs root.

#[path = "common/cable.rs"]
mod cable;
#[path = "../../link/tests/common/host.rs"]
mod host;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use cable::{A, B, Daemon, PUNCTUAL, basics, cable, configuration, on};
use host::{Host, privileged};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// A relay on `a`, once it listens. Its standard error stays open: it may write to it.
struct Relay(Child, BufReader<ChildStderr>);

/// `from`: `--config` or `--socket`.
fn relay(a: &Host, (from, file): (&str, &Path), arguments: &str) -> Relay {
    let mut command = on(a, Path::new(PUNCTUAL), &["relay", "--json", from]);
    command.arg(file).args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a relay");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("relay: listening on ") {
        line.clear();
        let bytes = errors.read_line(&mut line).expect("a line");
        assert!(bytes > 0, "the relay ended before it listened");
    }
    Relay(child, errors)
}

/// What a host's daemon answers to a question of the command line.
fn ask(host: &Host, question: &str, socket: &Path) -> Value {
    let mut command = on(host, Path::new(PUNCTUAL), &question.split(' ').collect::<Vec<_>>());
    let output = command.args(["--json", "--socket"]).arg(socket).output().expect("it runs");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

impl Relay {
    /// What it printed about each connection.
    fn ended(mut self) -> Vec<Value> {
        let mut text = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut text).expect("its output");
        assert!(self.0.wait().expect("an end").success());
        serde_json::Deserializer::from_str(&text).into_iter().map(|value| value.expect("JSON")).collect()
    }
}

impl Relay {
    /// Its exit code, and whether it said that the daemon is gone.
    fn failed(mut self) -> (Option<i32>, bool) {
        let code = self.0.wait().expect("an end").code();
        let mut text = String::new();
        self.1.read_to_string(&mut text).expect("its errors");
        self.0.stdout.take().expect("piped").read_to_string(&mut text).expect("its output");
        (code, text.contains("the daemon is gone"))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            let (mut out, mut errors) = (String::new(), String::new());
            if let Some(mut stdout) = self.0.stdout.take() {
                let _ = stdout.read_to_string(&mut out);
            }
            let _ = self.1.read_to_string(&mut errors);
            eprintln!("the relay printed:\n{out}\n{errors}");
        }
    }
}

fn bytes(side: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 11 + at / 253) as u8 ^ side).collect()
}

/// Sends as side `side`, closes, and reads as much of the other side.
fn exchange(stream: &TcpStream, side: u8, count: usize) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = stream;
            out.write_all(&bytes(side, count)).expect("written");
            out.shutdown(Shutdown::Write).expect("to close");
        });
        let (mut from, mut read) = (stream, Vec::new());
        from.read_to_end(&mut read).expect("read");
        assert!(read == bytes(1 - side, count), "{} bytes of {count}", read.len());
    });
}

/// Connections that are reset at once, as a port scan does, end one after the other; the one behind them is served.
#[test]
fn connections_that_are_reset_at_once_stop_no_other() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("scan");
    let socket = file.with_file_name("a.sock");
    let daemon = Daemon::start(&a, &file);
    let server = a.within(|| TcpListener::bind(address("127.0.0.1", 7_001))).expect("a server");
    let relay = relay(&a, ("--socket", &socket), "--listen 10.96.0.1:7000 --to 127.0.0.1:7001 --count 13");
    let connect = || b.within(|| TcpStream::connect(address(A, 7_000))).expect("to connect");
    for _ in 0..12 {
        let stream = connect();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a reset at the end");
    }
    let client = connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The relay may have connected for some that were reset then.
            while let Ok((program, _)) = server.accept() {
                let mut first = [0; 1];
                if program.peek(&mut first).is_ok_and(|bytes| bytes == 1) {
                    return exchange(&program, 1, 20_000);
                }
            }
        });
        exchange(&client, 0, 20_000);
    });
    let ended = relay.ended();
    let (whole, reset): (Vec<_>, Vec<_>) = ended.iter().partition(|one| one["error"].is_null());
    assert_eq!((whole.len(), reset.len()), (1, 12), "{ended:?}");
    assert_eq!(whole[0]["in_bytes"], 20_000);
    assert!(reset.iter().all(|one| one["error"] == "the peer reset the connection"), "{reset:?}");
    drop(daemon);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

#[test]
fn connections_from_the_wire_reach_a_program() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("in");
    let program = a.within(|| TcpListener::bind(address("127.0.0.1", 7_001))).expect("a program");
    let arguments = format!(
        "--listen {A}:7000 --to 127.0.0.1:7001 --class low-delay --interval 10ms --units 8 --count 3"
    );
    let relay = relay(&a, ("--config", &file), &arguments);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| exchange(&program.accept().expect("a connection").0, 1, 200_000)));
        for _ in 0..3 {
            let stream = b.within(|| TcpStream::connect(address(A, 7_000))).expect("to connect");
            exchange(&stream, 0, 200_000);
        }
    });
    for ended in relay.ended() {
        assert_eq!((&ended["in_bytes"], &ended["out_bytes"]), (&200_000.into(), &200_000.into()), "{ended}");
        assert_eq!(ended["error"], Value::Null, "{ended}");
        assert!(ended["peer"].as_str().is_some_and(|peer| peer.starts_with(B)), "{ended}");
    }
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// The program behind the relay is down: its peer is reset, the reason is one line, and the next connection is served when the program
/// is there.
#[test]
fn a_program_that_is_down_costs_its_peer_alone() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("down");
    let arguments = format!(
        "--listen {A}:7000 --to 127.0.0.1:7003 --class low-delay --interval 10ms --units 8 --count 2"
    );
    let relay = relay(&a, ("--config", &file), &arguments);
    let connect = || b.within(|| TcpStream::connect(address(A, 7_000))).expect("to connect");
    let mut early = connect();
    early.set_read_timeout(Some(PATIENCE)).expect("a time");
    assert_eq!(early.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let program = a.within(|| TcpListener::bind(address("127.0.0.1", 7_003))).expect("a program");
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&program.accept().expect("a connection").0, 1, 1_000));
        exchange(&connect(), 0, 1_000);
    });
    let ended = relay.ended();
    let why = ended[0]["error"].as_str().expect("an error");
    assert!(why.contains("127.0.0.1:7003") && !why.contains('\n'), "{why}");
    assert_eq!(ended[1]["error"], Value::Null, "{}", ended[1]);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

#[test]
fn connections_of_a_program_reach_the_wire_and_resets_are_carried_over() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("out");
    let server = b.within(|| TcpListener::bind(address(B, 8_000))).expect("a server");
    let arguments = format!(
        "--from 127.0.0.1:7002 --connect {B}:8000 --class guaranteed --rate 10Mbit/s --period 5ms --count 3"
    );
    let relay = relay(&a, ("--config", &file), &arguments);
    let connect = || a.within(|| TcpStream::connect(address("127.0.0.1", 7_002))).expect("to connect");
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&server.accept().expect("a connection").0, 1, 200_000));
        exchange(&connect(), 0, 200_000);
    });
    // The server goes with bytes that it has not read: the program sees a reset.
    let mut program = connect();
    program.set_read_timeout(Some(PATIENCE)).expect("a time");
    program.write_all(&[1; 100]).expect("written");
    let accepted = server.accept().expect("a connection").0;
    while accepted.peek(&mut [0; 100]).expect("bytes") < 100 {}
    drop(accepted);
    assert_eq!(program.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    // The server's port is closed now.
    drop(server);
    let mut program = connect();
    program.set_read_timeout(Some(PATIENCE)).expect("a time");
    assert_eq!(program.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let ended = relay.ended();
    assert_eq!(ended.len(), 3);
    // The first may end after the second: it waits for the acknowledgement of its end.
    let of = |bytes: u64| ended.iter().find(|one| one["out_bytes"] == bytes).expect("it has ended");
    assert_eq!(of(200_000)["error"], Value::Null, "{ended:?}");
    assert_eq!(of(100)["error"], "the peer reset the connection", "{ended:?}");
    let refused = of(0)["error"].as_str().expect("an error");
    assert!(refused.contains(&format!("{B}:8000")), "{refused}");
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// A program or a peer that resets its connection while the other side takes no bytes ends it at once, and whoever gives up while the
/// relay connects does not keep its place.
#[test]
fn whoever_gives_up_keeps_no_place() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("given-up");
    let socket = file.with_file_name("a.sock");
    let daemon = Daemon::start(&a, &file);
    let server = b.within(|| TcpListener::bind(address(B, 8_000))).expect("a server");
    let arguments = format!("--from 127.0.0.1:7002 --connect {B}:8000 --count 3 --connections-max 1");
    let relay = relay(&a, ("--socket", &socket), &arguments);
    let connect = || a.within(|| TcpStream::connect(address("127.0.0.1", 7_002))).expect("to connect");
    let reset = |stream: TcpStream| {
        let now = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        now.expect("a reset at the end");
    };
    let fill = |mut stream: &TcpStream| {
        stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a time");
        while stream.write(&[7; 65_536]).is_ok() {}
    };
    // The program resets its connection, of which the peer reads nothing.
    let program = connect();
    let peer = server.accept().expect("a connection").0;
    fill(&program);
    reset(program);
    peer.set_read_timeout(Some(PATIENCE)).expect("a time");
    let read = std::io::copy(&mut &peer, &mut std::io::sink());
    assert_eq!(read.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    // The peer resets its connection, of which the program reads nothing.
    let program = connect();
    let peer = server.accept().expect("a connection").0;
    fill(&peer);
    reset(peer);
    program.set_read_timeout(Some(PATIENCE)).expect("a time");
    let read = std::io::copy(&mut &program, &mut std::io::sink());
    assert_eq!(read.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    // The peer's answer has no way back, and the program does not wait for it.
    b.run(&format!("ip route add blackhole {A}/32"));
    reset(connect());
    let ended = relay.ended();
    let errors: Vec<_> = ended.iter().map(|one| one["error"].as_str().unwrap_or_default()).collect();
    assert_eq!(errors[..2], ["the program reset the connection", "the peer reset the connection"]);
    assert!(errors[2].starts_with("the program closed its connection before "), "{errors:?}");
    assert_eq!(ask(&a, "connections", &socket), serde_json::json!([]), "the daemon connects no longer");
    drop(daemon);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// A program must not take for whole what a relay that was killed has passed on of a stream.
#[test]
fn a_relay_that_is_killed_resets_its_programs() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("killed");
    let server = b.within(|| TcpListener::bind(address(B, 8_000))).expect("a server");
    let mut relay = relay(&a, ("--config", &file), &format!("--from 127.0.0.1:7002 --connect {B}:8000"));
    let mut program = a.within(|| TcpStream::connect(address("127.0.0.1", 7_002))).expect("to connect");
    let mut peer = server.accept().expect("a connection").0;
    peer.write_all(&[7; 100]).expect("written");
    program.set_read_timeout(Some(PATIENCE)).expect("a time");
    program.read_exact(&mut [0; 100]).expect("bytes");
    relay.0.kill().expect("killed");
    assert_eq!(program.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    drop(relay);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// By the daemon of the host, whose `connections` lists what the relay carries.
#[test]
fn a_relay_shares_the_engine_of_a_daemon() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("daemon");
    let socket = file.with_file_name("a.sock");
    let daemon = Daemon::start(&a, &file);
    let program = a.within(|| TcpListener::bind(address("127.0.0.1", 7_001))).expect("a program");
    let arguments = format!(
        "--listen {A}:7000 --to 127.0.0.1:7001 --class low-delay --interval 10ms --units 8 --count 2"
    );
    let relay = relay(&a, ("--socket", &socket), &arguments);
    let list = ask(&a, "connections --listeners", &socket);
    assert_eq!(list[0]["local"], format!("{A}:7000"), "{list}");
    assert_eq!(list[0]["class"]["name"], "low-delay", "{list}");
    std::thread::scope(|scope| {
        let (go, held) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            for _ in 0..2 {
                let stream = program.accept().expect("a connection").0;
                held.recv().expect("the other side");
                exchange(&stream, 1, 200_000);
            }
        });
        for _ in 0..2 {
            let stream = b.within(|| TcpStream::connect(address(A, 7_000))).expect("to connect");
            let list = ask(&a, "connections", &socket);
            let peer = stream.local_addr().expect("an address").to_string();
            let ours = list.as_array().expect("a list").iter().find(|one| one["peer"] == *peer);
            // The relay may not have accepted it yet: then it waits in the listener.
            if let Some(ours) = ours {
                assert_eq!(
                    (&ours["local"], &ours["user"]),
                    (&format!("{A}:7000").into(), &0.into()),
                    "{ours}"
                );
                assert_eq!(
                    (&ours["class"]["name"], &ours["class"]["units"]),
                    (&"low-delay".into(), &8.into()),
                    "{ours}"
                );
            }
            go.send(()).expect("the program");
            exchange(&stream, 0, 200_000);
        }
    });
    for ended in relay.ended() {
        assert_eq!((&ended["in_bytes"], &ended["out_bytes"]), (&200_000.into(), &200_000.into()), "{ended}");
        assert_eq!(ended["error"], Value::Null, "{ended}");
    }
    drop(daemon);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// Else it would wait for connections that never come, and nobody would start it again.
#[test]
fn a_relay_ends_with_its_daemon() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("gone");
    let socket = file.with_file_name("a.sock");
    let daemon = Daemon::start(&a, &file);
    let class = "--class best-effort";
    let arguments = format!("--listen {A}:7000 --to 127.0.0.1:7001 {class}");
    let from_wire = relay(&a, ("--socket", &socket), &arguments);
    let arguments = format!("--from 127.0.0.1:7002 --connect {B}:7000 {class}");
    let from_program = relay(&a, ("--socket", &socket), &arguments);
    // A connection that its peer has half closed, and whose program does not answer.
    let program = a.within(|| TcpListener::bind(address("127.0.0.1", 7_001))).expect("a program");
    let peer = b.within(|| TcpStream::connect(address(A, 7_000))).expect("to connect");
    peer.shutdown(Shutdown::Write).expect("to close");
    let mut silent = program.accept().expect("a connection").0;
    silent.set_read_timeout(Some(PATIENCE)).expect("a time");
    assert_eq!(silent.read(&mut [0]).expect("the end"), 0);
    drop(daemon);
    assert_eq!(from_wire.failed(), (Some(1), true));
    assert_eq!(from_program.failed(), (Some(1), true), "though no program has connected");
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// Else each connection would be refused for the same reason.
#[test]
fn a_host_that_nobody_knows_is_refused_at_the_start() {
    if !privileged() {
        return;
    }
    let (a, _b) = cable();
    let file = configuration("nobody");
    let socket = file.with_file_name("a.sock");
    let daemon = Daemon::start(&a, &file);
    for (peer, why) in [("80@nosuch", "host \"nosuch\" is not in the directory"), ("80@a", "this host")] {
        let mut command = on(&a, Path::new(PUNCTUAL), &["relay", "--from", "127.0.0.1:7002", "--reserve"]);
        let command = command.args(["--connect", peer, "--socket"]).arg(&socket).stderr(Stdio::piped());
        let mut relay = command.spawn().expect("a relay");
        let mut line = String::new();
        BufReader::new(relay.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        if line.contains("listening") {
            relay.kill().expect("a relay");
        }
        assert_eq!((relay.wait().expect("an end").code(), line.contains(why)), (Some(1), true), "{line}");
    }
    drop(daemon);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// A configuration of `name`, `a` or `b`, over a `udp` link: it knows no flows.
fn without_flows(folder: &Path, name: &str) -> PathBuf {
    let (device, [local, peer], neighbour) = match name {
        "a" => ("va", [A, B], "b"),
        _ => ("vb", [B, A], "a"),
    };
    let text = format!(
        r#"
        {basics}
        signalling.hello = "250ms"
        [[link]]
        name = "link"
        neighbour = "{neighbour}"
        driver = "udp"
        device = "{device}"
        local = "{local}"
        peer = "{peer}"
        rate = "400Mbit/s"
        kernel_traffic = "exclusive"
        prediction_error = "500ms"
        [daemon]
        socket = "{socket}"
        forbidden_calls = "end"
        "#,
        basics = basics(name, true),
        socket = folder.join(format!("{name}.sock")).display(),
    );
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, text).expect("written");
    file
}

/// Programs with the kernel's TCP at both ends, a relay and a daemon on either host, and two channels between them.
#[test]
fn the_path_between_two_relays_is_reserved() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let folder = std::env::temp_dir().join(format!("punctual-relay-reserve-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let daemons =
        [("a", &a), ("b", &b)].map(|(name, host)| Daemon::start(host, &without_flows(&folder, name)));
    let [socket_a, socket_b] = ["a.sock", "b.sock"].map(|name| folder.join(name));
    let alive = || ask(&a, "status", &socket_a)["node"]["links"][0]["alive"] == true;
    let until = std::time::Instant::now() + PATIENCE;
    while !alive() {
        assert!(std::time::Instant::now() < until, "the hosts never saw one another");
    }
    let class = "--reserve --class guaranteed --rate 10Mbit/s --period 20ms --deadline 200ms --count 2";
    let server = b.within(|| TcpListener::bind(address("127.0.0.1", 7_001))).expect("a program");
    let arguments = format!("--listen 7000 --to 127.0.0.1:7001 {class}");
    let inward = relay(&b, ("--socket", &socket_b), &arguments);
    let arguments = format!("--from 127.0.0.1:7002 --connect 7000@b {class}");
    let outward = relay(&a, ("--socket", &socket_a), &arguments);
    std::thread::scope(|scope| {
        let (go, held) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            for _ in 0..2 {
                let stream = server.accept().expect("a connection").0;
                held.recv().expect("the other side");
                exchange(&stream, 1, 200_000);
            }
        });
        for _ in 0..2 {
            let stream = a.within(|| TcpStream::connect(address("127.0.0.1", 7_002))).expect("to connect");
            let open = || {
                let list = ask(&a, "connections", &socket_a);
                list.as_array().expect("a list").iter().find(|one| one["state"] == "established").cloned()
            };
            let mut found = open();
            while found.is_none() {
                assert!(std::time::Instant::now() < until, "the connection never opened");
                found = open();
            }
            let found = found.expect("open");
            assert_eq!(found["peer"], "[fd70:756e:6374::2]:7000", "{found}");
            let channels = ask(&a, "channels", &socket_a);
            let ids: Vec<&Value> =
                channels.as_array().expect("a list").iter().map(|one| &one["channel"]).collect();
            for end in ["outgoing", "incoming"] {
                assert!(ids.contains(&&found["path"][end]), "{found}: {channels}");
            }
            go.send(()).expect("the program");
            exchange(&stream, 0, 200_000);
        }
    });
    for ended in [inward, outward].into_iter().flat_map(Relay::ended) {
        assert_eq!((&ended["in_bytes"], &ended["out_bytes"]), (&200_000.into(), &200_000.into()), "{ended}");
        assert_eq!(ended["error"], Value::Null, "{ended}");
    }
    let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    while !empty(&ask(&a, "channels", &socket_a)) || !empty(&ask(&b, "connections", &socket_b)) {
        assert!(std::time::Instant::now() < until, "something is left");
    }
    drop(daemons);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// One line with cause and fix, on standard error, and exit code 2 for wrong usage.
#[test]
fn wrong_usage_is_one_line() {
    for (arguments, expected) in [
        ("--config x.toml", "--listen and --to"),
        ("--config x.toml --listen 1.2.3.4:5", "--to"),
        ("--config x.toml --listen 80 --to 1.2.3.4:5", "needs --reserve"),
        ("--config x.toml --listen 80 --to 1.2.3.4:5 --deadline 1ms", "--reserve"),
        ("--config x.toml --from 1.2.3.4:5 --connect 1.2.3.4:5 --class low-delay", "--interval and --units"),
        (
            "--config x.toml --from 1.2.3.4:5 --connect 1.2.3.4:5 --class guaranteed --rate 1Mbit/s",
            "--rate and --period",
        ),
        ("--config x.toml --from 1.2.3.4:5 --connect 1.2.3.4:5 --units 3 --interval 1ms", "has no budget"),
        ("--config x.toml --from 1.2.3.4:5 --connect 1.2.3.4:5 --units 3", "has no budget"),
        (
            "--config x.toml --listen 1.2.3.4:5 --to 1.2.3.4:5 --class low-delay --units 3 --interval 1ms --period 1ms",
            "no other budget",
        ),
        (
            "--config x.toml --listen 1.2.3.4:5 --to 1.2.3.4:6 --class low-delay --units 0 --interval 10ms",
            "'--units <COUNT>': 0 is not in 1..",
        ),
        ("--config x.toml --listen 1.2.3.4:5 --to 1.2.3.4:0", "--to 1.2.3.4:0: give a port of 1 to 65535"),
        ("--config x.toml --listen 1.2.3.4:0 --to 1.2.3.4:5", "--listen 1.2.3.4:0: give a port"),
        (
            "--config x.toml --from 1.2.3.4:5 --connect 1.2.3.4:5 --class guaranteed --rate 5 --period 1ms",
            "20Mbit/s",
        ),
    ] {
        let output = Command::new(PUNCTUAL).arg("relay").args(arguments.split(' ')).output();
        let output = output.expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{arguments}: {text}");
        assert!(text.contains(expected), "{arguments}: {text}");
    }
}
