//! Rust's names for IDL's: in Rust's case, no keywords, each once in its module.

use std::collections::{HashMap, HashSet};

use crate::model::{DefinitionId, Kind, ROOT, Specification};

/// Words that cannot be names, even raw.
const NEVER: &[&str] = &["self", "Self", "super", "crate", "_"];

/// Keywords of Rust.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that generated code uses for something else.
const TAKEN: &[&str] = &["Box", "Err", "None", "Ok", "Option", "Result", "Some", "String", "Vec"];

/// Words of a name: at underscores, and where a capital follows a small letter or ends a row of capitals.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let chars: Vec<char> = name.chars().collect();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let begins = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase() || chars.get(at + 1).is_some_and(char::is_ascii_lowercase)
            });
        if (c == '_' || begins) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c != '_' {
            word.push(c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn usable(name: String) -> String {
    if NEVER.contains(&&*name) || name.is_empty() {
        return name + "_";
    }
    if KEYWORDS.contains(&&*name) { format!("r#{name}") } else { name }
}

/// `LikeThis`, for types and variants.
pub(super) fn camel(name: &str) -> String {
    let word = |word: &String| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    };
    let mut camel = String::new();
    for one in words(name).iter().map(word) {
        // Digits of two words stay apart.
        if camel.ends_with(|c: char| c.is_ascii_digit()) && one.starts_with(|c: char| c.is_ascii_digit()) {
            camel.push('_');
        }
        camel.push_str(&one);
    }
    let camel = usable(camel);
    if TAKEN.contains(&&*camel) { camel + "_" } else { camel }
}

/// `like_this`, for members, operations and modules.
pub(super) fn snake(name: &str) -> String {
    usable(words(name).join("_").to_ascii_lowercase())
}

/// The method of an operation: none that its client has from a trait of Rust.
pub(super) fn method(name: &str) -> String {
    let snake = snake(name);
    if matches!(&*snake, "clone" | "cmp") { snake + "_" } else { snake }
}

/// `LIKE_THIS`, for constants.
pub(super) fn screaming(name: &str) -> String {
    words(name).join("_").to_ascii_uppercase()
}

/// `name`, or with underscores if it is taken.
pub(super) fn unique(taken: &mut HashSet<String>, mut name: String) -> String {
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Names of all definitions.
pub(super) struct Names {
    items: HashMap<DefinitionId, String>,
    modules: HashMap<DefinitionId, String>,
    interfaces: HashMap<DefinitionId, InterfaceNames>,
}

/// What is generated for an interface beside its reference.
struct InterfaceNames {
    client: String,
    servant: String,
    skeleton: String,
    operations: String,
}

impl Names {
    pub fn new(specification: &Specification) -> Self {
        let mut names = Self { items: HashMap::new(), modules: HashMap::new(), interfaces: HashMap::new() };
        let scopes = std::iter::once(ROOT).chain(specification.all().map(|(id, _)| id));
        for scope in scopes {
            names.add_scope(specification, scope);
        }
        names
    }

    fn add_scope(&mut self, specification: &Specification, scope: DefinitionId) {
        let (mut types, mut values) = (HashSet::from(["giop".to_owned(), "orb".to_owned()]), HashSet::new());
        for &child in specification.get(scope).children() {
            let definition = specification.get(child);
            let name = definition.name();
            match definition.kind() {
                Kind::Constant(..) => drop(self.items.insert(child, unique(&mut values, screaming(name)))),
                Kind::Enumerator(..) => {}
                // The type of its errors.
                Kind::Operation(_) | Kind::Attribute(_) => {
                    self.items.insert(
                        child,
                        unique(&mut types, camel(name).trim_end_matches('_').to_owned() + "Error"),
                    );
                }
                Kind::Module => drop(self.modules.insert(child, unique(&mut types, snake(name)))),
                _ => {
                    self.items.insert(child, unique(&mut types, camel(name)));
                    self.modules.insert(child, unique(&mut types, snake(name)));
                }
            }
            if let Kind::Enum(enumerators) = definition.kind() {
                let mut variants = HashSet::new();
                for &one in enumerators {
                    self.items.insert(one, unique(&mut variants, camel(specification.get(one).name())));
                }
            }
        }
        for &child in specification.get(scope).children() {
            if let Kind::Interface(_) = specification.get(child).kind() {
                let of = |what: &str, taken: &mut HashSet<String>| {
                    unique(taken, format!("{}{what}", self.item(child).trim_end_matches('_')))
                };
                let names = InterfaceNames {
                    client: of("Client", &mut types),
                    servant: of("Servant", &mut types),
                    skeleton: of("Skeleton", &mut types),
                    operations: unique(&mut values, screaming(self.item(child)) + "_OPERATIONS"),
                };
                self.interfaces.insert(child, names);
            }
        }
    }

    /// What calls objects with an interface.
    pub fn client(&self, id: DefinitionId) -> &str {
        self.interfaces.get(&id).map_or("", |names| &names.client)
    }

    /// The trait of an interface's servants.
    pub fn servant(&self, id: DefinitionId) -> &str {
        self.interfaces.get(&id).map_or("", |names| &names.servant)
    }

    /// What an ORB calls for an interface.
    pub fn skeleton(&self, id: DefinitionId) -> &str {
        self.interfaces.get(&id).map_or("", |names| &names.skeleton)
    }

    /// The operations of an interface.
    pub fn operations(&self, id: DefinitionId) -> &str {
        self.interfaces.get(&id).map_or("", |names| &names.operations)
    }

    /// The name of a type, a constant or a variant.
    pub fn item(&self, id: DefinitionId) -> &str {
        self.items.get(&id).map_or("", String::as_str)
    }

    /// The module for what is declared in a definition.
    pub fn module(&self, id: DefinitionId) -> &str {
        self.modules.get(&id).map_or("", String::as_str)
    }

    /// The modules in which a definition is, outermost first.
    fn modules(&self, specification: &Specification, id: DefinitionId) -> Vec<&str> {
        let (mut path, mut here) = (Vec::new(), specification.get(id).parent());
        while here != ROOT {
            path.push(self.module(here));
            here = specification.get(here).parent();
        }
        path.reverse();
        path
    }

    /// How code beside `from` names `to`.
    pub fn path(&self, specification: &Specification, from: DefinitionId, to: DefinitionId) -> String {
        self.path_of(specification, from, to, self.item(to))
    }

    /// How code beside `from` names the trait of an interface's servants.
    pub fn servant_path(
        &self,
        specification: &Specification,
        from: DefinitionId,
        to: DefinitionId,
    ) -> String {
        self.path_of(specification, from, to, self.servant(to))
    }

    /// How code beside `from` names `name`, which is beside `to`.
    fn path_of(
        &self,
        specification: &Specification,
        from: DefinitionId,
        to: DefinitionId,
        name: &str,
    ) -> String {
        let (here, there) = (self.modules(specification, from), self.modules(specification, to));
        let common = here.iter().zip(&there).take_while(|(one, other)| one == other).count();
        let mut path = vec!["super"; here.len() - common];
        path.extend(&there[common..]);
        path.push(name);
        path.join("::")
    }
}
