//! The messages of a stream, their times, and their way.
//!
//! A load is [`Content`] at the times of its [`Arrivals`]; a [`Source`] thread sends it through an
//! [`MessageSender`], a [`Sink`] thread takes it from a [`MessageReceiver`]. Senders and receivers are Punctual's channels or
//! plain kernel sockets: the loads do not depend on which. Both ends keep a log per message;
//! [`crate::measure`] joins the two.

pub mod arrivals;
pub mod background;
pub mod breakable;
pub mod bulk;
pub mod call;
pub mod channel;
pub mod content;
pub mod datagram;
pub mod direct;
pub mod hogs;
pub mod kernel;
pub mod place;
pub mod sink;
pub mod source;
pub mod source_tree;
pub mod stream;
pub mod tcp;
pub mod tcp_direct;
pub mod wait;

use std::io::{self, Write};

use punctual_analysis::Instant;
use punctual_os::realtime::RealTimeError;
use serde::{Deserialize, Serialize};

pub use arrivals::Arrivals;
pub use background::{Background, beside};
pub use bulk::Bulk;
pub use call::Caller;
pub use content::Content;
pub use place::Place;
pub use sink::{Receiving, Sink};
pub use source::{Sending, Source};
pub use wait::{SPIN, Wait};

/// The outcome of an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The message was accepted and is on its way.
    Taken,
    /// The queue is full: policed, or the link is busy. The message is not sent.
    Full,
}

/// The sending end of one stream of messages.
pub trait MessageSender: Send {
    /// Offers a message without waiting.
    ///
    /// # Errors
    /// If the stream is permanently broken.
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered>;

    /// Packets that the transport has sent again; `None`: it never does, or does not tell.
    fn resent(&self) -> Option<u64> {
        None
    }
}

/// The receiving end of one stream of messages.
pub trait MessageReceiver: Send {
    /// Waits until `until` for the next complete message and puts it into `message`; `false` when none came.
    ///
    /// # Errors
    /// If the stream is permanently broken.
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool>;
}

/// Whether an error of a socket is temporary: no data yet, or a signal came.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Writes the rest of a message; whether nothing of it is left.
fn write_rest(stream: &mut (impl Write + ?Sized), rest: &mut Vec<u8>) -> io::Result<bool> {
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) => drop(rest.drain(..count)),
            Err(error) if is_passing(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The scheduling class of a load's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// `SCHED_FIFO` below the daemons' processors: the applications of guaranteed channels, in both worlds.
    RealTime,
    /// The scheduling class of ordinary threads.
    #[default]
    Ordinary,
}

/// Below the daemons' processors, above all ordinary threads.
const REAL_TIME_PRIORITY: u8 = 40;

impl Class {
    /// Puts the calling thread into it.
    ///
    /// # Errors
    /// If the real-time class is refused.
    pub fn enter(self) -> Result<(), RealTimeError> {
        match self {
            Self::RealTime => punctual_os::realtime::enter_fifo(REAL_TIME_PRIORITY, None),
            Self::Ordinary => Ok(()),
        }
    }
}
