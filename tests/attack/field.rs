//! What an attack is about: an object that it shares with a daemon, or, in the control, one of the program's own that is
//! used likewise.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use punctual::{Channel, Consent, Contract, Endsystem, Listener, Receiver};
use punctual_ipc::api::{Answer, ApiError, Call, FromDaemon, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::shm::Offer;
use punctual_ipc::socket::Packet;
use punctual_ipc::wake::Doorbell;
use punctual_proto::ids::ChannelId;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::common::raw::Raw;
use crate::common::{PATIENCE, contract};
pub use crate::pages::{Memory, Page};
use crate::world::PERIOD;

/// The daemons' sockets, in the folder in which the attacker runs.
pub const SOURCE_SOCKET: &str = "c.sock";
pub const SINK_SOCKET: &str = "b.sock";
/// Of a daemon of the program's own, before its process id.
const OWN_SOCKET: &str = "punctual-test-attack-own-";
/// Of what such a daemon answers.
const ANSWER_BYTES: usize = 2_000;

/// Whose objects are attacked.
pub struct Field {
    /// The control.
    pub own: bool,
    /// Laid ready before the program lost its rights.
    pub page: Option<Memory>,
}

/// Memory files of a ring, and their sizes.
pub struct Files {
    pub files: Vec<OwnedFd>,
    pub bytes: usize,
}

impl Field {
    /// A bell that rings every 10 ms.
    pub fn bell(&self) -> OwnedFd {
        if self.own {
            let bell = eventfd(0, EventfdFlags::empty()).expect("an eventfd");
            let ringing = bell.try_clone().expect("a descriptor");
            repeat(PERIOD, move || {
                rustix::io::write(&ringing, &1_u64.to_ne_bytes()).expect("rung");
            });
            return bell;
        }
        let raw = Raw::greeted(Path::new(SOURCE_SOCKET));
        let (channel, shape, mut descriptors) = flow(&raw, RingShape::new(64, 100).expect("a shape"));
        let (doorbell, bell) = (descriptors.remove(3), descriptors.remove(2));
        let base = map_and_seal(&descriptors[1], shape.file_bytes() as usize);
        raw.ask(Request::Attached { channel }).0.expect("attached");
        std::mem::forget((raw, descriptors));
        let mut count = 0_u32;
        repeat(PERIOD, move || {
            count += 1;
            // A message of no byte, and a request for a wake-up when it has left: the result is not needed.
            // SAFETY: words of the ring's head, in a mapping that stays, which only this thread touches.
            unsafe {
                (base as *mut u64).write_volatile(u64::from(count));
                (base as *mut u32).byte_add(128).write_volatile(count);
            }
            ring(&doorbell);
        });
        bell
    }

    /// The program's end of a doorbell.
    pub fn doorbell(&self) -> OwnedFd {
        if self.own {
            let (ours, theirs) = Doorbell::pair().expect("sockets");
            std::mem::forget(ours);
            return theirs;
        }
        let raw = Raw::greeted(Path::new(SOURCE_SOCKET));
        let (_, _, mut descriptors) = flow(&raw, RingShape::new(4, 100).expect("a shape"));
        std::mem::forget(raw);
        descriptors.remove(3)
    }

    /// The program's end of a connection on which something is asked every 10 ms, and an answer comes.
    pub fn connection(&self) -> OwnedFd {
        let line = self.greeted();
        let asking = line.try_clone().expect("a descriptor");
        let status = request(Request::Status);
        repeat(PERIOD, move || {
            // Other parts of the attack take the answers. If none does, there is no room at some time.
            let _ = rustix::net::send(&asking, &status, SendFlags::DONTWAIT);
        });
        line
    }

    /// All three.
    pub fn shared(&self) -> [OwnedFd; 3] {
        [self.bell(), self.doorbell(), self.connection()]
    }

    /// Of an unused ring.
    pub fn files(&self) -> Files {
        let shape = RingShape::new(64, 60_000).expect("a shape");
        let bytes = shape.file_bytes() as usize;
        if self.own {
            let offers = [0, 1].map(|_| Offer::create(bytes as u64).expect("a file"));
            let files = offers.map(|(file, offer)| {
                std::mem::forget(offer);
                file
            });
            return Files { files: files.into(), bytes };
        }
        let raw = Raw::greeted(Path::new(SOURCE_SOCKET));
        let (_, _, mut files) = flow(&raw, shape);
        std::mem::forget(raw);
        files.truncate(2);
        Files { files, bytes }
    }

    /// A connection that the daemon at the source has greeted.
    pub fn greeted(&self) -> OwnedFd {
        self.try_greeted().expect("a greeting")
    }

    /// The same, if there is a place.
    pub fn try_greeted(&self) -> Option<OwnedFd> {
        greet(self.connect().ok()?)
    }

    /// The same at the sink.
    pub fn greeted_at_sink(&self) -> OwnedFd {
        self.try_greeted_at_sink().expect("a greeting")
    }

    /// The same, if there is a place.
    pub fn try_greeted_at_sink(&self) -> Option<OwnedFd> {
        self.connect_to(SINK_SOCKET).ok().and_then(greet)
    }

    /// A connection to the daemon at the source, if it takes one.
    pub fn connect(&self) -> rustix::io::Result<OwnedFd> {
        self.connect_to(SOURCE_SOCKET)
    }

    fn connect_to(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        let address = if self.own { own_address() } else { SocketAddrUnix::new(path)? };
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    }
}

/// Maps what a program writes of a ring, for as long as it runs, and seals it, as the library does.
pub fn map_and_seal(file: &OwnedFd, bytes: usize) -> usize {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping.
    let base =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) };
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(file, seals).expect("sealed");
    base.expect("mapped") as usize
}

fn greet(line: OwnedFd) -> Option<OwnedFd> {
    let (read, _) = ask_for(&line, &hello(), &mut [0; 256])?;
    (read > 0).then_some(line)
}

fn ask_for(line: &OwnedFd, bytes: &[u8], buffer: &mut [u8]) -> Option<(usize, usize)> {
    send(line, bytes).ok()?;
    rustix::net::recv(line, buffer, RecvFlags::empty()).ok()
}

/// A listener at the sink that takes whatever comes, and reads nothing.
pub fn listen(name: &str) -> (Endsystem, Listener) {
    let sink = Endsystem::connect_to(Path::new(SINK_SOCKET)).expect("a connection");
    let listener = sink.listen(name, |_| Consent::Accept).expect("a listener");
    (sink, listener)
}

/// The channel that an answer of `bytes` is about, if it has opened one.
pub fn opened(bytes: &[u8]) -> Option<ChannelId> {
    match serde_json::from_slice(bytes).ok()? {
        FromDaemon::Answer {
            result: Ok(Answer::Opened { channel, .. } | Answer::Ring { channel, .. }),
            ..
        } => Some(channel),
        _ => None,
    }
}

/// The first request of a program.
pub fn hello() -> Vec<u8> {
    request(Request::Hello { version: punctual_ipc::api::VERSION, program: "raw".into() })
}

pub fn request(request: Request) -> Vec<u8> {
    Packet::new(&Call { id: 7, request }, Vec::new()).expect("it fits").bytes
}

pub fn send(line: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::net::send(line, bytes, SendFlags::NOSIGNAL)
}

/// Asks, and takes one packet: the answer, or news; how long it is. `None` at the end of the connection.
pub fn ask(line: &OwnedFd, bytes: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let (read, _) = ask_for(line, bytes, buffer)?;
    (read > 0).then_some(read)
}

fn own_address() -> SocketAddrUnix {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    let process = PROCESS.get_or_init(std::process::id);
    SocketAddrUnix::new_abstract_name(format!("{OWN_SOCKET}{process}").as_bytes()).expect("an address")
}

/// A daemon of the program's own, which takes every packet for a request and answers each.
pub fn serve_own() {
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let address = own_address();
    rustix::net::bind(&socket, &address).expect("bound");
    rustix::net::listen(&socket, 128).expect("listening");
    std::thread::spawn(move || {
        while let Ok(line) = rustix::net::accept(&socket) {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while rustix::net::recv(&line, &mut buffer[..], RecvFlags::empty())
                    .is_ok_and(|(bytes, _)| bytes > 0)
                {
                    if send(&line, &[b' '; ANSWER_BYTES]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// A flow without promises, and its descriptors: memory files, bell, doorbell. Waits while the memory of earlier ones is not
/// given back.
pub fn flow(raw: &Raw, ring: RingShape) -> (ChannelId, RingShape, Vec<OwnedFd>) {
    loop {
        let flow = Request::OpenBestEffort { to: "bulk@b".parse().expect("an address"), ring };
        match raw.ask(flow) {
            (Ok(Answer::Ring { channel, .. }), descriptors) => return (channel, ring, descriptors),
            (Err(ApiError::Quota { .. }), _) => std::thread::sleep(Duration::from_millis(1)),
            (answer, _) => panic!("{answer:?}"),
        }
    }
}

/// A channel of the attacker's own from source to sink.
pub fn channel() -> (Channel, Receiver) {
    channel_of("attacker", contract(100, 100, 200))
}

/// The same to a listener of that name.
pub fn channel_of(name: &str, contract: Contract) -> (Channel, Receiver) {
    let connect = |path: &str| Endsystem::connect_to(Path::new(path)).expect("a connection");
    let (source, sink) = (connect(SOURCE_SOCKET), connect(SINK_SOCKET));
    let listener = sink.listen(name, |_| Consent::Accept).expect("a listener");
    let channel = source.open(&format!("{name}@b"), contract).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    (channel, receiver)
}

/// One message, which is taken as soon as it is there: its bell rings for each.
pub fn exchange((channel, receiver): &mut (Channel, Receiver)) {
    let _ = channel.try_send(&[0; 100]);
    while receiver.try_recv(&mut [0; 100]).is_ok() {}
}

/// Does it again and again, on a thread of its own.
pub fn repeat(every: Duration, mut what: impl FnMut() + Send + 'static) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(every);
            what();
        }
    });
}

/// Does it without end, on threads of its own.
pub fn threads(count: usize, what: impl Fn(usize) + Send + Sync + 'static) {
    let what = Arc::new(what);
    for number in 0..count {
        let what = Arc::clone(&what);
        std::thread::spawn(move || {
            loop {
                what(number);
            }
        });
    }
}

/// A process of the attacker's own, which ends with it. `what` may not allocate: other threads may hold a lock.
pub fn child(what: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child makes system calls only, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            what();
            libc::_exit(0);
        }
        child
    }
}

/// A number of a descriptor that stays open for as long as the program runs.
pub fn kept(descriptor: OwnedFd) -> RawFd {
    let number = descriptor.as_raw_fd();
    std::mem::forget(descriptor);
    number
}

/// Rings however it can be rung.
pub fn ring(doorbell: impl AsFd) {
    let _ = rustix::io::write(&doorbell, &1_u64.to_ne_bytes());
    let _ = rustix::net::shutdown(&doorbell, Shutdown::Write);
}
