//! `punctual capture` beside a relay, between kernels. Needs root.

#[path = "common/cable.rs"]
mod cable;
#[path = "../../link/tests/common/host.rs"]
mod host;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cable::{A, B, Daemon, PUNCTUAL, cable, configuration, on};
use host::{Host, privileged};

const BYTES: usize = 100_000;
const PORT: u16 = 7_000;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A verb of `punctual` on `a`, once it has printed that it began.
fn begin(a: &Host, line: &str, ready: &str) -> Child {
    let arguments: Vec<_> = line.split(' ').collect();
    let mut command = on(a, Path::new(PUNCTUAL), &arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // What it prints after that line stays in the pipe.
    let mut errors = BufReader::with_capacity(1, child.stderr.as_mut().expect("piped"));
    let mut text = String::new();
    while !text.contains(ready) {
        assert!(errors.read_line(&mut text).expect("a line") > 0, "{line}: {text}");
    }
    child
}

/// A packet of a file: when it was seen in nanoseconds, and its bytes.
type Seen = (u64, Vec<u8>);

/// Reads a file in the layout of pcap, as its specification has it.
fn packets(file: &Path) -> Vec<Seen> {
    let bytes = std::fs::read(file).expect("a file");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    assert_eq!([word(0), word(4), word(20)], [0xa1b2_3c4d, 0x0004_0002, 101], "nanoseconds, raw IP");
    let (mut at, mut packets) = (24, Vec::new());
    while at < bytes.len() {
        let length = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, length, "the whole packet");
        let ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        packets.push((ns, bytes[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    packets
}

/// Sum of 16-bit words with carries (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    words.fold(0, |sum, word| (sum + word) % 0xffff)
}

/// Whether both checksums of an IPv4 packet are right.
fn is_sound(packet: &[u8]) -> bool {
    let (ip, rest) = packet.split_at(20);
    let pseudo = sum(&ip[12..20]) + u32::from(ip[9]) + rest.len() as u32;
    usize::from(u16::from_be_bytes([ip[2], ip[3]])) == packet.len()
        && sum(ip) == 0
        && (pseudo + sum(rest)).is_multiple_of(0xffff)
}

fn source(packet: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15])
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// Sends `BYTES` from `b` through the relay to a program on `a`, which sends them back.
fn exchange(a: &Host, b: &Host) {
    let program = a.within(|| TcpListener::bind(("127.0.0.1", 7_001))).expect("a program");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = program.accept().expect("a connection").0;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("read");
            stream.write_all(&bytes).expect("written");
        });
        let address = SocketAddr::new(A.parse().expect("an address"), PORT);
        let mut stream = b.within(|| TcpStream::connect(address)).expect("to connect");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        stream.write_all(&vec![b'x'; BYTES]).expect("written");
        stream.shutdown(Shutdown::Write).expect("to close");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("read");
        assert_eq!(back, vec![b'x'; BYTES]);
    });
}

/// Payload bytes of TCP that came from `from`, each once.
fn payload(packets: &[Seen], from: &str) -> usize {
    let mut seen = std::collections::BTreeMap::new();
    for (_, packet) in packets.iter().filter(|(_, packet)| source(packet).to_string() == from) {
        let header = usize::from(packet[32] >> 4) * 4;
        let number = u32::from_be_bytes(packet[24..28].try_into().expect("four"));
        seen.insert(number, packet.len() - 20 - header);
    }
    seen.values().sum()
}

#[test]
fn a_capture_has_both_directions_with_right_checksums_and_times() {
    if !privileged() {
        return;
    }
    let (a, b) = cable();
    let file = configuration("capture");
    let socket = file.with_file_name("a.sock").display().to_string();
    let daemon = Daemon::start(&a, &file);
    let [all, port, refused] =
        ["all", "port", "refused"].map(|name| file.with_file_name(format!("{name}.pcap")));
    let mut relay = begin(
        &a,
        &format!(
            "relay --socket {socket} --listen {A}:{PORT} --to 127.0.0.1:7001 --class best-effort --count 2"
        ),
        "listening on",
    );

    // Segments of the port alone. Meanwhile there is no second capture.
    let line =
        format!("capture --socket {socket} -w {} --port {PORT} --duration 1500ms --json", port.display());
    let mut capture = begin(&a, &line, "capture: begun");
    let line = format!("capture --socket {socket} -w {}", refused.display());
    let second = on(&a, Path::new(PUNCTUAL), &line.split(' ').collect::<Vec<_>>()).output().expect("it runs");
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!((second.status.code(), why.contains("another capture is running")), (Some(1), true), "{why}");
    let begun = unix_ns();
    exchange(&a, &b);
    let ended = unix_ns();
    let mut printed = String::new();
    capture.stdout.take().expect("piped").read_to_string(&mut printed).expect("its output");
    assert!(capture.wait().expect("an end").success(), "{printed}");
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let seen = packets(&port);
    assert_eq!((&printed["packets"], &printed["lost"]), (&seen.len().into(), &0.into()), "{printed}");
    for (at, packet) in &seen {
        assert!(is_sound(packet), "{packet:?}");
        assert_eq!((packet[0], packet[9]), (0x45, TCP));
        assert!((begun..=ended + 1_000_000_000).contains(at), "{begun} {at} {ended}");
    }
    assert_eq!((payload(&seen, A), payload(&seen, B)), (BYTES, BYTES));

    // Everything of the link until so many packets: signalling is among it, with headers of its own.
    let line = format!("capture --socket {socket} -w {} --link to-b --count 150", all.display());
    let mut capture = begin(&a, &line, "capture: begun");
    exchange(&a, &b);
    assert!(capture.wait().expect("an end").success());
    let seen = packets(&all);
    assert_eq!(seen.len(), 150);
    assert!(seen.iter().all(|(_, packet)| is_sound(packet)));
    let signals: Vec<_> = seen.iter().filter(|(_, packet)| packet[9] == UDP).collect();
    assert!(signals.iter().all(|(_, packet)| source(packet).to_string() == A), "the neighbour runs nothing");
    read_by_tcpdump(&all, seen.len());

    assert!(relay.wait().expect("an end").success());
    drop(daemon);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// Else it would wait for packets that never come. A daemon that is killed tells nobody.
#[test]
fn a_capture_ends_with_its_daemon() {
    if !privileged() {
        return;
    }
    let (a, _b) = cable();
    let file = configuration("capture-gone");
    let (socket, written) = (file.with_file_name("a.sock"), file.with_file_name("wire.pcap"));
    let daemon = Daemon::start(&a, &file);
    let line = format!("capture --socket {} -w {}", socket.display(), written.display());
    let mut capture = begin(&a, &line, "capture: begun");
    // With SIGKILL.
    drop(daemon);
    assert_eq!(
        failed(&mut capture),
        (Some(1), "punctual: the daemon is gone: connect again when it is back\n".into())
    );
    assert!(packets(&written).iter().all(|(_, packet)| is_sound(packet)));
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// The kernel's device that is always full.
#[test]
fn a_full_disk_is_named_with_the_fix() {
    if !privileged() {
        return;
    }
    let (a, _b) = cable();
    let file = configuration("capture-full");
    let daemon = Daemon::start(&a, &file);
    let line = format!("capture --socket {} -w /dev/full", file.with_file_name("a.sock").display());
    let (code, why) = failed(&mut begin(&a, &line, "capture: begun"));
    assert_eq!((code, why.lines().count()), (Some(1), 1), "{why}");
    for part in ["writing /dev/full: No space left", "it has 0 packets; ", "free space"] {
        assert!(why.contains(part), "{why}");
    }
    drop(daemon);
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("removed");
}

/// Its exit code, and what else it printed on standard error.
fn failed(capture: &mut Child) -> (Option<i32>, String) {
    let mut text = String::new();
    capture.stderr.take().expect("piped").read_to_string(&mut text).expect("its errors");
    (capture.wait().expect("an end").code(), text)
}

/// tcpdump, where it is installed, reads every packet and finds no wrong checksum.
fn read_by_tcpdump(file: &Path, count: usize) {
    let output = std::process::Command::new("tcpdump").args(["-n", "-vv", "-r"]).arg(file).output();
    let Ok(output) = output else {
        punctual_skip::skipped!("tcpdump is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A checksum can have the digits "bad".
    for wrong in ["incorrect", "bad cksum", "bad udp cksum"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    assert_eq!(text.matches("IP (tos").count(), count, "{text}");
    assert!(text.matches("(correct)").count() > 0, "{text}");
}
