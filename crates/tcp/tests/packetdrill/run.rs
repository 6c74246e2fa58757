//! Scripts at work: the stack at one end, the script at the other.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use punctual_analysis::{Instant, Nanos};
use punctual_tcp::{Config, ConnectionId, Flags, Flow, Secrets, Segment, Stack, wire};

use crate::parse::{Action, Packet, Step, When};

/// How far a packet may be from its time.
const TOLERANCE: Nanos = Nanos::from_millis(15);
const START: Instant = Instant(1_000_000_000);

struct Run {
    stack: Stack,
    now: Instant,
    sent: VecDeque<(Instant, Segment, u32)>,
    iss: Option<u32>,
    flow: Flow,
    sockets: BTreeMap<i64, ConnectionId>,
    config: Config,
    /// Sockets whose reading side the script has closed.
    unread: Vec<ConnectionId>,
}

/// Runs a script; the first difference from the script is the error.
pub fn run(steps: &[Step]) -> Result<(), String> {
    let mut run = Run {
        stack: Stack::new(Secrets::new([5; 16])),
        now: START,
        sent: VecDeque::new(),
        iss: None,
        flow: Flow {
            local: SocketAddr::from(([192, 168, 0, 1], 8080)),
            remote: SocketAddr::from(([192, 0, 2, 1], 40_000)),
        },
        sockets: BTreeMap::new(),
        config: Config { has_timestamps: true, ..Config::default() },
        unread: Vec::new(),
    };
    let mut at = START;
    for step in steps {
        at = match step.when {
            When::Absolute(ns) => START + Nanos(ns),
            When::After(ns) => at + Nanos(ns),
        };
        run.step(at, &step.action).map_err(|error| format!("line {}: {error}", step.line))?;
    }
    run.advance(at);
    run.sent.front().map_or(Ok(()), |(_, segment, _)| Err(format!("nobody expects {segment:?}")))
}

impl Run {
    fn step(&mut self, at: Instant, action: &Action) -> Result<(), String> {
        match action {
            Action::Out(packet) => self.expect(at, packet),
            Action::In(packet) => {
                self.advance(at);
                self.unexpected()?;
                self.inject(packet)
            }
            Action::Call { name, arguments, result } => {
                self.advance(at);
                let got = self.call(name, arguments, *result)?;
                self.drain();
                match result {
                    Some(result) if *result != got => Err(format!("{name} gives {got}, not {result}")),
                    _ => Ok(()),
                }
            }
        }
    }

    /// A packet that left before the last moment that its expectation could have had.
    fn unexpected(&self) -> Result<(), String> {
        match self.sent.front() {
            Some((at, segment, _)) if *at + TOLERANCE < self.now => {
                Err(format!("nobody expected {segment:?}"))
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, to: Instant) {
        self.drain();
        while let Some(next) = self.stack.next_deadline(self.now).filter(|next| *next <= to) {
            self.now = next.max(self.now + Nanos(1_000)).min(to.max(self.now));
            self.drain();
            if self.now >= to {
                break;
            }
        }
        self.now = self.now.max(to);
        self.drain();
    }

    fn drain(&mut self) {
        let mut packet = Vec::new();
        while self.stack.output(self.now, &mut packet) {
            self.note(&packet);
        }
    }

    fn note(&mut self, packet: &[u8]) {
        let segment = wire::parse(packet).expect("our own segment");
        if segment.flags.syn {
            self.iss = Some(segment.seq);
            self.flow = Flow { local: segment.flow.remote, remote: segment.flow.local };
        }
        self.sent.push_back((self.now, segment, u32::from(segment.payload_bytes)));
    }

    fn expect(&mut self, at: Instant, packet: &Packet) -> Result<(), String> {
        if self.sent.is_empty() {
            self.advance(at + TOLERANCE);
        }
        let (left, mut segment, mut payload) = self.sent.pop_front().ok_or("nothing was sent")?;
        // A script shows several segments as one where the kernel leaves the cutting to the device.
        while payload > 0 && payload < packet.payload {
            let Some((_, next, more)) = self.sent.front().copied() else { break };
            if more == 0 || next.seq != segment.seq.wrapping_add(payload) {
                break;
            }
            self.sent.pop_front();
            (payload, segment) = (payload + more, Segment { seq: segment.seq, ..next });
        }
        if left.minus(at).unsigned_abs() > TOLERANCE.as_u64() {
            return Err(format!("sent {} ms off: {segment:?}", left.minus(at) / 1_000_000));
        }
        let same = [
            segment.seq.wrapping_sub(self.iss.unwrap_or(segment.seq)) == packet.seq,
            payload == packet.payload,
            segment.ack == packet.ack,
            flags_of(&packet.flags) == Flags { psh: flags_of(&packet.flags).psh, ..segment.flags },
            packet.window.is_none_or(|window| window == segment.window),
            segment.urgent == packet.urgent,
            packet.any_options || (packet.mss == segment.mss && packet.sack == segment.sack),
            packet.any_options || packet.scale.is_some() == segment.scale.is_some(),
            // Our clock begins anywhere, so only the echo is compared.
            packet.any_options
                || packet.timestamp.map(|(_, echo)| echo) == segment.timestamp.map(|(_, echo)| echo),
        ];
        let names = ["number", "length", "ack", "flags", "window", "urgent", "options", "scale", "timestamp"];
        let differs: Vec<_> =
            names.iter().zip(same).filter_map(|(name, same)| (!same).then_some(*name)).collect();
        if differs.is_empty() {
            return Ok(());
        }
        let from = segment.seq.wrapping_sub(self.iss.unwrap_or(segment.seq));
        let Segment { ack, flags, .. } = segment;
        Err(format!("sent {from}({payload}) ack {ack:?} {flags:?}: another {}", differs.join(", ")))
    }

    fn inject(&mut self, packet: &Packet) -> Result<(), String> {
        let ack = packet.ack.map(|ack| ack.wrapping_add(self.iss.unwrap_or(0)));
        let timestamp = packet.timestamp;
        let segment = Segment {
            flow: self.flow,
            seq: packet.seq,
            ack: ack.filter(|_| packet.flags.contains('.')),
            flags: flags_of(&packet.flags),
            window: packet.window.unwrap_or(0),
            urgent: packet.urgent,
            payload_bytes: 0,
            mss: packet.mss,
            scale: packet.scale,
            timestamp,
            sack: packet.sack,
        };
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        wire::write_with(&segment, &vec![0; packet.payload as usize], 64, false, &mut bytes);
        self.stack.input(self.now, &mut bytes, &mut reply).map_err(|error| error.to_string())?;
        if !reply.is_empty() {
            self.note(&reply);
        }
        self.drain();
        Ok(())
    }

    fn call(&mut self, name: &str, arguments: &[String], result: Option<i64>) -> Result<i64, String> {
        let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<i64>().ok());
        let says = |it: &str| arguments.iter().any(|text| text == it);
        let id = number(0).and_then(|socket| self.sockets.get(&socket).copied());
        match (name, id) {
            ("socket", _) => Ok(result.unwrap_or(3)),
            ("bind" | "fcntl", _) => Ok(0),
            ("setsockopt", _) if arguments.iter().any(|text| text == "TCP_NODELAY") => {
                self.config.is_nodelay = true;
                Ok(0)
            }
            ("setsockopt", _) if arguments.iter().any(|text| text == "TCP_KEEPIDLE") => {
                let value = arguments.get(3).map(|text| text.trim_matches(['[', ']']));
                let seconds =
                    value.and_then(|text| text.parse().ok()).ok_or("TCP_KEEPIDLE needs [SECONDS]")?;
                self.config.keep_alive = Some(Nanos::from_secs(seconds));
                Ok(0)
            }
            // Buffers are hints.
            ("setsockopt", _) if ["SO_REUSEADDR", "SO_SNDBUF", "SO_RCVBUF"].iter().any(|it| says(it)) => {
                Ok(0)
            }
            ("listen", _) => {
                self.stack.listen(self.flow.local, &self.config, 16);
                Ok(0)
            }
            ("connect", _) => {
                let (local, remote) = (self.flow.local.ip(), SocketAddr::from(([192, 0, 2, 1], 8080)));
                let id =
                    self.stack.connect(self.now, local, remote, &self.config).map_err(|e| e.to_string())?;
                self.sockets.insert(number(0).ok_or("connect needs a socket")?, id);
                Ok(result.unwrap_or(0))
            }
            ("accept", _) => {
                let id = self.stack.accept(self.flow.local).ok_or("nothing to accept")?;
                let socket = result.unwrap_or(4);
                self.sockets.insert(socket, id);
                Ok(socket)
            }
            (_, Some(id)) => {
                let what = arguments.get(1).map(String::as_str);
                self.call_open(name, id, what, number(2).unwrap_or(0) as usize)
            }
            _ => Err(format!("unknown call {name}")),
        }
    }

    fn call_open(
        &mut self,
        name: &str,
        id: ConnectionId,
        what: Option<&str>,
        length: usize,
    ) -> Result<i64, String> {
        let Some(connection) = self.stack.get(id) else { return Ok(-1) };
        match name {
            "write" | "send" => Ok(connection.send(&vec![0; length]).map_or(-1, |taken| taken as i64)),
            "read" | "recv" => {
                let read = connection.recv(&mut vec![0; length]) as i64;
                let is_over = connection.is_finished() || self.unread.contains(&id);
                Ok(if read == 0 && !is_over { -1 } else { read })
            }
            // Of our side alone: the peer is not notified.
            "shutdown" if what == Some("SHUT_RD") => {
                self.unread.push(id);
                Ok(0)
            }
            "close" | "shutdown" => {
                if what == Some("SHUT_RDWR") {
                    self.unread.push(id);
                }
                // As `endsystem` does for a program that goes with bytes unread (RFC 2525 2.17).
                match name == "close" && connection.readable_bytes() > 0 {
                    true => connection.abort(),
                    false => connection.close(),
                }
                Ok(0)
            }
            _ => Err(format!("unknown call {name}")),
        }
    }
}

fn flags_of(text: &str) -> Flags {
    let has = |letter| text.contains(letter);
    Flags { syn: has('S'), fin: has('F'), rst: has('R'), psh: has('P') }
}
