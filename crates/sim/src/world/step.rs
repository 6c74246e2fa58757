//! One turn of a host's processor: the work of the engine's loop between two units.

use punctual_analysis::{BitRate, Instant, Nanos, Ppm};
use punctual_proto::api::{FilterChange, PacketOut, Port, Transmit, WorkKind};
use punctual_proto::ids::LinkId;

use super::effort::Effort;
use super::host::{Activity, Arrived};
use super::{Event, World};
use crate::entry::Entry;
use crate::memory::effort;

/// Longest time that a shaper takes to change, and then to confirm.
const SHAPER_TAKES_MAX: Nanos = Nanos::from_millis(60);
/// Longest time that a decision of admission takes.
const DECISION_TAKES_MAX: Nanos = Nanos::from_millis(5);
/// If a node requests more calls than this within one turn, time does not advance.
const ROUNDS_MAX: u32 = 1_000;

impl World {
    /// Work is present for the processor of `host`; if it sleeps, it wakes up, which takes time.
    pub(super) fn wake(&mut self, host: usize) {
        let sleeper = &mut self.hosts[host];
        if sleeper.is_up && matches!(sleeper.activity, Activity::Idle) {
            sleeper.activity = Activity::Waking;
            let at = self.now + sleeper.processor.wake_up();
            self.queue.schedule(at, Event::Step { host, life: sleeper.life });
        }
    }

    /// The processor of `host` handles all input once, and begins a unit or goes to sleep.
    pub(super) fn step(&mut self, host: usize) {
        let now = self.hosts[host].clock.read(self.now);
        let life = self.hosts[host].life;
        self.note_sleep(host, false, now);
        if let Activity::Working(work) = std::mem::take(&mut self.hosts[host].activity) {
            let is_signal = work.kind == WorkKind::Signalling;
            let before = effort();
            match work.kind {
                WorkKind::Upcall if self.finish_tcp(host, &work, now) => {}
                WorkKind::Upcall => self.finish_upcall(host, &work, now),
                _ => self.hosts[host].node.finish_work(work, now),
            }
            if !is_signal {
                self.check_effort(host, Effort::Finish, before);
            }
            self.settle_called(host, now);
            if is_signal && self.count_signal(host, false) {
                return;
            }
        }
        for round in 0.. {
            if round == ROUNDS_MAX {
                return self
                    .violate(&format!("host {host} has a timeout at {now:?} that handling does not move"));
            }
            self.take_in(host, now);
            self.deliver(host);
            self.poll_events(host, now);
            if self.hosts[host].tcp.is_some() {
                self.handle_rtu_events(host, now);
            }
            self.have_decided(host);
            self.serve_links(host, now);
            if self.hosts[host].life != life {
                return;
            }
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
        while let Some(Arrived { link, port, received, frame }) = self.hosts[host].arrived.pop_front() {
            let before = effort();
            let frame = frame.taken_by(&self.hosts[host].taken[usize::from(link.0)]);
            self.hosts[host].node.handle_frame(link, port, received, frame, now);
            self.check_effort(host, Effort::Frame, before);
        }
        self.take_segments(host, now);
        while let Some((link, wire_bytes)) = self.hosts[host].sent.pop_front() {
            let before = effort();
            self.hosts[host].node.handle_sent(link, wire_bytes, now);
            self.check_effort(host, Effort::Sent, before);
        }
        while let Some(decided) = self.hosts[host].decided.pop_front() {
            self.hosts[host].node.handle_decided(decided, now);
        }
        while let Some((link, rate)) = self.hosts[host].shaped.pop_front() {
            self.outcome.shaped += 1;
            self.hosts[host].node.handle_shaped(link, rate, now);
        }
        // No effect if nothing is due; a check beforehand costs as much.
        self.hosts[host].node.handle_timeout(now);
        while let Some((link, rate)) = self.hosts[host].node.poll_shaper() {
            self.shape(host, link, rate);
        }
    }

    /// Lets admission decide outside the processor's thread, which takes time.
    fn have_decided(&mut self, host: usize) {
        let asker = &mut self.hosts[host];
        let Some(dice) = &mut asker.decision_dice else { return };
        let Some(decision) = asker.node.poll_decision() else { return };
        let at = self.now + dice.span(Nanos(0), DECISION_TAKES_MAX);
        let decided = Box::new(decision.decide(|| Instant::ZERO));
        self.queue.schedule(at, Event::Decided { host, life: asker.life, decided });
    }

    /// A shaper changes some time after the request, and confirms some time after that.
    fn shape(&mut self, host: usize, link: LinkId, rate: BitRate) {
        let config = &self.scenario.hosts[host].config.links[usize::from(link.0)];
        let drained = config.rate.less(config.rate_error);
        let share = (u128::from(rate.0) * 1_000_000).div_ceil(u128::from(drained.0.max(1)));
        let shaper = &mut self.hosts[host];
        let changes = self.now + shaper.shaper_dice.span(Nanos(0), SHAPER_TAKES_MAX);
        let reports = changes + shaper.shaper_dice.span(Nanos(0), SHAPER_TAKES_MAX);
        shaper.adapters[usize::from(link.0)].shape(changes, Ppm(share as u32));
        let life = shaper.life;
        self.queue.schedule(reports, Event::Shaped { host, life, link, rate });
    }

    fn serve_links(&mut self, host: usize, now: Instant) {
        let teller = &mut self.hosts[host];
        while let Some((link, change)) = teller.node.poll_filter() {
            if !self.options.sabotage.filters_kept || !matches!(change, FilterChange::Clear(_)) {
                teller.filters.apply(link, change);
            }
        }
        for link in 0..self.hosts[host].adapters.len() {
            let link = LinkId(link as u16);
            let mut scratch = std::mem::take(&mut self.scratch);
            self.watch_backlog(host, link, true);
            loop {
                let before = effort();
                let transmit = self.hosts[host].node.poll_transmit(link, now, &mut scratch);
                self.check_effort(host, Effort::Transmit, before);
                let Some(transmit) = transmit else { break };
                let Transmit { port, wire_bytes, packet } = transmit;
                let len = packet.copy_to(&mut scratch);
                if let PacketOut::Raw { handler, tag, .. } = packet {
                    self.hosts[host].backlogs[usize::from(link.0)].count_segment(wire_bytes);
                    self.launch_segment((host, link), (handler, tag), wire_bytes, &mut scratch[..len]);
                    continue;
                }
                self.hosts[host].backlogs[usize::from(link.0)].count(port, wire_bytes, &scratch[..len]);
                let departs = self.launch(host, link, port, wire_bytes, &mut scratch[..len]);
                self.check_departure(host, link, port, &scratch[..len], departs);
                if let PacketOut::Frame(mut frame) = packet {
                    frame.give_up();
                    self.hosts[host].sending[usize::from(link.0)].push_back((departs, frame));
                }
                if port == Port::Signalling && self.count_signal(host, true) {
                    self.scratch = scratch;
                    return;
                }
            }
            self.watch_backlog(host, link, false);
            self.scratch = scratch;
        }
    }

    fn begin_unit(&mut self, host: usize, now: Instant) -> bool {
        let worker = &mut self.hosts[host];
        let before = effort();
        let Some(mut work) = worker.node.begin_work(now) else { return false };
        self.check_effort(host, Effort::Begin, before);
        self.prepare_upcall(host, &mut work);
        self.prepare_tcp(host, &mut work, now);
        let worker = &mut self.hosts[host];
        let cost = worker.processor.time_of(&work, self.now).max(Nanos(1));
        let entry = Entry::Work { kind: work.kind, packets: work.packets, cost_ns: cost.0 };
        self.begin_upcall(host, &work, cost, now);
        self.begin_tcp(host, cost);
        self.hosts[host].activity = Activity::Working(work);
        self.note(host, entry);
        let life = self.hosts[host].life;
        self.queue.schedule(self.now + cost, Event::Step { host, life });
        true
    }

    fn sleep(&mut self, host: usize, timeout: Option<Instant>) {
        let now = self.hosts[host].clock.read(self.now);
        self.note_sleep(host, true, now);
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
