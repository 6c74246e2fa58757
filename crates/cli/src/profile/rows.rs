//! The rows of HARTS table 1 and CLIPS tables 2 to 6, with their figures beside ours.

use punctual_engine::profile::{PathSamples, Series, Summary};
use serde::Serialize;

use self::Shown::{Alone, Used, Without};
use super::api::{SIZES, SizeRow};
use super::basics::Basics;
use super::paths::Measured;
use super::wake::Wakes;

/// One line of the printed table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The paper of the table.
    pub table: &'static str,
    /// What.
    pub what: String,
    /// The paper's value, with its unit.
    pub paper: String,
    /// Ours: half of the times no more than this, in us.
    pub median_us: f64,
    /// Ours: 999 of 1,000 times.
    pub p999_us: f64,
    /// What admission charges before its margin, if it charges this.
    pub used_us: Option<f64>,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn row(table: &'static str, what: impl Into<String>, paper: &str, series: &[u64], is_used: bool) -> Row {
    let summary = Summary::of(series);
    Row {
        table,
        what: what.into(),
        paper: paper.into(),
        median_us: us(summary.median_ns),
        p999_us: us(summary.p999_ns),
        used_us: is_used.then(|| us(summary.block_ns)),
    }
}

/// One figure without a distribution.
fn figure(table: &'static str, what: &str, paper: &str, value_us: f64) -> Row {
    Row {
        table,
        what: what.into(),
        paper: paper.into(),
        median_us: value_us,
        p999_us: value_us,
        used_us: None,
    }
}

const HARTS: &str = "HARTS 1";

pub(super) fn basics(basics: &Basics) -> Vec<Row> {
    vec![
        row(HARTS, "context switch", "20 us", &basics.context_switch, false),
        row(HARTS, "interrupt (timer expiry) to thread", "28 us", &basics.timer_to_thread, false),
        figure(HARTS, "timer read", "22 us", basics.timer_read_ps as f64 / 1e6),
        figure(HARTS, "timer resolution", "2 us", us(basics.timer_resolution)),
        figure(HARTS, "copy a word, 4 KB, cache", "0.350 us", Basics::per_word(&basics.copy_hot) / 1e3),
        figure(
            HARTS,
            "copy a word, 4 KB, memory",
            "2.040 us (VME)",
            Basics::per_word(&basics.copy_cold) / 1e3,
        ),
    ]
}

pub(super) fn api(sizes: &[SizeRow]) -> Vec<Row> {
    let anchor_send = ["301", "331", "606", "1191"];
    let anchor_receive = ["335", "350", "1097", "2653"];
    let callback = ["95", "92", "96", "96"];
    let whole_send = ["1170", "1210", "1480", "2070"];
    let whole_receive = ["870", "894", "1660", "3210"];
    let mut rows = Vec::new();
    let all = || sizes.iter().zip(SIZES).enumerate();
    for (n, (size, (_, name))) in all() {
        let paper = format!("{} us, with IPC {}", anchor_send[n], whole_send[n]);
        rows.push(row(
            "CLIPS 2, 3",
            format!("send message into the ring, {name}"),
            &paper,
            &size.send,
            false,
        ));
    }
    for (n, (size, (_, name))) in all() {
        let paper = format!("{} us, with IPC {}", anchor_receive[n], whole_receive[n]);
        rows.push(row(
            "CLIPS 2, 3",
            format!("receive message (waiting), {name}"),
            &paper,
            &size.receive,
            false,
        ));
    }
    rows.push(row("CLIPS 2", "receive message (none waiting)", "54 us", &sizes[0].none, false));
    for (n, (size, (_, name))) in all() {
        let paper = format!("{} us", callback[n]);
        rows.push(row(
            "CLIPS 2",
            format!("receive callback (publish), {name}"),
            &paper,
            &size.publish,
            false,
        ));
    }
    rows
}

pub(super) fn wakes(all: &[Wakes]) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in all {
        let load = if one.loaded { "loaded" } else { "idle" };
        let ipc = "875 us send, 563 us receive (IPC)";
        rows.push(row(
            "CLIPS 3",
            format!("doorbell to thread, SCHED_FIFO, {load}"),
            ipc,
            &one.doorbell,
            false,
        ));
        rows.push(row("wake-up", format!("timer to thread, SCHED_FIFO, {load}"), "-", &one.fifo, false));
        rows.push(row("wake-up", format!("timer to thread, SCHED_OTHER, {load}"), "-", &one.other, false));
    }
    rows
}

/// What a row of a path shows.
enum Shown {
    /// One series; admission charges it.
    Used(Series),
    /// One series.
    Alone(Series),
    /// A series without its part.
    Without(Series, Series),
}

/// Rows of the paths: table, what, the figure of the paper, and what is shown.
const PATHS: &[(&str, &str, &str, Shown)] = &[
    ("CLIPS 6.2", "dequeue and police a message", "5 us", Used(Series::SendMessage)),
    (
        "CLIPS 4",
        "send, first packet, protocol",
        "53 + 128 = 181 us",
        Without(Series::SendFirstSmall, Series::TransmitSmall),
    ),
    ("CLIPS 4+5", "send, first packet, with the driver, 64 B", "181 + 673 us", Used(Series::SendFirstSmall)),
    (
        "CLIPS 4+5",
        "send, first packet, with the driver, 1400 B",
        "181 + 1775 us",
        Alone(Series::SendFirstLarge),
    ),
    (
        "CLIPS 4+5",
        "send, other packet, with the driver, 1400 B",
        "77 + 1775 us",
        Used(Series::SendLaterLarge),
    ),
    ("CLIPS 5", "link scheduler and driver, 64 B", "673 us (1 B)", Alone(Series::TransmitSmall)),
    ("CLIPS 5", "link scheduler and driver, 1400 B", "1775 us (1416 B)", Alone(Series::TransmitLarge)),
    ("CLIPS 6", "packet input, first", "120 us", Alone(Series::InputFirst)),
    ("CLIPS 6", "packet input, other", "20 us", Alone(Series::InputLater)),
    ("CLIPS 4+6", "receive a packet, not the last, 1400 B", "260 + 20 us", Used(Series::ReceiveMiddleLarge)),
    (
        "CLIPS 6.2",
        "reassembly and delivery, 64 B",
        "17 us (1.4 KB)",
        Without(Series::ReceiveLastSmall, Series::InputFirst),
    ),
    (
        "CLIPS 6.2",
        "receive and deliver, 1400 B",
        "239 us (28 KB reassembly)",
        Alone(Series::ReceiveSingleLarge),
    ),
    ("forward", "from driver to driver, 64 B", "-", Used(Series::ForwardSmall)),
    ("forward", "from driver to driver, 1400 B", "-", Alone(Series::ForwardLarge)),
    ("turn", "a turn beside its work", "-", Used(Series::Turn)),
];

pub(super) fn paths(all: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Measured { driver, loaded, samples } in all {
        let on = format!("{driver}, {}", if *loaded { "loaded" } else { "idle" });
        for (table, what, paper, shown) in PATHS {
            let what = format!("{what} [{on}]");
            rows.push(match shown {
                Used(series) => row(table, what, paper, samples.of(*series), true),
                Alone(series) => row(table, what, paper, samples.of(*series), false),
                Without(whole, part) => {
                    let pairs = samples.of(*whole).iter().zip(samples.of(*part));
                    let less: Vec<u64> = pairs.map(|(whole, part)| whole.saturating_sub(*part)).collect();
                    row(table, what, paper, &less, false)
                }
            });
        }
        rows.extend(cold_units(&on, samples));
        rows.extend(segments(&on, samples));
    }
    rows
}

/// Calls of the handlers of a TCP connection (ADR 0054).
fn segments(on: &str, samples: &PathSamples) -> Vec<Row> {
    [
        ("output, segment of 1448 B", samples.of(Series::SegmentOut), true),
        ("input, segment of 1448 B", samples.of(Series::SegmentIn), true),
        ("output, acknowledgement", samples.of(Series::AckOut), true),
        ("input, acknowledgement", samples.of(Series::AckIn), true),
        ("input, what waited for room in the program's ring", samples.of(Series::SegmentCall), true),
    ]
    .into_iter()
    .map(|(what, series, is_used)| row("TCP", format!("{what} [{on}]"), "-", series, is_used))
    .collect()
}

/// Units that begin after idle time, one behind the other (ADR 0024).
fn cold_units(on: &str, samples: &PathSamples) -> Vec<Row> {
    let mut rows: Vec<_> = [
        ("first unit after idle time, send, 64 B", samples.of(Series::ColdSend)),
        ("then forward, 64 B", samples.of(Series::ColdForward)),
        ("then receive and deliver, 64 B", samples.of(Series::ColdReceive)),
        ("then wake the receiver", samples.of(Series::ColdWake)),
    ]
    .into_iter()
    .map(|(what, series)| row("cold", format!("{what} [{on}]"), "-", series, false))
    .collect();
    let all = format!("the four together; used: beyond the same between others [{on}]");
    let used_us = Some(us(samples.costs().cold_start_ns));
    rows.push(Row { used_us, ..row("cold", all, "-", samples.of(Series::ColdAll), false) });
    rows
}
