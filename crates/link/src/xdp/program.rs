//! Loading, attaching and talking to the program.

use std::os::fd::BorrowedFd;

use super::{Accounts, AttachMode, ClassifierOptions, Rate};
use crate::{Filter, LinkError, PathKey, Stream, StreamDrops};

/// The program of one link: attached to its device until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Classifier {
    accounts: Accounts,
    mode: AttachMode,
}

impl Classifier {
    /// Loads the program and attaches it to the device by a bpf link.
    ///
    /// # Errors
    /// Where an option is out of range, rights are missing, there is no such device, another program sits on it or the
    /// device cannot do what the mode asks for; the fix is in the text.
    pub fn attach(options: &ClassifierOptions) -> Result<Self, LinkError> {
        Err(LinkError::Options(format!("xdp on {}: this build has no program", options.device)))
    }

    /// Where the program runs: native or generic.
    pub const fn mode(&self) -> AttachMode {
        self.mode
    }

    /// From now on packets of `stream` that come in on receive queue `queue` go to `socket`, an AF_XDP socket bound to
    /// that queue of that device. Until then, and where nobody registers, they are dropped (`no_buffer`).
    ///
    /// # Errors
    /// Where the queue is beyond [`QUEUES_MAX`](super::QUEUES_MAX), the socket is none of AF_XDP or is not bound to
    /// this device and queue.
    pub fn register(&mut self, queue: u32, stream: Stream, socket: BorrowedFd<'_>) -> Result<(), LinkError> {
        let _ = (queue, stream, socket);
        Ok(())
    }

    /// Lets packets of a path in, or changes how: its token bucket is kept.
    ///
    /// # Errors
    /// Where the table is full, a value is out of range or the kernel refuses.
    pub fn set_filter(&mut self, filter: &Filter) -> Result<(), LinkError> {
        let _ = filter;
        Ok(())
    }

    /// From now on the path is unknown; without effect where it is already.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn clear_filter(&mut self, path: PathKey) -> Result<(), LinkError> {
        let _ = path;
        Ok(())
    }

    /// Changes the bound on all packets of [`Stream::Signalling`] or [`Stream::BestEffort`]; `None`: none.
    ///
    /// # Errors
    /// Where the stream is another one (its paths have bounds) or the kernel refuses.
    pub fn set_rate(&mut self, stream: Stream, rate: Option<Rate>) -> Result<(), LinkError> {
        let _ = (stream, rate);
        Ok(())
    }

    /// What the program has dropped since it was attached. Costs a system call.
    pub fn drops(&self) -> StreamDrops {
        StreamDrops::default()
    }

    /// Buffers that are under way, for the driver's thread: charge each received packet here.
    pub const fn accounts(&mut self) -> &mut Accounts {
        &mut self.accounts
    }
}
