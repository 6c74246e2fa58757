//! The sockets of one receive queue of a device: one for each stream to receive, one to send.
//!
//! The sending socket comes first: it brings the memory and the queue's only fill and completion ring, and
//! the others join it. It is separate from the receiving sockets, since `poll` on a socket with a TX ring
//! also sends, and losses that it meets there are not reported.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::ZeroCopy;
use super::rings::{Consumer, Producer, RingSizes};
use super::socket::{Binding, RingKind, Socket};
use super::umem::XdpMemory;
use crate::LinkError;
use crate::kernel::Device;

/// The socket that one stream is received on, with its ring.
pub(super) struct RxSocket {
    pub(super) socket: Socket,
    pub(super) ring: Consumer<libc::xdp_desc>,
}

/// The socket that packets are sent on, with its rings.
pub(super) struct TxSocket {
    pub(super) socket: Socket,
    pub(super) ring: Producer<libc::xdp_desc>,
    pub(super) completion: Consumer<u64>,
}

/// All sockets and rings of a queue; closed on drop.
pub(super) struct Queue {
    /// Receiving sockets in the order of [`Stream::ALL`].
    pub(super) rx: Vec<RxSocket>,
    pub(super) tx: TxSocket,
    pub(super) fill: Producer<u64>,
    pub(super) zero_copy: bool,
}

impl Queue {
    /// Opens and binds them all, without a copy where `zero_copy` and the device allow it.
    pub(super) fn open(
        device: &Device,
        queue: u32,
        zero_copy: ZeroCopy,
        sizes: RingSizes,
        memory: &XdpMemory,
    ) -> Result<Self, LinkError> {
        let (tx, fill) = match zero_copy {
            ZeroCopy::No => Self::first(device, queue, false, sizes, memory)?,
            ZeroCopy::Yes => Self::first(device, queue, true, sizes, memory)?,
            ZeroCopy::Auto => Self::first(device, queue, true, sizes, memory)
                .or_else(|_| Self::first(device, queue, false, sizes, memory))?,
        };
        let zero_copy = tx.socket.is_zero_copy()?;
        let joins = Binding::Joins(tx.socket.as_fd());
        let rx = sizes.rx.iter().map(|entries| {
            let socket = Socket::open()?;
            socket.set_ring(RingKind::Rx, *entries)?;
            let ring = socket.consumer(RingKind::Rx, *entries)?;
            socket
                .bind(device.index, queue, joins)
                .map_err(|error| refused(device, queue, zero_copy, error))?;
            Ok(RxSocket { socket, ring })
        });
        let rx = rx.collect::<Result<Vec<_>, LinkError>>()?;
        Ok(Self { rx, tx, fill, zero_copy })
    }

    fn first(
        device: &Device,
        queue: u32,
        zero_copy: bool,
        sizes: RingSizes,
        memory: &XdpMemory,
    ) -> Result<(TxSocket, Producer<u64>), LinkError> {
        let socket = Socket::open()?;
        socket.register(memory)?;
        for (ring, entries) in
            [(RingKind::Fill, sizes.fill), (RingKind::Completion, sizes.tx), (RingKind::Tx, sizes.tx)]
        {
            socket.set_ring(ring, entries)?;
        }
        // In copy mode the kernel charges each packet to the socket until the adapter has sent it.
        socket.set_send_buffer(2 * sizes.tx as usize * memory.frame_bytes())?;
        let fill = socket.producer(RingKind::Fill, sizes.fill)?;
        let completion = socket.consumer(RingKind::Completion, sizes.tx)?;
        let ring = socket.producer(RingKind::Tx, sizes.tx)?;
        socket
            .bind(device.index, queue, Binding::First { zero_copy })
            .map_err(|error| refused(device, queue, zero_copy, error))?;
        Ok((TxSocket { socket, ring, completion }, fill))
    }

    /// The descriptors that become readable when packets come in, the most urgent stream first.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rx.iter().map(|rx_socket| rx_socket.socket.as_fd()).collect()
    }

    /// Packets that the kernel dropped although the program had let them through.
    pub(super) fn kernel_drops(&self) -> u64 {
        let of = |statistics: libc::xdp_statistics| {
            statistics.rx_dropped + statistics.rx_ring_full + statistics.rx_fill_ring_empty_descs
        };
        self.rx.iter().filter_map(|rx_socket| rx_socket.socket.statistics().ok()).map(of).sum()
    }
}

fn refused(device: &Device, queue: u32, zero_copy: bool, error: io::Error) -> LinkError {
    let how = if zero_copy { " without copies" } else { "" };
    let fix = match error.raw_os_error() {
        Some(libc::EBUSY) => "another AF_XDP program uses that queue: stop it or configure another queue",
        Some(libc::EOPNOTSUPP) if zero_copy => {
            "this device has no zero copy: configure zero_copy = \"auto\" or \"no\""
        }
        Some(libc::EINVAL) if zero_copy => {
            "the device does not support zero copy on that queue in its present setup: configure zero_copy = \
             \"auto\" or \"no\""
        }
        Some(libc::EINVAL) => "is that a receive queue of the device? see `ethtool -l`",
        Some(libc::ENODEV) => "is the device still there? see `ip link`",
        Some(libc::ENETDOWN) => "the device is down: `ip link set DEVICE up`",
        Some(libc::EPERM) => "needs CAP_NET_RAW",
        _ => "see the kernel's error",
    };
    let name = &device.name;
    LinkError::Os { what: format!("binding AF_XDP to {name}, queue {queue}{how} ({fix})"), error }
}
