//! Configuration files that are made from a small one by changes.

/// Key of the domain.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Lines of one table.
struct Table {
    name: &'static str,
    header: &'static str,
    lines: Vec<String>,
    /// False: the file has the table only if a change names it.
    is_written: bool,
}

impl Table {
    fn new(name: &'static str, header: &'static str, lines: &[&str]) -> Self {
        Self { name, header, lines: lines.iter().map(ToString::to_string).collect(), is_written: true }
    }

    fn if_named(mut self) -> Self {
        self.is_written = false;
        self
    }

    /// Puts a line in the place of the one with the same key; `!key` removes that.
    fn change(&mut self, line: &str) {
        self.is_written = true;
        let removed = line.strip_prefix('!');
        let key = removed.unwrap_or_else(|| key_of(line));
        self.lines.retain(|line| key_of(line) != key);
        if removed.is_none() {
            self.lines.push(line.to_owned());
        }
    }
}

fn key_of(line: &str) -> &str {
    line.split('=').next().unwrap_or(line).trim()
}

/// The small file: three hosts, and a link over kernel sockets to the neighbour b.
fn small() -> Vec<Table> {
    let key = format!("key = \"{KEY}\"");
    let link = ["driver = \"udp\"", "local = \"10.0.0.1\""];
    let to_b =
        [&["name = \"l\"", "neighbour = \"b\"", "rate = \"1Gbit/s\"", "peer = \"10.0.0.2\""], &link[..]];
    let to_c =
        [&["name = \"m\"", "neighbour = \"c\"", "rate = \"1Gbit/s\"", "peer = \"10.0.0.3\""], &link[..]];
    vec![
        Table::new("node", "[node]", &["name = \"a\""]),
        Table::new("processor", "[processor]", &[]),
        Table::new("priorities", "[processor.priorities]", &[]).if_named(),
        Table::new("level", "[[processor.priorities.level]]", &["period_max = \"10ms\"", "priority = 35"])
            .if_named(),
        Table::new("level2", "[[processor.priorities.level]]", &["period_max = \"5ms\"", "priority = 36"])
            .if_named(),
        Table::new("costs", "[processor.costs]", &[]).if_named(),
        Table::new("daemon", "[daemon]", &[]).if_named(),
        Table::new("tcp", "[[daemon.tcp]]", &[]).if_named(),
        Table::new("signalling", "[signalling]", &[&key]),
        Table::new("host a", "[[host]]", &["name = \"a\"", "id = 1"]),
        Table::new("host b", "[[host]]", &["name = \"b\"", "id = 2"]),
        Table::new("host", "[[host]]", &["name = \"c\"", "id = 3"]),
        Table::new("link", "[[link]]", &to_b.concat()),
        Table::new("link2", "[[link]]", &to_c.concat()).if_named(),
        Table::new("route", "[[route]]", &["via = [\"b\", \"c\"]"]).if_named(),
    ]
}

/// The small file with `changes`: `[table] key = value; key = value; [other] !key`.
pub fn with(changes: &str) -> String {
    let mut tables = small();
    let mut named = "";
    for change in changes.split("; ") {
        let line = match change.split_once("] ") {
            Some((table, line)) if table.starts_with('[') => {
                named = &table[1..];
                line
            }
            _ => change,
        };
        let table = tables.iter_mut().find(|table| table.name == named);
        table.unwrap_or_else(|| panic!("no table [{named}]: {changes}")).change(line);
    }
    text(&tables)
}

/// The small file, with one text replaced by another.
pub fn replaced(from: &str, to: &str) -> String {
    let text = text(&small());
    assert!(text.contains(from), "the small file has no {from}");
    text.replacen(from, to, 1)
}

fn text(tables: &[Table]) -> String {
    let written = tables.iter().filter(|table| table.is_written);
    written.map(|table| format!("{}\n{}\n", table.header, table.lines.join("\n"))).collect()
}
