//! What a neighbour sends: whether it is meant for us, who it is by now, and what its packets say.

use super::*;

impl Peer {
    /// Takes an authentic packet in. Messages are then read with [`Self::next_message`].
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
            self.last_heard = self.last_heard.max(now);
            self.take_in(packet, received, now);
        }
        Ok(change)
    }

    /// A member of the domain speaks another `version`. If the neighbour is heard in ours as well, its silence
    /// decides: this may be a recording of what it was before.
    pub fn handle_foreign(&mut self, version: u8, now: Instant) -> Option<Change> {
        self.told.packets_foreign += 1;
        self.told.foreign = Some((version, now));
        let awaited = match self.presence {
            Presence::Alive => return None,
            Presence::Awaited => true,
            Presence::Dead | Presence::Foreign(_) => false,
        };
        self.presence = Presence::Foreign(version);
        self.last_heard = now;
        // Nothing of it has left yet: before a neighbour is met only HELLOs do.
        self.forget_said();
        awaited.then_some(Change::Lost { restarted: false })
    }

    /// A packet of a life that is not the one we know.
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
        // An answer that comes too late begins nothing: two ends that are slow would answer each other's answers for ever,
        // each too late again, and have no time for anything else.
        if hello.step != HelloStep::First {
            return Err(Ignored::Replayed);
        }
        let gap = self.hellos.interval / STRANGERS_PER_INTERVAL;
        if self.hellos.stranger_answered.is_some_and(|last| now.since(last) < gap) {
            return Err(Ignored::Replayed);
        }
        self.hellos.stranger_answered = Some(now);
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
        self.told.their_received = None;
        self.told.foreign = None;
        let former = former?;
        self.forget_said();
        self.travel.clock.clear();
        self.travel.newest_sent = None;
        Some(Change::Lost { restarted: former.life.epoch != packet.life.epoch })
    }

    /// A fresh packet of the life that we know.
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
        self.travel.clock.heard(hello.sent, received);
        if self.told.their_received.is_none_or(|(_, at)| at < hello.sent) {
            self.told.their_received = Some((hello.received_bytes, hello.sent));
        }
        if let Some((sent, echo)) = hello.echo.and_then(|echo| Some((self.echoed(echo.nonce)?, echo))) {
            self.travel.clock.echoed(sent, echo.received);
            self.travel.clock.exchanged(received.since(sent), hello.sent.since(echo.received));
        }
        if self.travel.clock.breaks() != breaks {
            // What was judged by a clock that was stepped meanwhile proves nothing.
            self.travel.watch.forget_recent();
        }
        self.judge_travel(hello, received, now);
        self.travel.theirs_max = hello.travel_max;
        self.hellos.echo = Some(Echo { nonce: hello.nonce, received });
        match hello.step {
            HelloStep::First => {
                self.hellos.due = Some(HelloStep::Second);
                // The end that began keeps beginning: one exchange an interval serves both ends.
                let eighth = self.hellos.interval / 8;
                self.hellos.at =
                    now + self.hellos.interval + eighth + Nanos(self.hellos.random.below(eighth.0));
            }
            HelloStep::Second => self.hellos.due = Some(HelloStep::Third),
            HelloStep::Third => {}
        }
    }

    /// When the HELLO of ours was sent that has `nonce`; it cannot be echoed again.
    fn echoed(&mut self, nonce: u64) -> Option<Instant> {
        let index = self.hellos.nonces.iter().position(|(known, _)| *known == nonce)?;
        let (_, sent) = self.hellos.nonces[index];
        // Older ones could only be echoed by a recording, or by what was overtaken.
        self.hellos.nonces.drain(..=index);
        Some(sent)
    }

    /// Notes a HELLO that came later than its sender's departure time and the link allow, by more than its
    /// clock may be wrong. A HELLO that was sent before another that has already come proves nothing: anybody
    /// who has the domain's key can send it again.
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

    /// The next message of the neighbour. Garbage gives the neighbour up.
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
