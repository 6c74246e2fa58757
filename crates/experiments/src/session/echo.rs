//! Echo servers: each message goes back as it came.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use punctual::{Channel, Listener, Receiver, RecvError, SendError};

use super::Wait;
use super::roles::{DEAF, await_channel};
use crate::clock::{duration, now};
use crate::loads::datagram::Datagrams;

/// One that answers.
pub trait Server: Send {
    /// Gets ready; `false` when told to stop before.
    ///
    /// # Errors
    /// Where its way is broken.
    fn prepare(&mut self, stop: &AtomicBool) -> anyhow::Result<bool> {
        let _ = stop;
        Ok(true)
    }

    /// Answers the next message, if one comes soon; `false` when the other side has ended it all.
    ///
    /// # Errors
    /// Where its way is broken.
    fn answer(&mut self) -> anyhow::Result<bool>;
}

/// Answers until told to stop.
///
/// # Errors
/// Where the way is broken.
pub fn serve(mut server: Box<dyn Server>, stop: &AtomicBool) -> anyhow::Result<()> {
    if !server.prepare(stop)? {
        return Ok(());
    }
    while !stop.load(Ordering::Relaxed) && server.answer()? {}
    Ok(())
}

/// Over a UDP socket.
pub struct SocketServer {
    datagrams: Datagrams,
    buffer: Box<[u8]>,
}

impl SocketServer {
    /// At `port` in the calling thread's namespace.
    ///
    /// # Errors
    /// Where the port is taken.
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

/// Over two guaranteed channels.
pub struct ChannelServer {
    listener: Listener,
    requests: Option<Receiver>,
    answers: Channel,
    wait: Wait,
}

impl ChannelServer {
    /// Requests come through a channel that `listener` will get.
    pub const fn new(listener: Listener, answers: Channel, wait: Wait) -> Self {
        Self { listener, requests: None, answers, wait }
    }
}

impl Server for ChannelServer {
    fn prepare(&mut self, stop: &AtomicBool) -> anyhow::Result<bool> {
        let mut requests = await_channel(&self.listener, stop)?;
        if let Some(requests) = &mut requests {
            requests.set_recv_timeout(Some(duration(DEAF)));
        }
        self.requests = requests;
        self.answers.set_send_timeout(Some(duration(DEAF)));
        Ok(self.requests.is_some())
    }

    fn answer(&mut self) -> anyhow::Result<bool> {
        let Some(requests) = self.requests.as_mut() else { return Ok(false) };
        let answers = &mut self.answers;
        let mut sent = Ok(());
        let taken = if self.wait == Wait::Spin {
            let until = now() + DEAF;
            loop {
                match requests.try_recv_in_place(|bytes, _| sent = answers.send(bytes)) {
                    Err(RecvError::WouldBlock) if now() < until => std::hint::spin_loop(),
                    other => break other,
                }
            }
        } else {
            requests.recv_in_place(|bytes, _| sent = answers.send(bytes))
        };
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
}
