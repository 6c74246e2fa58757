//! Wake-ups that nobody sleeps for: what targets of rings look at is the memory. (`punctual_ipc::wake` is the real one.)

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

pub use punctual_ipc::wake::{Answered, arm};

thread_local! {
    static NOTHING: io::Result<OwnedFd> = std::fs::File::open("/dev/null").map(OwnedFd::from);
}

/// A descriptor, to stand for something.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    NOTHING.with(|nothing| match nothing {
        Ok(nothing) => nothing.try_clone(),
        Err(error) => Err(error.kind().into()),
    })
}

/// As the real one.
#[derive(Clone, Debug)]
pub struct Alarm;

impl Alarm {
    /// Nobody hears it.
    pub fn ring(&self) {}
}

/// As the real one.
#[derive(Debug)]
pub struct Doorbell;

impl Doorbell {
    /// Two descriptors.
    ///
    /// # Errors
    /// Where they run out.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((descriptor()?, descriptor()?))
    }
    /// Of one of them.
    pub fn new(_: OwnedFd) -> Self {
        Self
    }
    /// Nobody hears it.
    pub fn ring(&self) {}
}

/// As the real one.
#[derive(Debug)]
pub struct BellHandle;

impl BellHandle {
    /// Nobody hears it.
    pub fn ring(&self) {}
}

/// As the real one.
#[derive(Clone, Copy, Debug)]
pub enum RingPath {
    /// Nobody is told.
    Direct,
}

/// As the real one.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A bell and its rope.
    ///
    /// # Errors
    /// Where descriptors run out.
    pub fn pair(_: &RingPath) -> io::Result<(Self, BellHandle)> {
        Ok((Self(descriptor()?), BellHandle))
    }
    /// Of what came with a ring.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
    /// What goes with a ring.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }
    /// The same once more.
    ///
    /// # Errors
    /// Where descriptors run out.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
    /// Nobody hears it.
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
