//! A sequence of 1 GiB as an argument, in turns with as many bytes over plain TCP into one buffer.

use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};

use punctual_orb::{Endpoint, Options, Orb};

use crate::demo::demo::EchoSkeleton;
use crate::echo::Echo;
use crate::figures::{Rounds, median, quantile_us, ratios};
use crate::ours::timed;
use crate::programs::{self, Program};

/// Bytes of the sequence.
pub const BYTES: usize = 1 << 30;
const ROUNDS: usize = 9;
/// The least share of the throughput of plain TCP.
pub const SHARE_MIN: f64 = 0.9;

/// What was measured.
pub struct Figure {
    /// Medians, GB/s.
    pub ours_gb_s: f64,
    pub tcp_gb_s: f64,
    /// Ours over that of TCP, the median over the rounds.
    pub share: f64,
    /// The most memory that client and server have had beyond the sequence, bytes.
    pub beyond_bytes: [u64; 2],
}

/// Measures it.
pub fn measure() -> Figure {
    let mut servers = [programs::ours(&["serve", "long"]), programs::ours(&["serve", "plain"])];
    let [reference, address] = servers.each_mut().map(Program::line);
    let mut clients = [programs::ours(&["client", &reference]), programs::ours(&["plain", &address])];
    let mut spans = [const { Rounds::new() }; 2];
    clients.iter_mut().for_each(|client| drop(client.call("long", 1)));
    for round in 0..ROUNDS {
        for place in 0..2 {
            let who = (round + place) % 2;
            spans[who].push(clients[who].call("long", 1));
        }
    }
    let gb_s = |rounds: &Rounds| BYTES as f64 / 1e3 / quantile_us(&[rounds], 0.5);
    Figure {
        ours_gb_s: gb_s(&spans[0]),
        tcp_gb_s: gb_s(&spans[1]),
        share: median(&mut ratios(&spans[1], &spans[0])),
        beyond_bytes: [&clients[0], &servers[0]].map(|one| one.most_bytes().saturating_sub(BYTES as u64)),
    }
}

/// Our server, which takes so long a message.
pub fn serve() {
    let listening = Options::listening(Endpoint::tcp("127.0.0.1", 0));
    let orb = Orb::new(Options { message_bytes_max: BYTES + 4_096, ..listening }).expect("it listens");
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    orb.root_poa().manager().activate().expect("it is not inactive");
    println!("{}", orb.stringify(&reference).expect("it has bytes"));
    io::stdin().lines().for_each(drop);
}

/// A server that reads into one buffer, and answers with one byte.
pub fn serve_plain() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("it listens"));
    let (mut stream, _) = listener.accept().expect("a client");
    let mut buffer = vec![0; BYTES];
    while stream.read_exact(&mut buffer).is_ok() {
        stream.write_all(&[7]).expect("it reads");
    }
}

/// Its client.
pub fn call_plain(address: &str) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("it is TCP");
    let bytes = vec![3u8; BYTES];
    for _ in io::stdin().lock().lines() {
        let spans = timed(1, || {
            stream.write_all(&bytes).and_then(|()| stream.read_exact(&mut [0])).expect("an answer");
        });
        let mut output = io::stdout();
        output.write_all(&spans[0].to_ne_bytes()).and_then(|()| output.flush()).expect("somebody reads");
    }
}
