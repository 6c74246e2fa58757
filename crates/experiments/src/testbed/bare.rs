//! Round trips over two bare drivers, without engine, protocol or clock: the time that machine and driver
//! take by themselves. This is the lower bound of our own round trips.
//!
//! The packets are best effort without a channel, since the classifier lets no other packets through. They
//! are as long as ours: header, message, and all messages of one length. At each end one thread owns the
//! driver; one packet is in transit.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use punctual::Nanos;
use punctual_link::{Link, Port, Received};
use punctual_os::clock::now;
use punctual_proto::Instant;
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::adapter::OVERHEAD_BYTES;
use super::echo::{STOP_CHECK_INTERVAL, Server};
use crate::loads::call::{Ask, PATIENCE, is_answer};
use crate::loads::{SPIN, Wait};

/// Packets of one poll. Others that have come, such as late answers, wait in the ring.
const BATCH: usize = 1;

/// One end of a wire.
pub struct Bare {
    link: Box<dyn Link>,
    wait: Wait,
    /// Header and message, as they go out.
    packet: Box<[u8]>,
    received: Vec<Received>,
}

impl Bare {
    /// Messages of `bytes` through `link` from node `own` to node `peer`.
    pub fn new(link: Box<dyn Link>, wait: Wait, bytes: u32, [own, peer]: [u32; 2]) -> Self {
        let header = Header {
            kind: Kind::BestEffort,
            demoted: false,
            unpromised: false,
            path: PathId { node: NodeId(own), channel: ChannelNumber(1), epoch: Epoch(1) },
            cookie: Cookie(0),
            message: 0,
            fragment: 0,
            fragments: 1,
            message_bytes: bytes,
            slack_ns: 0,
            logical_arrival: Instant::ZERO,
            age: Age::NONE,
            payload_bytes: bytes,
            clock_error: ClockError::NONE,
            destination: NodeId(peer),
        };
        let mut packet = vec![0; HEADER_BYTES + bytes as usize].into_boxed_slice();
        header.write(&mut packet);
        Self { link, wait, packet, received: Vec::with_capacity(BATCH) }
    }

    fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let bytes = self.packet.len();
        let payload = &mut self.packet[HEADER_BYTES..];
        ensure!(message.len() == payload.len(), "a message of {} B, not {}", message.len(), payload.len());
        payload.copy_from_slice(message);
        let buffer = self.link.transmit_buffer().context("an idle driver has no buffer")?;
        buffer[..bytes].copy_from_slice(&self.packet);
        self.link.transmit(Port::Data, bytes, u32::try_from(bytes + OVERHEAD_BYTES)?)?;
        self.link.flush()?;
        self.link.completed();
        Ok(())
    }

    /// The next packet, whose message is behind its header; `None` if none came within `patience`.
    fn receive(&mut self, patience: Nanos) -> anyhow::Result<Option<Received>> {
        let begun = now();
        let spin = if self.wait == Wait::Spin { SPIN } else { Nanos::ZERO };
        loop {
            if self.link.receive(&mut self.received, BATCH)? > 0 {
                return Ok(self.received.pop());
            }
            let waited = now().since(begun);
            if waited >= spin && !self.sleep(patience)? {
                return Ok(None);
            }
        }
    }

    /// Waits until a packet comes; `false` if none did within `patience`.
    fn sleep(&self, patience: Nanos) -> anyhow::Result<bool> {
        let descriptor =
            self.link.best_effort_descriptor().context("a driver without a ring for best effort")?;
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.0.min(999_999_999) as _ };
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&patience)) {
            Err(Errno::INTR) => Ok(true),
            ready => Ok(ready? > 0),
        }
    }
}

fn message(received: &Received) -> &[u8] {
    received.frame.as_ref().get(HEADER_BYTES..).unwrap_or_default()
}

impl Ask for Bare {
    fn call(&mut self, asked: &[u8]) -> anyhow::Result<bool> {
        self.send(asked)?;
        while let Some(received) = self.receive(PATIENCE)? {
            if is_answer(message(&received), asked) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Server for Bare {
    fn serve(mut self: Box<Self>, stop: &AtomicBool, _: &AtomicBool) -> anyhow::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if let Some(received) = self.receive(STOP_CHECK_INTERVAL)? {
                self.send(message(&received))?;
            }
        }
        Ok(())
    }
}
