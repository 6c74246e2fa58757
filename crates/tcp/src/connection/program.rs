//! What a program does with a connection: it sends, reads, closes and aborts.

use super::{Connection, Ended, SendError, State};

impl Connection {
    /// Takes bytes to send; returns their number, which is less than all when the buffer is full and 0 before
    /// the connection is open.
    ///
    /// # Errors
    ///
    /// This end was closed, or the connection is over.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.send_with(bytes.len(), |at, room| room.copy_from_slice(&bytes[at..][..room.len()]))
    }

    /// Sends up to `bytes_max` bytes, as many as there is room for, that `fill` writes into the buffer: it gets the place of the
    /// first one among them and free memory. It is called twice where the buffer wraps. Returns their number.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn send_with(
        &mut self,
        bytes_max: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize, SendError> {
        match self.state() {
            State::SynSent | State::SynReceived => return Ok(0),
            State::Established | State::CloseWait => (),
            State::Closed => return Err(self.ended.unwrap_or(Ended::Closed).into()),
            _ => return Err(SendError::Closed),
        }
        let (socket, recovery, mut taken) = (self.machine.socket_mut(), &mut self.recovery, 0);
        loop {
            let part = socket.send(|room| {
                let part = room.len().min(bytes_max - taken);
                fill(taken, &mut room[..part]);
                recovery.enqueue(&room[..part]);
                (part, part)
            });
            let part = part.map_err(|_| SendError::Closed)?;
            taken += part;
            if part == 0 || taken == bytes_max {
                break;
            }
        }
        self.numbers.enqueue(taken);
        Ok(taken)
    }

    /// [`Connection::send`] of urgent bytes (RFC 6093): the peer gets the position of the last one that was
    /// taken.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn send_urgent(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        let taken = self.send(bytes)?;
        if taken > 0 {
            self.urgent.mark(self.numbers.enqueued_end());
        }
        Ok(taken)
    }

    /// Reads bytes in order; returns their number, 0 when there are none now.
    pub fn recv(&mut self, bytes: &mut [u8]) -> usize {
        self.recv_with(bytes.len(), |at, part| bytes[at..][..part.len()].copy_from_slice(part))
    }

    /// Passes up to `bytes_max` of the bytes that came in order to `read`, where they are, with the place of the first one among
    /// them. It is called twice where the buffer wraps. Returns their number, 0 when there are none now.
    pub fn recv_with(&mut self, bytes_max: usize, mut read: impl FnMut(usize, &[u8])) -> usize {
        let (socket, mut taken) = (self.machine.socket_mut(), 0);
        loop {
            let part = socket.recv(|bytes| {
                let part = bytes.len().min(bytes_max - taken);
                read(taken, &bytes[..part]);
                (part, part)
            });
            let part = part.unwrap_or(0);
            taken += part;
            if part == 0 || taken == bytes_max {
                break;
            }
        }
        self.numbers.consume(taken);
        taken
    }

    /// Bytes that `recv` would return now.
    pub fn readable_bytes(&self) -> usize {
        self.machine.socket().recv_queue()
    }

    /// Bytes that `send` would take now.
    pub fn writable_bytes(&self) -> usize {
        let socket = self.machine.socket();
        if socket.may_send() && !self.numbers.close_waits() {
            socket.send_capacity() - socket.send_queue()
        } else {
            0
        }
    }

    /// Bytes sent or to be sent that the peer has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.machine.socket().send_queue()
    }

    /// Whether the peer has closed its direction and all of it was read.
    pub fn is_finished(&self) -> bool {
        let has_fin = self.has_received_fin() || self.state() == State::Closed;
        has_fin && self.readable_bytes() == 0
    }

    /// Bytes until the urgent mark, if there is one ahead (RFC 6093 3.1: they stay in the stream).
    pub fn urgent_ahead(&self) -> Option<u32> {
        self.urgent.ahead(self.numbers.read_end())
    }

    /// Closes this end's direction: sent data still arrives, and the peer may continue to send (half-close,
    /// RFC 9293 3.6).
    pub fn close(&mut self) {
        let was_opening = self.state() == State::SynSent;
        if self.state() == State::CloseWait && self.numbers.has_unsent() {
            // In LAST-ACK the machine reads no window: what waits for one would leave by its probes alone. So it is told when all
            // has left; until then it must not hold the last bytes back for more.
            self.numbers.set_close_waits(true);
            self.machine.socket_mut().set_nagle_enabled(false);
            return;
        }
        self.machine.socket_mut().close();
        if was_opening {
            self.ended = Some(Ended::Closed);
        }
    }

    /// Whether a close waits, and all bytes have left.
    pub(super) fn close_is_due(&self) -> bool {
        self.numbers.close_waits() && !self.numbers.has_unsent()
    }

    /// Tells the machine of such a close: it makes the FIN next.
    pub(super) fn close_behind_last_byte(&mut self) {
        if self.close_is_due() {
            self.numbers.set_close_waits(false);
            self.machine.socket_mut().close();
        }
    }

    /// Ends the connection at once; `output` makes one reset for the peer (RFC 9293 3.10.5).
    pub fn abort(&mut self) {
        if self.ended.is_none() {
            let has_peer = !matches!(self.state(), State::SynSent | State::TimeWait);
            self.ended = Some(Ended::Aborted);
            self.time_wait = None;
            if has_peer {
                self.machine.socket_mut().abort();
            }
        }
    }
}
