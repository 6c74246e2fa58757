//! Repository identifiers (CORBA 10.7), and what is left when a file ends.

use super::{Draft, Name, Prefix, ScopedName, Scopes};
use crate::model::{Definition, DefinitionId, Kind, ROOT, Specification};
use crate::source::Location;

impl Scopes<'_> {
    /// `#pragma prefix`: from here to the end of the scope, and of the file.
    pub fn set_prefix(&mut self, text: &str) {
        let scope = self.here;
        // Without a prefix the identifier has all names again.
        let scope = if text.is_empty() { ROOT } else { scope };
        self.prefix = Prefix { text: text.into(), scope };
    }

    /// An included file begins: it has no prefix.
    pub fn enter_file(&mut self) {
        let outer = std::mem::replace(&mut self.prefix, Prefix { text: "".into(), scope: ROOT });
        self.outer_prefixes.push(outer);
    }

    /// An included file ends.
    pub fn leave_file(&mut self) {
        if let Some(outer) = self.outer_prefixes.pop() {
            self.prefix = outer;
        }
    }

    /// The name in a pragma, which has no place of its own.
    fn resolve_text(&mut self, at: Location, name: &str) -> Option<DefinitionId> {
        let is_absolute = name.starts_with("::");
        let name = name.trim_start_matches("::");
        let part = |text: &str| Name { text: text.strip_prefix('_').unwrap_or(text).into(), at };
        let parts = name.split("::").map(part).collect();
        self.resolve(&ScopedName { is_absolute, parts })
    }

    /// `#pragma ID`.
    pub fn pragma_id(&mut self, at: Location, name: &str, id: &str) {
        if let Some(of) = self.resolve_text(at, name) {
            self.set_id(at, of, id);
        }
    }

    /// `#pragma ID` or `typeid`: a definition has one identifier.
    pub fn set_id(&mut self, at: Location, of: DefinitionId, id: &str) {
        if !id.contains(':') || id.starts_with(':') {
            self.session.error(at, "a repository identifier has the form \"FORMAT:NAME\"");
        }
        match self.draft(of).id.replace(id.to_owned()) {
            Some(other) if other != id => {
                let name = self.full_name(of);
                self.session.error(at, format!("{name} already has the identifier \"{other}\""));
            }
            _ => {}
        }
    }

    /// `#pragma version`.
    pub fn pragma_version(&mut self, at: Location, name: &str, version: &str) {
        let parts = version.split_once('.');
        if parts.is_none_or(|(major, minor)| major.parse::<u16>().is_err() || minor.parse::<u16>().is_err()) {
            self.session.error(at, "a version has the form MAJOR.MINOR, each at most 65535");
            return;
        }
        let Some(of) = self.resolve_text(at, name) else { return };
        match self.draft(of).version.replace(version.to_owned()) {
            Some(other) if other != version => {
                let name = self.full_name(of);
                self.session.error(at, format!("{name} already has the version {other}"));
            }
            _ => {}
        }
    }

    /// `typeprefix`: for all identifiers in a scope, and for its own.
    pub fn set_type_prefix(&mut self, of: DefinitionId, prefix: &str) {
        self.draft(of).type_prefix = Some(prefix.to_owned());
    }

    fn repository_id(&self, id: DefinitionId) -> String {
        let draft = &self.drafts[id.0 as usize];
        if id == ROOT || matches!(draft.kind, Kind::Enumerator(..)) {
            return String::new();
        }
        if let Some(id) = &draft.id {
            return id.clone();
        }
        let (mut names, mut here, mut type_prefix) = (Vec::new(), id, None);
        while here != ROOT {
            let draft = &self.drafts[here.0 as usize];
            names.push((here, &*draft.name));
            type_prefix = type_prefix.or(draft.type_prefix.as_deref());
            here = draft.parent;
        }
        let (prefix, scope) = match type_prefix {
            Some(prefix) => (prefix, ROOT),
            None => (&*draft.prefix.text, draft.prefix.scope),
        };
        let of_scope = names.iter().take_while(|(here, _)| *here != scope).map(|(_, name)| *name);
        let mut path: Vec<&str> = of_scope.collect();
        if !prefix.is_empty() {
            path.push(prefix);
        }
        path.reverse();
        format!("IDL:{}:{}", path.join("/"), draft.version.as_deref().unwrap_or("1.0"))
    }

    /// The definitions, when all files are read.
    pub fn finish(self) -> Specification {
        for draft in &self.drafts {
            let is_missing = match &draft.kind {
                Kind::Struct(of) => !of.is_defined,
                Kind::Union(of) => !of.is_defined,
                _ => false,
            };
            if let Some(at) = draft.at.filter(|_| is_missing) {
                self.session.error(at, format!("\"{}\" is declared and never defined", draft.name));
            }
        }
        let ids: Vec<String> =
            (0..self.drafts.len()).map(|number| self.repository_id(DefinitionId(number as u32))).collect();
        let sources = &self.session.sources;
        let definition = |(draft, repository_id): (Draft, String)| Definition {
            name: draft.name.to_string(),
            parent: draft.parent,
            repository_id,
            position: draft.at.map(|at| sources.presumed(at)),
            is_included: draft.is_included,
            annotations: draft.annotations,
            children: draft.children,
            kind: draft.kind,
        };
        Specification { definitions: self.drafts.into_iter().zip(ids).map(definition).collect() }
    }
}
