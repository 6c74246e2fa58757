//! A listener: it replies to SYNs, stores a bounded number of half-open connections, and reports completed
//! handshakes. Beyond its backlog it replies with SYN cookies, so that a flood of SYNs costs it no memory
//! (RFC 4987 3.6).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use crate::config::Config;
use crate::cookie;
use crate::handshake::{Handshake, Opening, shift_of};
use crate::secrets::Secrets;
use crate::sequence::before;
use crate::wire::{self, Flags, Flow, IPV4_BYTES, IPV6_BYTES, Segment, TCP_BYTES, bare};

/// First wait for the third segment of a handshake (RFC 6298 2); it doubles each time.
const FIRST_WAIT: Nanos = Nanos::from_secs(1);
/// Retransmissions of a SYN-ACK before a half-open connection is dropped.
const RETRIES: u32 = 5;
/// How long cookies are accepted after the last one was sent (two slots, `cookie`).
const COOKIE_LIFE: Nanos = Nanos::from_secs(128);

#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    shake: Handshake,
    due: Instant,
    sent: u32,
}

/// Result of a listener for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No connection was opened; there may be a reply.
    Done,
    /// The segment completes a handshake: it is the first of the connection that [`crate::Connection`] takes over.
    Opened(Opening),
}

/// What a listener has done with SYNs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynCounts {
    /// New SYNs that were answered by a cookie, because as many connections as the backlog were half-open.
    pub cookies: u64,
    /// New SYNs that got no reply, because as many connections as the backlog waited for the program.
    pub unanswered: u64,
}

/// Replies to the SYNs to one local address and port.
#[derive(Debug)]
pub struct Listener {
    config: Config,
    backlog: usize,
    half_open: BTreeMap<Flow, HalfOpen>,
    due: BTreeSet<(Instant, Flow)>,
    cookies_until: Option<Instant>,
    counts: SynCounts,
}

impl Listener {
    /// A listener that stores `backlog` half-open connections; with 0 it always replies with cookies.
    pub fn new(config: &Config, backlog: usize) -> Self {
        let (half_open, due) = (BTreeMap::new(), BTreeSet::new());
        Self { config: *config, backlog, half_open, due, cookies_until: None, counts: SynCounts::default() }
    }

    /// Number of stored half-open connections.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// What became of SYNs so far.
    pub const fn counts(&self) -> SynCounts {
        self.counts
    }

    /// Settings of the connections that it opens.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Processes a segment that belongs to no connection. A packet that must leave at once is in `reply`,
    /// which is empty otherwise. `has_room` is whether one more connection may be opened. If not, a new SYN
    /// gets no reply and its peer tries again; a peer that has its reply is asked again later.
    pub fn input(
        &mut self,
        now: Instant,
        segment: &Segment,
        secrets: &Secrets,
        has_room: bool,
        reply: &mut Vec<u8>,
    ) -> Answer {
        reply.clear();
        match (segment.flags, segment.ack) {
            (Flags { rst: true, .. }, _) => self.input_reset(segment),
            (Flags { syn: true, .. }, None) => self.input_syn(now, segment, secrets, has_room, reply),
            (Flags { syn: false, .. }, Some(ack)) => {
                return self.input_ack(now, segment, ack, secrets, has_room, reply);
            }
            // RFC 9293 3.10.7.2, second: an acknowledgement without a connection is reset; a segment without
            // one is dropped.
            (_, Some(_)) => {
                wire::reset_for(segment, reply);
            }
            _ => (),
        }
        Answer::Done
    }

    /// Makes one SYN-ACK whose retransmission is due, in `packet`; returns whether there was one. Drops
    /// half-open connections whose peers did not reply.
    pub fn output(&mut self, now: Instant, secrets: &Secrets, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        while let Some(&(due, flow)) = self.due.first() {
            if due > now {
                return false;
            }
            let Some(mut entry) = self.forget(flow) else { return false };
            if entry.sent > RETRIES {
                continue;
            }
            entry.due = now + FIRST_WAIT * (1 << entry.sent);
            entry.sent += 1;
            entry.shake.answered_at = None;
            self.remember(flow, entry);
            self.write_answer(now, &entry.shake, secrets, None, packet);
            return true;
        }
        false
    }

    /// Time at which `output` has work; `None` while no connection is half-open.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    fn remember(&mut self, flow: Flow, entry: HalfOpen) {
        self.due.insert((entry.due, flow));
        self.half_open.insert(flow, entry);
    }

    fn forget(&mut self, flow: Flow) -> Option<HalfOpen> {
        let entry = self.half_open.remove(&flow)?;
        self.due.remove(&(entry.due, flow));
        Some(entry)
    }

    /// RFC 5961 3.2: a reset of a half-open connection must have exactly the next number.
    fn input_reset(&mut self, segment: &Segment) {
        let is_exact = |entry: &HalfOpen| entry.shake.syn.seq.wrapping_add(1) == segment.seq;
        if self.half_open.get(&segment.flow).is_some_and(is_exact) {
            self.forget(segment.flow);
        }
    }

    fn input_syn(
        &mut self,
        now: Instant,
        syn: &Segment,
        secrets: &Secrets,
        has_room: bool,
        reply: &mut Vec<u8>,
    ) {
        let known = self.half_open.get_mut(&syn.flow).filter(|entry| entry.shake.syn.seq == syn.seq);
        if let Some(entry) = known {
            entry.shake.answered_at = None;
            let shake = entry.shake;
            return self.write_answer(now, &shake, secrets, None, reply);
        }
        self.forget(syn.flow);
        if !has_room {
            // A reply would make the peer take for open what nobody accepts.
            self.counts.unanswered += 1;
            return;
        }
        // Payload on a SYN is not kept: the peer sends it again.
        let syn = *syn;
        if self.half_open.len() < self.backlog {
            let iss = secrets.initial_sequence(syn.flow, now);
            let shake = Handshake { syn, iss, answered_at: Some(now) };
            self.remember(syn.flow, HalfOpen { shake, due: now + FIRST_WAIT, sent: 1 });
            return self.write_answer(now, &shake, secrets, None, reply);
        }
        self.counts.cookies += 1;
        self.cookies_until = Some(now + COOKIE_LIFE);
        let shake = Handshake { syn, iss: cookie::bake(secrets, &syn, now), answered_at: None };
        self.write_answer(now, &shake, secrets, Some(&syn), reply);
    }

    fn input_ack(
        &mut self,
        now: Instant,
        segment: &Segment,
        ack: u32,
        secrets: &Secrets,
        has_room: bool,
        reply: &mut Vec<u8>,
    ) -> Answer {
        let known = self.half_open.get(&segment.flow).map(|entry| entry.shake);
        let shake = known.or_else(|| self.remembered(now, segment, secrets));
        let Some(shake) = shake.filter(|shake| shake.iss.wrapping_add(1) == ack) else {
            wire::reset_for(segment, reply);
            return Answer::Done;
        };
        let is_old = before(segment.seq, shake.syn.seq.wrapping_add(1));
        if is_old || !has_room {
            self.ask_later(now, known.is_some(), shake);
            return Answer::Done;
        }
        self.forget(segment.flow);
        Answer::Opened(Opening(shake))
    }

    /// A third segment opens nothing now. It is asked for again, by the retransmission of the SYN-ACK: without that a peer that
    /// waits for data would wait forever. A cookie is stored for it, as far as there is room.
    fn ask_later(&mut self, now: Instant, is_stored: bool, shake: Handshake) {
        // What comes later measures no round trip.
        let shake = Handshake { answered_at: None, ..shake };
        let flow = shake.syn.flow;
        if is_stored {
            if let Some(entry) = self.half_open.get_mut(&flow) {
                entry.shake = shake;
            }
        } else if self.half_open.len() < self.backlog {
            self.remember(flow, HalfOpen { shake, due: now + FIRST_WAIT, sent: 1 });
        }
    }

    /// The state of the SYN, decoded from the cookie in an acknowledgement.
    fn remembered(&self, now: Instant, segment: &Segment, secrets: &Secrets) -> Option<Handshake> {
        self.cookies_until.filter(|until| now < *until)?;
        let mss = cookie::check(secrets, segment, now)?;
        let echoed = segment.timestamp.filter(|_| self.config.has_timestamps);
        let clock = echoed.map(|(_, echo)| echo.wrapping_sub(secrets.timestamp_offset(segment.flow)));
        let (scale, sack) = clock.map_or((None, false), cookie::read_options);
        let syn = Segment {
            seq: segment.seq.wrapping_sub(1),
            flags: Flags { syn: true, ..Flags::default() },
            window: segment.window,
            mss: Some(mss),
            scale,
            timestamp: echoed.map(|(value, _)| (value, 0)),
            sack,
            ..bare(segment.flow)
        };
        // How often its SYN came is not in the cookie.
        Some(Handshake { syn, iss: segment.ack?.wrapping_sub(1), answered_at: None })
    }

    fn write_answer(
        &self,
        now: Instant,
        shake: &Handshake,
        secrets: &Secrets,
        cookie_of: Option<&Segment>,
        packet: &mut Vec<u8>,
    ) {
        let syn = &shake.syn;
        let config = self.config.bounded(syn.flow.is_v6());
        let headers = TCP_BYTES + if syn.flow.is_v6() { IPV6_BYTES } else { IPV4_BYTES };
        let clock = (now.0 / 1_000_000) as u32;
        let clock = cookie_of.map_or(clock, |syn| cookie::options(syn, clock));
        let value = clock.wrapping_add(secrets.timestamp_offset(syn.flow));
        let has_timestamp = syn.timestamp.is_some() && config.has_timestamps;
        // Without a timestamp a cookie has no room for scale and SACK, so they are not offered.
        let has_options = cookie_of.is_none() || has_timestamp;
        let answer = Segment {
            seq: shake.iss,
            ack: Some(syn.seq.wrapping_add(1)),
            flags: Flags { syn: true, ..Flags::default() },
            window: u16::try_from(config.receive_bytes).unwrap_or(u16::MAX),
            mss: Some(config.mtu_bytes - headers as u16),
            scale: syn.scale.filter(|_| has_options).map(|_| shift_of(config.receive_bytes)),
            timestamp: syn.timestamp.filter(|_| has_timestamp).map(|(peer, _)| (value, peer)),
            sack: syn.sack && has_options,
            ..bare(syn.flow)
        };
        wire::write(&answer, config.hop_limit, true, packet);
    }
}
