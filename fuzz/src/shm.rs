//! Memory that two ends of a ring share: on the heap, so that a ring costs no mapping, and the address
//! sanitizer detects the end of a region. (`punctual_ipc::shm` is the real one.)

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::slice;

pub use punctual_ipc::shm::REGION_BYTES_MAX;

use crate::input::Input;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::wake::descriptor;

const WORD_BYTES: usize = size_of::<AtomicU64>();

thread_local! {
    /// The memory of the descriptors of this thread's regions. A descriptor number that is reused gets new
    /// memory.
    static FILES: RefCell<HashMap<RawFd, Arc<[AtomicU64]>>> = RefCell::default();
}

/// Same as in `punctual_ipc`.
#[derive(Clone, Debug)]
pub struct Region(Arc<[AtomicU64]>);

impl Region {
    /// Makes zeroed memory, and a descriptor that represents it.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        let words = (len as usize).div_ceil(WORD_BYTES);
        let memory: Arc<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let file = descriptor()?;
        FILES.with_borrow_mut(|files| files.insert(file.as_raw_fd(), Arc::clone(&memory)));
        Ok((file, Self(memory)))
    }

    /// Same as in `punctual_ipc`.
    ///
    /// # Errors
    /// As [`Region::create`].
    pub fn private(len: u64) -> io::Result<(Self, View)> {
        let (_, region) = Self::create(len)?;
        Ok((region.clone(), View(region)))
    }

    /// The same memory once more.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn take(file: impl AsFd, len: u64) -> io::Result<Self> {
        Self::map(file, len)
    }

    /// Maps the same memory once more.
    ///
    /// # Errors
    /// If the descriptor represents no memory, or less than `len`.
    pub fn map(file: impl AsFd, len: u64) -> io::Result<Self> {
        let memory = FILES.with_borrow(|files| files.get(&file.as_fd().as_raw_fd()).cloned());
        let region = Self(memory.ok_or(io::ErrorKind::NotFound)?);
        if region.len() as u64 >= len { Ok(region) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len() * WORD_BYTES
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.len() && bytes <= self.len() - offset, "{offset} + {bytes} leaves the region");
        // SAFETY: inside, as just checked.
        unsafe { self.0.as_ptr().cast::<u8>().cast_mut().add(offset) }
    }

    /// Same as in `punctual_ipc`.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD_BYTES));
        &self.0[offset / WORD_BYTES]
    }

    /// Same as in `punctual_ipc`.
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        &self.0[offset / WORD_BYTES..][..count]
    }

    /// Same as in `punctual_ipc`.
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(size_of::<AtomicU32>()));
        // SAFETY: in bounds and aligned, within words whose content may change.
        unsafe { AtomicU32::from_ptr(self.at(offset, size_of::<AtomicU32>()).cast()) }
    }

    /// Same as in `punctual_ipc`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: in bounds; all users of a region are on one thread, and `bytes` is none of it.
        unsafe { self.at(offset, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Same as in `punctual_ipc`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        // SAFETY: as for `write`.
        unsafe { self.at(offset, out.len()).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
    }

    /// Same as in `punctual_ipc`.
    ///
    /// # Safety
    /// The bytes must not be written while the slice exists.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: in bounds; the caller promises that there is no write.
        unsafe { slice::from_raw_parts(self.at(offset, len), len) }
    }

    /// Same as in `punctual_ipc`.
    ///
    /// # Safety
    /// The bytes must not be accessed in any other way while the slice exists.
    #[expect(clippy::mut_from_ref, reason = "as the real one's")]
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: in bounds; the caller promises exclusive access.
        unsafe { slice::from_raw_parts_mut(self.at(offset, len), len) }
    }
}

/// Same as in `punctual_ipc`, over the same memory.
#[derive(Clone, Debug)]
pub struct View(Region);

impl View {
    /// Same as in `punctual_ipc`.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn open(file: impl AsFd, len: u64) -> io::Result<Self> {
        Region::map(file, len).map(Self)
    }

    /// Same as in `punctual_ipc`.
    pub fn word(&self, offset: usize, order: Ordering) -> u64 {
        self.0.word(offset).load(order)
    }

    /// Same as in `punctual_ipc`.
    pub fn words(&self, offset: usize, out: &mut [u64]) {
        for (index, word) in out.iter_mut().enumerate() {
            *word = self.0.word(offset + index * WORD_BYTES).load(Ordering::Relaxed);
        }
    }

    /// Same as in `punctual_ipc`.
    pub fn half(&self, offset: usize, order: Ordering) -> u32 {
        self.0.half(offset).load(order)
    }

    /// Same as in `punctual_ipc`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    /// Same as in `punctual_ipc`.
    ///
    /// # Safety
    /// The bytes must not be written while the slice exists.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: as the caller promises.
        unsafe { self.0.bytes(offset, len) }
    }
}

/// Same as in `punctual_ipc`, but without seals, which other tests check.
#[derive(Debug)]
pub struct Offer(Region);

impl Offer {
    /// Same as in `punctual_ipc`.
    ///
    /// # Errors
    /// As [`Region::create`].
    pub fn create(len: u64) -> io::Result<(OwnedFd, Self)> {
        let (file, region) = Region::create(len)?;
        Ok((file, Self(region)))
    }

    /// Same as in `punctual_ipc`.
    ///
    /// # Errors
    /// None here.
    pub fn accept(&self) -> io::Result<View> {
        Ok(View(self.0.clone()))
    }
}

/// Memory of a ring, ours or the system's, to write to out of turn.
pub trait Words {
    /// How many bytes there are.
    fn bytes(&self) -> usize;
    /// 64 bits of it.
    fn word(&self, offset: usize) -> &AtomicU64;
    /// 32 bits of it.
    fn half(&self, offset: usize) -> &AtomicU32;
}

macro_rules! words {
    ($($region:ty)*) => {
        $(impl Words for $region {
            fn bytes(&self) -> usize {
                self.len()
            }
            fn word(&self, offset: usize) -> &AtomicU64 {
                self.word(offset)
            }
            fn half(&self, offset: usize) -> &AtomicU32 {
                self.half(offset)
            }
        })*
    };
}

words! { Region punctual_ipc::shm::Region }

/// Writes near one of `offsets`, as the fuzzer's input determines.
pub fn scribble(region: &impl Words, input: &mut Input<'_>, offsets: &[u32]) -> Option<()> {
    let (place, how) = (input.u8()?, input.u8()?);
    let base = offsets[usize::from(place) % offsets.len()] as usize;
    let value = input.u64()?;
    if how & 1 == 0 {
        let at = (base + usize::from(how >> 1) * 8).min(region.bytes() - 8);
        region.word(at).store(value, Ordering::SeqCst);
    } else {
        let at = (base + usize::from(how >> 1) * 4).min(region.bytes() - 4);
        region.half(at).store(value as u32, Ordering::SeqCst);
    }
    Some(())
}
