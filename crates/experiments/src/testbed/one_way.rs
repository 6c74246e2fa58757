//! As many bytes as one TCP connection carries, one way at a time, between host a and the kernel's TCP at host b.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, ensure};
use punctual::Nanos;
use punctual_os::clock::now;
use punctual_os::interrupt;

use super::Place;
use super::bare_tcp::BareTcp;
use crate::loads::tcp::Connection;
use crate::loads::{Class, is_passing};
use crate::measure::{Laps, Sample};

/// Bytes of one call that writes or reads.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a sender waits for the acknowledgement of its last bytes.
const LAST_BYTES_WITHIN: Nanos = Nanos::from_secs(2);

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a to b.
    Out,
    /// From b to a.
    In,
}

/// One end of a connection, where its thread runs, and its class.
pub struct OneEnd {
    /// The connection.
    pub stream: ByteStream,
    /// Where it runs.
    pub place: Place,
    /// Scheduling class of its thread.
    pub class: Class,
}

/// A connection that carries bytes.
pub enum ByteStream {
    /// Of Punctual or of the kernel.
    Connection(Box<dyn Connection>),
    /// Of smoltcp alone.
    Bare(Box<BareTcp>),
}

impl ByteStream {
    /// Sends `bytes` again and again until `is_over`.
    fn send(&mut self, bytes: &[u8], is_over: &AtomicBool) -> anyhow::Result<()> {
        let connection = match self {
            Self::Bare(bare) => {
                return bare.send(bytes, || is_over.load(Ordering::Relaxed), LAST_BYTES_WITHIN);
            }
            Self::Connection(connection) => connection,
        };
        while !is_over.load(Ordering::Relaxed) {
            match connection.write(bytes) {
                Ok(count) => ensure!(count > 0, "the connection takes no more bytes"),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits a short time for bytes; how many came.
    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        match self {
            Self::Bare(bare) => bare.receive(buffer),
            Self::Connection(connection) => match connection.read(buffer) {
                Ok(0) => Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(count) => Ok(count),
                Err(error) if is_passing(&error) => Ok(0),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Segments of data that were sent again; `None`: not known.
    pub fn resent(&self) -> Option<u64> {
        match self {
            Self::Connection(connection) => connection.resent(),
            Self::Bare(_) => None,
        }
    }
}

/// Sends as much as goes from one end to the other for `length`: the times of laps of `lap_bytes` each, at the receiver. Nothing
/// is under way afterwards.
///
/// # Errors
/// If the connection breaks, or the run is interrupted.
pub fn carry(
    from: &mut OneEnd,
    to: &mut OneEnd,
    length: Nanos,
    lap_bytes: u64,
) -> anyhow::Result<Vec<Sample>> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let OneEnd { stream, place, class } = from;
        let (place, class, is_over) = (place.clone(), *class, &is_over);
        let sender = scope.spawn(move || {
            Place { namespace: None, cpu: place.cpu }.settle(class)?;
            stream.send(&[7; CHUNK_BYTES], is_over)
        });
        let OneEnd { stream, place, class } = to;
        let found = place.on_cpu(*class, || {
            let mut buffer = vec![0; CHUNK_BYTES];
            let laps = take(stream, &mut buffer, length, lap_bytes);
            is_over.store(true, Ordering::Relaxed);
            let laps = laps?;
            while stream.receive(&mut buffer)? > 0 || !sender.is_finished() {
                interrupt::check()?;
            }
            Ok(laps)
        });
        // Also where the receiver's thread could not begin.
        is_over.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|_| Err(anyhow!("the sender panicked")));
        let laps = found?;
        sent.map(|()| laps)
    })
}

fn take(
    stream: &mut ByteStream,
    buffer: &mut [u8],
    length: Nanos,
    lap_bytes: u64,
) -> anyhow::Result<Vec<Sample>> {
    let until = now() + length;
    let mut laps = Laps::of(lap_bytes);
    while now() < until {
        interrupt::check()?;
        let count = stream.receive(buffer)?;
        if count > 0 {
            laps.arrived(count as u64, now());
        }
    }
    Ok(laps.finish())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::loads::Wait;
    use crate::loads::tcp::KernelTcp;

    #[test]
    fn what_was_sent_in_one_turn_is_not_counted_in_the_next() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("to connect");
        let far = listener.accept().expect("a connection").0;
        let [mut near, mut far] = [near, far].map(|stream| OneEnd {
            stream: ByteStream::Connection(Box::new(
                KernelTcp::new(stream, Wait::Block, 64 << 10).expect("a socket"),
            )),
            place: Place::default(),
            class: Class::Ordinary,
        });
        let lap = 4_096;
        for _ in 0..2 {
            let laps = carry(&mut near, &mut far, Nanos::from_millis(20), lap).expect("carried");
            assert!(!laps.is_empty());
            assert_eq!(far.stream.receive(&mut [0; 1]).expect("open"), 0, "nothing is left");
            let laps = carry(&mut far, &mut near, Nanos::from_millis(20), lap).expect("carried");
            assert!(!laps.is_empty());
        }
        drop(far);
        assert!(near.stream.receive(&mut [0; 1]).is_err(), "the end is an error");
    }
}
