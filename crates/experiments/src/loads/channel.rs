//! Punctual's channels and best-effort flows as outlets and inlets.

use anyhow::Context;
use punctual::{Channel, Consent, Contract, Endsystem, Instant, Nanos, Receiver, RecvError, SendError};
use punctual_os::clock::{duration, now};

use super::{Inlet, Offered, Outlet};

/// The sending end.
pub struct ChannelOutlet(pub Channel);

/// The receiving end.
pub struct ChannelInlet(pub Receiver);

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
) -> anyhow::Result<(ChannelOutlet, ChannelInlet)> {
    let listener = sink.listen(port, |_| Consent::Accept)?;
    let peer = format!("{port}@{}", sink.host());
    let channel = source.open(&peer, contract).with_context(|| format!("channel to {peer}"))?;
    let receiver = listener
        .accept_timeout(duration(ESTABLISHED_WITHIN))?
        .with_context(|| format!("the channel to {peer} was granted but never reached its receiver"))?;
    Ok((ChannelOutlet(channel), ChannelInlet(receiver)))
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
) -> anyhow::Result<(ChannelOutlet, ChannelInlet)> {
    let receiver = sink.bind_best_effort(port, message_bytes_max)?;
    let peer = format!("{port}@{}", sink.host());
    let channel = source.best_effort(&peer, message_bytes_max)?;
    Ok((ChannelOutlet(channel), ChannelInlet(receiver)))
}

impl Outlet for ChannelOutlet {
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered> {
        match self.0.try_send(message) {
            Ok(()) => Ok(Offered::Taken),
            Err(SendError::WouldBlock) => Ok(Offered::Full),
            Err(error) => Err(error.into()),
        }
    }
}

impl Inlet for ChannelInlet {
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool> {
        self.0.set_recv_timeout(Some(duration(until.since(now()))));
        let mut copy = |bytes: &[u8]| {
            message.clear();
            message.extend_from_slice(bytes);
        };
        match self.0.recv_in_place(|bytes, _| copy(bytes)) {
            Ok(()) => Ok(true),
            Err(RecvError::TimedOut | RecvError::WouldBlock) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
