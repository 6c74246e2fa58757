//! A netlink socket for requests: it sends requests, collects the answers, and turns refusals into errors
//! with the kernel's explanation.

use std::io;

use netlink_packet_core::{
    ErrorBuffer, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer,
};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

use super::attributes::{Attributes, Body};

/// Length of a message's header.
pub(super) const HEADER_BYTES: usize = 16;
/// Kind of the text in an extended acknowledgement.
const ACK_TEXT: u16 = 1;

/// A socket for requests.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket to devices, addresses, routes, neighbours and qdiscs.
    pub fn route() -> io::Result<Self> {
        Self::open(NETLINK_ROUTE)
    }

    /// Opens a socket to generic families.
    pub fn generic() -> io::Result<Self> {
        Self::open(NETLINK_GENERIC)
    }

    fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Without this option refusals only lack their text.
        let _ = socket.set_ext_ack(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request; returns the messages before the acknowledgement, each without its header.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn ask(&mut self, kind: u16, flags: u16, body: &Body) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(kind, flags | NLM_F_ACK, body)
    }

    /// Requests all objects of a kind; returns the same.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn list(&mut self, kind: u16, body: &Body) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(kind, NLM_F_DUMP, body)
    }

    fn exchange(&mut self, kind: u16, flags: u16, body: &Body) -> io::Result<Vec<Vec<u8>>> {
        self.sequence += 1;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(body.bytes());
        let length = bytes.len() as u32;
        let mut header = NetlinkBuffer::new(&mut bytes);
        header.set_length(length);
        header.set_message_type(kind);
        header.set_flags(flags | NLM_F_REQUEST);
        header.set_sequence_number(self.sequence);
        header.set_port_number(0);
        self.socket.send(&bytes, 0)?;
        let mut answer = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if self.collect(&datagram, &mut answer)? {
                return Ok(answer);
            }
        }
    }

    /// Adds the messages of a datagram; whether the answer is complete.
    fn collect(&self, datagram: &[u8], answer: &mut Vec<Vec<u8>>) -> io::Result<bool> {
        for (header, body) in messages(datagram) {
            if header.sequence_number() != self.sequence {
                continue;
            }
            if judge(header, body)? {
                return Ok(true);
            }
            answer.push(body.to_vec());
        }
        Ok(false)
    }
}

/// The messages of a datagram, each with the bytes behind its header.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = (NetlinkBuffer<&[u8]>, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(rest).ok()?;
        let length = header.length() as usize;
        let body = &rest[HEADER_BYTES..length];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((header, body))
    })
}

/// Whether a message ends the answer; the refusal if it is one.
pub(super) fn judge(header: NetlinkBuffer<&[u8]>, body: &[u8]) -> io::Result<bool> {
    match header.message_type() {
        NLMSG_ERROR => acknowledged(header, body).map(|()| true),
        NLMSG_DONE => done(body).map(|()| true),
        _ => Ok(false),
    }
}

fn acknowledged(header: NetlinkBuffer<&[u8]>, body: &[u8]) -> io::Result<()> {
    let error = ErrorBuffer::new_checked(body).map_err(|_| truncated())?;
    let Some(code) = error.code() else { return Ok(()) };
    let error = io::Error::from_raw_os_error(code.get().saturating_neg());
    let text = (header.flags() & NLM_F_ACK_TLVS != 0).then(|| {
        // The request, whole or only its header, is between the code and the text.
        let request = if header.flags() & NLM_F_CAPPED != 0 {
            HEADER_BYTES
        } else {
            NetlinkBuffer::new_checked(&body[4..]).map_or(HEADER_BYTES, |it| it.length() as usize)
        };
        Attributes::after(body, 4 + request.next_multiple_of(4)).text(ACK_TEXT)
    });
    Err(match text.flatten() {
        Some(text) => io::Error::new(error.kind(), Refused { error, text }),
        None => error,
    })
}

fn done(body: &[u8]) -> io::Result<()> {
    match body.first_chunk::<4>().map(|code| i32::from_ne_bytes(*code)) {
        Some(code) if code < 0 => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Ok(()),
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel's answer is cut off")
}

/// A refusal with the kernel's own words.
#[derive(Debug, thiserror::Error)]
#[error("{error}: {text}")]
struct Refused {
    error: io::Error,
    text: String,
}

/// The code of a refusal, if the kernel gave one.
pub(super) fn errno(error: &io::Error) -> Option<i32> {
    let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>());
    refusal.map_or_else(|| error.raw_os_error(), |refused| refused.error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_its_code_and_text() {
        let mut netlink = Netlink::route().expect("a socket");
        // RTM_GETLINK of a device that cannot be.
        let body = Body::new(&[0; 16]).with_text(3, "no-such-device");
        let error = netlink.ask(18, 0, &body).expect_err("no device");
        assert_eq!(errno(&error), Some(libc::ENODEV), "{error}");
        // The socket is as good as before.
        assert!(!netlink.list(18, &Body::new(&[0; 16])).expect("a list").is_empty());
    }

    #[test]
    fn cut_off_datagrams_end_early() {
        let mut datagram = vec![0; 20];
        datagram[0] = 20;
        datagram.extend([32, 0, 0, 0, 0, 0]);
        assert_eq!(messages(&datagram).count(), 1);
        assert_eq!(messages(&datagram[..10]).count(), 0);
    }
}
