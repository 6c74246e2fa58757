//! Whose turn it is among the flows of best effort, and when the next one is, against deficit round robin
//! with caps as it is defined. The link drains a byte in a nanosecond.

mod common;

use std::collections::VecDeque;

use common::link::{MTU, parameters};
use punctual_proto::limits::BEST_EFFORT_CAP_BURST_PACKETS;
use punctual_proto::linksched::{BestEffortKey, LinkParameters, LinkScheduler, Scheduled};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{Instant, Ppm};

/// The next packet, which leaves at once.
fn next(link: &mut LinkScheduler<u64>, now: u64) -> Option<Scheduled<u64>> {
    let scheduled = link.poll(Instant(now))?;
    link.complete(scheduled.wire_bytes, Instant(now));
    Some(scheduled)
}

/// A flow of the reference below.
#[derive(Default)]
struct Flow {
    packets: VecDeque<(u64, u64)>,
    deficit: u64,
    /// When what it sent is paid for.
    paid: u64,
    /// Until when its cap holds it back.
    capped: Option<u64>,
}

/// Deficit round robin with caps as they are defined: each byte costs a flow and all flows a time, and either
/// may be a burst of largest packets ahead.
#[derive(Default)]
struct Reference {
    /// Time of a byte for a flow, and for all together.
    costs: [u64; 2],
    flows: Vec<Flow>,
    round: VecDeque<usize>,
    turn_open: bool,
    paid: u64,
    throttled: Option<u64>,
}

impl Reference {
    fn ahead(&self, of: usize) -> u64 {
        u64::from(MTU) * BEST_EFFORT_CAP_BURST_PACKETS * self.costs[of]
    }

    /// The flow goes to the end of the round, or waits for its cap.
    fn place(&mut self, index: usize, now: u64) {
        let until = self.flows[index].paid.saturating_sub(self.ahead(0));
        match until > now {
            true => self.flows[index].capped = Some(until),
            false => self.round.push_back(index),
        }
    }

    fn enqueue(&mut self, index: usize, packet: (u64, u64), now: u64) {
        self.flows[index].packets.push_back(packet);
        if self.flows[index].packets.len() == 1 {
            self.place(index, now);
        }
    }

    fn next(&mut self, now: u64) -> Option<u64> {
        let mut due: Vec<(u64, usize)> =
            self.flows.iter().enumerate().filter_map(|(index, flow)| Some((flow.capped?, index))).collect();
        due.retain(|(until, _)| *until <= now);
        due.sort_unstable();
        for (_, index) in due {
            self.flows[index].capped = None;
            self.round.push_back(index);
        }
        self.throttled = self.throttled.filter(|until| *until > now);
        if self.throttled.is_some() {
            return None;
        }
        let ahead = [self.ahead(0), self.ahead(1)];
        loop {
            let index = *self.round.front()?;
            let flow = &mut self.flows[index];
            if !self.turn_open {
                (self.turn_open, flow.deficit) = (true, flow.deficit + u64::from(MTU));
            }
            if flow.packets[0].1 > flow.deficit {
                self.turn_open = false;
                self.round.rotate_left(1);
                continue;
            }
            let (packet, bytes) = flow.packets.pop_front()?;
            flow.deficit -= bytes;
            flow.paid = flow.paid.max(now) + bytes * self.costs[0];
            self.paid = self.paid.max(now) + bytes * self.costs[1];
            self.throttled = Some(self.paid.saturating_sub(ahead[1])).filter(|until| *until > now);
            if flow.packets.is_empty() {
                flow.deficit = 0;
            }
            let is_held = flow.paid.saturating_sub(ahead[0]) > now;
            if self.flows[index].packets.is_empty() || is_held {
                self.turn_open = false;
                self.round.pop_front();
                if !self.flows[index].packets.is_empty() {
                    self.place(index, now);
                }
            }
            return Some(packet);
        }
    }

    fn timeout(&self) -> Option<Instant> {
        let refilled = self.flows.iter().filter_map(|flow| flow.capped).min();
        let throttled = self.throttled.filter(|_| !self.round.is_empty());
        refilled.into_iter().chain(throttled).min().map(Instant)
    }
}

/// Whose turn it is, and when the next one is: as deficit round robin with caps says, over many sizes and
/// waits that end at the very nanosecond at which a cap does.
#[test]
fn flows_take_turns_and_wait_for_their_caps_as_defined() {
    for (flow_cap, cap, costs) in
        [(250_000, 1_000_000, [4, 0]), (1_000_000, 500_000, [0, 2]), (250_000, 500_000, [4, 2])]
    {
        let mut link = LinkScheduler::new(LinkParameters {
            best_effort_flow_cap: Ppm(flow_cap),
            best_effort_cap: Ppm(cap),
            ..parameters()
        });
        let mut reference = Reference { costs, ..Reference::default() };
        reference.flows.resize_with(4, Flow::default);
        let (mut numbers, mut now) = (SplitMix64::new(7), 1_000_000);
        // Each flow has its place in the order of the first packets.
        for index in 0..4 {
            let key = BestEffortKey(index);
            link.enqueue_best_effort(Instant(now), key, 250, index).expect("there is room");
            reference.enqueue(index as usize, (index, 250), now);
        }
        let mut sent = 0;
        for packet in 4..40_000 {
            match numbers.below(4) {
                0 | 1 => {
                    // Now and then a byte less than a part of a turn.
                    let (index, odd) = (numbers.below(4), u64::from(numbers.below(4) == 0));
                    let bytes = 250 * (1 + numbers.below(4)) - odd;
                    let key = BestEffortKey(index);
                    if link.enqueue_best_effort(Instant(now), key, bytes as u32, packet).is_ok() {
                        reference.enqueue(index as usize, (packet, bytes), now);
                    }
                }
                2 => now += 500 * numbers.below(9),
                _ => {
                    let expected = reference.next(now);
                    assert_eq!(next(&mut link, now).map(|scheduled| scheduled.packet), expected, "{packet}");
                    sent += u64::from(expected.is_some());
                    assert_eq!(link.next_timeout(), reference.timeout(), "{packet}");
                }
            }
            assert_eq!(link.best_effort_waits(), !reference.round.is_empty(), "{packet}");
        }
        assert!(sent > 5_000, "{sent}");
    }
}

/// A flow that has used up its burst to the byte is not held back: it goes on with its turn.
#[test]
fn a_flow_at_the_very_end_of_its_burst_keeps_its_turn() {
    // A byte costs four nanoseconds, and the burst is four packets: 4,000 B at once.
    for (first, order) in [(500, [1, 2, 1, 2, 1, 2, 1, 1, 2]), (501, [1, 2, 1, 2, 1, 2, 1, 2, 2])] {
        let mut link =
            LinkScheduler::new(LinkParameters { best_effort_flow_cap: Ppm(250_000), ..parameters() });
        let queue = |link: &mut LinkScheduler<u64>, flow, bytes| {
            link.enqueue_best_effort(Instant(0), BestEffortKey(flow), bytes, flow).expect("there is room");
        };
        queue(&mut link, 1, first);
        assert!(next(&mut link, 0).is_some());
        [1_000, 1_000, 1_000, 500, 500].into_iter().for_each(|bytes| queue(&mut link, 1, bytes));
        [1_000; 5].into_iter().for_each(|bytes| queue(&mut link, 2, bytes));
        let sent = order.map(|_| next(&mut link, 0).map(|scheduled| scheduled.packet));
        assert_eq!(sent, order.map(Some), "{first}");
    }
}
