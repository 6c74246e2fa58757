//! Messages to a neighbour: in order, each packet sealed and numbered.

use super::*;

impl Peer {
    /// Queues a message that is neither a reply nor a request; no effect if the neighbour is down. If too
    /// much waits, or the message does not encode, the neighbour is given up at the next timeout, because a
    /// stream with a gap would be worse.
    pub fn queue_message(&mut self, message: &Message) {
        self.put(|outbox| outbox.queue_message(message));
    }
    /// Queues the reply to a request of `source`.
    pub fn answer(&mut self, source: Source, message: &Message) {
        self.put(|outbox| outbox.answer(source, message));
    }
    /// Queues a request of `source`, which is sent in its turn; see [`Self::takes`].
    pub fn ask(&mut self, source: Source, message: &Message, now: Instant) {
        self.put(|outbox| outbox.ask(source, message, now));
    }
    fn put(&mut self, into: impl FnOnce(&mut Outbox) -> Result<(), CannotEncode>) {
        if !self.listens() {
            return;
        }
        self.broken |= into(&mut self.outbox).is_err() || self.outbox.bytes() > SIGNAL_WAITING_BYTES_MAX;
        self.fill();
    }
    fn fill(&mut self) {
        self.broken |= self.outbox.fill(&mut self.send).is_err();
    }

    /// Whether new operations may begin over the link: half of the queue is reserved for ending operations.
    pub const fn has_room(&self) -> bool {
        self.outbox.bytes() < SIGNAL_WAITING_BYTES_MAX / 2
    }
    /// Whether `source` may send one more request.
    pub fn takes(&self, source: Source) -> bool {
        self.has_room() && self.outbox.takes(source)
    }
    /// Removes the CREATE of a channel that was not sent yet.
    pub fn withdraw(&mut self, path: PathId) {
        self.outbox.withdraw(path);
    }
    /// The next request that has waited for too long.
    pub fn poll_late(&mut self) -> Option<Message> {
        self.outbox.poll_late()
    }
    /// Messages to the neighbour that have no place in the stream yet.
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }
    /// Replies that were not sent, because too many waited.
    pub const fn answers_dropped(&self) -> u64 {
        self.outbox.answers_dropped()
    }
    pub(super) fn clear_outgoing(&mut self) {
        self.send.clear();
        self.outbox.clear();
        self.broken = false;
    }

    pub fn has_packet(&self) -> bool {
        self.hellos.due.is_some()
            || self.association.is_some() && (self.envelope.acknowledge || self.send.has_due())
    }
    /// Writes the next packet, whose last bit leaves at `departure` at the latest. Returns its length and
    /// whether it is a retransmission.
    pub fn poll_packet(
        &mut self,
        key: &Key,
        now: Instant,
        departure: Instant,
        out: &mut [u8],
    ) -> Option<(usize, bool)> {
        if let Some(step) = self.hellos.due {
            let nonce = self.hellos.random.next();
            let hello = Hello {
                step,
                nonce,
                sent: now,
                echo: self.hellos.echo,
                tolerance: self.hellos.tolerance,
                departure: match active(Mutation::HelloWithoutDeparture) {
                    true => Nanos::ZERO,
                    false => departure.since(now),
                },
                travel_max: self.travel.ours_max,
                received_bytes: self.reports.received_bytes,
            };
            let seal = self.seal(key);
            let len = key.write(&self.packet(Body::Hello(hello)), &seal, out)?;
            self.hellos.due = None;
            self.hellos.echo = None;
            if self.hellos.nonces.len() == NONCES {
                self.hellos.nonces.pop_front();
            }
            self.hellos.nonces.push_back((nonce, now));
            self.after_packet();
            return Some((len, false));
        }
        self.association.as_ref()?;
        let seal = self.seal(key);
        if let Some((number, bytes)) = self.send.due() {
            let len = key.write(&self.packet(Body::Segment { number, bytes }), &seal, out)?;
            let again = self.send.sent(number, now);
            self.fill();
            self.after_packet();
            return Some((len, again));
        }
        if !self.envelope.acknowledge {
            return None;
        }
        let len = key.write(&self.packet(Body::Acknowledgement), &seal, out)?;
        self.after_packet();
        Some((len, false))
    }
    /// The key of our seals.
    fn seal(&mut self, key: &Key) -> SealKey {
        let (from, to, life) = (self.here, self.node, self.life);
        *self.envelope.seal.get_or_insert_with(|| key.seal_key(from, to, life))
    }
    /// The key of the neighbour's seals, once each time that it was met.
    pub fn poll_seal(&mut self, key: &Key) -> Option<SealKey> {
        let met = core::mem::take(&mut self.met.is_news);
        let life = self.association.as_ref().filter(|_| met)?.life;
        Some(key.seal_key(self.node, self.here, life))
    }
    pub(super) const fn after_packet(&mut self) {
        self.envelope.number += 1;
        self.envelope.acknowledge = false;
    }
    pub(super) fn packet<'a>(&self, body: Body<'a>) -> Packet<'a> {
        Packet {
            version: VERSION,
            from: self.here,
            to: self.node,
            life: self.life,
            peer_life: self.association.as_ref().map(|known| known.life),
            number: self.envelope.number,
            received: self.association.as_ref().map(|known| known.stream.received()).unwrap_or_default(),
            body,
        }
    }
}
