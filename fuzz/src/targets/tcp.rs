//! Two TCP stacks, a wire between them that the input controls, and a forger who has read every packet.

use std::collections::VecDeque;

use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Config, ConnectionId, Flags, Flow, Quote, Secrets, Segment, Stack, icmp, wire};

use crate::input::{Input, put_bytes};

/// Segments that one host may make at one instant: many times what its buffers hold. More is a loop without an end.
const SEGMENTS_AT_ONCE_MAX: usize = 5_000;
/// Packets that the wire keeps in each direction; the oldest are lost.
const PACKETS_ON_WIRE_MAX: usize = 64;
const BUFFER_BYTES: usize = 4_096;
const MTU_BYTES: u16 = 1_500;
/// Here the buffers hold seven segments: enough for selective acknowledgements to repair a loss.
const SMALL_MTU_BYTES: u16 = 576;

struct World {
    now: Instant,
    mtu_bytes: u16,
    stacks: [Stack; 2],
    /// The connection of each host, if it has one.
    ids: [Option<ConnectionId>; 2],
    /// Packets to each host.
    wire: [VecDeque<Vec<u8>>; 2],
    /// Numbers of the last segment to each host: what a forger on the path knows.
    seen: [Option<Segment>; 2],
    /// Bytes that each host's program has sent and that the other's has read, while no segment was forged.
    sent: [u64; 2],
    read: [u64; 2],
    has_forger: bool,
}

fn config(mtu_bytes: u16) -> Config {
    Config { receive_bytes: BUFFER_BYTES, send_bytes: BUFFER_BYTES, mtu_bytes, ..Config::default() }
}

fn byte(host: usize, at: u64) -> u8 {
    (at as u8).wrapping_mul(31).wrapping_add(host as u8)
}

impl World {
    fn new(mtu_bytes: u16) -> Self {
        let config = config(mtu_bytes);
        let mut stacks = [1, 2].map(|host| Stack::new(Secrets::new([host; 16])));
        let (client, server) = (std::net::IpAddr::from([10, 0, 0, 1]), ([10, 0, 0, 2], 80).into());
        let now = Instant(1_000_000_000);
        stacks[1].listen(server, &config, 2);
        let id = stacks[0].connect(now, client, server, &config).ok();
        Self {
            now,
            mtu_bytes,
            stacks,
            ids: [id, None],
            wire: Default::default(),
            seen: [None; 2],
            sent: [0; 2],
            read: [0; 2],
            has_forger: false,
        }
    }

    /// Puts a packet that `from` made on the wire. It must be one that this stack accepts itself.
    fn carry(&mut self, from: usize, packet: Vec<u8>) {
        let to = 1 - from;
        let segment = wire::parse(&packet).expect("a stack makes well-formed segments");
        assert!(packet.len() <= usize::from(self.mtu_bytes), "{} bytes", packet.len());
        self.seen[to] = Some(segment);
        self.wire[to].push_back(packet);
        if self.wire[to].len() > PACKETS_ON_WIRE_MAX {
            self.wire[to].pop_front();
        }
    }

    fn arrive(&mut self, to: usize, mut packet: Vec<u8>) {
        let mut reply = Vec::new();
        let _ = self.stacks[to].input(self.now, &mut packet, &mut reply);
        if !reply.is_empty() {
            self.carry(to, reply);
        }
        if let Some(id) = self.stacks[1].accept(([10, 0, 0, 2], 80).into()) {
            self.ids[1] = Some(id);
        }
    }

    fn make(&mut self) {
        for host in 0..2 {
            let mut made = 0;
            let mut packet = Vec::new();
            while self.stacks[host].output(self.now, &mut packet) {
                made += 1;
                assert!(made <= SEGMENTS_AT_ONCE_MAX, "host {host} sends without an end");
                self.carry(host, std::mem::take(&mut packet));
            }
        }
    }

    /// Moves to the next timer of either host, `span` at most.
    fn pass(&mut self, span: Nanos) {
        let end = self.now + span;
        let now = self.now;
        let next = self.stacks.iter_mut().filter_map(|stack| stack.next_deadline(now)).min();
        self.now = next.unwrap_or(end).clamp(now + Nanos(1_000), end.max(now + Nanos(1_000)));
        self.make();
    }

    /// Whether no packet is on the wire and no timer runs: nothing more will happen.
    fn is_at_rest(&mut self) -> bool {
        let now = self.now;
        self.wire.iter().all(VecDeque::is_empty)
            && self.stacks.iter_mut().all(|stack| stack.next_deadline(now).is_none())
    }

    fn send(&mut self, host: usize, length: usize) {
        let Some(connection) = self.ids[host].and_then(|id| self.stacks[host].get(id)) else { return };
        let bytes: Vec<u8> = (0..length as u64).map(|at| byte(host, self.sent[host] + at)).collect();
        self.sent[host] += connection.send(&bytes).unwrap_or(0) as u64;
        self.make();
    }

    fn receive(&mut self, host: usize) {
        let Some(connection) = self.ids[host].and_then(|id| self.stacks[host].get(id)) else { return };
        let mut bytes = [0; BUFFER_BYTES];
        let count = connection.recv(&mut bytes);
        let from = self.read[1 - host];
        for (at, got) in (from..).zip(&bytes[..count]) {
            assert!(self.has_forger || *got == byte(1 - host, at), "byte {at} of the stream is another one");
        }
        self.read[1 - host] += count as u64;
        assert!(self.has_forger || self.read[1 - host] <= self.sent[1 - host], "bytes that were not sent");
        self.make();
    }

    /// A segment with numbers near those that the host expects.
    fn forge(&mut self, to: usize, input: &mut Input<'_>) -> Option<()> {
        let base = self.seen[to]?;
        self.has_forger = true;
        let bits = input.u8()?;
        let near = |number: u32, delta: u16| number.wrapping_add(i32::from(delta.cast_signed()) as u32);
        let (seq, ack) = (near(base.seq, input.u16()?), near(base.ack.unwrap_or(0), input.u16()?));
        let options = input.u8()?;
        let segment = Segment {
            seq,
            ack: (bits & 16 != 0).then_some(ack),
            flags: Flags { syn: bits & 1 != 0, fin: bits & 2 != 0, rst: bits & 4 != 0, psh: bits & 8 != 0 },
            window: input.u16()?,
            urgent: (bits & 32 != 0).then_some(u16::from(options) * 17),
            mss: (options & 1 != 0).then_some(u16::from(options) * 3),
            scale: (options & 2 != 0).then_some(options >> 4),
            timestamp: base.timestamp.map(|(value, echo)| (near(value, u16::from(options)), echo)),
            sack: options & 4 != 0,
            ..base
        };
        let payload = input.bytes()?;
        let mut packet = Vec::new();
        wire::write_with(&segment, &payload[..payload.len().min(1_400)], 64, false, &mut packet);
        self.arrive(to, packet);
        Some(())
    }

    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let op = input.u8()?;
        let host = usize::from(op >> 7);
        match op & 15 {
            0 => self.pass(Nanos::from_micros(u64::from(input.u32()?))),
            1 => self.send(host, usize::from(input.u16()?) % (2 * BUFFER_BYTES)),
            2 => self.receive(host),
            3 => {
                self.ids[host].and_then(|id| self.stacks[host].get(id)).into_iter().for_each(|it| it.close())
            }
            4 => {
                self.ids[host].and_then(|id| self.stacks[host].get(id)).into_iter().for_each(|it| it.abort())
            }
            // A packet of the wire arrives, is repeated, or is lost; any of them, so they arrive in any order.
            5..=8 => {
                let at = usize::from(input.u8()?);
                let packets = &mut self.wire[host];
                let at = at.checked_rem(packets.len())?;
                let packet = if op & 15 == 6 { packets.get(at).cloned() } else { packets.remove(at) }?;
                if op & 15 != 7 {
                    self.arrive(host, packet);
                }
            }
            9 => self.forge(host, input)?,
            10 => {
                self.has_forger = true;
                let packet = input.bytes()?.to_vec();
                self.arrive(host, packet);
            }
            // An honest wire for a while.
            _ => {
                for _ in 0..4 {
                    for to in 0..2 {
                        let packets = std::mem::take(&mut self.wire[to]);
                        packets.into_iter().for_each(|packet| self.arrive(to, packet));
                    }
                    self.make();
                }
            }
        }
        self.make();
        Some(())
    }
}

/// A conversation of two hosts over a wire that loses, repeats, reorders and forges, as the input determines.
pub fn segment(data: &[u8]) {
    let mut world = World::new(SMALL_MTU_BYTES);
    let mut input = Input::new(data);
    world.make();
    while world.step(&mut input).is_some() {}
    // Whatever came: an honest wire and time end every timer that works off what is left.
    for _ in 0..50 {
        if world.is_at_rest() {
            break;
        }
        let _ = world.step(&mut Input::new(&[15]));
        world.pass(Nanos::from_secs(60));
    }
}

/// Conversations that honest programs have, and one with a forger.
pub fn segment_seeds() -> Vec<Vec<u8>> {
    let wire = || vec![15];
    let send = |host: u8, length: u16| {
        let [low, high] = length.to_le_bytes();
        vec![host << 7 | 1, low, high]
    };
    let wait = |micros: u32| [vec![0], micros.to_le_bytes().to_vec()].concat();
    let talk = [wire(), send(0, 3_000), wire(), vec![0x82], send(1, 1_000), wire(), vec![2]].concat();
    let end = [vec![3], wire(), vec![0x83], wire(), wait(100_000_000)].concat();
    let loss = [vec![7, 0, 7, 0], wait(2_000_000), wire(), vec![0x87, 0], wait(4_000_000), wire()].concat();
    // The first and the third of seven segments are lost: the others' acknowledgements are selective, and no timer is needed.
    let gaps = [wire(), send(0, 4_000), vec![0x87, 0, 0x87, 1], wire(), wire(), vec![0x82]].concat();
    let mut forged = vec![0x89, 16, 1, 0, 0, 0, 0, 100, 0];
    put_bytes(&mut forged, b"forged");
    vec![
        [talk.clone(), end.clone()].concat(),
        [send(0, 100), loss, talk.clone(), end].concat(),
        [talk.clone(), forged.clone(), wire(), vec![4], wire()].concat(),
        [talk, vec![0x89, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0], wire()].concat(),
        gaps,
    ]
}

/// An ICMP error, at a stack with a connection that the quoted segment may belong to. None ends it once it is open.
pub fn quote(data: &[u8]) {
    let _: Option<Quote> = icmp::parse(data);
    let mut world = World::new(MTU_BYTES);
    world.make();
    let _ = world.step(&mut Input::new(&[15]));
    let id = world.ids[1].expect("the connection is open");
    world.send(1, 2_000);
    let (mut packet, mut reply) = (data.to_vec(), Vec::new());
    let _ = world.stacks[1].input(world.now, &mut packet, &mut reply);
    let connection = world.stacks[1].get(id).expect("it stays");
    assert_eq!(connection.ended(), None, "an ICMP error ended an open connection (RFC 5927 5.2)");
    assert!(connection.path_mtu_bytes() >= 552, "{} bytes", connection.path_mtu_bytes());
    world.make();
}

/// Errors as routers send them, about the segment in flight and about others.
pub fn quote_seeds() -> Vec<Vec<u8>> {
    let mut world = World::new(MTU_BYTES);
    world.make();
    let _ = world.step(&mut Input::new(&[15]));
    world.send(1, 2_000);
    let ours = world.wire[0].back().cloned().expect("a segment in flight");
    let flow = Flow { local: ([10, 0, 0, 2], 80).into(), remote: ([10, 0, 0, 1], 9).into() };
    let mut other = Vec::new();
    wire::write(&Segment { flow, ..wire::parse(&ours).expect("ours") }, 64, true, &mut other);
    let kinds = [(3, 4, 1_280_u16), (3, 4, 0), (3, 1, 0), (3, 3, 0), (11, 0, 0)];
    let errors = |quoted: &[u8]| kinds.map(|(kind, code, mtu)| error(kind, code, mtu, quoted));
    [errors(&ours), errors(&other)].concat()
}

/// An IPv4 packet with an ICMP error that quotes the beginning of a packet (RFC 792).
fn error(kind: u8, code: u8, mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let quoted = &quoted[..quoted.len().min(28)];
    let mut icmp = vec![kind, code, 0, 0, 0, 0];
    icmp.extend_from_slice(&mtu.to_be_bytes());
    icmp.extend_from_slice(quoted);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let total = (20 + icmp.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend_from_slice(&total.to_be_bytes());
    ip.extend_from_slice(&[0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 9, 10, 0, 0, 2]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [ip, icmp].concat()
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
