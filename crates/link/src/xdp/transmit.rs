//! The way out: headers in front of a packet, descriptors, kicks, and completions.

use super::XdpOptions;
use super::headers::{Addresses, ETHERNET_BYTES, Headers, write_ethernet};
use super::ledger::Ledger;
use super::queue::{Queue, TxSocket};
use super::socket::Kick;
use super::umem::{PAYLOAD_OFFSET, XdpMemory};
use crate::{Frame, LinkError, LinkStatistics, NextHop, Port};

/// Packets that the kernel takes in one call, by default.
const PACKETS_PER_KICK: u32 = 32;
/// Calls of one flush in addition to those that its packets need: each lost packet ends one.
const SPARE_KICKS: u32 = 4;

/// State of the device for transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Packets are lost until it is up again.
    Down,
    /// The device is gone, and this link's sockets with it.
    Gone,
}

pub(super) struct Transmitter {
    memory: XdpMemory,
    headers: Headers,
    packet_bytes_max: usize,
    ip_bytes_max: usize,
    /// Packets on their way out, at most.
    frames: u32,
    /// The buffer that is being filled.
    staged: Option<Frame>,
    state: State,
    finished_bytes: u32,
}

impl Transmitter {
    pub(super) fn new(options: &XdpOptions, memory: &XdpMemory, headers: Headers) -> Self {
        Self {
            memory: memory.clone(),
            headers,
            packet_bytes_max: options.classifier.packet_bytes_max as usize,
            ip_bytes_max: options.ip_bytes_max(),
            frames: options.transmit_frames,
            staged: None,
            state: State::Up,
            finished_bytes: 0,
        }
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    pub(super) fn is_pending(&self, tx: &TxSocket) -> bool {
        self.state == State::Up && tx.ring.waiting() > 0
    }

    pub(super) fn buffer(&mut self, tx: &mut TxSocket, ledger: &mut Ledger) -> Option<&mut [u8]> {
        let bytes = self.packet_bytes_max;
        self.stage(tx, ledger).map(|buffer| &mut buffer[..bytes])
    }

    pub(super) fn ip_buffer(&mut self, tx: &mut TxSocket, ledger: &mut Ledger) -> Option<&mut [u8]> {
        let bytes = self.ip_bytes_max;
        if bytes == 0 {
            return None;
        }
        self.stage(tx, ledger).map(|buffer| &mut buffer[..bytes])
    }

    fn stage(&mut self, tx: &mut TxSocket, ledger: &mut Ledger) -> Option<&mut [u8]> {
        if self.staged.is_none() && self.has_room(tx, ledger) {
            self.staged = self.memory.pool().take();
            if let Some(frame) = &mut self.staged {
                frame.begin_at(PAYLOAD_OFFSET);
            }
        }
        self.staged.as_mut().map(Frame::buffer_mut)
    }

    pub(super) fn queue(
        &mut self,
        tx: &mut TxSocket,
        ledger: &mut Ledger,
        addresses: &Addresses,
        (port, len, wire_bytes): (Port, usize, u32),
        statistics: &mut LinkStatistics,
    ) -> Result<(), LinkError> {
        let frame = self.filled(len, self.packet_bytes_max)?;
        let sent = self.send(tx, ledger, (frame, wire_bytes), self.headers.bytes(), |packet| {
            self.headers.write(port, addresses, packet)
        });
        self.settle(sent, wire_bytes, statistics);
        Ok(())
    }

    /// Queues an IP packet to a hop.
    pub(super) fn queue_ip(
        &mut self,
        tx: &mut TxSocket,
        ledger: &mut Ledger,
        addresses: &Addresses,
        (hop, len, wire_bytes): (&NextHop, usize, u32),
        statistics: &mut LinkStatistics,
    ) -> Result<(), LinkError> {
        let frame = self.filled(len, self.ip_bytes_max)?;
        let sent = self.send(tx, ledger, (frame, wire_bytes), ETHERNET_BYTES, |packet| {
            write_ethernet(hop, addresses, packet)
        });
        self.settle(sent, wire_bytes, statistics);
        Ok(())
    }

    /// The buffer that was filled with `len` bytes.
    fn filled(&mut self, len: usize, bytes_max: usize) -> Result<Frame, LinkError> {
        if len > bytes_max {
            return Err(LinkError::TooLong { bytes: len, bytes_max });
        }
        let Some(mut frame) = self.staged.take() else {
            return Err(LinkError::Options("a packet was queued without a transmit buffer".into()));
        };
        frame.set_len(len);
        Ok(frame)
    }

    /// A packet that could not be sent is finished, and its buffer is filled again.
    fn settle(&mut self, sent: Result<(), Frame>, wire_bytes: u32, statistics: &mut LinkStatistics) {
        if let Err(frame) = sent {
            statistics.send_errors += 1;
            self.finished_bytes = self.finished_bytes.saturating_add(wire_bytes);
            self.staged = Some(frame);
        }
    }

    pub(super) fn queue_frame(
        &mut self,
        tx: &mut TxSocket,
        ledger: &mut Ledger,
        addresses: &Addresses,
        (port, frame, wire_bytes): (Port, Frame, u32),
        statistics: &mut LinkStatistics,
    ) -> Result<(), Frame> {
        let fits = frame.offset() >= self.headers.bytes() && frame.as_ref().len() <= self.packet_bytes_max;
        if !fits || !frame.is_of(self.memory.pool()) || !self.has_room(tx, ledger) {
            return Err(frame);
        }
        let sent = self.send(tx, ledger, (frame, wire_bytes), self.headers.bytes(), |packet| {
            self.headers.write(port, addresses, packet)
        });
        if let Err(frame) = sent {
            statistics.send_errors += 1;
            self.finished_bytes = self.finished_bytes.saturating_add(wire_bytes);
            drop(frame);
        }
        Ok(())
    }

    /// Puts a frame of the region into the ring, which has room, with `headroom` bytes that `write` fills in front; gives it
    /// back if it cannot be sent at all.
    fn send(
        &self,
        tx: &mut TxSocket,
        ledger: &mut Ledger,
        (mut frame, wire_bytes): (Frame, u32),
        headroom: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), Frame> {
        if self.state != State::Up {
            return Err(frame);
        }
        let start = frame.offset() - headroom;
        let Some(packet) = frame.with_headroom(headroom) else { return Err(frame) };
        let len = packet.len() as u32;
        if !write(packet) {
            return Err(frame);
        }
        let index = frame.into_index();
        let addr = u64::from(index) * self.memory.frame_bytes() as u64 + start as u64;
        ledger.send(index, wire_bytes);
        let queued = tx.ring.push(libc::xdp_desc { addr, len, options: 0 });
        debug_assert!(queued, "the ring holds all frames that may be on their way out");
        Ok(())
    }

    /// Whether one more packet may be in transmission; collects completions if not.
    fn has_room(&mut self, tx: &mut TxSocket, ledger: &mut Ledger) -> bool {
        if ledger.to_send() >= self.frames {
            self.collect(tx, ledger);
        }
        ledger.to_send() < self.frames
    }

    /// Makes the kernel take the queued packets, as far as it does. Each system call is bounded, and so is
    /// their number.
    pub(super) fn flush(
        &mut self,
        queue: &mut Queue,
        ledger: &mut Ledger,
        statistics: &mut LinkStatistics,
    ) -> Result<(), LinkError> {
        let tx = &mut queue.tx;
        let published = tx.ring.publish();
        let mut waiting = tx.ring.waiting();
        if self.is_gone() || (waiting == 0 && self.state == State::Up) {
            return Ok(());
        }
        if queue.zero_copy {
            statistics.packets_out += u64::from(published);
            return self.flush_zero_copy(tx, ledger, statistics, waiting);
        }
        let kicks_max = waiting + waiting / PACKETS_PER_KICK + SPARE_KICKS;
        for _ in 0..kicks_max {
            let kick = tx.socket.kick_transmit()?;
            let left = tx.ring.waiting();
            let taken = waiting - left;
            waiting = left;
            let lost = u32::from(kick == Kick::Lost);
            statistics.overflows += u64::from(lost);
            statistics.packets_out += u64::from(taken.saturating_sub(lost));
            match kick {
                Kick::Down | Kick::Gone => {
                    self.lose(kick, waiting, ledger, statistics);
                    return Ok(());
                }
                Kick::NoCompletions if self.collect(tx, ledger) == 0 => break,
                Kick::Done => self.state = State::Up,
                Kick::Again if taken == 0 => break,
                Kick::Again | Kick::Lost | Kick::NoCompletions => {}
            }
            if waiting == 0 {
                return Ok(());
            }
        }
        statistics.send_waits += 1;
        Ok(())
    }

    /// The adapter takes packets by itself, and is woken if it sleeps.
    fn flush_zero_copy(
        &mut self,
        tx: &mut TxSocket,
        ledger: &mut Ledger,
        statistics: &mut LinkStatistics,
        waiting: u32,
    ) -> Result<(), LinkError> {
        let kick = if tx.ring.needs_wakeup() || self.state == State::Down {
            tx.socket.kick_transmit()?
        } else {
            Kick::Done
        };
        match kick {
            Kick::Down | Kick::Gone => self.lose(kick, waiting, ledger, statistics),
            Kick::Done => self.state = State::Up,
            Kick::Again | Kick::NoCompletions | Kick::Lost => statistics.send_waits += 1,
        }
        Ok(())
    }

    /// The device is down or gone: queued packets are counted as lost, even if they are sent some day.
    fn lose(&mut self, kick: Kick, waiting: u32, ledger: &mut Ledger, statistics: &mut LinkStatistics) {
        if self.state == State::Up {
            statistics.send_errors += u64::from(waiting);
            self.finished_bytes = self.finished_bytes.saturating_add(ledger.give_up());
        }
        self.state = if kick == Kick::Gone { State::Gone } else { State::Down };
    }

    pub(super) fn completed(&mut self, tx: &mut TxSocket, ledger: &mut Ledger) -> u32 {
        self.collect(tx, ledger);
        std::mem::take(&mut self.finished_bytes)
    }

    /// Takes completions; gives how many. Bounded by the ring.
    fn collect(&mut self, tx: &mut TxSocket, ledger: &mut Ledger) -> u32 {
        let mut count = 0;
        let frame_bytes = self.memory.frame_bytes() as u64;
        while let Some(addr) = tx.completion.pop() {
            let Ok(index) = u32::try_from(addr / frame_bytes) else { continue };
            let Some(wire_bytes) = ledger.sent(index) else { continue };
            self.memory.pool().give_back(index);
            self.finished_bytes = self.finished_bytes.saturating_add(wire_bytes);
            count += 1;
        }
        tx.completion.release();
        count
    }
}
