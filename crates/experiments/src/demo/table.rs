//! The running figures: a table that redraws itself on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};

use punctual::{Instant, Nanos};

use super::column;
use super::outcome::Refused;
use crate::clock::now;
use crate::excuse::Excuses;
use crate::measure::throughput::mbit_per_s;
use crate::report::Table;
use crate::session::{System, Track};
use crate::testbed::Privilege;

/// How often plain lines are printed.
const PLAIN_EVERY: Nanos = Nanos::from_secs(2);

/// Shows two tracks.
pub struct LiveTable {
    terminal: bool,
    show: bool,
    begun: Instant,
    lines: usize,
    last_plain: Instant,
}

impl LiveTable {
    /// Prints what is fixed; `show`: whether anything is printed at all.
    pub fn new(show: bool, privilege: Privilege, refused: &Refused) -> Self {
        if show {
            println!("a - r - b: {}", privilege.explain());
            println!("asked for one channel too many: {}", refused.wanted);
            let offer = refused.offer.as_deref().unwrap_or("nothing");
            println!("  refused: {}; offered instead: {offer}\n", refused.reason);
        }
        let begun = now();
        Self { terminal: std::io::stdout().is_terminal(), show, begun, lines: 0, last_plain: Instant::ZERO }
    }

    /// Draws the figures of the running track and of the other one.
    pub fn show(&mut self, running: &Track, other: &Track, excuses: &Excuses) {
        if !self.show {
            return;
        }
        if self.terminal {
            self.draw(running, other, excuses);
        } else if now().since(self.last_plain) >= PLAIN_EVERY {
            self.last_plain = now();
            self.draw(running, other, excuses);
        }
    }

    /// Leaves the last table standing.
    pub fn end(&mut self) {
        self.lines = 0;
        if self.show {
            println!();
        }
    }

    fn draw(&mut self, running: &Track, other: &Track, excuses: &Excuses) {
        let seconds = now().since(self.begun).as_secs_f64();
        let mut text = format!("{seconds:5.1} s   now: {}\n", running.system().name());
        text += &rows(running, other, excuses).text();
        let mut out = std::io::stdout().lock();
        if self.terminal && self.lines > 0 {
            // Up to the table's first line; each line is cleared before it is written.
            let _ = write!(out, "\x1b[{}A", self.lines);
        }
        let clear = if self.terminal { "\x1b[K" } else { "" };
        for line in text.lines() {
            let _ = writeln!(out, "{clear}{line}");
        }
        let _ = out.flush();
        self.lines = text.lines().count();
    }
}

/// The columns of the live table and of the report's.
pub const COLUMNS: [&str; 14] = [
    "stream",
    "bound",
    "p50 ms",
    "p99",
    "max",
    "misses",
    "excused",
    "policed",
    "Mbit/s",
    "| kernel p50 ms",
    "p99",
    "max",
    "misses",
    "Mbit/s",
];

fn rows(running: &Track, other: &Track, excuses: &Excuses) -> Table {
    let mut table = Table::new(&COLUMNS);
    let mut tracks = [running, other];
    tracks.sort_by_key(|track| column(track.system()));
    let [of_punctual, of_kernel] = tracks.map(|track| track.views(excuses));
    let spans = tracks.map(Track::loaded_so_far);
    for ((spec, ours), (_, theirs)) in of_punctual.iter().zip(&of_kernel) {
        let promised = spec.deadline();
        let bound = promised.map_or("-".into(), |deadline| format!("{:.0} ms", deadline.as_millis_f64()));
        let counted = |count: u64| promised.map_or("-".into(), |_| count.to_string());
        let mut row = vec![spec.name.into(), bound];
        row.extend(latency_cells(&ours.latencies));
        row.extend([counted(ours.late), counted(ours.excused), counted(ours.refused)]);
        row.push(format!("{:.1}", mbit_per_s(ours.delivered_bytes, spans[column(System::Punctual)])));
        row.extend(latency_cells(&theirs.latencies));
        // Nothing was promised there: as in the report, what came late did.
        row.push(counted(theirs.late + theirs.excused));
        row.push(format!("{:.1}", mbit_per_s(theirs.delivered_bytes, spans[column(System::Kernel)])));
        table.rows.push(row);
    }
    table
}

/// p50, p99, max.
pub fn latency_cells(latency: &crate::measure::LatencySummary) -> [String; 3] {
    if latency.samples == 0 {
        return ["-", "-", "-"].map(Into::into);
    }
    [latency.p50_ms, latency.p99_ms, latency.max_ms].map(|ms| format!("{ms:.2}"))
}
