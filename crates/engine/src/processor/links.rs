//! The processor's part of its links: arrived packets, packets that may leave, and reports about the kernel
//! traffic beside them.

use punctual_os::now;
use punctual_proto::api::{CapturedKind, CloseReason};
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{BitRate, Instant};

use super::{Processor, port};

/// Packets that one link may bring in one turn.
pub(super) const RECEIVE_BATCH: usize = 64;

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Everything that came in goes to the node, from `begun` on; the time, if there was anything.
    pub(super) fn receive(&mut self, mut begun: Instant) -> Option<Instant> {
        let mut any = None;
        for port in &mut self.ports {
            let best_effort = self.node.has_best_effort_room(port.id());
            port.receive(best_effort, &mut self.received, RECEIVE_BATCH, self.shared.counters());
            port.polled(self.received.len(), begun, &self.waiter);
            if self.received.is_empty() {
                continue;
            }
            // Read after the driver's own times, none of which is in the future.
            let at = now();
            let count = self.received.len();
            for packet in self.received.drain(..) {
                let from = port::node_port(packet.port);
                self.timing.spin.stay(packet.stream, at);
                if let Some(capture) = &mut self.programs.capture {
                    let kind = packet.ip.map_or_else(|| port::captured(from), |_| CapturedKind::Ip);
                    let head = (kind, false, port.id());
                    capture.packet(head, packet.frame.as_ref(), Instant(packet.received_ns));
                }
                if let Some(ip) = packet.ip {
                    if let Some(tcp) = &mut self.programs.tcp {
                        let received = Instant(packet.received_ns);
                        tcp.arrived(&mut self.node, (port.id(), ip, packet.frame, received), at);
                    }
                    continue;
                }
                self.node.handle_frame(port.id(), from, Instant(packet.received_ns), packet.frame, at);
            }
            // The demultiplexing of a single packet counts in the unit that it makes; the cost of several
            // packets is divided among them.
            let done = if count == 1 { at } else { now() };
            self.meter.received(count, done.since(begun));
            begun = done;
            any = Some(done);
        }
        any
    }

    /// What the adapters have sent; only links that are paced by completions report it.
    pub(super) fn complete(&mut self, at: Instant) -> bool {
        let mut any = false;
        for port in &mut self.ports {
            if let Some(wire_bytes) = port.completed() {
                self.node.handle_sent(port.id(), wire_bytes, at);
                any = true;
            }
        }
        any
    }

    /// The link schedulers' packets are written straight into the drivers' buffers.
    pub(super) fn transmit(&mut self, at: Instant) -> bool {
        let mut any = false;
        if let Some(share) = &mut self.share {
            share.follow(&mut self.node, at, self.shared.counters());
        }
        self.set_filters(at);
        for port in &mut self.ports {
            let capture = &mut self.programs.capture;
            any |= port.transmit(&mut self.node, capture, at, self.shared.counters());
        }
        any
    }

    /// Tells the drivers which channels' packets come in.
    pub(super) fn set_filters(&mut self, at: Instant) {
        while let Some((link, change)) = self.node.poll_filter() {
            let port = self.ports.get_mut(usize::from(link.0));
            if let Some(path) = port.and_then(|port| port.filter(change, self.shared.counters())) {
                // Notify the node before any packet leaves: the confirmation that would accept the channel
                // must not be sent.
                self.node.abort_path(path, CloseReason::FilterRefused, at);
            }
        }
    }

    /// Hands out the queued packets, from `begun` on; returns the time.
    pub(super) fn flush(&mut self, begun: Instant) -> Instant {
        let mut any = false;
        for port in &mut self.ports {
            any |= port.flush(self.shared.counters());
        }
        // No counter changes after this; its time is measured together with the hand-over.
        self.node.show_counters();
        if !any {
            return begun;
        }
        let done = now();
        self.meter.flushed(done.since(begun));
        done
    }

    /// Reports the traffic of other senders on the links' devices to the node, which uses it to find causes
    /// of lateness.
    pub(super) fn report_foreign_traffic(&mut self) {
        for port in &self.ports {
            let rate = BitRate(port.foreign_bps().unwrap_or(0));
            self.node.handle_foreign_traffic(port.id(), rate);
        }
    }

    /// What kernel traffic is held to now, if that was changed.
    pub(super) fn report_shaped(&mut self, at: Instant) {
        if !self.node.follows() {
            return;
        }
        for port in &mut self.ports {
            if let Some(rate) = port.shaped() {
                self.node.handle_shaped(port.id(), rate, at);
            }
        }
    }

    /// Passes links the rate to which their kernel traffic must be limited.
    pub(super) fn shape(&mut self) {
        while let Some((link, rate)) = self.node.poll_shaper() {
            if let Some(port) = self.ports.get_mut(usize::from(link.0)) {
                port.shape(rate);
            }
        }
    }
}
