//! Results: the table, its JSON, the known seeds, and the section of docs/GUARANTEES.md.

use std::fmt;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::catchers::Catcher;
use crate::faults::Fault;

/// First detection of each fault in the last complete search: a name and a number per line.
const KNOWN: &str = include_str!("known.txt");
const HEADING: &str = "## Mutation check";

/// The result for one fault.
pub struct Row {
    pub fault_name: &'static str,
    pub catcher: Catcher,
    /// The first seed or set that shows the fault, and how.
    pub caught: Option<(u64, String)>,
    /// The same for the core without a fault: there must be none.
    pub honest: Option<(u64, String)>,
    /// Time of the search for the fault.
    pub took: Duration,
}

impl Row {
    pub fn holds(&self) -> bool {
        self.caught.is_some() && self.honest.is_none()
    }

    fn place(&self) -> String {
        let unit = self.catcher.limit().0;
        self.caught.as_ref().map_or("SURVIVES".into(), |(at, _)| format!("{unit} {at}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.caught.as_ref().map_or("", |(_, what)| what);
        let what: String = what.chars().take(150).collect();
        write!(
            f,
            "{:<62} {:<32} {:<64} {:<10} {:>5.1} s {what}",
            self.fault_name,
            self.catcher.name(),
            self.catcher.configuration(),
            self.place(),
            self.took.as_secs_f64()
        )?;
        match &self.honest {
            Some((at, what)) => write!(f, "\n  THE CORE WITHOUT A FAULT IS CAUGHT at {at}: {what}"),
            None => Ok(()),
        }
    }
}

fn key(fault: &Fault) -> String {
    format!("{:?}", fault.mutation)
}

/// The known first seed that detects the fault.
pub fn known(fault: &Fault) -> Option<u64> {
    let key = key(fault);
    let line = KNOWN.lines().find_map(|line| line.strip_prefix(&key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

pub fn json(rows: &[(&Fault, Row)]) -> Value {
    let row = |(fault, row): &(&Fault, Row)| {
        let at =
            |found: &Option<(u64, String)>| found.as_ref().map(|(at, what)| json!({"at": at, "what": what}));
        json!({
            "fault": key(fault), "name": row.fault_name, "catcher": row.catcher.name(),
            "configuration": row.catcher.configuration(), "unit": row.catcher.limit().0,
            "limit": row.catcher.limit().1, "caught": at(&row.caught), "without_fault": at(&row.honest),
            "seconds": row.took.as_secs_f64(), "holds": row.holds(),
        })
    };
    json!({"faults": rows.iter().map(row).collect::<Vec<_>>(), "holds": rows.iter().all(|(_, row)| row.holds())})
}

/// Stores the first seeds, and the table in docs/GUARANTEES.md.
pub fn write(rows: &[(&Fault, Row)]) -> Result<(), String> {
    let mut known = String::new();
    let mut table = format!(
        "{HEADING}\n\nDo the checkers find a mistake? Each fault in the table was made on purpose (`crates/analysis/src/mutation.rs`; \
         released builds do\nnot contain them). `make mutations` fails if a fault is not found within 500 seeds or 20,000 sets, or \
         if a checker reports a fault\nin code that has none. `make test` runs only the first seed or set that is known to find each \
         fault.\n`cargo test --release -p punctual-sim --features mutations --test mutations -- --write` writes this table. The \
         last column is the\ntime of the search from the first seed or set on.\n\n\
         | fault | catcher | configuration | caught at | time |\n|---|---|---|---|---|\n"
    );
    for (fault, row) in rows {
        if let Some((at, _)) = &row.caught {
            let _ = writeln!(known, "{} {at}", key(fault));
        }
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {:.1} s |",
            row.fault_name,
            row.catcher.name(),
            row.catcher.configuration(),
            row.place(),
            row.took.as_secs_f64()
        );
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    save(&here.join("tests/mutations/known.txt"), &known)?;
    let guarantees = here.join("../../docs/GUARANTEES.md");
    let text =
        std::fs::read_to_string(&guarantees).map_err(|error| format!("{}: {error}", guarantees.display()))?;
    save(&guarantees, &with_section(&text, &table))
}

/// `text` with `section` in place of the one with its heading, or appended.
fn with_section(text: &str, section: &str) -> String {
    let Some(begin) = text.find(HEADING) else { return format!("{}\n\n{section}", text.trim_end()) };
    let behind = &text[begin + HEADING.len()..];
    let rest = behind.find("\n## ").map_or("", |next| &behind[next..]);
    format!("{}{section}{rest}", &text[..begin])
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
