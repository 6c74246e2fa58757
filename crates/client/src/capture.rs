//! Copies of the packets that a host sends and receives, for an operator: packets over `xdp` are seen by no other program.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use punctual_analysis::Instant;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::{InboxReader, RingHandles};
use punctual_proto::api::{CAPTURE_HEAD_BYTES, CaptureHead};
use punctual_proto::ids::ChannelId;

use crate::connection::Connection;
use crate::endsystem::Endsystem;
use crate::error::Error;

pub use punctual_ipc::api::{CaptureWish as Wish, CapturedLink as Link};
pub use punctual_proto::api::CapturedKind as Kind;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Index of the packet's link in [`Capture::links`].
    pub link: usize,
    /// What its bytes begin with.
    pub kind: Kind,
    /// This host sends it.
    pub is_sent: bool,
    /// When it came, or was handed to the driver, on this host's clock.
    pub at: Instant,
    /// Bytes of the packet, at most as many as were requested.
    pub bytes: &'a [u8],
    /// How many it has.
    pub bytes_whole: u32,
}

/// A capture that runs. Dropping it ends it.
pub struct Capture {
    connection: Arc<Connection>,
    channel: ChannelId,
    inbox: InboxReader,
    links: Vec<Link>,
    /// Number of the next packet, and how many have found no room so far.
    next: u64,
    lost: u64,
}

impl Endsystem {
    /// Copies packets of the host's daemon from now on. One capture of a host runs at a time.
    ///
    /// # Errors
    /// If the user may not capture, another capture is running, or there is no such link.
    pub fn capture(&self, wish: Wish) -> Result<Capture, Error> {
        let (answer, descriptors) = self.connection.shared.call(Request::Capture { wish })?;
        let Answer::Capturing { channel, ring: shape, links } = answer else { return Err(Error::Unexpected) };
        let connection = Arc::clone(&self.connection);
        match attach(&connection, channel, RingHandles { shape, descriptors }) {
            Ok(inbox) => Ok(Capture { connection, channel, inbox, links, next: 0, lost: 0 }),
            Err(error) => {
                connection.shared.forget(channel);
                connection.shared.send_unanswered(Request::Close { channel });
                Err(error)
            }
        }
    }
}

fn attach(connection: &Connection, channel: ChannelId, handles: RingHandles) -> Result<InboxReader, Error> {
    let inbox = InboxReader::attach(handles)?;
    // A daemon that was killed closes no ring: the end of the connection does.
    connection.shared.events_of(channel).add_closer(inbox.closer());
    connection.shared.attached(channel, || inbox.is_closed())?;
    Ok(inbox)
}

impl Capture {
    /// All links of the host.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Packets that found no room, before the last one that was read.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits for the next packet, at most so long. `None`: none came.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn next<R>(
        &mut self,
        timeout: Duration,
        read: impl FnOnce(Packet<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let until = std::time::Instant::now().checked_add(timeout);
        if !self.inbox.has_message() {
            self.inbox.wait(until).map_err(Error::Socket)?;
        }
        let taken = self.inbox.take(|message, info| {
            let head = CaptureHead::parse(message)?;
            let packet = Packet {
                link: usize::from(head.link.0),
                kind: head.kind,
                is_sent: head.is_sent,
                at: info.delivered,
                bytes: &message[CAPTURE_HEAD_BYTES..],
                bytes_whole: head.bytes,
            };
            Some((info.number, read(packet)))
        });
        match taken {
            Some(Some((number, read))) => {
                self.lost += number.saturating_sub(self.next);
                self.next = number + 1;
                Ok(Some(read))
            }
            Some(None) => Err(Error::Unexpected),
            None if self.inbox.is_closed() => {
                Err(self.connection.shared.over().unwrap_or(Error::Disconnected))
            }
            None => Ok(None),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.connection.shared.forget(self.channel);
        self.connection.shared.send_unanswered(Request::Close { channel: self.channel });
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("channel", &self.channel).field("lost", &self.lost).finish()
    }
}
