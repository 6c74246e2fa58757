//! Echo servers: each message goes back as it came.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use punctual::{Channel, Contract, Listener, Nanos, Receiver, RecvError, SendError};
use punctual_os::clock::{duration, now, sleep_until};

use crate::loads::Wait;
use crate::loads::channel::{received, was_sent};
use crate::loads::datagram::Datagrams;

/// Maximum delay until a waiting role notices a request to stop.
pub const STOP_CHECK_INTERVAL: Nanos = Nanos::from_millis(50);

/// A server that answers.
pub trait Server: Send {
    /// Answers until it is stopped, or until the other side has ended it all. Sets `is_demoted` if its handler took too long
    /// for the processor, and has had a thread of its own since.
    ///
    /// # Errors
    /// If its way is broken.
    fn serve(self: Box<Self>, stop: &AtomicBool, is_demoted: &AtomicBool) -> anyhow::Result<()>;
}

/// A server over a UDP socket.
pub struct SocketServer {
    datagrams: Datagrams,
    buffer: Box<[u8]>,
}

impl SocketServer {
    /// At `port` in the calling thread's namespace.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn bind(port: u16, wait: Wait, bytes_max: u32) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        Ok(Self { datagrams: Datagrams::new(socket, wait)?, buffer: vec![0; bytes_max as usize].into() })
    }
}

impl Server for SocketServer {
    fn serve(mut self: Box<Self>, stop: &AtomicBool, _: &AtomicBool) -> anyhow::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if let Some(received) = self.datagrams.receive(&mut self.buffer, STOP_CHECK_INTERVAL)? {
                self.datagrams.answer(&self.buffer[..received.len], &received)?;
            }
        }
        Ok(())
    }
}

/// Over two guaranteed channels: requests come through one that `listener` will get.
pub struct ChannelServer {
    /// Awaits the requests.
    pub listener: Listener,
    /// The way back.
    pub answers: Channel,
    /// Whether the processor answers, or this thread.
    pub wait: Wait,
}

/// Declared time of the handler of [`Wait::Direct`]: it copies a small message.
const HANDLER_TIME: Nanos = Nanos::from_micros(2);
/// The same on a CPU that was halted just before: cold caches, and delayed work of the kernel.
const WOKEN_HANDLER_TIME: Nanos = Nanos::from_micros(10);
/// Divisor of the message interval: the share of the processor that may be granted for the handler.
const HANDLER_SHARE: u64 = 10;

/// Declared time of the handler of [`Wait::Direct`] for messages with this interval: if it is long, each
/// message finds the processor asleep.
pub fn handler_time(contract: &Contract) -> Nanos {
    WOKEN_HANDLER_TIME.min(contract.rate_max.interval() / HANDLER_SHARE).max(HANDLER_TIME)
}

impl Server for ChannelServer {
    fn serve(self: Box<Self>, stop: &AtomicBool, is_demoted: &AtomicBool) -> anyhow::Result<()> {
        match await_channel(&self.listener, stop)? {
            Some(requests) if self.wait == Wait::Direct => {
                serve_directly(requests, self.answers, stop, is_demoted)
            }
            Some(requests) => serve_here(requests, self.answers, stop),
            None => Ok(()),
        }
    }
}

/// The processor answers, and the thread of a handler that was demoted.
fn serve_directly(
    requests: Receiver,
    mut answers: Channel,
    stop: &AtomicBool,
    is_demoted: &AtomicBool,
) -> anyhow::Result<()> {
    let handler = requests.on_message(move |bytes, _, reply| {
        // An answer that finds no room is lost, and its caller counts it.
        let _ = reply.send(&mut answers, bytes);
    })?;
    while !stop.load(Ordering::Relaxed) {
        sleep_until(now() + STOP_CHECK_INTERVAL);
        // One whose channel has ended is put down too.
        is_demoted.fetch_or(!handler.is_direct() && handler.state().is_ok(), Ordering::Relaxed);
    }
    Ok(())
}

/// This thread answers.
fn serve_here(mut requests: Receiver, mut answers: Channel, stop: &AtomicBool) -> anyhow::Result<()> {
    requests.set_recv_timeout(Some(duration(STOP_CHECK_INTERVAL)));
    answers.set_send_timeout(Some(duration(STOP_CHECK_INTERVAL)));
    while !stop.load(Ordering::Relaxed) {
        let mut sent = Ok(());
        match received(requests.recv_in_place(|bytes, _| sent = answers.send(bytes))) {
            Err(RecvError::Closed(_)) => break,
            answered => answered?,
        };
        match was_sent(sent) {
            Err(SendError::Closed(_)) => break,
            answered => answered?,
        };
    }
    Ok(())
}

/// The next channel; `None` if stopped.
pub(super) fn await_channel(
    listener: &Listener,
    stop: &AtomicBool,
) -> anyhow::Result<Option<punctual::Receiver>> {
    while !stop.load(Ordering::Relaxed) {
        if let Some(receiver) = listener.accept_timeout(punctual_os::clock::duration(STOP_CHECK_INTERVAL))? {
            return Ok(Some(receiver));
        }
    }
    Ok(None)
}
