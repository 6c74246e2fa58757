//! The running figures: a table that redraws itself on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};

use punctual::{Instant, Nanos};
use punctual_os::clock::now;

use super::outcome::Refused;
use crate::excuse::Excuses;
use crate::measure::throughput::mbit_per_s;
use crate::report::Table;
use crate::testbed::{Privilege, System, Track};

/// How often plain lines are printed.
const PLAIN_EVERY: Nanos = Nanos::from_secs(2);

/// Shows all tracks.
pub struct LiveTable {
    terminal: bool,
    show: bool,
    begun: Instant,
    lines: usize,
    last_plain: Instant,
}

impl LiveTable {
    /// Prints the constant part; `show`: whether to print anything.
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

    /// Draws the figures of all tracks; it is the turn of one of them.
    pub fn show(&mut self, tracks: &[Track; 3], turn: usize, excuses: &Excuses) {
        if !self.show {
            return;
        }
        if self.terminal {
            self.draw(tracks, turn, excuses);
        } else if now().since(self.last_plain) >= PLAIN_EVERY {
            self.last_plain = now();
            self.draw(tracks, turn, excuses);
        }
    }

    /// Leaves the last table standing.
    pub fn end(&mut self) {
        self.lines = 0;
        if self.show {
            println!();
        }
    }

    fn draw(&mut self, tracks: &[Track; 3], turn: usize, excuses: &Excuses) {
        let seconds = now().since(self.begun).as_secs_f64();
        let mut text = format!("{seconds:5.1} s   now: {}\n", tracks[turn].system().name());
        text += &rows(tracks, excuses).text();
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

/// The columns of the live table and of the report's table.
pub const COLUMNS: [&str; 10] =
    ["stream", "bound", "through", "p50 ms", "p99", "max", "missed", "in holes", "policed", "Mbit/s"];

fn rows(tracks: &[Track; 3], excuses: &Excuses) -> Table {
    let mut table = Table::new(&COLUMNS).with_words(3);
    let views = tracks.each_ref().map(|track| track.views(excuses));
    for (index, (spec, _)) in views[0].iter().enumerate() {
        let promised = spec.deadline();
        for (track, views) in tracks.iter().zip(&views) {
            let view = &views[index].1;
            let counted = |count: u64| promised.map_or("-".into(), |_| count.to_string());
            let mut row = head(spec.name, promised.map(Nanos::as_millis_f64), track.system()).to_vec();
            row.extend(view.latencies.cells());
            row.extend([counted(view.late + view.excused), counted(view.excused), counted(view.refused)]);
            row.push(format!("{:.1}", mbit_per_s(view.delivered_bytes, track.loaded_so_far())));
            table.rows.push(row);
        }
    }
    table
}

/// Stream, bound, system: the first two only once for all systems.
pub fn head(stream: &str, bound_ms: Option<f64>, system: System) -> [String; 3] {
    let first = system == System::Punctual;
    let bound = bound_ms.map_or("-".into(), |ms| format!("{ms:.0} ms"));
    let once = |text: String| if first { text } else { String::new() };
    [once(stream.into()), once(bound), system.name().into()]
}
