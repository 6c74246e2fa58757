//! Links and their drivers as text.

use punctual::{
    DriverStatus, ForeignVersion, HostStatus, KernelTraffic, Lateness, LinkStatus, Nanos, NodeStatus,
    rate_text,
};

use super::{nonzero, percent};
use crate::late::late_over;
use crate::link_rate;
use crate::output::table;

/// The packets that came in late over a link: signalling, which cannot be forged, and packets of channels.
fn late_in(link: &LinkStatus) -> String {
    match late_over(link) {
        Lateness { times: 0, .. } => "0".into(),
        Lateness { times, by_max } => format!("{times}, up to {by_max}"),
    }
}

/// The links: their neighbours, what is reserved, what was sent and what came late.
pub(super) fn links(node: &NodeStatus) -> String {
    let span = |span: Option<Nanos>| span.map_or_else(|| "-".into(), |span| span.to_string());
    let rows: Vec<Vec<String>> = node
        .links
        .iter()
        .map(|link| {
            let clock = link.clock_offset_ns.map_or_else(
                || "-".into(),
                |(offset, error)| {
                    format!("{:+.1} us, error {:.1} us", offset as f64 / 1e3, error as f64 / 1e3)
                },
            );
            vec![
                link.name.clone(),
                link.neighbour.to_string(),
                state(link),
                percent(link.utilisation),
                kernel_share(link),
                link.packets_guaranteed.to_string(),
                link.packets_best_effort.to_string(),
                link.best_effort_dropped.to_string(),
                late_in(link),
                span(link.round_trip_min),
                span(link.round_trip_recent),
                clock,
            ]
        })
        .collect();
    let head = [
        "link",
        "node",
        "state",
        "given",
        "kernel may",
        "guaranteed",
        "best-effort",
        "dropped",
        "came late",
        "round trip",
        "last",
        "clock of neighbour",
    ];
    let rates = node
        .links
        .iter()
        .map(|link| format!("\nrate of {}: {}", link.name, link_rate::line(&link.rate, node.now)));
    table(&head, &rows) + &rates.collect::<String>()
}

/// State of the neighbour.
fn state(link: &LinkStatus) -> String {
    match link.foreign {
        Some(ForeignVersion { theirs, ours }) => format!("VERSION {theirs}, OURS {ours}"),
        None if link.alive && link.kernel_traffic == KernelTraffic::Unbounded => {
            "alive, DEGRADED: kernel traffic is not bounded".into()
        }
        None if link.alive => "alive".into(),
        None if link.unauthenticated > 0 => "DOWN, AUTHENTICATION FAILS".into(),
        None => "DOWN".into(),
    }
}

/// The share that kernel traffic may have now, and always, if it follows admission.
fn kernel_share(link: &LinkStatus) -> String {
    let Some(share) = link.kernel_share else { return "-".into() };
    let waits = if share.waiting > 0 { ", shrinks" } else { "" };
    format!("{}, always {}{waits}", rate_text(share.now_bps.0), rate_text(share.least_bps.0))
}

/// The drivers of the links, and the packets that they dropped.
pub(super) fn drivers(status: &HostStatus) -> String {
    let row = |link: &DriverStatus| {
        let fact = |name: &str| link.facts.get(name).unwrap_or("-").to_owned();
        vec![
            link.name.clone(),
            link.mode.clone(),
            fact("device"),
            fact("qdisc"),
            fact("napi_priority"),
            link.foreign_bps.map_or_else(|| "-".into(), rate_text),
            nonzero(&lost_in_driver(link)),
        ]
    };
    let rows: Vec<Vec<String>> = status.engine.links.iter().map(row).collect();
    table(&["link", "driver", "device", "qdisc", "NAPI priority", "others send", "lost in the driver"], &rows)
}

fn lost_in_driver(link: &DriverStatus) -> serde_json::Value {
    let mut lost = serde_json::to_value(link.drops).unwrap_or_default();
    lost["overflows"] = link.overflows.into();
    lost["send_errors"] = link.send_errors.into();
    lost
}
