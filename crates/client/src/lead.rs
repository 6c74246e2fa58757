//! A thread of the application that does the engine's work while it waits: no other thread of this host touches the
//! messages that it takes and sends.
//!
//! Such a thread is a handler turned inside out: the code between two of its waits runs on the engine's
//! thread. Therefore the time for it is declared and admitted like a handler's
//! ([`Endsystem::listen_direct`](crate::Endsystem::listen_direct)), for each message that the channel's
//! contract allows. A thread that repeatedly stays away longer loses the lead: the engine moves back to its
//! own thread, and the same calls then wait like those of any other thread.

use std::time::Duration;

use punctual_ipc::ring::{InboxWriter, OutboxReader, now};
use punctual_proto::memory::MessageInfo;
use punctual_proto::{Instant, Nanos};

use crate::channel::Channel;
use crate::error::{Error, RecvError, SendError};
use crate::overruns::OverrunAllowance;
use crate::processor::ring_outbox;
use crate::receiver::Receiver;

impl Receiver {
    /// Makes the calling thread do the engine's work from now on, whenever it waits: see [`Lead`]. The
    /// messages that it receives and sends on this channel then pass no other thread of this host.
    ///
    /// # Errors
    /// [`Error::NotEmbedded`]; [`Error::HandlerTime`] if the listener declared no time (the time of a
    /// handler: here what the thread may take between two waits); [`Error::Lead`] if the thread does not get
    /// the engine's class or CPU.
    pub fn lead(self) -> Result<Lead, Error> {
        Lead::start(self)
    }
}

/// Makes the calling thread the engine's own thread, from [`Receiver::lead`] until the drop or [`Lead::end`].
/// Meanwhile it runs in the engine's class and on the engine's CPU. Calls that wait in another way fail with
/// [`Error::OnProcessor`](crate::Error::OnProcessor), because the thread would wait for itself:
/// [`Endsystem::open`], `listen`, `accept`, `close`, `state` if it needs a request, and on other channels a
/// `send` that finds no room and a `recv` that finds no message.
///
/// [`Endsystem::open`]: crate::Endsystem::open
pub struct Lead {
    /// Dropped first: the receiver may hold the last reference to the engine. `None`: this thread does not
    /// lead any more.
    engine: Option<EngineLead>,
    receiver: Receiver,
    away: LeadBudget,
    /// Time at which the thread went back to the application.
    left_at: Instant,
}

pub(crate) type EngineLead = punctual_engine::Lead<OutboxReader, InboxWriter>;

/// How long the application may keep the thread of the engine: the declared time for each message or segment, as admission counts
/// it (B at once and one each I).
#[derive(Debug)]
pub(crate) struct LeadBudget {
    declared: Nanos,
    /// B.
    burst: u32,
    /// I.
    interval: Nanos,
    allowance: OverrunAllowance,
    /// The part of B times the declared time that it has used.
    spent: Nanos,
    /// Time since which one more is due.
    earned_at: Instant,
    pub(crate) overruns: u64,
}

impl LeadBudget {
    /// From `at` on, `burst` at once and one each `interval`, which is above zero.
    pub(crate) const fn new(declared: Nanos, (burst, interval): (u32, Nanos), at: Instant) -> Self {
        let allowance = OverrunAllowance::new(declared);
        Self { declared, burst, interval, allowance, spent: Nanos::ZERO, earned_at: at, overruns: 0 }
    }

    /// Records that the thread was away for `took` until `at`. Returns whether it may continue.
    pub(crate) fn was(&mut self, took: Nanos, at: Instant) -> bool {
        self.earn(at);
        self.spent += took;
        let most = self.declared * u64::from(self.burst);
        let is_broke = self.spent > most;
        if is_broke {
            self.spent = Nanos::ZERO;
        }
        let (late, is_tolerated) = self.allowance.judge(if is_broke { Nanos::MAX } else { took });
        self.overruns += u64::from(late);
        is_tolerated
    }

    fn earn(&mut self, at: Instant) {
        let due = at.since(self.earned_at).0 / self.interval.0;
        if due > 0 {
            self.earned_at = self.earned_at + self.interval * due;
            self.spent = self.spent - self.declared * due;
        }
    }
}

impl Lead {
    fn start(receiver: Receiver) -> Result<Self, Error> {
        let embedded = receiver.connection().embedded.as_ref().ok_or(Error::NotEmbedded)?;
        let declared = receiver.handler_time();
        let contract = match receiver.request() {
            Some(request) if declared > Nanos::ZERO => request.contract,
            _ => return Err(Error::HandlerTime),
        };
        let engine = Some(embedded.lead()?);
        let left_at = now();
        let terms = (contract.burst_messages_max, contract.rate_max.interval());
        Ok(Self { engine, receiver, away: LeadBudget::new(declared, terms, left_at), left_at })
    }

    /// Passes `read` the next message in place; does the engine's work until there is one.
    ///
    /// # Errors
    /// See [`Receiver::recv_in_place`].
    pub fn recv_in_place<R>(&mut self, read: impl FnOnce(&[u8], &MessageInfo) -> R) -> Result<R, RecvError> {
        self.come_back();
        if self.engine.is_none() {
            return self.receiver.recv_in_place(read);
        }
        if !self.receiver.ring_mut().has_message() {
            let until = self.until(self.receiver.timeout());
            let ring = self.receiver.ring_mut();
            drive(&mut self.engine, &mut self.left_at, until, || ring.has_message() || ring.is_closed());
        }
        match self.receiver.ring_mut().take(read) {
            Some(value) => Ok(value),
            None => match self.receiver.nothing() {
                RecvError::WouldBlock => Err(RecvError::TimedOut),
                other => Err(other),
            },
        }
    }

    /// Queues a message and does the work for it, so that it has left or waits for its turn when this returns; waits
    /// while the queue is full. A channel of another endsystem is sent to as by [`Channel::send`], without waiting.
    ///
    /// # Errors
    /// See [`Channel::send`].
    pub fn send(&mut self, channel: &mut Channel, message: &[u8]) -> Result<(), SendError> {
        self.come_back();
        if self.engine.is_none() || !channel.is_of(&self.receiver.connection().shared) {
            return channel.send(message);
        }
        let mut sent = channel.send_beside(message, self.left_at);
        if matches!(sent, Err(SendError::WouldBlock)) {
            let until = self.until(channel.timeout());
            // If the engine stops meanwhile, the queue is closed, and the second attempt returns that error.
            let is_over = || channel.has_room() || channel.is_closed();
            drive(&mut self.engine, &mut self.left_at, until, is_over);
            sent = channel.send_beside(message, self.left_at);
        }
        match sent {
            Ok(true) => ring_outbox(channel.id()),
            Ok(false) => {}
            Err(SendError::WouldBlock) => return Err(channel.not_in_time()),
            Err(error) => return Err(error),
        }
        drive(&mut self.engine, &mut self.left_at, None, || true);
        Ok(())
    }

    /// Does the engine's work until `until`: how a periodic program waits for its next turn.
    pub fn rest(&mut self, until: Instant) {
        self.come_back();
        drive(&mut self.engine, &mut self.left_at, Some(until), || false);
        // No thread leads the engine any more: sleep for the rest.
        std::thread::sleep(Duration::from_nanos(until.since(now()).0));
    }

    /// Whether it leads still: not any more if it stayed away too long too often, or the engine has stopped.
    pub const fn is_leading(&self) -> bool {
        self.engine.is_some()
    }

    /// Times at which it stayed away longer than was declared.
    pub const fn overruns(&self) -> u64 {
        self.away.overruns
    }

    /// Leads no more; the receiver serves on.
    pub fn end(self) -> Receiver {
        let Self { engine, receiver, .. } = self;
        drop(engine);
        receiver
    }

    /// The end of `timeout` from now on, which is when the application came.
    fn until(&self, timeout: Option<Duration>) -> Option<Instant> {
        let nanos = |span: Duration| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        timeout.map(|timeout| self.left_at + nanos(timeout))
    }

    /// The application was away until now.
    fn come_back(&mut self) {
        if self.engine.is_none() {
            return;
        }
        let at = now();
        let may_go_on = self.away.was(at.since(self.left_at), at);
        self.left_at = at;
        if !may_go_on {
            self.engine = None;
        }
    }
}

/// Does the engine's work from `at` on, until `is_done` or `until`, and sets `at` to the time then. It leads no more where
/// the engine has stopped.
pub(crate) fn drive(
    engine: &mut Option<EngineLead>,
    at: &mut Instant,
    until: Option<Instant>,
    is_done: impl FnMut() -> bool,
) {
    match engine.as_mut().map(|lead| lead.drive(*at, until, is_done)) {
        Some(Ok(ended)) => *at = ended,
        Some(Err(_)) => *engine = None,
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: Nanos = Nanos(1_000);
    const INTERVAL: Nanos = Nanos(100_000);

    /// Two at once, and one each interval.
    fn away() -> LeadBudget {
        LeadBudget::new(DECLARED, (2, INTERVAL), Instant::ZERO)
    }

    #[test]
    fn the_declared_time_for_each_message_of_the_contract_is_no_overrun() {
        let mut away = away();
        assert!(away.was(DECLARED, Instant(1_000)));
        for message in 1..10_000 {
            assert!(away.was(DECLARED, Instant::ZERO + INTERVAL * message));
        }
        assert_eq!(away.overruns, 0);
    }

    #[test]
    fn one_long_stay_is_an_overrun_and_the_fourth_ends_the_lead() {
        let mut away = away();
        let stays: Vec<_> =
            (1..=4).map(|stay| away.was(DECLARED + Nanos(1), Instant::ZERO + INTERVAL * stay * 2)).collect();
        assert_eq!((stays, away.overruns), (vec![true, true, true, false], 4));
    }

    #[test]
    fn many_short_stays_without_a_message_are_an_overrun_too() {
        let mut away = away();
        let mut stays = (1..).map(|stay| away.was(DECLARED, Instant(1_000 * stay)));
        // Two are allowed, the third is too many, and so four times.
        assert_eq!(stays.position(|may_go_on| !may_go_on), Some(11));
    }
}
