//! Wake-ups without a sleeping thread: the targets of rings only check the memory. (`punctual_ipc::wake` is
//! the real one.)

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

pub use punctual_ipc::wake::{Answered, arm};

thread_local! {
    static NOTHING: io::Result<OwnedFd> = std::fs::File::open("/dev/null").map(OwnedFd::from);
}

/// A descriptor that represents a bell or a doorbell.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    NOTHING.with(|nothing| match nothing {
        Ok(nothing) => nothing.try_clone(),
        Err(error) => Err(error.kind().into()),
    })
}

/// Same as in `punctual_ipc`.
#[derive(Clone, Debug)]
pub struct Alarm;

impl Alarm {
    /// No effect: there is no receiver.
    pub fn ring(&self) {}
}

/// Same as in `punctual_ipc`.
#[derive(Debug)]
pub struct Doorbell;

impl Doorbell {
    /// Two descriptors.
    ///
    /// # Errors
    /// If they run out.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((descriptor()?, descriptor()?))
    }
    /// Makes it from one of them.
    pub fn new(_: OwnedFd) -> Self {
        Self
    }
    /// No bell at all.
    pub const fn none() -> Self {
        Self
    }
    /// Another handle.
    ///
    /// # Errors
    /// None.
    #[allow(clippy::unnecessary_wraps, reason = "the same signature")]
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self)
    }
    /// No effect: there is no receiver.
    pub fn ring(&self) {}
}

/// Same as in `punctual_ipc`.
#[derive(Debug)]
pub struct BellHandle;

impl BellHandle {
    /// No effect: there is no receiver.
    pub fn ring(&self) {}
}

/// Same as in `punctual_ipc`.
#[derive(Clone, Copy, Debug)]
pub enum RingPath {
    /// Rings have no effect.
    Direct,
}

/// Same as in `punctual_ipc`.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A bell's descriptor and its handle.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn pair(_: &RingPath) -> io::Result<(OwnedFd, BellHandle)> {
        Ok((descriptor()?, BellHandle))
    }
    /// A bell within the process.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn within() -> io::Result<(Self, BellHandle)> {
        Ok((Self::new(descriptor()?), BellHandle))
    }
    /// Makes it from the descriptor that came with a ring.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
    /// No effect: there is no receiver.
    pub fn ring(&self) {}
    /// There is nothing to clear.
    pub fn clear(&self) {}
    /// Never rings.
    ///
    /// # Errors
    /// None here.
    pub fn wait(&self, _: Option<Instant>) -> io::Result<bool> {
        Ok(false)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
