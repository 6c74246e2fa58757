//! What names mean where they are used.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Entry, Name, ScopedName, Scopes, folded};
use crate::limits::{ANCESTORS_MAX, INHERITED_TOTAL_MAX};
use crate::model::{DefinitionId, Interface, Kind, ROOT, Type};
use crate::source::Location;

impl Scopes<'_> {
    /// The definition that a name means here. An error is reported, and `None`.
    pub fn resolve(&mut self, name: &ScopedName) -> Option<DefinitionId> {
        let (first, rest) = name.parts.split_first()?;
        let mut found = if name.is_absolute { self.find(ROOT, first)? } else { self.outward(first)? };
        let Some(mut here) = found.take() else {
            self.session.error(first.at, format!("\"{}\" is not declared{}", first.text, hint(&first.text)));
            return None;
        };
        for part in rest {
            let Some(next) = self.find(here, part)? else {
                let message = format!("\"{}\" is not declared in {}", part.text, self.full_name(here));
                let notes = self.note(here, format!("{} is declared here", self.full_name(here)));
                self.session.error_with(part.at, message, &notes);
                return None;
            };
            here = next;
        }
        Some(here)
    }

    /// As [`Scopes::resolve`] for an enumerator of `of`, which need not be visible here.
    pub fn resolve_enumerator(&mut self, name: &ScopedName, of: DefinitionId) -> Option<DefinitionId> {
        if let ([only], false) = (&*name.parts, name.is_absolute)
            && let Kind::Enum(enumerators) = self.kind(of)
        {
            let of_name = |id: &&DefinitionId| self.drafts[id.0 as usize].name == only.text;
            if let Some(&id) = enumerators.iter().find(of_name) {
                return Some(id);
            }
        }
        self.resolve(name)
    }

    /// Whether a name is declared here or around here. Not a use of it.
    pub fn is_declared(&self, name: &Name) -> bool {
        let mut scope = self.here;
        loop {
            if self.own(scope, &name.text).is_some() || !self.inherited(scope, &name.text).is_empty() {
                return true;
            }
            if scope == ROOT {
                return false;
            }
            scope = self.drafts[scope.0 as usize].parent;
        }
    }

    /// Searches the present scope and those around it, and takes the name in scopes that it is foreign to.
    fn outward(&mut self, name: &Name) -> Option<Option<DefinitionId>> {
        let mut scope = self.here;
        loop {
            if let Some(id) = self.find(scope, name)? {
                self.take_name(scope, id, name);
                return Some(Some(id));
            }
            if scope == ROOT {
                return Some(None);
            }
            scope = self.drafts[scope.0 as usize].parent;
        }
    }

    /// Notes the use of a name that `owner` (or a base of it) declares, in the present scope and in those around
    /// it up to a module.
    fn take_name(&mut self, owner: DefinitionId, id: DefinitionId, name: &Name) {
        let mut scope = self.here;
        loop {
            let entry = || Entry::Used(id, name.clone());
            let draft = self.draft(scope);
            draft.names.entry(folded(&name.text)).or_insert_with(entry);
            let (parent, is_module) = (draft.parent, draft.kind == Kind::Module);
            if scope == owner || is_module || matches!(self.kind(parent), Kind::Module) {
                return;
            }
            scope = parent;
        }
    }

    /// The definition of `name` in `scope` or in its bases. `None` after an error.
    fn find(&mut self, scope: DefinitionId, name: &Name) -> Option<Option<DefinitionId>> {
        let found = match self.drafts[scope.0 as usize].names.get(&folded(&name.text)) {
            Some(Entry::Declared(id)) => vec![*id],
            _ => self.inherited(scope, &name.text),
        };
        match *found {
            [] => Some(None),
            [id] => self.check_case(id, name).then_some(Some(id)),
            [one, other, ..] => {
                let mut notes = self.note(one, self.full_name(one));
                notes.extend(self.note(other, self.full_name(other)));
                let message = format!("\"{}\" is ambiguous: several bases declare it", name.text);
                self.session.error_with(name.at, message, &notes);
                None
            }
        }
    }

    fn check_case(&mut self, id: DefinitionId, name: &Name) -> bool {
        let declared = Rc::clone(&self.drafts[id.0 as usize].name);
        if declared == name.text {
            return true;
        }
        let notes = self.note(id, "it is declared here");
        let message =
            format!("\"{}\" is declared as \"{declared}\": names are used in the same case", name.text);
        self.session.error_with(name.at, message, &notes);
        false
    }

    /// What bases of `scope` declare under this name, without what other bases hide.
    fn inherited(&self, scope: DefinitionId, name: &str) -> Vec<DefinitionId> {
        let ancestors = match self.kind(scope) {
            Kind::Interface(interface) => interface.ancestors.clone(),
            Kind::Value(value) => value.bases.iter().chain(&value.supports).copied().collect(),
            Kind::Struct(of) => of.base.into_iter().collect(),
            _ => return Vec::new(),
        };
        let found: Vec<(DefinitionId, DefinitionId)> =
            ancestors.iter().filter_map(|&owner| Some((owner, self.own(owner, name)?))).collect();
        let hides = |owner: DefinitionId| {
            found.iter().any(|(other, _)| match self.kind(*other) {
                Kind::Interface(interface) => interface.ancestors.contains(&owner),
                _ => false,
            })
        };
        found.iter().filter(|(owner, _)| !hides(*owner)).map(|(_, id)| *id).collect()
    }

    /// The type behind aliases.
    pub fn behind_aliases(&self, type_: &Type) -> Type {
        let mut type_ = type_;
        while let Type::Named(id) = type_
            && let Kind::Alias(of) = self.kind(*id)
        {
            type_ = of;
        }
        type_.clone()
    }

    /// All interfaces that an interface with these bases inherits from. Reports bases that must not be together.
    pub fn ancestors(&mut self, at: Location, bases: &[DefinitionId]) -> Vec<DefinitionId> {
        let mut all: Vec<DefinitionId> = Vec::new();
        for &base in bases {
            let above = match self.kind(base) {
                Kind::Interface(Interface { ancestors, .. }) => ancestors.clone(),
                _ => Vec::new(),
            };
            for ancestor in above.into_iter().chain([base]) {
                if !all.contains(&ancestor) {
                    all.push(ancestor);
                }
            }
        }
        if all.len() > ANCESTORS_MAX {
            self.session.error(at, format!("an interface inherits from at most {ANCESTORS_MAX} others"));
            return Vec::new();
        }
        if bases.len() > 1 {
            self.check_bases(at, &all);
        }
        all
    }

    /// Bases must not have different operations or attributes of one name.
    fn check_bases(&mut self, at: Location, ancestors: &[DefinitionId]) {
        let mut callable: HashMap<Box<str>, DefinitionId> = HashMap::new();
        let mut clash = None;
        for ancestor in ancestors {
            let children = &self.drafts[ancestor.0 as usize].children;
            self.inherited += children.len() + 1;
            for &child in children {
                let draft = &self.drafts[child.0 as usize];
                if matches!(draft.kind, Kind::Operation(_) | Kind::Attribute(_))
                    && let Some(other) = callable.insert(folded(&draft.name), child)
                {
                    clash = clash.or(Some((other, child)));
                }
            }
        }
        if self.inherited > INHERITED_TOTAL_MAX {
            self.session.error(at, format!("interfaces inherit more than {INHERITED_TOTAL_MAX} names"));
            self.inherited = 0;
        }
        if let Some((one, other)) = clash {
            let mut notes = self.note(one, self.full_name(one));
            notes.extend(self.note(other, self.full_name(other)));
            let message = format!("two bases have \"{}\"", self.drafts[other.0 as usize].name);
            self.session.error_with(at, message, &notes);
        }
    }
}

/// What IDL calls a type that other languages have.
fn hint(name: &str) -> &'static str {
    match name {
        "int" | "int32_t" | "i32" => ": IDL has short, long and long long",
        "bool" => ": IDL calls it boolean",
        "byte" | "u8" | "uint8_t" => ": IDL calls it octet",
        "wchar_t" => ": IDL calls it wchar",
        "String" | "str" => ": IDL calls it string",
        "vector" | "list" | "Vec" => ": IDL calls it sequence",
        "object" => ": IDL calls it Object",
        _ => "",
    }
}
