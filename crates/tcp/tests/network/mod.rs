//! Two stacks joined by wires that lose, reorder, duplicate and corrupt packets, in virtual time. One seed, one run.

#![allow(dead_code)] // each test uses its part

use std::collections::BTreeMap;
use std::net::SocketAddr;

use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Config, Connection, ConnectionId, Secrets, Segment, Stack, wire};

/// xorshift64*: enough for tests, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn is_one_in_1000(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }
}

/// Faults of the wire, in thousandths of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u64,
    pub reordered: u64,
    pub duplicated: u64,
    pub corrupted: u64,
}

pub struct Network {
    pub now: Instant,
    pub stacks: [Stack; 2],
    pub faults: Faults,
    /// Packets longer than this vanish: a black hole.
    pub carries_bytes: usize,
    /// A host that receives nothing.
    pub deaf: Option<usize>,
    /// Host 0 gets packets at multiples of this time only, and of several at once the last one: host 1 only acknowledges. None: all.
    pub gathered: Nanos,
    /// Packets of host 0 that are lost, by their number.
    pub lose_next: Vec<u64>,
    pub delay: Nanos,
    /// A packet that is reordered takes less than this longer.
    pub late_max: Nanos,
    /// Nanoseconds that a byte takes on the wire: one packet after the other. None: all of them at once.
    pub byte_ns: u64,
    free_at: [Instant; 2],
    pub random: Random,
    pub sent: [u64; 2],
    pub refused: u64,
    on_the_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
}

pub fn addresses(is_v6: bool) -> [SocketAddr; 2] {
    let text = if is_v6 { ["[fd00::1]:0", "[fd00::2]:80"] } else { ["10.0.0.1:0", "192.0.2.2:80"] };
    text.map(|text| text.parse().expect("an address"))
}

impl Network {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now: Instant(1_000_000_000),
            stacks: [1, 2].map(|host| Stack::new(Secrets::new([host; 16]))),
            faults,
            carries_bytes: usize::MAX,
            deaf: None,
            gathered: Nanos::ZERO,
            lose_next: Vec::new(),
            byte_ns: 0,
            free_at: [Instant(0); 2],
            delay: Nanos::from_millis(5),
            late_max: Nanos::from_millis(20),
            random: Random::new(seed),
            sent: [0; 2],
            refused: 0,
            on_the_way: BTreeMap::new(),
            count: 0,
        }
    }

    /// Puts a packet on the wire to `to`.
    pub fn carry(&mut self, to: usize, packet: &[u8]) {
        self.sent[1 - to] += 1;
        let begins = self.now.max(self.free_at[to]);
        self.free_at[to] = begins + Nanos(packet.len() as u64 * self.byte_ns);
        let is_lost =
            self.random.is_one_in_1000(self.faults.lost) || to == 1 && self.lose_next.contains(&self.sent[0]);
        if is_lost || packet.len() > self.carries_bytes || self.deaf == Some(to) {
            return;
        }
        let copies = 1 + u64::from(self.random.is_one_in_1000(self.faults.duplicated));
        for _ in 0..copies {
            let mut packet = packet.to_vec();
            let mut at = self.free_at[to] + self.delay;
            if self.random.is_one_in_1000(self.faults.reordered) {
                at = at + Nanos::from_micros(self.random.below(self.late_max.0 / 1_000));
            }
            if self.random.is_one_in_1000(self.faults.corrupted) {
                let bit = self.random.below(packet.len() as u64 * 8) as usize;
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            if to == 0 && self.gathered > Nanos::ZERO {
                at = Instant(at.0.next_multiple_of(self.gathered.0));
                self.on_the_way.retain(|(then, _), (to, _)| (*then, *to) != (at, 0));
            }
            self.count += 1;
            self.on_the_way.insert((at, self.count), (to, packet));
        }
    }

    /// Loses the packet that host 0 put on the wire last.
    pub fn drop_last(&mut self) {
        let to_1 = self.on_the_way.iter().filter(|(_, (to, _))| *to == 1);
        let last = to_1.map(|((_, number), _)| *number).max();
        self.on_the_way.retain(|(_, number), _| Some(*number) != last);
    }

    /// Runs everything that is due now.
    pub fn settle(&mut self) {
        let (mut reply, mut packet) = (Vec::new(), Vec::new());
        while let Some(entry) = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, mut arrived) = entry.remove();
            self.refused += u64::from(self.stacks[to].input(self.now, &mut arrived, &mut reply).is_err());
            if !reply.is_empty() {
                self.carry(1 - to, &reply);
            }
        }
        for host in 0..2 {
            while self.stacks[host].output(self.now, &mut packet) {
                self.carry(1 - host, &packet);
            }
        }
    }

    /// All segments that a host has to send now; they are not put on the wire.
    pub fn segments(&mut self, host: usize) -> Vec<Segment> {
        let (now, mut packet, mut all) = (self.now, Vec::new(), Vec::new());
        while self.stacks[host].output(now, &mut packet) {
            all.push(wire::parse(&packet).expect("our own segment"));
        }
        all
    }

    /// Gives a host a segment from its peer; what it answers.
    pub fn give(&mut self, host: usize, segment: &Segment, payload: &[u8]) -> Option<Segment> {
        let (mut packet, mut reply) = (Vec::new(), Vec::new());
        wire::write_with(segment, payload, 64, false, &mut packet);
        let now = self.now;
        self.stacks[host].input(now, &mut packet, &mut reply).expect("well-formed");
        (!reply.is_empty()).then(|| wire::parse(&reply).expect("our own segment"))
    }

    /// Moves the clock to the next event, at most to `end`; whether there is one before it.
    pub fn step(&mut self, end: Instant) -> bool {
        let now = self.now;
        let mut next = self.on_the_way.first_key_value().map(|(key, _)| key.0);
        for stack in &mut self.stacks {
            next = [next, stack.next_deadline(now)].into_iter().flatten().min();
        }
        let at = next.unwrap_or(end).max(now + Nanos(1_000)).min(end);
        self.now = at;
        at < end
    }

    /// Runs until `is_done` or until `within` has passed; whether it was done.
    pub fn run(&mut self, within: Nanos, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + within;
        loop {
            self.settle();
            if is_done(self) {
                return true;
            }
            self.settle();
            if !self.step(end) {
                self.settle();
                return is_done(self);
            }
        }
    }

    /// A connection from the first stack to the second, open at both ends.
    pub fn open(&mut self, is_v6: bool, config: &Config) -> [ConnectionId; 2] {
        let [local, remote] = addresses(is_v6);
        self.stacks[1].listen(remote, config, 16);
        let client = self.stacks[0].connect(self.now, local.ip(), remote, config).expect("a port is free");
        let mut server = None;
        let is_open = self.run(Nanos::from_secs(170), |network| {
            server = server.or_else(|| network.stacks[1].accept(remote));
            server.is_some()
        });
        // Six SYN-ACKs may be lost in a row: then the listener drops the half-open connection, as Linux does,
        // and the client tries again.
        if !is_open {
            self.stacks[0].remove(client);
            return self.open(is_v6, config);
        }
        [client, server.expect("accepted")]
    }

    pub fn at(&mut self, host: usize, id: ConnectionId) -> &mut Connection {
        self.stacks[host].get(id).expect("the connection is there")
    }
}

/// Byte `at` of the stream that a side sends.
pub fn byte(side: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9).wrapping_add(side as u64 * 77) >> 13) as u8
}

/// A direction of a stream: sent and received data.
#[derive(Default)]
pub struct Stream {
    pub side: usize,
    pub sent: u64,
    pub read: u64,
    pub length: u64,
}

impl Stream {
    pub fn new(side: usize, length: u64) -> Self {
        Self { side, sent: 0, read: 0, length }
    }

    /// Sends what the buffer takes, and closes after the last byte.
    pub fn write(&mut self, connection: &mut Connection) {
        let mut chunk = [0; 4096];
        while self.sent < self.length {
            let size = chunk.len().min((self.length - self.sent) as usize);
            for (i, to) in chunk[..size].iter_mut().enumerate() {
                *to = byte(self.side, self.sent + i as u64);
            }
            match connection.send(&chunk[..size]) {
                Ok(0) => return,
                Ok(taken) => self.sent += taken as u64,
                Err(error) => panic!("after {} bytes: {error}", self.sent),
            }
        }
        connection.close();
    }

    /// Reads what is there, and checks every byte.
    pub fn read(&mut self, connection: &mut Connection) {
        let mut chunk = [0; 4096];
        loop {
            let read = connection.recv(&mut chunk);
            if read == 0 {
                return;
            }
            for (i, got) in chunk[..read].iter().enumerate() {
                assert_eq!(*got, byte(self.side, self.read + i as u64), "byte {}", self.read + i as u64);
            }
            self.read += read as u64;
        }
    }
}
