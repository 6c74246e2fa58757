//! An AF_XDP socket: its options, rings, binding, kick and counters, as thin and checked calls.
//!
//! The memory and the fill and completion rings belong to the first socket of a (device, queue); further
//! sockets there are bound to that one and have only a ring of their own (`queue.rs`).

use std::ffi::c_int;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::mapping::Mapping;
use super::rings::{Consumer, Offsets, Producer};
use super::umem::XdpMemory;
use crate::LinkError;

/// A queue that was just closed is busy until the kernel has unmapped its rings: this long it is tried again.
const BUSY_PATIENCE: Duration = Duration::from_millis(1_000);
/// Pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The kernel's answer to a kick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// The kernel took all entries.
    Done,
    /// The kernel took its share of packets, or has no buffer for now.
    Again,
    /// A packet found the neighbour's or the device's ring full: it is lost, and will be completed all the
    /// same.
    Lost,
    /// The completion ring is full.
    NoCompletions,
    /// The device is down or has no carrier: queued packets stay queued.
    Down,
    /// The device is gone; this socket will not send again.
    Gone,
}

/// How a socket joins its queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binding<'a> {
    /// The socket brings the memory and the queue's fill and completion rings.
    First {
        /// Whether packets are to pass without the kernel's copy.
        zero_copy: bool,
    },
    /// The socket shares those of another socket that is bound to the same queue.
    Joins(BorrowedFd<'a>),
}

/// The rings of a socket, with the kernel's numbers for their size and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingKind {
    Rx,
    Tx,
    Fill,
    Completion,
}

impl RingKind {
    const fn option(self) -> c_int {
        match self {
            Self::Rx => libc::XDP_RX_RING,
            Self::Tx => libc::XDP_TX_RING,
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }

    const fn place(self) -> u64 {
        match self {
            Self::Rx => libc::XDP_PGOFF_RX_RING as u64,
            Self::Tx => libc::XDP_PGOFF_TX_RING as u64,
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
        }
    }

    const fn offsets(self, all: &libc::xdp_mmap_offsets) -> libc::xdp_ring_offset {
        match self {
            Self::Rx => all.rx,
            Self::Tx => all.tx,
            Self::Fill => all.fr,
            Self::Completion => all.cr,
        }
    }
}

/// An AF_XDP socket of the thread's network namespace; it stays there whatever thread uses it.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    pub(super) fn open() -> Result<Self, LinkError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        if fd < 0 {
            let fix = "needs CAP_NET_RAW and a kernel with CONFIG_XDP_SOCKETS, or use driver = \"udp\"";
            return Err(last_error(&format!("opening an AF_XDP socket ({fix})")));
        }
        // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Registers the frames of `memory`, into which this socket receives and from which it sends.
    pub(super) fn register(&self, memory: &XdpMemory) -> Result<(), LinkError> {
        let bytes = memory.frames() as u64 * memory.frame_bytes() as u64;
        let registration = libc::xdp_umem_reg {
            addr: memory.mapping().base().as_ptr() as u64,
            len: bytes,
            chunk_size: memory.frame_bytes() as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::XDP_UMEM_REG, &registration).map_err(|error| {
            let fix = match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::ENOMEM) => {
                    "too few locked pages: each xdp link locks the whole region; raise LimitMEMLOCK (`ulimit -l`), \
                     grant CAP_IPC_LOCK, or configure fewer frames"
                }
                Some(libc::EPERM) => "grant CAP_NET_RAW and CAP_IPC_LOCK",
                _ => "see the kernel's error",
            };
            LinkError::Os { what: format!("locking {bytes} B of XDP frames ({fix})"), error }
        })
    }

    /// Gives the socket a ring of `entries`, a power of two.
    pub(super) fn set_ring(&self, ring: RingKind, entries: u32) -> Result<(), LinkError> {
        self.set(ring.option(), &entries).map_err(|error| LinkError::Os {
            what: format!("an AF_XDP {ring:?} ring of {entries} entries (configure fewer)"),
            error,
        })
    }

    /// Sets how many bytes of packets may be in the kernel at once. The default is that of a UDP socket.
    pub(super) fn set_send_buffer(&self, bytes: usize) -> Result<(), LinkError> {
        let fd = self.fd.as_fd();
        rustix::net::sockopt::set_socket_send_buffer_size_force(fd, bytes)
            .or_else(|_| rustix::net::sockopt::set_socket_send_buffer_size(fd, bytes))
            .map_err(|error| LinkError::Os {
                what: "SO_SNDBUF of an AF_XDP socket".into(),
                error: error.into(),
            })
    }

    /// The filling end of a ring that was set.
    pub(super) fn producer<T: Copy>(&self, ring: RingKind, entries: u32) -> Result<Producer<T>, LinkError> {
        let (memory, offsets) = self.map::<T>(ring, entries)?;
        Ok(Producer::new(memory, offsets, entries))
    }

    /// The emptying end of a ring that was set.
    pub(super) fn consumer<T: Copy>(&self, ring: RingKind, entries: u32) -> Result<Consumer<T>, LinkError> {
        let (memory, offsets) = self.map::<T>(ring, entries)?;
        Ok(Consumer::new(memory, offsets, entries))
    }

    fn map<T>(&self, ring: RingKind, entries: u32) -> Result<(Mapping, Offsets), LinkError> {
        let all: libc::xdp_mmap_offsets =
            self.get(libc::XDP_MMAP_OFFSETS).map_err(os("asking for the places of AF_XDP rings"))?;
        let of = ring.offsets(&all);
        let offsets = Offsets {
            producer: of.producer as usize,
            consumer: of.consumer as usize,
            flags: of.flags as usize,
            entries: of.desc as usize,
        };
        let bytes = offsets.entries + entries as usize * size_of::<T>();
        let memory = Mapping::shared(self.fd.as_fd(), ring.place(), bytes)
            .map_err(os(&format!("mapping an AF_XDP {ring:?} ring")))?;
        Ok((memory, offsets))
    }

    /// Joins queue `queue` of the device; tries again for a moment while the kernel still clears a former user away.
    pub(super) fn bind(&self, interface: u32, queue: u32, binding: Binding<'_>) -> io::Result<()> {
        let (flags, shared) = match binding {
            Binding::First { zero_copy: true } => (libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP, 0),
            Binding::First { zero_copy: false } => (libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP, 0),
            Binding::Joins(first) => (libc::XDP_SHARED_UMEM, first.as_raw_fd() as u32),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared,
        };
        let until = Instant::now() + BUSY_PATIENCE;
        loop {
            let size = size_of_val(&address) as libc::socklen_t;
            // SAFETY: the pointer and size are those of `address`, which outlives the call.
            let done = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size) };
            if done == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(BUSY_PAUSE);
        }
    }

    /// Whether the kernel passes packets without a copy.
    pub(super) fn is_zero_copy(&self) -> Result<bool, LinkError> {
        let options: libc::xdp_options =
            self.get(libc::XDP_OPTIONS).map_err(os("asking an AF_XDP socket for its mode"))?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// The kernel's drop counters of this socket.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.get(libc::XDP_STATISTICS)
    }

    /// Makes the kernel check the TX ring.
    pub(super) fn kick_transmit(&self) -> Result<Kick, LinkError> {
        // SAFETY: an empty message without an address: no pointer is used.
        let done = unsafe {
            libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if done >= 0 {
            return Ok(Kick::Done);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Kick::Again),
            Some(libc::EBUSY) => Ok(Kick::Lost),
            Some(libc::ENOBUFS) => Ok(Kick::NoCompletions),
            Some(libc::ENETDOWN) => Ok(Kick::Down),
            Some(libc::ENXIO | libc::ENODEV) => Ok(Kick::Gone),
            _ => Err(LinkError::Os { what: "sending by AF_XDP".into(), error }),
        }
    }

    /// Makes the adapter check the fill ring (zero copy only).
    pub(super) fn kick_receive(&self) {
        // SAFETY: an empty message: no pointer is used. Its result does not matter: the receiver checks
        // again.
        let _ = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    fn set<T>(&self, name: c_int, value: &T) -> io::Result<()> {
        let size = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and size are those of `value`, which outlives the call; the kernel only reads it.
        let done = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), libc::SOL_XDP, name, (&raw const *value).cast(), size)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Reads one of the kernel's plain structures of integers.
    fn get<T: Plain>(&self, name: c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut size = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and size are those of `value`; the kernel writes at most `size` bytes.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_XDP,
                name,
                value.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        // SAFETY: `Plain` types are valid for every bit pattern, and all of it was zeroed before.
        if done == 0 { Ok(unsafe { value.assume_init() }) } else { Err(io::Error::last_os_error()) }
    }
}

/// A structure of integers: every bit pattern is a value.
///
/// # Safety
/// Only for such types.
unsafe trait Plain {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_statistics {}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn os(what: &str) -> impl FnOnce(io::Error) -> LinkError {
    let what = what.to_owned();
    move |error| LinkError::Os { what, error }
}

fn last_error(what: &str) -> LinkError {
    os(what)(io::Error::last_os_error())
}
