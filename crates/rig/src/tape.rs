//! A record of a world, as lines of text.

use std::fmt::{Debug, Write};

use punctual_proto::Instant;
use punctual_proto::api::{Port, Work};
use punctual_proto::config::CpuCosts;
use punctual_proto::ids::LinkId;
use punctual_proto::wire::{Header, Kind};

use crate::line::START;

/// `Debug` without the fields that are zero, false or `None`.
pub fn trimmed(value: &impl Debug) -> String {
    trimmed_text(&format!("{value:?}"))
}

fn trimmed_text(debug: &str) -> String {
    // Spans are frequent: the name of their type would repeat.
    let text = debug.replace("Nanos(", "(");
    let is_nothing = |field: &&str| {
        let plain = !field.contains(['{', '}', '[', ']', '(', ')']);
        plain && field.split_once(": ").is_some_and(|(_, value)| matches!(value, "0" | "false" | "None"))
    };
    text.split(", ").filter(|field| !is_nothing(field)).collect::<Vec<_>>().join(", ")
}

/// A unit of work, as a line.
pub(crate) fn work(now: Instant, node: usize, work: &Work, costs: &CpuCosts) -> String {
    let declared = work.declared_cost(costs).0;
    // The handler's number alone: the name of its type would repeat.
    let text = format!("{work:?}").replace(&format!("{:?}", work.handler), &work.handler.0.to_string());
    format!("{} h{} {}, {declared} ns", now.since(START).0, node + 1, trimmed_text(&text))
}

/// A packet that a driver got, as a line.
pub(crate) fn packet(now: Instant, node: usize, link: LinkId, port: Port, bytes: &[u8]) -> String {
    let place = format!("{} h{}.{}", now.since(START).0, node + 1, link.0);
    if port == Port::Signalling {
        return format!("{place} signal of {} B", bytes.len());
    }
    let (header, payload) = Header::parse(bytes).expect("a valid packet");
    let Header { kind, message, fragment, fragments, message_bytes, slack_ns, destination, .. } = header;
    let mut line = format!("{place} {kind:?} {message} {fragment}/{fragments} of {message_bytes} B");
    write!(line, " to {} slack {slack_ns}, {} B", destination.0, payload.len()).expect("a text");
    if kind == Kind::Guaranteed {
        let age = header.age;
        let logical = header.logical_arrival.since(START).0;
        write!(line, ", channel {}, l {logical}, {age:?}", header.path.channel.0).expect("a text");
    }
    for (is, word) in [(header.demoted, " demoted"), (header.unpromised, " unpromised")] {
        line += if is { word } else { "" };
    }
    line
}
