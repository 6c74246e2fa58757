//! A server whose descriptors are used up. Limits are those of the process: this file has one test.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use punctual_orb::{Concurrency, Endpoint, Options, Orb};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

fn cpu_ms() -> i64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec * 1_000 + used.tv_nsec / 1_000_000
}

/// Sends a `LocateRequest` for a key that nobody has, and reads the answer.
fn is_served(stream: &mut TcpStream) -> bool {
    let request = b"GIOP\x01\x02\x00\x03\0\0\0\x0d\0\0\0\x01\0\0\0\0\0\0\0\x01x";
    stream.write_all(request).expect("it is sent");
    // The header, the number of the request, and that the object is not known.
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).is_ok() && reply.starts_with(b"GIOP") && reply[7] == 4
}

fn idle_while_clients_wait(concurrency: Concurrency) {
    let before = getrlimit(Resource::Nofile);
    let listening = Options::listening(Endpoint::tcp("127.0.0.1", 0));
    let orb = Orb::new(Options { concurrency, ..listening }).expect("it listens");
    let Some(Endpoint::Tcp(at)) = orb.published().first().cloned() else { panic!("it listens") };
    let connect = || TcpStream::connect((&*at.host, at.port)).expect("it listens");
    let mut first = connect();
    assert!(is_served(&mut first));
    // The clients take the last descriptors: those of the server are in the same process.
    let used = std::fs::read_dir("/proc/self/fd").expect("Linux").count() as u64;
    let mut limit = before;
    limit.current = Some(used + 4);
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect((&*at.host, at.port)) {
        waiting.push(stream);
    }
    assert!(!waiting.is_empty());
    // It tries again and again, without using the processor for it.
    let (begin, used) = (Instant::now(), cpu_ms());
    while begin.elapsed().as_millis() < 500 {
        assert!(is_served(&mut first), "who is there is served");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let used = cpu_ms() - used;
    assert!(used < 150, "{used} ms of the processor in {:?}", begin.elapsed());
    setrlimit(Resource::Nofile, before).expect("the limit before");
    for mut stream in waiting {
        assert!(is_served(&mut stream), "who waited is served");
    }
    orb.shutdown(false);
}

#[test]
fn a_server_without_descriptors_waits_and_goes_on() {
    idle_while_clients_wait(Concurrency::ThreadPerConnection);
    idle_while_clients_wait(Concurrency::Reactive);
}
