//! `punctual status`: this host at a glance.

mod links;

use std::cmp::Reverse;

use clap::Args;
use punctual::{
    BrokenStage, ClassStatus, DropCounters, HandlerStatus, HostStatus, Lateness, Nanos, NodeStatus,
    PathRecord, Ppm, ProfileStatus, WrongCount, counted,
};

use punctual::rtu::{Class, Misconduct, Status as Handler};

use crate::causes::with_causes;
use crate::host::Host;
use crate::late::{counted_late, is_best_effort_host, late_wakes};
use crate::output::{Outcome, Output, table};

use links::{drivers, links};

/// Show this host's links, load, dropped packets, users' quotas, programs' handlers, and counters of the daemon's API.
#[derive(Args)]
#[command(after_help = "Example: punctual status --json")]
pub struct Status {
    #[command(flatten)]
    host: Host,
}

impl Status {
    /// Requests the status from the daemon and prints it.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let status = self.host.connect()?.status()?;
        if output.json {
            output.print_with_units(&with_causes(serde_json::to_value(&status)?), |_| String::new())?;
        } else {
            output.print(&status, text)?;
        }
        Ok(Outcome::Done)
    }
}

/// A proportion for people.
pub fn percent(part: Ppm) -> String {
    format!("{:.1}%", f64::from(part.0) / 1e4)
}

fn text(status: &HostStatus) -> String {
    let degraded = if is_best_effort_host(status) {
        "\nDEGRADED: best-effort host without a real-time class, nothing is guaranteed here"
    } else {
        ""
    };
    let (node, api) = (&status.node, &status.api);
    let users: Vec<Vec<String>> = status
        .users
        .iter()
        .map(|user| {
            let counts = [user.clients, user.listeners, user.channels, user.descriptors];
            let held = counts.into_iter().chain([user.buffer_bytes, user.unread_bytes]);
            let name = std::iter::once(u64::from(user.user.0));
            name.chain(held).map(|number| number.to_string()).collect()
        })
        .collect();
    format!(
        "host {} (node {}), up {}{degraded}{}\nprocessor {}\n{}channels {}, CPU reserved {}, buffers {} B, \
        overruns {}\n\n{}\n\n{}\n\n{}\n\n{}{}\n\n\
         API: {}, {}, {} malformed, {} over quota, {} turned away, {} not reading, {}\n\
         packets dropped at the edge: {}\nall channels since the start: {}",
        node.name,
        node.id,
        status.uptime,
        broken(node) + &lost(status),
        class(status),
        profile(status),
        soft(node),
        percent(node.cpu_utilisation),
        node.buffer_bytes,
        node.overruns,
        work(node),
        links(node),
        drivers(status),
        table(
            &["user", "clients", "listeners", "channels", "descriptors", "buffer bytes", "unread bytes"],
            &users
        ),
        handlers(&status.handlers),
        counted(api.requests, "request"),
        counted(api.errors, "error"),
        api.malformed,
        api.over_quota,
        api.turned_away,
        api.not_reading,
        counted(api.broken_rings, "broken ring"),
        drops(&node.drops),
        channels_total(node),
    )
}

/// A table of programs' handlers; nothing where there are none.
fn handlers(handlers: &[HandlerStatus]) -> String {
    if handlers.is_empty() {
        return String::new();
    }
    let heads = [
        "handler",
        "user",
        "class",
        "terms",
        "bound",
        "sent within",
        "calls",
        "units",
        "beyond",
        "late",
        "overruns",
        "yields ignored",
        "unmatched reports",
        "demoted",
    ];
    let rows: Vec<Vec<String>> = handlers.iter().map(handler_row).collect();
    format!("\n\n{}", table(&heads, &rows))
}

fn handler_row(of: &HandlerStatus) -> Vec<String> {
    let Handler { terms, counters, .. } = &of.handler;
    let units = |units, span: Nanos, word| format!("{} {word} {span}", counted(u64::from(units), "unit"));
    let (class, budget) = match terms.class {
        Class::LowDelay { interval, units: count, priority } => {
            let priority = priority.map_or(String::new(), |priority| format!(", priority {priority}"));
            ("low delay", units(count, interval, "in any") + &priority)
        }
        Class::Guaranteed { period, units: count, .. } => {
            let word = if terms.class.periods().is_some() { "every" } else { "in any" };
            ("guaranteed", units(count, period, word))
        }
        Class::BestEffort => ("best effort", counted(u64::from(terms.quantum), "unit") + " a call"),
    };
    let bound = |bound: Option<Nanos>| bound.map_or("-".into(), |bound| bound.to_string());
    let demoted = match of.handler.demoted {
        None => "-",
        Some(Misconduct::Overrun) => "for overruns",
        Some(Misconduct::IgnoredYield) => "for yields ignored",
    };
    let counts = [
        counters.calls,
        counters.units,
        counters.units_beyond,
        counters.late,
        counters.overruns,
        counters.yields_ignored,
        counters.reports_unmatched,
    ];
    let named = [
        of.handler.id.0.to_string(),
        of.user.map_or("-".into(), |user| user.0.to_string()),
        class.into(),
        budget,
        bound(of.handler.bound),
        bound(of.handler.sent.and_then(|sent| sent.bound)),
    ];
    named.into_iter().chain(counts.map(|count| count.to_string())).chain([demoted.into()]).collect()
}

/// A line for each stage that breaks its promise, on this host or on the route of its channels, the latest
/// first, and for those that were late in the last minute.
fn broken(node: &NodeStatus) -> String {
    let mut stages: Vec<&BrokenStage> = node.broken.iter().collect();
    stages.sort_by_key(|stage| Reverse(stage.late.by_max));
    let line = |stage: &BrokenStage| {
        let counted = counted_late(node, stage);
        format!("\nDEGRADED: {stage}{counted}; nothing is guaranteed across it until it has healed")
    };
    let late = node.late.iter().map(|stage| format!("\nLATE: {stage}"));
    stages.into_iter().map(line).chain(late).collect()
}

/// A line for each count that is wrong.
fn lost(status: &HostStatus) -> String {
    let wrong = status.audit.iter().flat_map(|audit| &audit.wrong);
    let line = |wrong: &WrongCount| {
        let link = wrong.link.and_then(|link| status.node.links.get(usize::from(link.0)));
        let link = link.map_or(String::new(), |link| format!(" of link {}", link.name));
        let (what, counted, held) = (&wrong.what, wrong.counted, wrong.held);
        format!(
            "\nLEAK: {what}{link}: {counted} counted, {held} held; please report it, a restart frees what is lost"
        )
    };
    wrong.map(line).collect()
}

/// How many channels, and how many of them are soft.
fn soft(node: &NodeStatus) -> String {
    match node.channels_soft {
        0 => node.channels.to_string(),
        soft => format!("{} ({soft} soft)", node.channels),
    }
}

/// The class of the processor's thread.
fn class(status: &HostStatus) -> String {
    match status.engine.class {
        ClassStatus::Fifo { priority } => format!("SCHED_FIFO priority {priority}"),
        ClassStatus::Deadline { runtime_ns, period_ns } => {
            format!("SCHED_DEADLINE with {} every {}", Nanos(runtime_ns), Nanos(period_ns))
        }
        ClassStatus::BestEffort => "best-effort".into(),
    }
}

/// The source of the processor's costs, the quantum, and the times in the configuration that are too short
/// for it; a line each.
fn profile(status: &HostStatus) -> String {
    let ProfileStatus { summary, quantum_packets, warnings, .. } = &status.engine.profile;
    let quantum = format!("quantum: {} at most\n", counted(*quantum_packets, "packet"));
    let warnings: String = warnings.iter().map(|warning| format!("WARNING: {warning}\n")).collect();
    format!("{summary}\n{quantum}{warnings}")
}

/// What work was seen to cost beside what admission assumes for it; wake-ups beside the release latency.
fn work(node: &NodeStatus) -> String {
    let share = |percent: u32| match percent {
        0 => "-".to_owned(),
        1..400 => format!("{percent}%"),
        _ => "over 400%".into(),
    };
    let row = |path: &PathRecord| {
        vec![
            format!("{:?}", path.kind).to_lowercase(),
            path.units.to_string(),
            path.first.to_string(),
            path.overruns.to_string(),
            share(path.p50_percent),
            share(path.p99_percent),
            format!("{} of {}", path.max, path.max_assumed),
            if path.at_risk { "AT RISK: measure again with 'punctual profile'" } else { "kept" }.into(),
        ]
    };
    let rows: Vec<Vec<String>> = node.work.iter().map(row).collect();
    let head =
        ["work", "units", "first", "overruns", "p50 of assumed", "p99 of assumed", "longest", "profile"];
    let (busy, wakes) = (node.busy, node.wakes);
    format!(
        "{}\n{}(first: after idle time, with cold caches; the shares are those of the others)\n\
         busy periods: {}; beyond their units' costs {} are allowed, half took at most {} of that, 99% {}, one {}\n\
         wake-ups by time: {}, beyond the release latency {}, latest {}{}",
        table(&head, &rows),
        late_service(node),
        busy.periods,
        busy.allowed,
        share(busy.p50_percent),
        share(busy.p99_percent),
        busy.excess_max,
        wakes.wakes,
        wakes.late,
        wakes.late_max,
        late_wakes(&wakes).map_or_else(String::new, |late| format!("; AT RISK: {late}"))
    )
}

/// Services later than their bound, if there were any.
fn late_service(node: &NodeStatus) -> String {
    let Lateness { times, by_max } = node.late_service;
    if times == 0 {
        String::new()
    } else {
        format!("served later than their bounds: {times}, up to {by_max}\n")
    }
}

/// The reasons of drops; "none" if there were no drops.
fn drops(drops: &DropCounters) -> String {
    nonzero(&serde_json::to_value(drops).unwrap_or_default())
}

/// The counters of all channels here, including those that have ended.
fn channels_total(node: &NodeStatus) -> String {
    let mut counts = serde_json::to_value(node.channels_total).unwrap_or_default();
    // No counts.
    for largest in ["latency_max", "occupancy_max"] {
        counts[largest] = 0.into();
    }
    nonzero(&counts)
}

/// The counts of an object that are not zero; "none" where all are.
fn nonzero(counts: &serde_json::Value) -> String {
    let printed = counts.as_object().into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    let printed: Vec<String> =
        printed.map(|(reason, count)| format!("{} {count}", reason.replace('_', " "))).collect();
    if printed.is_empty() { "none".into() } else { printed.join(", ") }
}
