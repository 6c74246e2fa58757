//! A self-contained page: tables and inline SVG.

use std::fmt::Write;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Column heads.
    pub head: Vec<String>,
    /// Rows of cells; a cell that begins with `!` is shown as bad, with `+` as good.
    pub rows: Vec<Vec<String>>,
    /// How many of the first columns hold words: they begin at the left. The others hold numbers and end at the right.
    pub words: usize,
}

impl Table {
    /// A table with these columns, the first one of words.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&name| name.into()).collect(), rows: Vec::new(), words: 1 }
    }

    /// A table with these columns, a comma and a blank between them.
    pub fn with_columns(columns: &str) -> Self {
        Self::new(&columns.split(", ").collect::<Vec<_>>())
    }

    /// A table with a row for each of `items`.
    pub fn of<T, const N: usize>(
        head: [&str; N],
        items: impl IntoIterator<Item = T>,
        row: impl Fn(T) -> [String; N],
    ) -> Self {
        let rows = items.into_iter().map(|item| row(item).to_vec()).collect();
        Self { rows, ..Self::new(&head) }
    }

    /// This table with this number of columns of words.
    #[must_use]
    pub fn with_words(self, words: usize) -> Self {
        Self { words, ..self }
    }

    /// The table as plain text in columns.
    pub fn text(&self) -> String {
        let plain = |cell: &str| cell.strip_prefix(['!', '+']).unwrap_or(cell).to_owned();
        let rows: Vec<Vec<String>> = std::iter::once(self.head.clone())
            .chain(self.rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()))
            .collect();
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let mut text = String::new();
        for row in rows {
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) =
                    if column < self.words { ("", padding.as_str()) } else { (padding.as_str(), "") };
                text += &format!("{}{before}{cell}{after}", if column == 0 { "" } else { "  " });
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

const STYLE: &str = "\
:root{--ink:#282c34;--dim:#667080;--line:#e2e5ea;--good:#00795a;--bad:#b3261e}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);max-width:1260px;margin:2rem auto;padding:0 1.2rem}\
h1{font-size:1.7rem;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2.2rem 0 .6rem}\
p{max-width:50rem}.dim{color:var(--dim)}\
.verdict{font-size:1.15rem;font-weight:600;padding:.7rem 1rem;border-left:5px solid var(--dim);background:#f6f7f9}\
.verdict.good{border-color:var(--good);color:var(--good)}.verdict.bad{border-color:var(--bad);color:var(--bad)}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem;margin:.6rem 0}\
th,td{padding:.32rem .55rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th.word,td.word{text-align:left}th{color:var(--dim);font-weight:600}\
td.good{color:var(--good);font-weight:600}td.bad{color:var(--bad);font-weight:600}\
.plots{display:flex;flex-wrap:wrap;gap:1rem}.plots svg{max-width:100%;height:auto;border:1px solid var(--line)}\
.wide{overflow-x:auto}";

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Self { title: title.into(), body: format!("<h1>{}</h1>\n", escape(title)) }
    }

    /// A section.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        self.add(format_args!("<h2>{}</h2>", escape(text)))
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.add(format_args!("<p>{}</p>", escape(text)))
    }

    /// A paragraph that may be passed over.
    pub fn note(&mut self, text: &str) -> &mut Self {
        self.add(format_args!("<p class=\"dim\">{}</p>", escape(text)))
    }

    /// The outcome; `good`: `None` if the run proves nothing.
    pub fn verdict(&mut self, good: Option<bool>, text: &str) -> &mut Self {
        let class = match good {
            Some(true) => "verdict good",
            Some(false) => "verdict bad",
            None => "verdict",
        };
        self.add(format_args!("<p class=\"{class}\">{}</p>", escape(text)))
    }

    /// A table.
    pub fn table(&mut self, table: &Table) -> &mut Self {
        let is_word = |column: usize| column < table.words;
        let title = |(column, cell): (usize, &String)| {
            format!("<th{}>{}</th>", if is_word(column) { " class=\"word\"" } else { "" }, escape(cell))
        };
        let head: String = table.head.iter().enumerate().map(title).collect();
        let line = |row: &Vec<String>| -> String {
            row.iter().enumerate().map(|(column, cell)| data(cell, is_word(column))).collect()
        };
        let rows: String = table.rows.iter().map(|row| format!("<tr>{}</tr>\n", line(row))).collect();
        self.add(format_args!("<div class=\"wide\"><table><tr>{head}</tr>\n{rows}</table></div>"))
    }

    /// SVG documents side by side.
    pub fn plots(&mut self, documents: &[String]) -> &mut Self {
        self.add(format_args!("<div class=\"plots\">\n{}</div>", documents.concat()))
    }

    /// The page.
    pub fn finish(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>{}</title>\n\
             <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head>\n\
             <body>\n{}</body></html>\n",
            escape(&self.title),
            self.body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) -> &mut Self {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
        self
    }
}

fn data(cell: &str, is_word: bool) -> String {
    if is_word {
        return format!("<td class=\"word\">{}</td>", escape(cell));
    }
    match (cell.strip_prefix('!'), cell.strip_prefix('+')) {
        (Some(bad), _) => format!("<td class=\"bad\">{}</td>", escape(bad)),
        (_, Some(good)) => format!("<td class=\"good\">{}</td>", escape(good)),
        _ => format!("<td>{}</td>", escape(cell)),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_cells_are_marked() {
        let mut table = Table::new(&["name", "misses"]);
        table.rows.push(vec!["<video>".into(), "!3".into()]);
        table.rows.push(vec!["loop".into(), "+0".into()]);
        let page = Page::new("a & b").table(&table).verdict(Some(false), "3 < 4").finish();
        assert!(page.contains("<title>a &amp; b</title>"));
        assert!(page.contains("<td class=\"word\">&lt;video&gt;</td><td class=\"bad\">3</td>"));
        assert!(page.contains("<td class=\"good\">0</td>"));
        assert!(page.contains("verdict bad\">3 &lt; 4"));
    }

    #[test]
    fn tables_line_up_as_text() {
        let mut table = Table::new(&["name", "n"]);
        table.rows.push(vec!["a long name".into(), "!5".into()]);
        assert_eq!(table.text(), "name         n\na long name  5\n");
    }
}
