//! A readable record of one run: line by line ([`Timeline::lines`]), or for a viewer ([`chrome`]).

pub mod chrome;
mod lanes;

use punctual_proto::api::Port;
use punctual_proto::ids::PathId;
use punctual_proto::wire::Header;

use crate::entry::Entry;
use crate::segment;
use crate::time::SimTime;

/// One run's events in order; empty if not requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    hosts: Vec<String>,
    moments: Vec<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Moment {
    Happened { at: SimTime, host: usize, entry: Entry },
    Flight(Flight),
    Words(String),
    Violation { at: SimTime, what: String },
}

/// A frame from an adapter to the driver at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Time of the hand-over to the adapter.
    pub from: SimTime,
    /// Sender.
    pub host: usize,
    /// Its link.
    pub link: usize,
    /// Time of arrival at the other end.
    pub arrives: SimTime,
    /// Description of its content.
    pub what: String,
}

impl Flight {
    /// The flight of the frame `bytes`; `channel` maps a path to its channel.
    pub fn of(
        from: SimTime,
        host: usize,
        link: usize,
        port: Port,
        bytes: &[u8],
        arrives: SimTime,
        channel: impl Fn(PathId) -> Option<usize>,
    ) -> Self {
        let what = match Header::parse(bytes) {
            _ if port == Port::Signalling => "signalling".into(),
            Err(error) => format!("not ours: {error}"),
            Ok((header, _)) => {
                let whose = match channel(header.path) {
                    Some(channel) => format!("channel {channel}"),
                    None => format!("best effort {}", header.path),
                };
                let demoted = if header.demoted { ", demoted" } else { "" };
                let part = u32::from(header.fragment) + 1;
                format!("{whose} message {} part {part}/{}{demoted}", header.message, header.fragments)
            }
        };
        Self { from, host, link, arrives, what }
    }
}

impl Flight {
    /// The flight of a TCP segment.
    pub fn of_segment(from: SimTime, (host, link): (usize, usize), bytes: &[u8], arrives: SimTime) -> Self {
        let what = match segment::read(bytes) {
            Some(seen) => {
                let bits = [(seen.is_syn, " SYN"), (seen.is_fin, " FIN"), (seen.is_rst, " RST")];
                let bits: String =
                    bits.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).collect();
                let whole = if seen.is_whole { "" } else { ", corrupted" };
                let (from, to, data) = (seen.from, seen.to, seen.data);
                format!("TCP {from} to {to}{bits} seq {} ack {} {data} B{whole}", seen.seq, seen.ack)
            }
            None => "no TCP segment".into(),
        };
        Self { from, host, link, arrives, what }
    }
}

impl Timeline {
    /// An empty timeline for hosts of these names.
    pub fn new(hosts: Vec<String>) -> Self {
        Self { hosts, moments: Vec::new() }
    }

    /// Adds an event on `host`.
    pub fn note(&mut self, at: SimTime, host: usize, entry: Entry) {
        self.moments.push(Moment::Happened { at, host, entry });
    }

    /// Adds the flight of a frame.
    pub fn fly(&mut self, flight: Flight) {
        self.moments.push(Moment::Flight(flight));
    }

    /// Adds an explanation to the last event.
    pub fn explain(&mut self, words: String) {
        self.moments.push(Moment::Words(words));
    }

    /// Adds a violation.
    pub fn violation(&mut self, at: SimTime, what: &str) {
        self.moments.push(Moment::Violation { at, what: what.into() });
    }

    /// One line per event: time, host, description.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.moments.iter().map(|moment| match moment {
            Moment::Happened { at, host, entry } => self.line(*at, *host, &entry.to_string()),
            Moment::Flight(flight) => {
                let takes = flight.arrives.since(flight.from);
                let what = format!("   link {}: {}, takes {takes}", flight.link, flight.what);
                self.line(flight.from, flight.host, &what)
            }
            Moment::Words(words) => format!("{:28}{words}", ""),
            Moment::Violation { what, .. } => format!("VIOLATION  {what}"),
        })
    }

    fn line(&self, at: SimTime, host: usize, what: &str) -> String {
        let host = self.hosts.get(host).map_or("?", String::as_str);
        format!("{:>14.6} ms  {host:<8} {what}", at.0 as f64 / 1e6)
    }
}
