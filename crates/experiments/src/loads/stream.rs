//! The papers' bulk: 8 KB blocks over a TCP connection (ttcp).

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

use punctual_analysis::{Instant, Nanos};
use punctual_os::clock::{duration, now, sleep_until};

use super::{MessageReceiver, MessageSender, Offered, is_passing, write_rest};

/// A peer that accepts no data for this long is full.
const FULL: Nanos = Nanos::from_millis(200);
/// How often a connection is checked for.
const LOOK: Nanos = Nanos::from_millis(1);
const READ_BYTES: usize = 64 << 10;

/// The sending end.
#[derive(Debug)]
pub struct StreamSender {
    stream: TcpStream,
    /// The rest of a block that was sent partially.
    rest: Vec<u8>,
}

impl StreamSender {
    /// Connects from the calling thread's namespace.
    ///
    /// # Errors
    /// If the port has no listener.
    pub fn connect(target: SocketAddrV4) -> io::Result<Self> {
        let stream = TcpStream::connect(target)?;
        stream.set_write_timeout(Some(duration(FULL)))?;
        Ok(Self { stream, rest: Vec::new() })
    }
}

impl MessageSender for StreamSender {
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered> {
        if !write_rest(&mut self.stream, &mut self.rest)? {
            return Ok(Offered::Full);
        }
        match self.stream.write(message) {
            Ok(count) => {
                self.rest.extend_from_slice(&message[count..]);
                Ok(Offered::Taken)
            }
            Err(error) if is_passing(&error) => Ok(Offered::Full),
            Err(error) => Err(error.into()),
        }
    }
}

/// The receiving end: the data of one read are one message.
#[derive(Debug)]
pub struct StreamReceiver {
    listener: TcpListener,
    stream: Option<TcpStream>,
}

impl StreamReceiver {
    /// Listens in the calling thread's namespace.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, stream: None })
    }

    fn connected(&mut self, until: Instant) -> io::Result<bool> {
        while self.stream.is_none() && now() < until {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(duration(FULL)))?;
                    self.stream = Some(stream);
                }
                Err(error) if is_passing(&error) => sleep_until(now() + LOOK),
                Err(error) => return Err(error),
            }
        }
        Ok(self.stream.is_some())
    }
}

impl MessageReceiver for StreamReceiver {
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool> {
        if !self.connected(until)? {
            return Ok(false);
        }
        let Some(stream) = &mut self.stream else { return Ok(false) };
        message.resize(READ_BYTES, 0);
        match stream.read(message) {
            Ok(0) => {
                self.stream = None;
                Ok(false)
            }
            Ok(count) => {
                message.truncate(count);
                Ok(true)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.stream = None;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives() {
        let mut receiver = StreamReceiver::bind(0).expect("a port");
        let port = receiver.listener.local_addr().expect("bound").port();
        let mut sender =
            StreamSender::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("connected");
        for _ in 0..4 {
            assert_eq!(sender.offer(&[7; 8_192]).expect("sent"), Offered::Taken);
        }
        let (mut message, mut bytes) = (Vec::new(), 0);
        let until = now() + Nanos::from_secs(10);
        while bytes < 4 * 8_192 && now() < until {
            if receiver.take(&mut message, until).expect("a connection") {
                assert!(message.iter().all(|&byte| byte == 7));
                bytes += message.len();
            }
        }
        assert_eq!(bytes, 4 * 8_192);
        drop(sender);
        assert!(!receiver.take(&mut message, now() + Nanos::from_millis(20)).expect("no error at the end"));
    }
}
