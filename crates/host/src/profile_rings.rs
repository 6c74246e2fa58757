//! Shared-memory rings for measuring a profile: both ends are in one process.

use std::io::{self, IoSlice};

use punctual_engine::profile::Rings;
use punctual_ipc::ring::{
    InboxReader, InboxWriter, OutboxReader, OutboxWriter, RingHandles, RingShape, inbox, outbox,
};
use punctual_ipc::wake::{Alarm, RingPath};

/// Rings in shared memory, as between a program and its daemon.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedRings;

impl Rings for SharedRings {
    type Outbox = OutboxReader;
    type Inbox = InboxWriter;
    type Writer = OutboxWriter;
    type Reader = InboxReader;

    fn outgoing(&self, messages: u32, bytes_max: u32) -> io::Result<(OutboxReader, OutboxWriter)> {
        let shape = RingShape::new(messages, bytes_max).map_err(io::Error::other)?;
        let (reader, handles, doorbell) =
            outbox(shape, &Alarm::new()?, &RingPath::Direct).map_err(io::Error::other)?;
        // The engine's end of the doorbell: no thread waits on it here, and ringing costs the same.
        drop(doorbell);
        let writer = attached(handles, OutboxWriter::attach)?;
        reader.health().accept()?;
        Ok((reader, writer))
    }

    fn incoming(&self, messages: u32, bytes_max: u32) -> io::Result<(InboxWriter, InboxReader)> {
        let shape = RingShape::new(messages, bytes_max).map_err(io::Error::other)?;
        let (writer, handles) = inbox(shape, &Alarm::new()?, &RingPath::Direct).map_err(io::Error::other)?;
        let reader = attached(handles, InboxReader::attach)?;
        writer.health().accept()?;
        Ok((writer, reader))
    }

    fn send(&self, writer: &mut OutboxWriter, message: &[u8]) -> io::Result<()> {
        writer.push(&[IoSlice::new(message)]).map(|_| ()).map_err(io::Error::other)
    }

    fn receive(&self, reader: &mut InboxReader) -> bool {
        reader.take(|bytes, _| std::hint::black_box(bytes.first().copied())).is_some()
    }
}

fn attached<T, E>(handles: RingHandles, attach: impl FnOnce(RingHandles) -> Result<T, E>) -> io::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    attach(handles).map_err(io::Error::other)
}
