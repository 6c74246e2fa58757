//! Opening a connected UDP socket with the options that a link needs.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use punctual_trial::{Defence, holds};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, connect, recv, socket_with};

use super::UdpOptions;
use crate::kernel::KernelError;
use crate::{LinkError, Port};

/// Longest UDP payload over IPv4.
const PACKET_BYTES_MAX: usize = 65_507;
/// Largest socket buffer that can be requested.
const SOCKET_BUFFER_BYTES_MAX: usize = 1 << 30;

pub(super) fn check(options: &UdpOptions) -> Result<(), LinkError> {
    let fail = |text: String| Err(LinkError::Options(text));
    if options.local.is_ipv4() != options.peer.is_ipv4() {
        return fail(format!(
            "local {} and peer {} are of different families: use IPv4 or IPv6 for both",
            options.local, options.peer
        ));
    }
    if !(1..=PACKET_BYTES_MAX).contains(&options.packet_bytes_max) {
        return fail(format!(
            "packets of {} B: a UDP datagram carries 1 to {PACKET_BYTES_MAX} B",
            options.packet_bytes_max
        ));
    }
    if options.socket_buffer_bytes > SOCKET_BUFFER_BYTES_MAX {
        return fail(format!(
            "socket buffers of {} B: give at most {SOCKET_BUFFER_BYTES_MAX} B",
            options.socket_buffer_bytes
        ));
    }
    if options.data_port == options.signalling_port {
        return fail(format!("data and signalling share port {}: give two ports", options.data_port));
    }
    Ok(())
}

/// A socket for `port`: bound, connected, non-blocking, without packets of other senders.
pub(super) fn open(options: &UdpOptions, port: Port) -> Result<OwnedFd, LinkError> {
    let (local_port, peer_port) = match port {
        Port::Data => (options.data_port, options.peer_data_port),
        Port::Signalling => (options.signalling_port, options.peer_signalling_port),
    };
    let local = SocketAddr::new(options.local, local_port);
    let peer = SocketAddr::new(options.peer, peer_port);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None).map_err(os("opening a UDP socket"))?;
    if options.shared_port {
        sockopt::set_socket_reuseport(&socket, true).map_err(os("SO_REUSEPORT"))?;
    }
    if let Some(device) = &options.device {
        bind_to_device(&socket, device)?;
    }
    set_buffers(&socket, options)?;
    set_path_mtu_discovery(&socket, local.is_ipv4()).map_err(os("IP_MTU_DISCOVER"))?;
    let priority = options.priority as libc::c_int;
    set_int(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
        .map_err(|e| os(&format!("SO_PRIORITY {priority} (more than 6 needs CAP_NET_ADMIN)"))(e))?;
    set_int(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).map_err(os("SO_TIMESTAMPNS"))?;
    set_int(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(os("SO_RXQ_OVFL"))?;
    bind(&socket, &local).map_err(|e| {
        os(&format!("binding UDP {local} (is the address this host's, and no other program on the port?)"))(e)
    })?;
    connect(&socket, &peer)
        .map_err(|e| os(&format!("connecting UDP {local} to {peer} (is there a route?)"))(e))?;
    drain(&socket);
    Ok(socket)
}

fn os<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> LinkError {
    let what = what.to_owned();
    move |error| LinkError::Os { what, error: error.into() }
}

/// Discards packets that any host could have sent between bind and connect. The socket's buffer bounds the
/// work.
fn drain(socket: &OwnedFd) {
    let mut scrap = [0u8; 1];
    while recv(socket, &mut scrap[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT).is_ok() {}
}

/// Packets are sent unfragmented or not at all, and only the device determines which size fits. Otherwise a
/// host that knows the two ports could report to the kernel that a path takes 68 bytes ("fragmentation
/// needed"), and no packet would pass for ten minutes.
fn set_path_mtu_discovery(socket: &OwnedFd, is_ipv4: bool) -> rustix::io::Result<()> {
    if is_ipv4 && !holds(Defence::DeviceMtu) {
        return sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO);
    }
    if is_ipv4 {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)
    } else {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)
    }
}

/// The kernel's limits do not apply with `CAP_NET_ADMIN` (the FORCE options); without it the limits apply.
fn set_buffers(socket: &OwnedFd, options: &UdpOptions) -> Result<(), LinkError> {
    let wanted = options.socket_buffer_bytes;
    if sockopt::set_socket_recv_buffer_size_force(socket, wanted).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, wanted).map_err(os("SO_RCVBUF"))?;
    }
    if sockopt::set_socket_send_buffer_size_force(socket, wanted).is_err() {
        sockopt::set_socket_send_buffer_size(socket, wanted).map_err(os("SO_SNDBUF"))?;
    }
    // The kernel doubles the requested size, to cover its own bookkeeping.
    let receive = sockopt::socket_recv_buffer_size(socket).map_err(os("SO_RCVBUF"))? / 2;
    let send = sockopt::socket_send_buffer_size(socket).map_err(os("SO_SNDBUF"))? / 2;
    if options.socket_buffer_required && receive.min(send) < wanted {
        return Err(LinkError::Options(format!(
            "requested socket buffers of {wanted} B, got {} B: raise net.core.rmem_max and wmem_max, grant \
             CAP_NET_ADMIN, or set a smaller socket_buffer",
            receive.min(send)
        )));
    }
    Ok(())
}

fn bind_to_device(socket: &OwnedFd, device: &str) -> Result<(), LinkError> {
    // SAFETY: the pointer and length are those of `device`, which outlives the call; the kernel only reads them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            device.as_ptr().cast(),
            device.len() as libc::socklen_t,
        )
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENODEV) {
        return Err(KernelError::NoDevice(device.into()).into());
    }
    Err(os(&format!("binding to device \"{device}\" (needs CAP_NET_RAW on old kernels)"))(error))
}

fn set_int(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and size are those of `value`, which outlives the call; the kernel only reads it.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
