//! Two endsystems over a wire that delays, loses, duplicates and reorders, in virtual time.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use punctual_analysis::{Instant, Nanos};
use punctual_proto::memory::MessageInfo;
use punctual_proto::signalling::SplitMix64;
use punctual_rig::{Pool, TestInbox, TestMemory, TestOutbox};
use punctual_tcp::endsystem::{Accepted, Endsystem, Reset, Rings, Segments, Status};

use punctual_tcp::{Config, Flow, Secrets, State};

pub const CHUNK_BYTES: u32 = 512;
pub const DELAY: Nanos = Nanos::from_millis(2);

/// What one call of a handler made.
#[derive(Default)]
pub struct Out {
    pub packets: Vec<(Vec<u8>, u64)>,
    pub room: usize,
}

impl Segments for Out {
    fn has_room(&self) -> bool {
        self.packets.len() < self.room
    }

    fn put(&mut self, packet: &[u8], address: u64) {
        self.packets.push((packet.to_vec(), address));
    }
}

/// A program's end of a connection.
#[derive(Clone)]
pub struct Program {
    pub index: u32,
    pub outbox: TestOutbox,
    pub inbox: TestInbox,
    pub read: Vec<u8>,
    pub saw_end: bool,
}

pub struct Host {
    pub tcp: Endsystem<TestMemory>,
    /// Flows that the driver of the host knows.
    pub flows: BTreeMap<Flow, u32>,
    pub programs: Vec<Program>,
    /// Slots of each program's rings.
    pub slots: usize,
}

pub struct World {
    pub now: Instant,
    pub hosts: [Host; 2],
    pub on_the_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    pub count: u64,
    pub random: SplitMix64,
    /// What a listener opens is adopted.
    pub adopts: bool,
    /// What a listener opens cannot begin.
    pub refuses: bool,
    /// Packets of a thousand that are lost, and as many that are duplicated or late.
    pub faults: u64,
    pub pool: Pool,
    pub config: Config,
    /// Bytes that programs have read.
    pub seen: usize,
    /// The last packet with FIN that was sent to host 0.
    pub fin: Vec<u8>,
}

pub fn ends() -> [SocketAddr; 2] {
    [([10, 0, 0, 1], 50_000).into(), ([10, 0, 0, 2], 80).into()]
}

pub fn byte(side: usize, at: usize) -> u8 {
    (at * 7 + at / 251 + side * 91) as u8
}

impl World {
    pub fn new(seed: u64, faults: u64, slots: usize) -> Self {
        let host = |number: u8| Host {
            tcp: Endsystem::new(Secrets::new([number; 16]), 4, 2).with_paths(2),
            flows: BTreeMap::new(),
            programs: Vec::new(),
            slots,
        };
        Self {
            now: Instant(1_000_000_000),
            hosts: [host(1), host(2)],
            on_the_way: BTreeMap::new(),
            count: 0,
            random: SplitMix64::new(seed),
            adopts: true,
            refuses: false,
            faults,
            pool: Pool::new(512, 2_048),
            config: Config { receive_bytes: 8_192, send_bytes: 8_192, ..Config::default() },
            seen: 0,
            fin: Vec::new(),
        }
    }

    pub fn rings(&self, host: usize) -> (Rings<TestMemory>, TestOutbox, TestInbox) {
        let slots = self.hosts[host].slots;
        let (outbox, inbox) = (TestOutbox::new(slots, 4_096), TestInbox::new(slots, CHUNK_BYTES as usize));
        let rings = Rings { outbox: outbox.clone(), inbox: inbox.clone(), chunk_bytes: CHUNK_BYTES };
        (rings, outbox, inbox)
    }

    pub fn add(&mut self, host: usize, index: u32, outbox: TestOutbox, inbox: TestInbox) {
        let flow = self.hosts[host].tcp.status(index).expect("it is there").flow;
        self.hosts[host].flows.insert(flow, index);
        let program = Program { index, outbox, inbox, read: Vec::new(), saw_end: false };
        self.hosts[host].programs.push(program);
    }

    pub fn listen(&mut self) {
        assert_eq!(self.hosts[1].tcp.listen(&self.config, 2), Some(0));
    }

    pub fn connect(&mut self) {
        let [local, remote] = ends();
        let (rings, outbox, inbox) = self.rings(0);
        let (config, now) = (self.config, self.now);
        let index = self.hosts[0].tcp.connect(Flow { local, remote }, &config, rings, now).ok();
        self.add(0, index.expect("room"), outbox, inbox);
    }

    /// A connection of host 0 to a listener of host 1, open at both.
    pub fn open(&mut self) {
        self.listen();
        self.connect();
        let is_open = |world: &Self| {
            world.program(1).is_some() && world.status(0).is_some_and(|it| it.state == State::Established)
        };
        assert!(self.run(Nanos::from_secs(5), |_| {}, is_open));
    }

    /// Host 0 writes, its output handler is called once, and what that makes comes to host 1, whose handlers are not called; the number of
    /// segments.
    pub fn send_flight(&mut self, bytes: usize) -> u32 {
        let (now, client) = (self.now, self.program(0).cloned().expect("open"));
        assert!(client.outbox.send(&vec![3; bytes], now));
        let mut out = Out { packets: Vec::new(), room: 64 };
        let segments = self.hosts[0].tcp.output(0, 64, now, &mut out).units;
        out.packets.into_iter().for_each(|(packet, _)| self.carry(1, packet));
        self.now = self.now + Nanos::from_millis(20);
        self.deliver();
        segments
    }

    /// Both ends of two channels begin.
    pub fn connect_over_channels(&mut self, host: usize) {
        let [a, b] = ends();
        let flow = if host == 0 { Flow { local: a, remote: b } } else { Flow { local: b, remote: a } };
        let (rings, outbox, inbox) = self.rings(host);
        let (config, now) = (self.config, self.now);
        let index = self.hosts[host].tcp.connect_over_channels(flow, &config, rings, now).ok();
        assert_eq!(index, Some(4), "its number is no flow's");
        self.add(host, 4, outbox, inbox);
    }

    pub fn carry(&mut self, to: usize, packet: Vec<u8>) {
        if to == 0 && punctual_tcp::wire::parse(&packet).expect("a segment").flags.fin {
            self.fin.clone_from(&packet);
        }
        let mut is_hit = || self.random.next() % 1_000 < self.faults;
        let (is_lost, is_twice, is_late) = (is_hit(), is_hit(), is_hit());
        if is_lost {
            return;
        }
        let at = self.now + if is_late { DELAY * 4 } else { DELAY };
        for _ in 0..1 + u8::from(is_twice) {
            self.count += 1;
            self.on_the_way.insert((at, self.count), (to, packet.clone()));
        }
    }

    /// Early demultiplexing: a packet goes to its flow's queue, or to the listener's.
    pub fn deliver(&mut self) {
        while let Some(entry) = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, packet) = entry.remove();
            let flow = punctual_tcp::wire::parse(&packet).expect("a segment").flow;
            let frame = self.pool.frame(&packet);
            let host = &mut self.hosts[to];
            match host.flows.get(&flow) {
                Some(index) => assert!(host.tcp.arrived(*index, frame, self.now).is_ok()),
                // Without a listener it is lost.
                None if to == 1 => drop(host.tcp.arrived_at_listener(0, frame, 0x0a0b)),
                None => {}
            }
        }
    }

    /// Calls the handlers that have work, each once, for at most two units.
    pub fn call(&mut self) -> bool {
        let mut worked = false;
        for number in 0..2 {
            let now = self.now;
            let mut out = Out { packets: Vec::new(), room: 64 };
            let host = &mut self.hosts[number];
            let units = host.tcp.listen_unit(0, 2, now, &mut out).units;
            assert!(out.packets.iter().all(|(_, address)| *address == 0x0a0b), "answered where it came from");
            worked |= units > 0;
            while let Some(index) = host.tcp.poll_woken() {
                assert!(host.programs.iter().any(|program| program.index == index));
            }
            for index in host.programs.iter().map(|program| program.index) {
                worked |= host.tcp.input(index, 2, now).units > 0;
                if host.tcp.due(index, now).is_some_and(|due| due <= now) {
                    let made = host.tcp.output(index, 2, now, &mut out);
                    assert!(made.units <= 2, "no more than it was given");
                    worked |= made.units > 0;
                }
            }
            if let Some(accepted) = host.tcp.accept(0).filter(|_| self.adopts) {
                let (rings, outbox, inbox) = self.rings(number);
                match self.hosts[number].tcp.adopt(accepted, rings) {
                    Ok(index) if !self.refuses => self.add(number, index, outbox, inbox),
                    adopted => out.packets.extend(self.refuse(number, adopted)),
                }
                worked = true;
            }
            out.packets.into_iter().for_each(|(packet, _)| self.carry(1 - number, packet));
        }
        worked
    }

    /// The reset for the peer of a connection that cannot begin.
    pub fn refuse(
        &mut self,
        host: usize,
        adopted: Result<u32, (Accepted<TestMemory>, Rings<TestMemory>)>,
    ) -> Option<(Vec<u8>, u64)> {
        assert!(self.refuses, "room");
        let tcp = &mut self.hosts[host].tcp;
        let reset = match adopted {
            Ok(index) => {
                let reset = tcp.refuse(index, self.now);
                assert!(tcp.remove(index).is_some());
                reset
            }
            Err((accepted, _)) => accepted.refuse(self.now),
        };
        let Reset { packet, address } = reset.expect("its peer has seen it open");
        assert_eq!(address, 0x0a0b, "where the peer's segments came from");
        Some((packet, address))
    }

    pub fn next(&mut self) -> Option<Instant> {
        let now = self.now;
        let mut next = self.on_the_way.first_key_value().map(|(key, _)| key.0);
        for host in &mut self.hosts {
            let indices: Vec<u32> = host.programs.iter().map(|program| program.index).collect();
            let dues = indices.into_iter().filter_map(|index| host.tcp.due(index, now)).collect::<Vec<_>>();
            next = dues.into_iter().chain(host.tcp.listener_due(0)).chain(next).min();
        }
        next
    }

    /// Runs until `done`, at most for `within`; whether it was done. `turn` is what the programs do between the calls.
    pub fn run(
        &mut self,
        within: Nanos,
        mut turn: impl FnMut(&mut Self),
        done: impl Fn(&Self) -> bool,
    ) -> bool {
        let end = self.now + within;
        while self.now < end {
            turn(self);
            self.deliver();
            while self.call() || self.has_read() {
                turn(self);
            }
            if done(self) {
                return true;
            }
            self.now = self.next().unwrap_or(end).max(self.now + Nanos(1_000)).min(end);
        }
        false
    }

    /// Whether a program has something to read that it will take: as its doorbell, it has handlers called again.
    pub fn has_read(&mut self) -> bool {
        let seen = self.hosts.iter().flat_map(|host| &host.programs).map(|program| program.read.len()).sum();
        std::mem::replace(&mut self.seen, seen) != seen
    }

    pub fn status(&self, host: usize) -> Option<Status> {
        self.hosts[host].tcp.status(self.hosts[host].programs.first()?.index)
    }

    /// The program of `host` reads what is there.
    pub fn read(&mut self, host: usize) {
        let Some(program) = self.hosts[host].programs.first_mut() else { return };
        let mut take = |bytes: &[u8], info: MessageInfo| {
            program.saw_end |= info.len == 0;
            program.read.extend_from_slice(bytes);
        };
        while program.inbox.recv(&mut take) {}
    }

    pub fn program(&self, host: usize) -> Option<&Program> {
        self.hosts[host].programs.first()
    }
}
