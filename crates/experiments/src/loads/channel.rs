//! Punctual's channels and best-effort flows as senders and receivers.

use anyhow::Context;
use punctual::{
    Channel, Consent, Contract, Endsystem, Instant, Listener, MessageInfo, Nanos, Receiver, RecvError,
    SendError,
};
use punctual_os::clock::{duration, now};

use super::{MessageReceiver, MessageSender, Offered};

/// The sending end.
pub struct ChannelSender(pub Channel);

/// The receiving end.
pub struct ChannelReceiver(pub Receiver);

/// How long an admitted channel may take to show up at its listener.
const ESTABLISHED_WITHIN: Nanos = Nanos::from_secs(5);

/// A guaranteed channel from `source` to `port` at `sink`.
///
/// # Errors
/// If the network refuses it, or it does not reach the receiver.
pub fn guaranteed(
    source: &Endsystem,
    sink: &Endsystem,
    port: &str,
    contract: Contract,
) -> anyhow::Result<(ChannelSender, ChannelReceiver)> {
    let listener = sink.listen(port, |_| Consent::Accept)?;
    let peer = format!("{port}@{}", sink.host());
    let channel = source.open(&peer, contract).with_context(|| format!("channel to {peer}"))?;
    Ok((ChannelSender(channel), ChannelReceiver(accept(&listener).context(peer)?)))
}

/// A best-effort flow from `source` to `port` at `sink`.
///
/// # Errors
/// If a daemon refuses.
pub fn best_effort(
    source: &Endsystem,
    sink: &Endsystem,
    port: &str,
    message_bytes_max: u32,
) -> anyhow::Result<(ChannelSender, ChannelReceiver)> {
    let receiver = sink.bind_best_effort(port, message_bytes_max)?;
    let peer = format!("{port}@{}", sink.host());
    let channel = source.best_effort(&peer, message_bytes_max)?;
    Ok((ChannelSender(channel), ChannelReceiver(receiver)))
}

/// What was received; `None` if nothing came in time.
///
/// # Errors
/// If the channel has ended.
pub fn received<T>(result: Result<T, RecvError>) -> Result<Option<T>, RecvError> {
    match result {
        Err(RecvError::TimedOut | RecvError::WouldBlock) => Ok(None),
        other => other.map(Some),
    }
}

/// Whether a message was sent; `false` if there was no room in time.
///
/// # Errors
/// If the channel has ended.
pub fn was_sent(result: Result<(), SendError>) -> Result<bool, SendError> {
    match result {
        Err(SendError::TimedOut | SendError::WouldBlock) => Ok(false),
        other => other.map(|()| true),
    }
}

/// The channel that `listener` gets within a time that no network takes.
///
/// # Errors
/// If none comes.
pub fn accept(listener: &Listener) -> anyhow::Result<Receiver> {
    let receiver = listener.accept_timeout(duration(ESTABLISHED_WITHIN))?;
    receiver.context("a channel was granted but never reached its receiver")
}

impl MessageSender for ChannelSender {
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered> {
        Ok(if was_sent(self.0.try_send(message))? { Offered::Taken } else { Offered::Full })
    }
}

impl MessageReceiver for ChannelReceiver {
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool> {
        self.0.set_recv_timeout(Some(duration(until.since(now()))));
        let copy = |bytes: &[u8], _: &MessageInfo| {
            message.clear();
            message.extend_from_slice(bytes);
        };
        Ok(received(self.0.recv_in_place(copy))?.is_some())
    }
}
