//! Echo servers: each message goes back as it came.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use punctual::{Channel, Contract, Handler, Listener, Nanos, Receiver, RecvError, SendError};
use punctual_os::clock::{duration, now, sleep_until};

use super::roles::{DEAF, await_channel};
use crate::loads::Wait;
use crate::loads::datagram::Datagrams;

/// A server that answers.
pub trait Server: Send {
    /// Prepares to serve; `false` if it is stopped before.
    ///
    /// # Errors
    /// If its way is broken.
    fn prepare(&mut self, stop: &AtomicBool) -> anyhow::Result<bool> {
        let _ = stop;
        Ok(true)
    }

    /// Answers the next message, if one comes soon; `false` when the other side has ended it all.
    ///
    /// # Errors
    /// If its way is broken.
    fn answer(&mut self) -> anyhow::Result<bool>;

    /// Whether its handler took too long for the processor, and runs on a thread of its own since.
    fn is_demoted(&self) -> bool {
        false
    }
}

/// Answers until stopped; returns whether it was demoted.
///
/// # Errors
/// If the way is broken.
pub fn serve(mut server: Box<dyn Server>, stop: &AtomicBool, is_demoted: &AtomicBool) -> anyhow::Result<()> {
    if !server.prepare(stop)? {
        return Ok(());
    }
    while !stop.load(Ordering::Relaxed) && server.answer()? {
        if server.is_demoted() {
            is_demoted.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
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
    fn answer(&mut self) -> anyhow::Result<bool> {
        if let Some(received) = self.datagrams.receive(&mut self.buffer, DEAF)? {
            self.datagrams.answer(&self.buffer[..received.len], &received)?;
        }
        Ok(true)
    }
}

/// A server over two guaranteed channels.
pub struct ChannelServer {
    listener: Listener,
    way: Way,
    wait: Wait,
}

/// The connections of a channel server so far.
enum Way {
    /// Only the channel for the answers.
    Back(Option<Box<Channel>>),
    /// Both; this thread answers.
    Both(Box<(Receiver, Channel)>),
    /// The processor answers, and the thread of a handler that was demoted.
    Direct { handler: Handler, is_demoted: bool },
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

impl ChannelServer {
    /// Requests come through a channel that `listener` will get.
    pub fn new(listener: Listener, answers: Channel, wait: Wait) -> Self {
        Self { listener, way: Way::Back(Some(Box::new(answers))), wait }
    }
}

impl Server for ChannelServer {
    fn prepare(&mut self, stop: &AtomicBool) -> anyhow::Result<bool> {
        let Some(mut requests) = await_channel(&self.listener, stop)? else { return Ok(false) };
        let Way::Back(answers) = &mut self.way else { return Ok(true) };
        let Some(mut answers) = answers.take().map(|boxed| *boxed) else { return Ok(false) };
        self.way = if self.wait == Wait::Direct {
            let handler = requests.on_message(move |bytes, _, reply| {
                // An answer that finds no room is lost, and its caller counts it.
                let _ = reply.send(&mut answers, bytes);
            })?;
            Way::Direct { handler, is_demoted: false }
        } else {
            requests.set_recv_timeout(Some(duration(DEAF)));
            answers.set_send_timeout(Some(duration(DEAF)));
            Way::Both(Box::new((requests, answers)))
        };
        Ok(true)
    }

    fn answer(&mut self) -> anyhow::Result<bool> {
        if let Way::Direct { handler, is_demoted } = &mut self.way {
            sleep_until(now() + DEAF);
            // A handler whose channel has ended is parked too.
            *is_demoted |= !handler.is_direct() && handler.state().is_ok();
            return Ok(true);
        }
        let Way::Both(both) = &mut self.way else { return Ok(false) };
        let (requests, answers) = &mut **both;
        let mut sent = Ok(());
        let taken = requests.recv_in_place(|bytes, _| sent = answers.send(bytes));
        match taken {
            Ok(()) | Err(RecvError::TimedOut | RecvError::WouldBlock) => {}
            Err(RecvError::Closed(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        match sent {
            Ok(()) | Err(SendError::TimedOut | SendError::WouldBlock) => Ok(true),
            Err(SendError::Closed(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn is_demoted(&self) -> bool {
        matches!(self.way, Way::Direct { is_demoted: true, .. })
    }
}
