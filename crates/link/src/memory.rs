//! Links inside one process: pairs of bounded rings, one ring for each port and direction.
//!
//! A full ring loses packets, like a cable into a full queue, and the sending end counts them. Each end may have
//! an eventfd, so that a thread can sleep until something comes. The rate of a link is not its business.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use punctual_os::clock::monotonic_ns;
use rustix::event::{EventfdFlags, eventfd};

use crate::pool::Pool;
use crate::ring::{Consumer, Producer, ring};
use crate::wake_flag::WakeFlag;
use crate::{Link, LinkError, LinkStatistics, Port, Received};

/// Options of a pair of memory links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Longest packet in bytes.
    pub packet_bytes_max: usize,
    /// Packets that each ring holds, at least 1.
    pub ring_packets: usize,
    /// Receive buffers of each end, at least 1.
    pub frames: u32,
    /// Whether each end has a descriptor to wait on.
    pub wake: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { packet_bytes_max: 1_464, ring_packets: 256, frames: 512, wake: true }
    }
}

/// One end of a pair of links in memory.
pub struct MemoryLink {
    out: Ends<Producer>,
    input: Ends<Consumer>,
    pool: Pool,
    staging: Box<[u8]>,
    wake_peer: Option<Arc<Wake>>,
    wake_us: Option<Arc<Wake>>,
    unfinished_bytes: u32,
    completed_bytes: u32,
    statistics: LinkStatistics,
}

struct Ends<T> {
    data: T,
    signalling: T,
}

impl<T> Ends<T> {
    fn of(&mut self, port: Port) -> &mut T {
        match port {
            Port::Data => &mut self.data,
            Port::Signalling => &mut self.signalling,
        }
    }
}

/// An eventfd that is written only once until its owner has checked: a busy receiver costs the sender no
/// system call.
struct Wake {
    event: OwnedFd,
    rung: WakeFlag,
}

impl Wake {
    fn new() -> Result<Arc<Self>, LinkError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::Os { what: "eventfd".into(), error: error.into() })?;
        Ok(Arc::new(Self { event, rung: WakeFlag::default() }))
    }

    /// Wakes the other end; call it after publishing.
    fn ring(&self) {
        if self.rung.raise() {
            // The counter cannot reach its limit: it grows by one for each check of the owner.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Arms the wake-up; call it before looking. Whatever is published later rings again.
    fn rearm(&self) {
        self.rung.lower();
    }
}

impl MemoryLink {
    /// Two ends of one link.
    ///
    /// # Errors
    /// If the system gives no eventfd.
    pub fn pair(options: MemoryOptions) -> Result<(Self, Self), LinkError> {
        let wake = || if options.wake { Wake::new().map(Some) } else { Ok(None) };
        let (wake_a, wake_b) = (wake()?, wake()?);
        let rings = || ring(options.ring_packets, options.packet_bytes_max);
        let ((data_ab, data_b), (data_ba, data_a)) = (rings(), rings());
        let ((signalling_ab, signalling_b), (signalling_ba, signalling_a)) = (rings(), rings());
        let a = Self::new(
            options,
            Ends { data: data_ab, signalling: signalling_ab },
            Ends { data: data_a, signalling: signalling_a },
            (wake_b.clone(), wake_a.clone()),
        );
        let b = Self::new(
            options,
            Ends { data: data_ba, signalling: signalling_ba },
            Ends { data: data_b, signalling: signalling_b },
            (wake_a, wake_b),
        );
        Ok((a, b))
    }

    fn new(
        options: MemoryOptions,
        out: Ends<Producer>,
        input: Ends<Consumer>,
        (wake_peer, wake_us): (Option<Arc<Wake>>, Option<Arc<Wake>>),
    ) -> Self {
        Self {
            out,
            input,
            pool: Pool::new(options.frames, options.packet_bytes_max),
            staging: vec![0; options.packet_bytes_max].into_boxed_slice(),
            wake_peer,
            wake_us,
            unfinished_bytes: 0,
            completed_bytes: 0,
            statistics: LinkStatistics::default(),
        }
    }
}

impl Link for MemoryLink {
    fn receive(&mut self, out: &mut Vec<Received>, max: usize) -> Result<usize, LinkError> {
        if let Some(wake) = &self.wake_us {
            wake.rearm();
        }
        let before = out.len();
        for port in Port::ALL {
            let consumer = self.input.of(port);
            while out.len() - before < max && !consumer.is_empty() {
                let Some(mut frame) = self.pool.take() else {
                    self.statistics.pool_dry += 1;
                    break;
                };
                let Some((len, received_ns)) = consumer.take(frame.buffer_mut()) else { break };
                frame.set_len(len);
                out.push(Received { frame, port, ip: None, stream: port.stream(), received_ns });
            }
        }
        let received = out.len() - before;
        self.statistics.packets_in += received as u64;
        Ok(received)
    }

    fn transmit_buffer(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.staging)
    }

    fn transmit(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let bytes_max = self.staging.len();
        let packet = self.staging.get(..len).ok_or(LinkError::TooLong { bytes: len, bytes_max })?;
        if !self.out.of(port).stage(packet) {
            self.statistics.overflows += 1;
        }
        self.unfinished_bytes = self.unfinished_bytes.saturating_add(wire_bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let now_ns = monotonic_ns();
        let published: usize = Port::ALL.into_iter().map(|port| self.out.of(port).publish(now_ns)).sum();
        self.completed_bytes =
            self.completed_bytes.saturating_add(std::mem::take(&mut self.unfinished_bytes));
        self.statistics.packets_out += published as u64;
        if let (Some(wake), true) = (&self.wake_peer, published > 0) {
            wake.ring();
        }
        Ok(())
    }

    fn is_pending(&self) -> bool {
        false
    }

    fn completed(&mut self) -> u32 {
        std::mem::take(&mut self.completed_bytes)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.wake_us.iter().map(|wake| wake.event.as_fd()).collect()
    }

    fn packet_bytes_max(&self) -> usize {
        self.staging.len()
    }

    fn statistics(&self) -> LinkStatistics {
        self.statistics
    }

    fn mode(&self) -> String {
        "memory".into()
    }
}
