//! A loaded program with sockets for every stream, and its effect on a frame.

use std::os::fd::{AsFd, OwnedFd};

use punctual_link::xdp::{ClassifierOptions, Program, Tag, Verdict};
use punctual_link::{Filter, Stream, StreamDrops};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CapabilitySet, capabilities};

use crate::frames::{COOKIE, DATA, Ends, PATH, PEER_DATA, PEER_SIGNALLING, SIGNALLING};

/// Whether programs can be loaded here; prints a message if not.
pub fn privileged() -> bool {
    let rights = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let has_them = capabilities(None).is_ok_and(|sets| sets.effective.contains(rights));
    if !has_them {
        punctual_skip::skipped!("XDP programs and network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN");
    }
    has_them
}

pub fn options(ends: Ends) -> ClassifierOptions {
    ClassifierOptions {
        peer_data_port: PEER_DATA,
        peer_signalling_port: PEER_SIGNALLING,
        filters_max: 64,
        ..ClassifierOptions::new("lo", ends.local, ends.peer, DATA, SIGNALLING)
    }
}

/// A wide filter for [`PATH`].
pub fn filter() -> Filter {
    Filter {
        path: PATH,
        cookie: COOKIE,
        stream: Stream::Guaranteed,
        packet_bytes_max: 1_464,
        burst_packets: 1_000_000,
        interval_ns: 1,
        buffers: 1_000_000,
        slack_ns_min: None,
    }
}

/// What the program did with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Passed,
    Dropped(Reason),
    Steered(Stream, Tag),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    Policed,
    Malformed,
    Unknown,
    WrongCookie,
    NoBuffer,
    Expired,
    Replayed,
    Fragmented,
}

/// The program with a socket for each stream of queue 0.
pub struct Bench {
    pub program: Program,
    _sockets: Vec<OwnedFd>,
}

impl Bench {
    pub fn new(options: &ClassifierOptions) -> Self {
        let mut program = Program::load(options).expect("to load");
        let sockets = Stream::ALL.map(|stream| {
            let socket = socket(AddressFamily::XDP, SocketType::RAW, None).expect("an AF_XDP socket");
            program.register(0, stream, socket.as_fd()).expect("to register");
            socket
        });
        Self { program, _sockets: sockets.into() }
    }

    /// With [`filter`] set.
    pub fn of(ends: Ends) -> Self {
        let mut bench = Self::new(&options(ends));
        bench.program.set_filter(&filter()).expect("to set the filter");
        bench
    }

    /// Runs the program once and checks all its effects; a packet that it steers is received and released.
    pub fn run(&mut self, frame: &[u8]) -> Fate {
        let fate = self.run_and_hold(frame);
        if let Fate::Steered(stream, tag) = fate {
            let accounts = self.program.accounts();
            let charge = accounts.received(0, stream, &tag);
            accounts.returns().give_back(charge);
        }
        fate
    }

    /// The same, but a steered packet keeps its buffer.
    pub fn run_and_hold(&mut self, frame: &[u8]) -> Fate {
        let drops = self.program.drops();
        let free = self.free();
        let mut after = frame.to_vec();
        let (verdict, _) = self.program.run(&mut after, 1).expect("to run");
        let reasons = reasons(drops, self.program.drops());
        let taken: Vec<Stream> = Stream::ALL
            .into_iter()
            .filter(|&stream| self.free()[stream as usize] < free[stream as usize])
            .collect();
        match verdict {
            Verdict::Pass => {
                assert_eq!(after, frame, "what is not ours is not touched");
                assert!(reasons.is_empty() && taken.is_empty(), "nothing is counted: {reasons:?} {taken:?}");
                Fate::Passed
            }
            Verdict::Drop => {
                assert!(taken.is_empty(), "a dropped packet takes no buffer");
                let [reason] = reasons[..] else { panic!("dropped for one reason: {reasons:?}") };
                Fate::Dropped(reason)
            }
            Verdict::Steer => {
                assert!(reasons.is_empty(), "steered and dropped: {reasons:?}");
                let [stream] = taken[..] else { panic!("steered to one stream: {taken:?}") };
                if after.len() == frame.len() {
                    assert_eq!(after[24..], frame[24..], "only the tag is written");
                } else {
                    assert_eq!(after[24..], *frame, "the tag is in front");
                }
                Fate::Steered(stream, Tag::read(&after).expect("a tag that fits the frame"))
            }
        }
    }

    fn free(&mut self) -> [u32; 4] {
        Stream::ALL.map(|stream| self.program.accounts().free(0, stream))
    }

    pub fn expect_drop(&mut self, frame: &[u8], reason: Reason) {
        assert_eq!(self.run(frame), Fate::Dropped(reason));
    }

    pub fn expect_steer(&mut self, frame: &[u8], stream: Stream) -> Tag {
        match self.run(frame) {
            Fate::Steered(to, tag) if to == stream => tag,
            other => panic!("not to {stream:?} but {other:?}"),
        }
    }
}

fn reasons(before: StreamDrops, after: StreamDrops) -> Vec<Reason> {
    [
        (before.policed, after.policed, Reason::Policed),
        (before.malformed, after.malformed, Reason::Malformed),
        (before.unknown, after.unknown, Reason::Unknown),
        (before.wrong_cookie, after.wrong_cookie, Reason::WrongCookie),
        (before.no_buffer, after.no_buffer, Reason::NoBuffer),
        (before.expired, after.expired, Reason::Expired),
        (before.replayed, after.replayed, Reason::Replayed),
        (before.fragmented, after.fragmented, Reason::Fragmented),
    ]
    .into_iter()
    .flat_map(|(before, after, reason)| std::iter::repeat_n(reason, (after - before) as usize))
    .collect()
}
