//! An experiment that differs from another only in numbers is a function in the module of the other.

use super::EXPERIMENTS;

/// Most lines that such an experiment may cost: its function and its entry in the list.
const LINES_MAX: usize = 60;

/// One entry of the list.
#[derive(Debug)]
struct Entry<'a> {
    /// Path of the module, below this folder.
    module: String,
    function: &'a str,
    /// Lines of the entry.
    lines: usize,
}

impl<'a> Entry<'a> {
    /// Reads the text after `Experiment::new(`.
    fn of(text: &'a str) -> Self {
        let text = text.split("];").next().unwrap_or(text);
        let run = ["Measured(", "Simulated("].iter().find_map(|kind| Some(text.split_once(kind)?.1));
        let path = run.and_then(|run| run.split(')').next()).expect("what runs");
        let (module, function) = path.rsplit_once("::").expect("a function of a module");
        Self { module: module.replace("::", "/"), function, lines: text.trim_end().lines().count() }
    }

    /// Lines of the function.
    fn function_lines(&self) -> usize {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/experiments");
        let files = [format!("{folder}/{}.rs", self.module), format!("{folder}/{}/mod.rs", self.module)];
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).expect("the module");
        let head = format!("fn {}(", self.function);
        let lines = text.lines().skip_while(|line| !(line.starts_with("pub") && line.contains(&head)));
        let lines = lines.take_while(|line| *line != "}").count();
        assert!(lines > 0, "{self:?} is there");
        lines + 1
    }
}

#[test]
fn an_experiment_that_differs_in_numbers_alone_costs_sixty_lines_at_most() {
    let list = include_str!("../list.rs");
    let entries: Vec<Entry> = list.split("    Experiment::new(\n").skip(1).map(Entry::of).collect();
    assert_eq!(entries.len(), EXPERIMENTS.len());
    let shares = |entry: &&Entry| entries.iter().filter(|other| other.module == entry.module).count() > 1;
    let of_families: Vec<&Entry> = entries.iter().filter(shares).collect();
    assert!(of_families.len() >= 10, "experiments share modules: {of_families:?}");
    for entry in of_families {
        let lines = entry.lines + entry.function_lines();
        assert!(lines <= LINES_MAX, "{entry:?}: {lines} lines: move numbers to parameters of what runs them");
    }
}
