//! A written record of a simulated world: every unit of work, every packet, every event for an application,
//! and the status of all hosts at the end. Tests compare it with a recorded one (docs/adr/0049).

use std::fmt::Write;

use punctual_proto::api::{Event, OpenRequest, UserId};
use punctual_proto::ids::{Address, ChannelId};
use punctual_proto::{Contract, Nanos};

use punctual_rig::{START, TestInbox, TestOutbox, World, name, pattern, trimmed};

use super::written;

/// A channel of a script.
struct Known {
    host: usize,
    /// `None`: the request could not be tried.
    source: Option<ChannelId>,
    /// Since it is open.
    outbox: Option<TestOutbox>,
    sent: u64,
}

/// A world, and what is written of it.
pub struct Script {
    pub world: World,
    pub text: String,
    /// Requested channels, in order of the requests.
    channels: Vec<Known>,
    inboxes: Vec<(usize, ChannelId, TestInbox)>,
    /// Whether receivers read their messages.
    pub reads: bool,
    /// Whether receivers consent.
    pub consents: bool,
    /// Adapters report each millisecond what has left, this much of each link.
    pub completions: Option<Vec<Vec<u64>>>,
}

impl Script {
    pub fn new(mut world: World) -> Self {
        world.tape = Some(Vec::new());
        Self {
            world,
            text: String::new(),
            channels: Vec::new(),
            inboxes: Vec::new(),
            reads: true,
            consents: true,
            completions: None,
        }
    }

    pub fn write_line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a text");
    }

    fn at(&self) -> u64 {
        self.world.now.since(START).0
    }

    /// Lets neighbours meet, without a record.
    pub fn meet(&mut self) {
        self.world.run_for(Nanos::from_millis(100));
        self.world.tape = Some(Vec::new());
        self.world.events.iter_mut().for_each(|events| events.clear());
    }

    /// Requests a channel; returns its number in this script.
    pub fn ask(&mut self, from: usize, to: &str, contract: Contract, probe: bool) -> usize {
        let to: Address = to.parse().expect("an address");
        let request = OpenRequest { to, contract, user: UserId(7), probe, token: None };
        let now = self.world.now;
        let asked = self.world.nodes[from].open(request, now);
        self.write_line(&format!("{} h{} asks: {asked:?}", self.at(), from + 1));
        self.channels.push(Known { host: from, source: asked.ok(), outbox: None, sent: 0 });
        self.world.settle();
        self.channels.len() - 1
    }

    /// Opens a channel to `in` of a host.
    pub fn open(&mut self, from: usize, to: usize, contract: Contract) -> usize {
        let _ = self.world.nodes[to].listen(name("in"));
        let number = self.ask(from, &format!("in@h{}", to + 1), contract, false);
        for _ in 0..500 {
            if self.channels[number].outbox.is_some() {
                return number;
            }
            self.run(1);
        }
        panic!("it is not open");
    }

    /// A channel's source.
    pub fn source(&self, number: usize) -> ChannelId {
        self.channels[number].source.expect("it was tried")
    }

    /// The end of a channel that was consented to as the so-manieth.
    pub fn sink(&self, number: usize) -> ChannelId {
        self.inboxes[number].1
    }

    /// Sends messages of so many bytes at once, whatever the contract.
    pub fn send(&mut self, number: usize, bytes: &[usize]) {
        let Known { host, source: Some(source), outbox: Some(outbox), sent } = &mut self.channels[number]
        else {
            panic!("it is not open")
        };
        let (host, source, now) = (*host, *source, self.world.now);
        for bytes in bytes {
            outbox.push_beyond_room(&pattern(number as u64, *sent, *bytes), 1, now);
            *sent += 1;
        }
        self.world.nodes[host].handle_ring(source, now);
        self.world.settle();
        self.flush();
    }

    /// Lets so many milliseconds pass, and writes what happens.
    pub fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.world.run_for(Nanos::from_millis(1));
            self.complete();
            self.flush();
        }
    }

    /// Adapters report what has left.
    fn complete(&mut self) {
        let Some(printed) = &mut self.completions else { return };
        let now = self.world.now;
        for (host, printed) in printed.iter_mut().enumerate() {
            let given = self.world.nodes[host].status(now).links;
            for (link, printed) in given.iter().zip(printed) {
                // The kernel's clock is no wire's: what was given in this millisecond has left.
                let bytes = (link.wire_bytes - *printed).min(1_464 + 66);
                *printed += bytes;
                self.world.nodes[host].handle_sent(link.link, bytes as u32, now);
            }
        }
        self.world.settle();
    }

    /// Writes what has happened; applications reply and read.
    pub fn flush(&mut self) {
        for line in self.world.tape.as_mut().expect("somebody writes").drain(..) {
            self.text += &line;
            self.text.push('\n');
        }
        for host in 0..self.world.nodes.len() {
            while let Some((link, change)) = self.world.nodes[host].poll_filter() {
                // Keys must not be printed.
                let what = format!("{change:?}");
                let what = if what.starts_with("Neighbour") { "Neighbour".into() } else { what };
                self.write_line(&format!("{} h{}.{} {what}", self.at(), host + 1, link.0));
            }
            while let Some((link, rate)) = self.world.nodes[host].poll_shaper() {
                self.write_line(&format!("{} h{}.{} shaper: {rate:?}", self.at(), host + 1, link.0));
                let now = self.world.now;
                self.world.nodes[host].handle_shaped(link, rate, now);
            }
            while let Some(event) = self.world.events[host].pop_front() {
                self.note_event(host, &event);
            }
        }
        if self.reads {
            self.read();
        }
    }

    fn note_event(&mut self, host: usize, event: &Event) {
        self.write_line(&format!("{} h{} {}", self.at(), host + 1, trimmed(event)));
        let now = self.world.now;
        match event {
            Event::Incoming(incoming) if self.consents => {
                let bytes = incoming.contract.message_bytes_max as usize;
                let inbox = TestInbox::new(incoming.inbox_messages as usize, bytes);
                let consented = self.world.nodes[host].consent(incoming.channel, inbox.clone(), now);
                self.write_line(&format!("  consents: {consented:?}"));
                self.inboxes.push((host, incoming.channel, inbox));
            }
            Event::Incoming(incoming) => {
                let refused = self.world.nodes[host].refuse(incoming.channel, "no camera", now);
                self.write_line(&format!("  refuses: {refused:?}"));
            }
            Event::Opened { channel, grant } => {
                let outbox = TestOutbox::new(grant.outbox_messages as usize, 65_536);
                self.world.nodes[host].attach_outbox(*channel, outbox.clone(), now).expect("it is open");
                let mut of = self.channels.iter_mut();
                let of = of.find(|known| (known.host, known.source) == (host, Some(*channel)));
                of.expect("somebody asked").outbox = Some(outbox);
            }
            Event::Requested { to, contract, user, token, .. } => {
                let answer = if self.consents {
                    let (to, contract) = (to.clone(), *contract);
                    let request =
                        OpenRequest { to, contract, user: *user, probe: false, token: Some(*token) };
                    let asked = self.world.nodes[host].open(request, now);
                    let text = format!("{asked:?}");
                    self.channels.push(Known { host, source: asked.ok(), outbox: None, sent: 0 });
                    text
                } else {
                    format!("{:?}", self.world.nodes[host].refuse_request(*token, "no camera", now))
                };
                self.write_line(&format!("  answers: {answer}"));
            }
            _ => {}
        }
        self.world.settle();
    }

    /// Receivers take what has come.
    pub fn read(&mut self) {
        for index in 0..self.inboxes.len() {
            let (host, channel, inbox) = self.inboxes[index].clone();
            let mut lines = Vec::new();
            while inbox.recv(|bytes, info| {
                let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
                lines.push(format!("  h{} {channel:?} reads {sum} {}", host + 1, trimmed(&info)));
            }) {}
            if !lines.is_empty() {
                lines.iter().for_each(|line| self.write_line(line));
                let now = self.world.now;
                self.world.nodes[host].handle_ring(channel, now);
                self.world.settle();
            }
        }
    }

    /// The complete status of all hosts.
    pub fn status(&mut self) {
        let now = self.world.now;
        for host in 0..self.world.nodes.len() {
            let node = &self.world.nodes[host];
            let status = node.status(now);
            let mut lines = vec![format!("{} h{} {}", now.since(START).0, host + 1, trimmed(&status))];
            for channel in node.channels() {
                lines.push(format!("  {}", trimmed(&channel)));
                lines.push(format!("  takes {} B", node.room_bytes(channel.channel)));
            }
            let accounts = node.accounts();
            let used = accounts.iter().filter(|account| account.counted != 0 || account.held != 0);
            lines.extend(used.map(|account| format!("  {account:?}")));
            lines.push(format!("  next {:?}", node.poll_timeout().map(|at| at.since(START))));
            lines.iter().for_each(|line| self.write_line(line));
        }
    }

    /// Compares what was written with `transcripts/NAME.txt`.
    pub fn is_as_written(&self, name: &str) {
        written::is_as_written(name, &self.text);
    }
}
