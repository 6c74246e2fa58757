//! Which modules of a crate use each other, at every level of its tree of modules.
//!
//! A path in the code leads to the module that defines the item: re-exports (`use` and `pub use`) are followed. So it is found
//! that `stages::held` uses `stages::buffers`, although it names `super::Reserved` only. This reads Rust as rustfmt lays it
//! out; a name that it cannot follow counts for the module in which it is looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{code, crates, sources, text};

/// A module, by the names from the crate's root on.
pub type Module = Vec<String>;
/// What uses what: module -> modules.
pub type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// One imported name: its path, and the name that it has here. `None`: everything in the path.
type Import = (Vec<String>, Option<String>);

/// One module as it is read.
#[derive(Default)]
struct Read {
    /// Names of items that are defined here.
    defines: BTreeSet<String>,
    /// Imports that other modules cannot see, or can.
    imports: Vec<(Import, bool)>,
    /// The module's code without imports, comments and tests.
    code: String,
}

/// The modules of one crate.
pub struct Tree(BTreeMap<Module, Read>);

const ITEMS: [&str; 8] = ["struct ", "enum ", "trait ", "fn ", "type ", "const ", "static ", "union "];

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    &text[..end]
}

/// Adds the imports of the tree behind `use`, below `path`. Returns what follows it.
fn imports<'a>(tree: &'a str, mut path: Vec<String>, found: &mut Vec<Import>) -> &'a str {
    let mut rest = tree.trim_start();
    loop {
        if let Some(list) = rest.strip_prefix('{') {
            rest = list;
            loop {
                rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                match rest.strip_prefix('}') {
                    Some(behind) => return behind,
                    None if rest.is_empty() => return rest,
                    None => rest = imports(rest, path.clone(), found),
                }
            }
        }
        if let Some(behind) = rest.strip_prefix('*') {
            found.push((path, None));
            return behind;
        }
        let name = word(rest);
        if name.is_empty() {
            return rest.get(1..).unwrap_or_default();
        }
        path.push(name.to_owned());
        rest = &rest[name.len()..];
        if let Some(behind) = rest.strip_prefix("::") {
            rest = behind;
            continue;
        }
        let renamed = rest.strip_prefix(" as ").map(word);
        rest = &rest[renamed.map_or(0, |name| name.len() + " as ".len())..];
        let here = renamed.unwrap_or(name).to_owned();
        found.push((path, Some(here)));
        return rest;
    }
}

/// Paths that begin with one of `starts`, without their generic arguments.
fn paths<'a>(code: &'a str, start: &'a str) -> impl Iterator<Item = Vec<String>> + 'a {
    code.match_indices(start).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == ':') {
            return None;
        }
        let mut path = Vec::new();
        let mut rest = &code[at..];
        loop {
            let name = word(rest);
            if name.is_empty() {
                break;
            }
            path.push(name.to_owned());
            rest = match rest[name.len()..].strip_prefix("::") {
                Some(behind) => behind,
                None => break,
            };
        }
        (path.len() > 1).then_some(path)
    })
}

impl Read {
    /// Reads a file.
    fn of(text: &str) -> Self {
        let mut read = Self::default();
        let mut lines = code(text);
        while let Some(line) = lines.next() {
            let bare = line.trim_start();
            let shown = bare.starts_with("pub");
            let item = visibility_removed(bare);
            if let Some(tree) = item.strip_prefix("use ") {
                let mut tree = tree.to_owned();
                while !tree.contains(';') {
                    tree.push_str(lines.next().unwrap_or(";").trim_start());
                }
                let mut found = Vec::new();
                imports(&tree, Vec::new(), &mut found);
                read.imports.extend(found.into_iter().map(|import| (import, shown)));
                continue;
            }
            let item =
                ["unsafe ", "async "].iter().fold(item, |item, word| item.strip_prefix(word).unwrap_or(item));
            let item = item.strip_prefix("const fn ").map_or(item, |_| &item["const ".len()..]);
            let name = ITEMS.iter().find_map(|kind| item.strip_prefix(kind)).map(word);
            read.defines.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
            read.code.push_str(item);
            read.code.push('\n');
        }
        read
    }
}

/// An item without `pub(...)`, whose path is no use of a module.
fn visibility_removed(item: &str) -> &str {
    match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(item, |(_, rest)| rest),
        Some(rest) => rest.strip_prefix(' ').unwrap_or(item),
        None => item,
    }
}

impl Tree {
    /// Reads a crate by the name of its folder in `crates`. Modules of tests are left out.
    pub fn of_crate(name: &str) -> Self {
        Self::of_sources(&crates().join(name))
    }

    /// Reads the crate in `folder`.
    pub fn of_sources(folder: &Path) -> Self {
        let root = folder.join("src");
        let module = |file: &Path| {
            let inside = file.strip_prefix(&root).expect("below the root").with_extension("");
            let mut parts: Module = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if ["mod", "lib", "main"].contains(&parts.last().expect("a name").as_str()) {
                parts.pop();
            }
            (!parts.iter().any(|part| part == "tests")).then_some(parts)
        };
        let files = sources(&root);
        Self::of(files.iter().filter_map(|file| Some((module(file)?, text(file)))))
    }

    /// Reads modules that are given as text.
    pub fn of(texts: impl IntoIterator<Item = (Module, String)>) -> Self {
        Self(texts.into_iter().map(|(module, text)| (module, Read::of(&text))).collect())
    }

    /// Whether there is such a module.
    pub fn has(&self, module: &[String]) -> bool {
        self.0.contains_key(module)
    }

    /// Whether a module at the root has modules of its own.
    pub fn is_folder(&self, module: &str) -> bool {
        self.0.keys().any(|other| other.len() > 1 && other[0] == module)
    }

    /// A path that begins in `module`, from the crate's root on; `None` for those of other crates.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let (_, above) = module.split_last()?;
                match rest.first() {
                    Some(next) if next == "super" => self.absolute(above, rest),
                    _ => Some([above, rest].concat()),
                }
            }
            _ => {
                let below = [module, &path[..1]].concat();
                self.0.contains_key(&below).then(|| [module, path].concat())
            }
        }
    }

    /// The module that defines what a path from the root leads to; `None` for a module itself, and for an item of another
    /// crate.
    fn defining(&self, path: &[String], seen: &mut BTreeSet<Vec<String>>) -> Option<Module> {
        let depth = (1..=path.len()).take_while(|length| self.0.contains_key(&path[..*length])).count();
        let (module, rest) = path.split_at(depth);
        let name = rest.first()?;
        let read = self.0.get(module)?;
        if read.defines.contains(name) || !seen.insert(path[..=depth].to_vec()) {
            return Some(module.to_vec());
        }
        for ((from, here), _) in &read.imports {
            let found = match here {
                Some(here) if here == name => {
                    let from = self.absolute(module, from)?;
                    return self.defining(&[&from, &rest[1..]].concat(), seen);
                }
                Some(_) => None,
                None => self
                    .absolute(module, from)
                    .filter(|from| self.0.get(from).is_some_and(|read| read.defines.contains(name))),
            };
            if found.is_some() {
                return found;
            }
        }
        Some(module.to_vec())
    }

    /// Which module uses which.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, read) in &self.0 {
            let mut named: Vec<Vec<String>> = Vec::new();
            for ((path, here), shown) in &read.imports {
                let Some(whole) = self.absolute(module, path).filter(|_| !shown) else { continue };
                match here {
                    // An imported module is used where its name occurs.
                    Some(here) if self.0.contains_key(&whole) => {
                        let start = format!("{here}::");
                        let behind = paths(&read.code, &start).map(|path| [&whole, &path[1..]].concat());
                        named.extend(behind.collect::<Vec<_>>());
                    }
                    Some(_) => named.push(whole),
                    None => {
                        uses.entry(module.clone()).or_default().insert(whole);
                    }
                }
            }
            let below =
                self.0.keys().filter(|other| other.len() == module.len() + 1 && other.starts_with(module));
            let starts = below.map(|other| format!("{}::", other[module.len()]));
            for start in ["crate::", "super::", "self::"].map(str::to_owned).into_iter().chain(starts) {
                named.extend(paths(&read.code, &start).filter_map(|path| self.absolute(module, &path)));
            }
            let used = named.iter().filter_map(|path| self.defining(path, &mut BTreeSet::new()));
            uses.entry(module.clone()).or_default().extend(used.filter(|used| used != module));
        }
        uses
    }

    /// Circles of modules that are neighbours in the tree, each with all that is below it: their parent, and their names. A
    /// module and what is below it are one module in several files: they may use each other.
    pub fn circles(&self) -> Vec<(String, Vec<String>)> {
        let mut levels: BTreeMap<Module, Uses> = BTreeMap::new();
        for (module, used) in self.uses() {
            for used in used {
                let same = module.iter().zip(&used).take_while(|(one, other)| one == other).count();
                if let (Some(one), Some(other)) = (module.get(same), used.get(same)) {
                    let level = levels.entry(module[..same].to_vec()).or_default();
                    level.entry(vec![one.clone()]).or_default().insert(vec![other.clone()]);
                }
            }
        }
        let circle = |(parent, uses): (Module, Uses)| {
            let names: Vec<String> =
                uses.keys().filter(|name| reaches(&uses, name, name)).flatten().cloned().collect();
            (!names.is_empty()).then(|| (parent.join("::"), names))
        };
        levels.into_iter().filter_map(circle).collect()
    }
}

/// Whether `from` comes to `to` by what uses what.
pub fn reaches(uses: &Uses, from: &Module, to: &Module) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if used == to {
                return true;
            }
            if seen.insert(used) {
                next.push(used);
            }
        }
    }
    false
}
