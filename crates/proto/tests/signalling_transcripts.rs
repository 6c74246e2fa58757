//! Whole conversations of signalling, as recorded (docs/adr/0049): which packet leaves when and how large it
//! is, every event for an application, and the counters and reservations of hosts. Over links that lose,
//! repeat and reorder, with hosts that refuse, decide slowly, take less than they may, crash and restart.
#![allow(dead_code)]

#[path = "signalling/network.rs"]
mod network;
#[path = "common/written.rs"]
mod written;

use std::fmt::Write;

use network::{Agent, MILLI, Network, SECOND, contract, name};
use punctual_analysis::{Nanos, RefusalReason};
use punctual_proto::api::{CloseReason, OpenRequest, RefuseCause, UserId};
use punctual_proto::config::{Degraded, NodeConfig, RouteConfig};
use punctual_proto::ids::{LinkId, NodeId};
use punctual_rig::trimmed;
use written::is_as_written;

struct Story {
    network: Network,
    text: String,
    /// Packets are written too.
    packets: bool,
}

impl Story {
    fn new(network: Network) -> Self {
        let mut story = Self { network, text: String::new(), packets: true };
        story.network.tape = Some(Vec::new());
        story
    }

    fn write_line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a text");
    }

    fn run(&mut self, nanos: u64) {
        let until = self.network.now + nanos;
        while self.network.step(until) {
            self.flush();
        }
        self.network.now = until;
        self.flush();
    }

    fn flush(&mut self) {
        let now = self.network.now;
        for packet in self.network.tape.replace(Vec::new()).expect("somebody writes") {
            if self.packets {
                self.write_line(&format!(
                    "{now} {} B to h{}.{}",
                    packet.bytes.len(),
                    packet.to + 1,
                    packet.link.0
                ));
            }
        }
        for host in 0..self.network.hosts.len() {
            for event in std::mem::take(&mut self.network.hosts[host].events) {
                self.write_line(&format!("{now} h{} {}", host + 1, trimmed(&event)));
            }
        }
    }

    fn open(&mut self, from: usize, to: usize, deadline_ms: u64, probe: bool) {
        let request = OpenRequest { probe, ..self.network.request(to, deadline_ms) };
        let asked = self.network.at(from, |s, now, stages| s.open(request, now, stages));
        self.write_line(&format!("{} h{} opens to h{}: {asked:?}", self.network.now, from + 1, to + 1));
    }

    fn close_first(&mut self, host: usize, reason: CloseReason) {
        let first = self.network.hosts[host]
            .signalling
            .as_ref()
            .and_then(|s| s.channels().map(|c| c.local.channel).next());
        let Some(channel) = first else { return self.write_line("nothing to close") };
        let closed = self.network.at(host, |s, now, stages| s.close(channel, reason, now, stages));
        self.write_line(&format!("{} h{} closes {channel:?}: {closed:?}", self.network.now, host + 1));
    }

    /// The counters and reservations of each host.
    fn accounts(&mut self) {
        for host in 0..self.network.hosts.len() {
            let states = self.network.states(host);
            let at = &self.network.hosts[host];
            let Some(signalling) = &at.signalling else {
                self.write_line(&format!("h{} is down", host + 1));
                continue;
            };
            let mut line =
                format!("h{} {:?} {states:?} held {:?}", host + 1, signalling.counters(), at.stages.held);
            for link in 0..at.config.links.len() {
                let view = signalling.neighbour(LinkId(link as u16), at.local(self.network.now));
                write!(line, "\n  {}", trimmed(&view)).expect("a text");
            }
            let due = signalling.poll_timeout().map(|due| due.since(at.local(self.network.now)));
            write!(line, "\n  next {due:?}").expect("a text");
            self.write_line(&line);
        }
    }
}

fn quick(_: usize, config: &mut NodeConfig) {
    config.signalling.lease = Nanos::from_secs(4);
    config.signalling.consent_timeout = Nanos::from_millis(700);
    config.signalling.retransmits_max = 4;
}

#[test]
fn a_line_of_four_hosts_whose_links_are_bad() {
    for seed in 0..4 {
        let mut story = Story::new(Network::line(seed, 4, quick));
        story.network.thinking_max = if seed % 2 == 1 { 20 * MILLI } else { 0 };
        story.packets = seed == 0;
        story.run(SECOND);
        let net = &mut story.network;
        (net.loss_percent, net.double_percent, net.reorder_percent) = (15, 10, 10);
        net.hosts[2].stages.modest = true;
        for (from, to, deadline, probe) in
            [(0, 3, 200, false), (3, 0, 100, false), (1, 2, 50, false), (0, 3, 90, true), (2, 0, 3, false)]
        {
            story.open(from, to, deadline, probe);
        }
        let source = story.network.request(0, 1).to;
        let wanted = contract(150);
        let token = story.network.at(3, |s, now, _| s.request(&source, name("in"), wanted, UserId(5), now));
        story.write_line(&format!("{token:?}"));
        story.run(2 * SECOND);
        story.accounts();
        story.close_first(0, CloseReason::Local);
        story.close_first(2, CloseReason::Vanished);
        story.run(SECOND);
        story.network.crash(1);
        story.run(3 * SECOND);
        story.accounts();
        story.network.start(1);
        story.run(SECOND);
        story.open(0, 3, 100, false);
        story.run(SECOND);
        story.accounts();
        is_as_written(&format!("line_{seed}"), &story.text);
    }
}

/// Two ways from h1 to h4: the short one refuses, or is cut; what is offered then.
#[test]
fn two_ways_of_which_one_refuses() {
    let routes = |index: usize, config: &mut NodeConfig| {
        quick(index, config);
        let ways: &[&[u32]] = match index {
            0 => &[&[2, 4], &[3, 4]],
            3 => &[&[2, 1], &[3, 1]],
            _ => &[],
        };
        config.routes.extend(
            ways.iter().map(|way| RouteConfig { via: way.iter().map(|node| NodeId(*node)).collect() }),
        );
    };
    let mut story = Story::new(Network::new(5, 4, &[(0, 1), (0, 2), (1, 3), (2, 3)], routes));
    story.run(SECOND);
    story.open(0, 3, 100, false);
    story.run(300 * MILLI);
    let full = RefusalReason::Buffers { wanted_bytes: 10, free_bytes: 2 };
    story.network.hosts[1].stages.refuse = Some(RefuseCause::Buffers(full));
    story.open(0, 3, 100, false);
    story.open(3, 0, 100, true);
    story.run(300 * MILLI);
    story.network.hosts[2].stages.interval_min = Nanos::from_millis(60);
    story.open(0, 3, 100, false);
    story.open(0, 3, 2, false);
    story.open(0, 3, 2, true);
    story.run(600 * MILLI);
    story.network.hosts[1].stages.refuse = None;
    story.network.hosts[1].stages.degraded = Some(Degraded::NoRealTime);
    story.network.hosts[3].stages.refuse_commit = true;
    story.open(0, 3, 100, false);
    story.run(300 * MILLI);
    story.network.hosts[3].stages.refuse_commit = false;
    story.network.hosts[0].stages.refuse_commit = true;
    story.open(0, 3, 100, false);
    story.run(300 * MILLI);
    story.network.hosts[0].stages.refuse_commit = false;
    for agent in [Agent::Refuse, Agent::Silent] {
        story.network.hosts[3].agent = agent;
        story.open(0, 3, 100, false);
        story.run(900 * MILLI);
    }
    story.network.hosts[3].agent = Agent::Consent;
    story.open(0, 3, 100, false);
    story.run(300 * MILLI);
    story.accounts();
    let (busy, reason) = (story.network.hosts[0].signalling.is_some(), CloseReason::Local);
    assert!(busy);
    story.close_first(3, reason);
    story.network.at(0, |s, now, stages| s.shutdown(now, stages));
    story.open(0, 3, 100, false);
    story.run(2 * SECOND);
    story.accounts();
    is_as_written("two_ways", &story.text);
}

/// One direction is cut: retransmissions, their pauses, and the end of what was open; then it is whole again.
#[test]
fn a_direction_that_is_cut() {
    let mut story = Story::new(Network::line(6, 3, quick));
    story.network.pace = 3 * MILLI;
    story.run(SECOND);
    story.open(0, 2, 100, false);
    story.open(2, 1, 100, false);
    story.run(SECOND);
    story.network.lossy.insert((1, 2), 100);
    story.open(0, 2, 100, false);
    story.run(2_500 * MILLI);
    story.accounts();
    story.run(5 * SECOND);
    story.accounts();
    story.network.lossy.clear();
    story.run(2 * SECOND);
    story.open(0, 2, 100, false);
    story.run(SECOND);
    story.accounts();
    is_as_written("cut", &story.text);
}

/// A neighbour of another version is detected, and no message is sent to it.
#[test]
fn a_host_of_another_version() {
    let mut network = Network::line(7, 3, quick);
    network.foreign = Some(2);
    let mut story = Story::new(network);
    story.run(SECOND);
    story.open(0, 2, 100, false);
    story.open(0, 1, 100, false);
    story.run(3 * SECOND);
    story.accounts();
    is_as_written("version", &story.text);
}
