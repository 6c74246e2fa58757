//! Received packets of a neighbour: whether they are for this node, which life they belong to, and their
//! content.

use super::*;

impl Peer {
    /// Handles an authentic packet. Messages are then read with [`Self::next_message`].
    pub fn handle(
        &mut self,
        packet: &Packet<'_>,
        received: Instant,
        now: Instant,
    ) -> Result<Option<Change>, Ignored> {
        if packet.from != self.node || packet.to != self.here {
            return Err(Ignored::Misdirected);
        }
        let change = match &mut self.association {
            Some(known) if is_same(known.life, packet.life) => {
                if !known.window.take(packet.number) && holds(Defence::ReplayWindow) {
                    return Err(Ignored::Replayed);
                }
                None
            }
            _ => self.meet(packet, received, now)?,
        };
        if self.association.as_ref().is_some_and(|known| is_same(known.life, packet.life)) {
            self.last_received = self.last_received.max(now);
            self.take_in(packet, received, now);
        }
        Ok(change)
    }

    /// Handles a packet of another `version` from a member of the domain. If packets of our version were
    /// received as well, only silence in our version decides: this packet may be a recording of an earlier
    /// life.
    pub fn handle_foreign(&mut self, version: u8, now: Instant) -> Option<Change> {
        self.reports.packets_foreign += 1;
        self.reports.foreign = Some((version, now));
        let awaited = match self.presence {
            Presence::Alive => return None,
            Presence::Awaited => true,
            Presence::Dead | Presence::Foreign(_) => false,
        };
        self.presence = Presence::Foreign(version);
        self.last_received = now;
        // No message has been sent yet: before a neighbour is met only HELLOs are sent.
        self.clear_outgoing();
        awaited.then_some(Change::Lost { restarted: false })
    }

    /// Handles a packet of a life that is not the known one.
    fn meet(
        &mut self,
        packet: &Packet<'_>,
        received: Instant,
        now: Instant,
    ) -> Result<Option<Change>, Ignored> {
        let Body::Hello(hello) = packet.body else { return Err(Ignored::Replayed) };
        let fresh =
            hello.echo.is_some_and(|echo| self.hellos.nonces.iter().any(|(nonce, _)| *nonce == echo.nonce));
        if fresh {
            return Ok(self.adopt(packet, now));
        }
        // A late reply begins nothing: otherwise two slow ends would answer each other's replies without end,
        // each too late again, and have no time for other work.
        if hello.step != HelloStep::First {
            return Err(Ignored::Replayed);
        }
        let gap = self.hellos.interval / UNKNOWN_ANSWERED_PER_INTERVAL;
        if self.hellos.unknown_answered.is_some_and(|last| now.since(last) < gap) {
            return Err(Ignored::Replayed);
        }
        self.hellos.unknown_answered = Some(now);
        self.hellos.echo = Some(Echo { nonce: hello.nonce, received });
        self.hellos.due = Some(HelloStep::Second);
        Ok(None)
    }

    fn adopt(&mut self, packet: &Packet<'_>, now: Instant) -> Option<Change> {
        let window = ReplayWindow::starting_at(packet.number);
        let stream = ReceiveStream::default();
        let former = self.association.replace(Association { life: packet.life, window, stream });
        self.presence = Presence::Alive;
        self.met.is_news = true;
        self.met.at = now;
        self.met.lives = self.met.lives.wrapping_add(1);
        self.reports.their_received = None;
        self.reports.foreign = None;
        let former = former?;
        self.clear_outgoing();
        self.travel.clock.clear();
        self.travel.newest_sent = None;
        Some(Change::Lost { restarted: former.life.epoch != packet.life.epoch })
    }

    /// Handles a fresh packet of the known life.
    fn take_in(&mut self, packet: &Packet<'_>, received: Instant, now: Instant) {
        if packet.peer_life == Some(self.life) {
            self.send.acknowledge(packet.received);
        }
        match packet.body {
            Body::Hello(hello) => self.take_hello(&hello, received, now),
            Body::Segment { number, bytes } if packet.peer_life == Some(self.life) => {
                self.envelope.acknowledge = true;
                if let Some(known) = &mut self.association {
                    known.stream.take(number, bytes);
                }
            }
            Body::Segment { .. } | Body::Acknowledgement => {}
        }
    }

    fn take_hello(&mut self, hello: &Hello, received: Instant, now: Instant) {
        self.travel.clock.set_tolerance(Ppm(self.hellos.tolerance.0.saturating_add(hello.tolerance.0)));
        let breaks = self.travel.clock.breaks();
        self.travel.clock.note_offset(hello.sent, received);
        if self.reports.their_received.is_none_or(|(_, at)| at < hello.sent) {
            self.reports.their_received = Some((hello.received_bytes, hello.sent));
        }
        if let Some((sent, echo)) = hello.echo.and_then(|echo| Some((self.echoed(echo.nonce)?, echo))) {
            self.travel.clock.echoed(sent, echo.received);
            self.travel.clock.exchanged(received.since(sent), hello.sent.since(echo.received));
        }
        if self.travel.clock.breaks() != breaks {
            // Judgements by a clock that was stepped meanwhile prove nothing.
            self.travel.watch.forget_recent();
        }
        self.judge_travel(hello, received, now);
        self.travel.theirs_max = hello.travel_max;
        self.hellos.echo = Some(Echo { nonce: hello.nonce, received });
        match hello.step {
            HelloStep::First => {
                self.hellos.due = Some(HelloStep::Second);
                // The end that began keeps beginning: one exchange per interval serves both ends.
                let eighth = self.hellos.interval / 8;
                self.hellos.at =
                    now + self.hellos.interval + eighth + Nanos(self.hellos.random.below(eighth.0));
            }
            HelloStep::Second => self.hellos.due = Some(HelloStep::Third),
            HelloStep::Third => {}
        }
    }

    /// The time at which our HELLO with `nonce` was sent; the nonce cannot be echoed again.
    fn echoed(&mut self, nonce: u64) -> Option<Instant> {
        let index = self.hellos.nonces.iter().position(|(known, _)| *known == nonce)?;
        let (_, sent) = self.hellos.nonces[index];
        // Older nonces could only be echoed by a recording, or by a reordered packet.
        self.hellos.nonces.drain(..=index);
        Some(sent)
    }

    /// Records a HELLO that came later than its sender's departure time and the link allow, by more than the
    /// clock's error bound. A HELLO that was sent before one that has already come is no evidence: any
    /// attacker on the link can replay it.
    fn judge_travel(&mut self, hello: &Hello, received: Instant, now: Instant) {
        if self.travel.newest_sent.is_some_and(|newest| hello.sent <= newest) {
            return;
        }
        self.travel.newest_sent = Some(hello.sent);
        if self.travel.clock.is_doubted() {
            return;
        }
        let Some(clock) = self.travel.clock.offset(received) else { return };
        let due = clock.to_ours(hello.sent) + hello.departure + hello.travel_max + clock.error;
        if received > due && !self.travel.is_excused {
            self.travel.watch.late(received.since(due), now);
        }
    }

    /// The next message of the neighbour. An invalid message gives the neighbour up.
    pub fn next_message(&mut self) -> Option<Message> {
        let bytes = match self.association.as_mut()?.stream.next_message() {
            Ok(bytes) => bytes?,
            Err(_) => {
                self.broken = true;
                return None;
            }
        };
        let message = Message::decode(&bytes);
        self.broken |= message.is_none();
        message
    }
}
