//! Packets of the API with descriptors, over a `SOCK_SEQPACKET` Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt::set_socket_passcred,
    sockopt::socket_peercred,
};
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{DESCRIPTORS_MAX, PACKET_BYTES_MAX};

/// Packets that [`discard_unread`] takes at most: more than any kernel queues (`net.unix.max_dgram_qlen`).
const DISCARDED_MAX: u32 = 1_024;

/// A packet as it came.
#[derive(Debug, Default)]
pub struct Packet {
    /// The JSON text.
    pub bytes: Vec<u8>,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

impl Packet {
    /// Reads the value in it.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.bytes)
    }

    /// Makes one.
    ///
    /// # Errors
    /// If the value is too large for a packet.
    pub fn new(value: &impl Serialize, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let bytes = serde_json::to_vec(value)?;
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a message of {} B: at most {PACKET_BYTES_MAX} B fit into a packet of the API",
                    bytes.len()
                ),
            ));
        }
        Ok(Self { bytes, descriptors })
    }
}

/// The process at the other end of a connected socket.
#[derive(Debug)]
pub struct Peer {
    /// The user that it runs as.
    pub user: UserId,
    /// The process that connected, if it is in a PID namespace that is seen from here.
    pub process: Option<Pid>,
    /// Refers to that very process, even if its number is reused later; `None` before Linux 6.5.
    pub pidfd: Option<OwnedFd>,
}

impl Peer {
    /// Queries the kernel.
    ///
    /// # Errors
    /// If the credentials cannot be read.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let credentials = socket_peercred(&socket)?;
        let process = Pid::from_raw(credentials.pid.as_raw_nonzero().get());
        Ok(Self { user: UserId(credentials.uid.as_raw()), process, pidfd: peer_pidfd(socket.as_fd()) })
    }
}

fn peer_pidfd(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both point to variables of ours, and the kernel writes at most `bytes` bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut bytes,
        )
    };
    // SAFETY: the kernel has just made this descriptor for this call, and no other owner has it.
    (done == 0 && descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Forbids the programs that connect to `socket` to send descriptors with their packets: the last close of
/// such a descriptor may wait for the program that made it (a pipe that it keeps busy, a file system of its
/// own). Call this before the first connection; connections inherit it. Returns `false` if the kernel does
/// not support it (before Linux 6.16).
///
/// # Errors
/// If the system refuses it for another reason.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<bool> {
    /// `SO_PASSRIGHTS`, asm-generic/socket.h.
    const PASS_RIGHTS: libc::c_int = 83;
    let off = libc::c_int::from(!holds(Defence::PassRights));
    // SAFETY: the kernel reads one number, which is there.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        error => Err(error),
    }
}

/// Bounds the bytes that the kernel holds for the reader of the other end. Beyond that, [`send`] returns
/// `WouldBlock`. One packet of [`PACKET_BYTES_MAX`] always fits, and a second one may be accepted on top.
///
/// # Errors
/// The errors of the system.
pub fn bound_sending(socket: impl AsFd) -> io::Result<()> {
    // The kernel doubles it, for its own account of packets.
    Ok(rustix::net::sockopt::set_socket_send_buffer_size(socket, PACKET_BYTES_MAX / 2 + 4_096)?)
}

/// The bytes that were sent to the other end and not read there, as the kernel counts them: more than were
/// sent, and zero if all is read or the other end is closed. The reader owns the descriptors of a packet when
/// its bytes are no longer counted.
///
/// If it is not a socket.
/// If it is no socket.
pub fn unread_bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int to the given address, which is ours.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(u64::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// Whether the kernel refused a packet because too many descriptors of this process's user are in transit, in
/// sockets that were not read: as many as this process may have open.
pub fn too_many_on_their_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ETOOMANYREFS)
}

/// Sends a packet, with `DONTWAIT` if the socket must not block.
///
/// # Errors
/// `WouldBlock` if the socket is full, or another error of the system; never raises `SIGPIPE`.
pub fn send(socket: impl AsFd, packet: &Packet, flags: SendFlags) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = packet.descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    let flags = if holds(Defence::SendsWithoutWaiting) { flags } else { flags - SendFlags::DONTWAIT };
    loop {
        match sendmsg(&socket, &[IoSlice::new(&packet.bytes)], &mut control, flags | SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.map(|_| ()).map_err(io::Error::from),
        }
    }
}

/// Does what [`receive`] does without room for descriptors: it takes none, and refuses a packet that came
/// with some. (The kernel then releases them on this thread: see [`refuse_descriptors`].)
///
/// # Errors
/// See [`receive`].
pub fn receive_bare(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Option<Packet>> {
    let mut none = RecvAncillaryBuffer::default();
    let got = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut none, flags) {
            // The same errors as below.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            result => break result?,
        }
    };
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return refused("a packet with descriptors: no request has any");
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return refused("a packet longer than the API allows");
    }
    Ok((got.bytes > 0).then(|| Packet { bytes: buffer[..got.bytes].to_vec(), descriptors: Vec::new() }))
}

/// Receives a packet; `None` at the end of the connection.
///
/// # Errors
/// `InvalidData` if it is longer than [`PACKET_BYTES_MAX`], `WouldBlock` if none waits, or another error of
/// the system.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)
        {
            // The other end hung up while it had unread packets of ours. This is reported once; packets that
            // it sent before follow.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            result => break result?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.flags.contains(ReturnFlags::TRUNC) || got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet longer than the API allows"));
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    Ok(Some(Packet { bytes: buffer[..got.bytes].to_vec(), descriptors }))
}

/// Discards the unread packets of the other end, each with a system call of its own. After this, no other
/// data is received on the socket.
pub fn discard_unread(socket: impl AsFd) {
    // From now on each packet has credentials, which are cut off here, and an end of file has none. That
    // distinguishes it from an empty packet.
    let reports_ends = set_socket_passcred(&socket, true).is_ok();
    let mut none = RecvAncillaryBuffer::default();
    for _ in 0..DISCARDED_MAX {
        let received = recvmsg(&socket, &mut [IoSliceMut::new(&mut [0; 1])], &mut none, RecvFlags::DONTWAIT);
        match received {
            Ok(got) if got.bytes == 0 && !got.flags.contains(ReturnFlags::CTRUNC) && reports_ends => return,
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            // No packet is left.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> [OwnedFd; 2] {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair")
            .into()
    }

    fn with_pipe() -> Packet {
        let (reading, writing) = std::io::pipe().expect("a pipe");
        Packet { bytes: vec![1], descriptors: vec![reading.into(), writing.into()] }
    }

    /// On kernels that let descriptors through, no descriptor is accepted, and the packet is refused.
    #[test]
    fn a_packet_with_descriptors_is_refused_and_leaves_none_here() {
        let [ours, theirs] = pair();
        let mut buffer = [0; 16];
        send(&theirs, &with_pipe(), SendFlags::empty()).expect("sent");
        let refused = receive_bare(&ours, &mut buffer, RecvFlags::empty()).expect_err("refused");
        assert!(refused.kind() == io::ErrorKind::InvalidData && refused.to_string().contains("descriptors"));
        send(&theirs, &Packet { bytes: vec![2], descriptors: Vec::new() }, SendFlags::empty()).expect("sent");
        let packet =
            receive_bare(&ours, &mut buffer, RecvFlags::empty()).expect("received").expect("a packet");
        assert_eq!((packet.bytes, packet.descriptors.len()), (vec![2], 0));
        drop(theirs);
        assert!(receive_bare(&ours, &mut buffer, RecvFlags::empty()).expect("the end").is_none());
    }

    #[test]
    fn packets_without_a_reader_are_discarded_one_by_one() {
        let [ours, theirs] = pair();
        // More empty ones than an end could be mistaken for.
        let packets =
            [vec![1; 3], Vec::new(), vec![2]].into_iter().chain(vec![Vec::new(); 100]).chain([vec![3]]);
        let packets: Vec<Packet> = packets.map(|bytes| Packet { bytes, descriptors: Vec::new() }).collect();
        packets.iter().for_each(|packet| send(&theirs, packet, SendFlags::DONTWAIT).expect("room"));
        discard_unread(&ours);
        assert_eq!(unread_bytes(&theirs).expect("a socket"), 0);
        let nothing = receive_bare(&ours, &mut [0; 16], RecvFlags::DONTWAIT).expect_err("nothing is left");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(theirs);
        discard_unread(&ours);
        assert!(receive_bare(&ours, &mut [0; 16], RecvFlags::empty()).expect("the end").is_none());
    }

    #[test]
    fn a_socket_that_refuses_descriptors_gets_none() {
        let [ours, theirs] = pair();
        if refuse_descriptors(&ours).expect("a socket") {
            let refused = send(&theirs, &with_pipe(), SendFlags::empty()).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        } else {
            send(&theirs, &with_pipe(), SendFlags::empty()).expect("this kernel knows no better");
        }
    }

    #[test]
    fn the_kernel_holds_little_for_a_program_that_does_not_read() {
        let [ours, _theirs] = pair();
        bound_sending(&ours).expect("bounded");
        let packet = Packet { bytes: vec![0; PACKET_BYTES_MAX], descriptors: Vec::new() };
        let sent = (0..100).take_while(|_| send(&ours, &packet, SendFlags::DONTWAIT).is_ok()).count();
        assert!((1..=2).contains(&sent), "{sent} of the longest packets");
    }
}
