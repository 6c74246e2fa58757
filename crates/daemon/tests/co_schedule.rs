//! Co-scheduling through daemons: the thread that receives runs at its channel's priority, and only that thread, and only
//! as long as it receives; alternation gives it one message at a time.

mod common;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use common::{Daemon, PATIENCE, config, contract, eventually, meet, memory_links};
use punctual::{ChannelId, Consent, Endsystem, Name, Nanos, RecvError};
use punctual_host::priorities::Priorities;
use punctual_ipc::api::{Answer, ApiError, Call, FromDaemon, PACKET_BYTES_MAX, Push, Request, VERSION};
use punctual_ipc::socket::{self, Packet};
use punctual_os::attributes::{Attributes, SELF, attributes};
use punctual_os::realtime::{self, RealTime, SchedulingClass};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

struct Hosts {
    a: Daemon,
    b: Daemon,
    directory: PathBuf,
}

impl Hosts {
    /// `name` is unique to the test. `None`, with a message, if real-time classes are not permitted.
    fn start(name: &str, allowed: bool) -> Option<Self> {
        let class = SchedulingClass::Fifo { priority: 50 };
        let real_time = RealTime { class, cpu: None, lock_memory: false };
        if std::thread::spawn(move || realtime::apply(&real_time)).join().expect("no panic").is_err() {
            punctual_skip::skipped!("real-time classes need CAP_SYS_NICE");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("punctual-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (to_b, to_a) = memory_links();
        let configured = |name: &str| {
            let mut config = config(name, &directory.join(name), "");
            config.real_time = real_time;
            config.co_scheduling = allowed.then(Priorities::default);
            config
        };
        let a = Daemon::start(configured("a"), to_b);
        let b = Daemon::start(configured("b"), to_a);
        meet([&a.connect(), &b.connect()]);
        Some(Self { a, b, directory })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn mine() -> Attributes {
    attributes(SELF).expect("this thread")
}

fn open(a: &Endsystem, b: &Endsystem, name: &str, rate: u64) -> (punctual::Channel, punctual::Receiver) {
    let listener = b.listen(name, |_| Consent::Accept).expect("a listener");
    let channel = a.open(&format!("{name}@b"), contract(200, rate, 200)).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    (channel, receiver)
}

#[test]
fn the_receiving_thread_runs_at_the_priority_of_its_channel_until_it_closes() {
    let Some(hosts) = Hosts::start("co-schedule", true) else { return };
    let (a, b) = (hosts.a.connect(), hosts.b.connect());
    let before = mine();
    let (_slow, at_b) = open(&a, &b, "slow", 25);
    let (fast, at_b_too) = open(&a, &b, "fast", 1_000);
    // 40 ms and 1 ms: 14 and 4 half-octaves above 250 us, below 25.
    assert_eq!(at_b.co_schedule().expect("co-scheduled"), 11);
    assert_eq!(mine(), Attributes::Fifo { priority: 11 });
    assert_eq!(std::thread::spawn(mine).join().expect("no panic"), Attributes::ORDINARY, "reset on fork");
    assert_eq!(at_b_too.co_schedule().expect("co-scheduled"), 21);
    assert_eq!(mine(), Attributes::Fifo { priority: 21 });
    // A channel that the thread serves no longer does not count, whichever end closes it.
    fast.close().expect("closed");
    eventually("the slower channel's priority is left", || mine() == Attributes::Fifo { priority: 11 });
    at_b.close().expect("closed");
    assert_eq!(mine(), before);
}

#[test]
fn a_thread_that_is_gone_is_no_error() {
    let Some(hosts) = Hosts::start("co-schedule-gone", true) else { return };
    let (a, b) = (hosts.a.connect(), hosts.b.connect());
    let (_channel, receiver) = open(&a, &b, "cam", 25);
    let receiver = std::thread::spawn(move || {
        receiver.co_schedule().expect("co-scheduled");
        receiver
    });
    receiver.join().expect("no panic").close().expect("closed");
    assert!(b.status().is_ok());
}

#[test]
fn a_host_may_refuse() {
    let Some(hosts) = Hosts::start("co-schedule-refused", false) else { return };
    let (a, b) = (hosts.a.connect(), hosts.b.connect());
    let (_channel, receiver) = open(&a, &b, "cam", 25);
    let before = mine();
    let error = receiver.co_schedule().expect_err("refused").to_string();
    assert!(error.contains("co_schedule = true") && error.lines().count() == 1, "{error}");
    assert_eq!(mine(), before);
}

/// A client that sends requests of the API itself.
struct Raw(OwnedFd);

impl Raw {
    fn connect(path: &Path) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("connected");
        let raw = Self(socket);
        let hello = Request::Hello { version: VERSION, program: "raw".into() };
        assert!(matches!(raw.ask(hello), Ok(Answer::Hello { .. })));
        raw
    }

    fn receive(&self) -> FromDaemon {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let packet = socket::receive(&self.0, &mut buffer, RecvFlags::empty()).expect("received");
        packet.expect("a connection").parse().expect("a message of the API")
    }

    fn ask(&self, request: Request) -> Result<Answer, ApiError> {
        let packet = Packet::new(&Call { id: 7, request }, Vec::new()).expect("small");
        socket::send(&self.0, &packet, SendFlags::empty()).expect("sent");
        loop {
            if let FromDaemon::Answer { id: 7, result } = self.receive() {
                return result;
            }
        }
    }

    /// A channel from `a` that ends here.
    fn accept(&self, a: &Endsystem) -> (punctual::Channel, ChannelId) {
        let listen = Request::Listen { port: Name::new("raw").expect("a name"), handler_time: Nanos::ZERO };
        assert!(matches!(self.ask(listen), Ok(Answer::Listening { .. })));
        let opening = a.open_nonblocking("raw@b", contract(100, 25, 200)).expect("asked");
        let channel = loop {
            if let FromDaemon::Push(Push::Incoming { channel, .. }) = self.receive() {
                break channel;
            }
        };
        assert!(matches!(self.ask(Request::Consent { channel, stall: None }), Ok(Answer::Ring { .. })));
        (opening.finish().expect("a channel"), channel)
    }
}

#[test]
fn only_own_threads_for_own_channels_until_the_client_ends() {
    let Some(hosts) = Hosts::start("co-schedule-foreign", true) else { return };
    let (a, b) = (hosts.a.connect(), hosts.b.connect());
    let raw = Raw::connect(&hosts.b.socket);
    let (_channel, channel) = raw.accept(&a);
    let (_other, receiver) = open(&a, &b, "other", 25);
    let before = mine();
    let this = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let init = attributes(1).expect("there is a process 1");
    for (channel, thread) in [(channel, 1), (channel, u32::MAX), (receiver.id(), this)] {
        let refused = raw.ask(Request::CoSchedule { channel, thread });
        assert!(matches!(refused, Err(ApiError::CoSchedule(_))), "{refused:?}");
    }
    assert_eq!((attributes(1).expect("still there"), mine()), (init, before));
    let done = raw.ask(Request::CoSchedule { channel, thread: this });
    assert_eq!(done, Ok(Answer::CoScheduled { priority: 11 }));
    assert_eq!(mine(), Attributes::Fifo { priority: 11 });
    // The connection ends without a request, as when its process is killed.
    drop(raw);
    eventually("the thread is as before", || {
        assert!(b.status().is_ok());
        mine() == before
    });
}

#[test]
fn messages_alternate_with_their_receiver_in_order() {
    let Some(hosts) = Hosts::start("alternate", true) else { return };
    let (a, b) = (hosts.a.connect(), hosts.b.connect());
    let (mut channel, mut receiver) = open(&a, &b, "cam", 200);
    let (mut free, mut beside) = open(&a, &b, "free", 200);
    receiver.alternate().expect("alternates");
    for number in 0..3_u8 {
        channel.send(&[number]).expect("sent");
    }
    let out = |receiver: &punctual::Receiver| receiver.state().expect("a state").status.counters.messages_out;
    eventually("all have come", || out(&receiver) == 3);
    let mut buffer = [0; 200];
    // The second message is not published before the first is taken, and no other channel waits for it.
    free.send(b"beside").expect("sent");
    assert_eq!(beside.recv_timeout(&mut buffer, PATIENCE).expect("received").len, 6);
    for number in 0..3_u8 {
        let info = receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!((info.number, buffer[0]), (u64::from(number), number));
    }
    assert!(matches!(receiver.try_recv(&mut buffer), Err(RecvError::WouldBlock)));
    // Messages that wait for their turn when the channel ends can still be read.
    for number in 3..6_u8 {
        channel.send(&[number]).expect("sent");
    }
    eventually("all have come", || out(&receiver) == 6);
    channel.close().expect("closed");
    for number in 3..6_u8 {
        receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!(buffer[0], number);
    }
    assert!(matches!(receiver.recv_timeout(&mut buffer, PATIENCE), Err(RecvError::Closed(_))));
}
