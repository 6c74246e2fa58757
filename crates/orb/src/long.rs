//! Requests with long values, which go from the caller's memory to the stream without a copy.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;
use punctual_giop::long::Sink;

use crate::transport::{Deadline, Stream};

/// How far a message is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    deadline: Deadline,
    /// The timeout that the socket has for writing.
    timeout: Option<Duration>,
    /// Bytes that its header has promised and that were not written yet.
    left_bytes: usize,
}

/// Writes the pieces of a message on a stream. Only the thread that has the connection uses it.
pub(crate) struct LongMessage {
    stream: Arc<Stream>,
    progress: AtomicCell<Progress>,
    failed: AtomicCell<Option<Box<io::Error>>>,
}

impl fmt::Debug for LongMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LongMessage({:?})", self.progress.load())
    }
}

impl LongMessage {
    pub fn new(stream: &Arc<Stream>) -> Self {
        Self { stream: Arc::clone(stream), progress: AtomicCell::default(), failed: AtomicCell::new(None) }
    }

    /// A message of so many bytes begins. `timeout` is what the socket has.
    pub fn begin(&self, bytes: usize, deadline: Deadline, timeout: Option<Duration>) {
        self.progress.store(Progress { deadline, timeout, left_bytes: bytes });
        self.failed.store(None);
    }

    /// The message is written: the timeout that the socket has now.
    ///
    /// # Errors
    /// Those of the stream; `InvalidData` if it has another length than its header says.
    pub fn end(&self) -> io::Result<Option<Duration>> {
        let Progress { timeout, left_bytes, .. } = self.progress.load();
        match self.failed.take() {
            Some(error) => Err(*error),
            None if left_bytes > 0 => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(timeout),
        }
    }

    fn write(&self, before: &[u8], long: &[u8]) -> io::Result<()> {
        let mut progress = self.progress.load();
        let left = progress.left_bytes.checked_sub(before.len() + long.len());
        progress.left_bytes = left.ok_or(io::ErrorKind::InvalidData)?;
        let written = self.stream.write_until(before, long, progress.deadline, &mut progress.timeout);
        self.progress.store(progress);
        written
    }
}

impl Sink for LongMessage {
    fn take(&self, before: &[u8], long: &[u8]) {
        let failed = self.failed.take();
        let error = failed.or_else(|| self.write(before, long).err().map(Box::new));
        self.failed.store(error);
    }
}
