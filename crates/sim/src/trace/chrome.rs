//! A timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
//!
//! One process per host: its processor, its links (packets from hand-over to arrival) and its events. One
//! process has the channels: the time for which each was open, and its messages from sending to delivery. A
//! lost message is a span without an end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::{Value, json};

use super::lanes::Lanes;
use super::{Moment, Timeline};
use crate::entry::Entry;
use crate::time::SimTime;

/// The process of all channels; hosts are 1, 2, ...
const CHANNELS: usize = 0;
const PROCESSOR: usize = 1;
const EVENTS: usize = 2;
/// Lanes of a link and of a channel; further overlapping spans share the last one.
const LANES_MAX: usize = 1_000;

/// Writes `timeline` to `out` as one JSON document.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(timeline: &Timeline, out: impl Write) -> io::Result<()> {
    let mut writer = Writer { out, first: true, named: BTreeSet::new() };
    writer.begin()?;
    writer.process(CHANNELS, "channels")?;
    for (host, name) in timeline.hosts.iter().enumerate() {
        writer.process(host + 1, name)?;
    }
    let mut spans = Spans::of(timeline);
    for moment in &timeline.moments {
        match moment {
            Moment::Happened { at, host, entry } => spans.entry(&mut writer, *at, *host, entry)?,
            Moment::Flight(flight) => spans.flight(&mut writer, flight)?,
            Moment::Words(_) => {}
            Moment::Violation { at, what } => {
                let pid = CHANNELS;
                writer.event(
                    &json!({"ph": "i", "s": "g", "name": "VIOLATION", "pid": pid, "tid": 0, "ts": us(*at),
                                     "args": {"what": what}}),
                )?;
            }
        }
    }
    writer.end()
}

/// Microseconds, the unit of the format.
fn us(at: SimTime) -> f64 {
    at.0 as f64 / 1e3
}

/// Ends of spans that have begun, and rows in use.
struct Spans {
    delivered: BTreeMap<(usize, u64), SimTime>,
    closed: BTreeMap<usize, SimTime>,
    links: BTreeMap<(usize, usize), Lanes>,
    messages: BTreeMap<usize, Lanes>,
}

impl Spans {
    fn of(timeline: &Timeline) -> Self {
        let mut delivered = BTreeMap::new();
        let mut closed = BTreeMap::new();
        for moment in &timeline.moments {
            match *moment {
                Moment::Happened { at, entry: Entry::Deliver { channel, index, .. }, .. } => {
                    delivered.entry((channel, index)).or_insert(at);
                }
                Moment::Happened { at, entry: Entry::Close { channel, .. }, .. } => {
                    closed.insert(channel, at);
                }
                _ => {}
            }
        }
        Self { delivered, closed, links: BTreeMap::new(), messages: BTreeMap::new() }
    }

    fn flight(&mut self, writer: &mut Writer<impl Write>, flight: &super::Flight) -> io::Result<()> {
        let lanes = self.links.entry((flight.host, flight.link)).or_default();
        let lane = lanes.take(flight.from, flight.arrives).min(LANES_MAX - 1);
        let tid = (flight.link + 1) * LANES_MAX + lane;
        let row = Row { pid: flight.host + 1, tid };
        writer.row(row, &format!("link {}", flight.link))?;
        writer.span(row, &flight.what, flight.from, Some(flight.arrives), &Value::Null)
    }

    fn entry(
        &mut self,
        writer: &mut Writer<impl Write>,
        at: SimTime,
        host: usize,
        entry: &Entry,
    ) -> io::Result<()> {
        let pid = host + 1;
        match *entry {
            // Their flights are drawn instead.
            Entry::Transmit { .. } | Entry::Receive { .. } | Entry::Deliver { .. } => Ok(()),
            Entry::Work { kind, packets, cost_ns } => {
                let row = Row { pid, tid: PROCESSOR };
                writer.row(row, "processor")?;
                let end = Some(SimTime(at.0 + cost_ns));
                writer.span(row, &format!("{kind:?}"), at, end, &json!({"packets": packets}))
            }
            Entry::Open { channel, deadline_ns } => {
                let row = Row { pid: CHANNELS, tid: (channel + 1) * LANES_MAX };
                writer.row(row, &format!("channel {channel}"))?;
                let args = json!({"bound_ms": deadline_ns as f64 / 1e6});
                writer.span(row, "open", at, self.closed.get(&channel).copied(), &args)
            }
            Entry::Send { channel, index, len } => {
                let end = self.delivered.get(&(channel, index)).copied();
                let lanes = self.messages.entry(channel).or_default();
                let lane = lanes.take(at, end.unwrap_or(SimTime(u64::MAX))).min(LANES_MAX - 2);
                let row = Row { pid: CHANNELS, tid: (channel + 1) * LANES_MAX + 1 + lane };
                writer.row(row, &format!("channel {channel} messages"))?;
                let args = json!({"bytes": len, "delivered": end.is_some()});
                writer.span(row, &format!("#{index}"), at, end, &args)
            }
            ref other => {
                let row = Row { pid, tid: EVENTS };
                writer.row(row, "events")?;
                writer.event(&json!({"ph": "i", "s": "t", "name": other.to_string().trim_start(), "pid": pid,
                                     "tid": EVENTS, "ts": us(at)}))
            }
        }
    }
}

/// Row of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    pid: usize,
    tid: usize,
}

struct Writer<W> {
    out: W,
    first: bool,
    named: BTreeSet<Row>,
}

impl<W: Write> Writer<W> {
    fn begin(&mut self) -> io::Result<()> {
        write!(self.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")
    }

    fn end(&mut self) -> io::Result<()> {
        writeln!(self.out, "]}}")?;
        self.out.flush()
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        write!(self.out, "{comma}{event}")
    }

    fn process(&mut self, pid: usize, name: &str) -> io::Result<()> {
        self.event(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}))?;
        self.event(&json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}))
    }

    /// Names a row, once.
    fn row(&mut self, row: Row, name: &str) -> io::Result<()> {
        if !self.named.insert(row) {
            return Ok(());
        }
        let Row { pid, tid } = row;
        self.event(
            &json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}),
        )?;
        self.event(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid,
                           "args": {"sort_index": tid}}))
    }

    /// Writes a span from `from` to `to`; without `to` it is open to the end.
    fn span(
        &mut self,
        row: Row,
        name: &str,
        from: SimTime,
        to: Option<SimTime>,
        args: &Value,
    ) -> io::Result<()> {
        let Row { pid, tid } = row;
        let mut event = json!({"ph": "B", "name": name, "pid": pid, "tid": tid, "ts": us(from)});
        if let Some(to) = to {
            event["ph"] = "X".into();
            event["dur"] = (to.since(from).0 as f64 / 1e3).into();
        }
        if !args.is_null() {
            event["args"] = args.clone();
        }
        self.event(&event)
    }
}
