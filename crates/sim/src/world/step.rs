//! One look of a host's processor: what the engine's loop does between two units of work.

use super::host::{Activity, Arrived};
use super::{Event, World};
use crate::journal::Entry;
use punctual_analysis::{Instant, Nanos};
use punctual_proto::ids::LinkId;

/// A node that wants to be called at once more often than this within one look does not let time pass.
const ROUNDS_MAX: u32 = 1_000;

impl World {
    /// Something is there for the processor of `host`; if it sleeps, it wakes up, which takes its time.
    pub(super) fn wake(&mut self, host: usize) {
        let sleeper = &mut self.hosts[host];
        if matches!(sleeper.activity, Activity::Idle) {
            sleeper.activity = Activity::Waking;
            let at = self.now + sleeper.processor.wake_up();
            self.queue.schedule(at, Event::Step { host });
        }
    }

    /// The processor of `host` looks at everything once, and begins a unit or goes to sleep.
    pub(super) fn step(&mut self, host: usize) {
        let now = self.hosts[host].clock.read(self.now);
        if let Activity::Working(work) = std::mem::take(&mut self.hosts[host].activity) {
            self.hosts[host].node.finish_work(work, now);
        }
        for round in 0.. {
            if round == ROUNDS_MAX {
                return self
                    .violate(&format!("host {host} has a timeout at {now:?} that handling does not move"));
            }
            self.take_in(host, now);
            self.deliver(host);
            self.poll_events(host, now);
            self.serve_links(host, now);
            if self.begin_unit(host, now) {
                return;
            }
            let timeout = self.hosts[host].node.poll_timeout();
            if timeout.is_none_or(|at| at > now) && self.hosts[host].calls.is_empty() {
                return self.sleep(host, timeout);
            }
        }
    }

    fn take_in(&mut self, host: usize, now: Instant) {
        while let Some(call) = self.hosts[host].calls.pop_front() {
            self.do_call(host, call, now);
        }
        let host = &mut self.hosts[host];
        while let Some(Arrived { link, port, received, frame }) = host.arrived.pop_front() {
            host.node.handle_frame(link, port, received, frame, now);
        }
        while let Some((link, wire_bytes)) = host.sent.pop_front() {
            host.node.handle_sent(link, wire_bytes, now);
        }
        // Does nothing where nothing is due; asking first costs as much.
        host.node.handle_timeout(now);
    }

    fn serve_links(&mut self, host: usize, now: Instant) {
        let teller = &mut self.hosts[host];
        while let Some((link, change)) = teller.node.poll_filter() {
            teller.filters.apply(link, change);
        }
        for link in 0..self.hosts[host].adapters.len() {
            let link = LinkId(link as u16);
            let mut scratch = std::mem::take(&mut self.scratch);
            while let Some(transmit) = self.hosts[host].node.poll_transmit(link, now, &mut scratch) {
                let len = transmit.packet.copy_to(&mut scratch);
                self.launch(host, link, transmit.port, transmit.wire_bytes, &mut scratch[..len]);
            }
            self.scratch = scratch;
        }
    }

    fn begin_unit(&mut self, host: usize, now: Instant) -> bool {
        let worker = &mut self.hosts[host];
        let Some(work) = worker.node.begin_work(now) else { return false };
        let cost = worker.processor.time_of(&work, self.now).max(Nanos(1));
        let entry = Entry::Work { kind: work.kind, packets: work.packets, cost_ns: cost.0 };
        worker.activity = Activity::Working(work);
        self.note(host, entry);
        self.queue.schedule(self.now + cost, Event::Step { host });
        true
    }

    fn sleep(&mut self, host: usize, timeout: Option<Instant>) {
        let sleeper = &mut self.hosts[host];
        sleeper.activity = Activity::Idle;
        let Some(timeout) = timeout else {
            sleeper.timer = None;
            return;
        };
        let at = sleeper.clock.when(timeout).max(self.now);
        if sleeper.timer != Some(at) {
            sleeper.timer = Some(at);
            self.queue.schedule(at, Event::Timer { host });
        }
    }
}
