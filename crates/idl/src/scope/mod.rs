//! Names: where they are declared, what they mean where they are used, and when they clash (CORBA 3.20,
//! IDL 4.2 7.5).
//!
//! A name is declared once in a scope, whatever its case; it must be used in the case of its declaration. A use
//! of a name from outside of a scope takes the name there, too: the scope must not declare it afterwards.

mod identifiers;
mod lookup;

use std::collections::HashMap;
use std::rc::Rc;

use crate::diagnostic::{Session, TooMany};
use crate::limits::DEFINITIONS_MAX;
use crate::model::{Annotation, DefinitionId, Interface, Kind, ROOT};
use crate::source::Location;

/// An identifier where it is written, without the underscore that escapes it.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub text: Rc<str>,
    pub at: Location,
}

/// A name with scopes: `A::b`, or `::A::b`.
#[derive(Clone, Debug)]
pub(crate) struct ScopedName {
    pub is_absolute: bool,
    pub parts: Vec<Name>,
}

impl ScopedName {
    pub fn at(&self) -> Location {
        self.parts[0].at
    }

    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|part| &*part.text).collect();
        format!("{}{}", if self.is_absolute { "::" } else { "" }, parts.join("::"))
    }
}

/// What a name is in a scope.
#[derive(Clone, Debug)]
enum Entry {
    Declared(DefinitionId),
    /// A member or a parameter.
    Instance(Name),
    /// A definition from elsewhere, used here.
    Used(DefinitionId, Name),
}

/// The prefix of repository identifiers, and the scope in which it was set. The identifier has the names from
/// that scope on.
#[derive(Clone, Debug)]
struct Prefix {
    text: Rc<str>,
    scope: DefinitionId,
}

/// A definition as long as the file is read.
#[derive(Debug)]
pub(crate) struct Draft {
    name: Rc<str>,
    parent: DefinitionId,
    at: Option<Location>,
    pub kind: Kind,
    pub annotations: Vec<Annotation>,
    children: Vec<DefinitionId>,
    names: HashMap<Box<str>, Entry>,
    prefix: Prefix,
    id: Option<String>,
    version: Option<String>,
    type_prefix: Option<String>,
    is_included: bool,
}

/// All definitions of a run, and the scope that is being read.
pub(crate) struct Scopes<'a> {
    pub session: &'a mut Session,
    drafts: Vec<Draft>,
    here: DefinitionId,
    prefix: Prefix,
    /// Prefixes of the files that include the present one.
    outer_prefixes: Vec<Prefix>,
    inherited: usize,
}

/// What to return to when a scope ends.
pub(crate) struct Outer(DefinitionId, Prefix);

fn folded(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

impl<'a> Scopes<'a> {
    pub fn new(session: &'a mut Session) -> Self {
        let prefix = Prefix { text: "".into(), scope: ROOT };
        let mut new = Self {
            session,
            drafts: Vec::new(),
            here: ROOT,
            prefix,
            outer_prefixes: Vec::new(),
            inherited: 0,
        };
        new.push("".into(), None, Kind::Module);
        // What every file knows of the module CORBA without including orb.idl.
        let corba = new.push("CORBA".into(), None, Kind::Module);
        new.here = corba;
        let native = ["TypeCode", "Principal"].map(|name| new.push(name.into(), None, Kind::Native));
        new.here = ROOT;
        new.drafts[0].names.insert(folded("CORBA"), Entry::Declared(corba));
        for id in native {
            let name = folded(&new.drafts[id.0 as usize].name);
            new.draft(corba).names.insert(name, Entry::Declared(id));
        }
        new
    }

    fn push(&mut self, name: Rc<str>, at: Option<Location>, kind: Kind) -> DefinitionId {
        let id = DefinitionId(self.drafts.len() as u32);
        self.drafts.push(Draft {
            name,
            parent: self.here,
            at,
            kind,
            annotations: Vec::new(),
            children: Vec::new(),
            names: HashMap::new(),
            prefix: self.prefix.clone(),
            id: None,
            version: None,
            type_prefix: None,
            is_included: !self.outer_prefixes.is_empty(),
        });
        if id != self.here {
            self.drafts[self.here.0 as usize].children.push(id);
        }
        id
    }

    pub fn draft(&mut self, id: DefinitionId) -> &mut Draft {
        &mut self.drafts[id.0 as usize]
    }

    pub fn kind(&self, id: DefinitionId) -> &Kind {
        &self.drafts[id.0 as usize].kind
    }

    /// The scope that is being read.
    pub fn here(&self) -> DefinitionId {
        self.here
    }

    /// The name of a definition with its scopes.
    pub fn full_name(&self, id: DefinitionId) -> String {
        let mut names = Vec::new();
        let mut here = id;
        while here != ROOT {
            let draft = &self.drafts[here.0 as usize];
            names.push(&*draft.name);
            here = draft.parent;
        }
        names.reverse();
        names.join("::")
    }

    /// Where a definition is, for a note of an error.
    pub fn note(&self, id: DefinitionId, text: impl Into<String>) -> Vec<(Location, String)> {
        self.drafts[id.0 as usize].at.map(|at| (at, text.into())).into_iter().collect()
    }

    /// Begins to read the scope of a definition.
    pub fn enter(&mut self, id: DefinitionId) -> Outer {
        Outer(std::mem::replace(&mut self.here, id), self.prefix.clone())
    }

    /// Ends the scope that [`Scopes::enter`] began.
    pub fn leave(&mut self, outer: Outer) {
        (self.here, self.prefix) = (outer.0, outer.1);
    }

    /// Declares `name` in the present scope. After a clash there is a definition all the same, without a name.
    pub fn declare(&mut self, name: &Name, kind: Kind) -> Result<DefinitionId, TooMany> {
        if self.drafts.len() >= DEFINITIONS_MAX {
            self.session.error(name.at, format!("more than {DEFINITIONS_MAX} definitions"));
            return Err(TooMany);
        }
        let is_free = self.check_clash(name, &kind);
        let id = self.push(Rc::clone(&name.text), Some(name.at), kind);
        if is_free {
            self.draft(self.here).names.insert(folded(&name.text), Entry::Declared(id));
        }
        Ok(id)
    }

    /// Declares a member, which cannot be referred to.
    pub fn declare_instance(&mut self, name: &Name) {
        if self.check_clash(name, &Kind::Native) {
            self.draft(self.here).names.insert(folded(&name.text), Entry::Instance(name.clone()));
        }
    }

    /// The module `name` of the present scope, declared now or before.
    pub fn module(&mut self, name: &Name) -> Result<DefinitionId, TooMany> {
        match self.own(self.here, &name.text) {
            Some(id) if *self.kind(id) == Kind::Module && self.drafts[id.0 as usize].name == name.text => {
                let here_is_included = !self.outer_prefixes.is_empty();
                let draft = self.draft(id);
                draft.at.get_or_insert(name.at);
                draft.is_included &= here_is_included;
                Ok(id)
            }
            _ => self.declare(name, Kind::Module),
        }
    }

    /// The definition of `name` in the present scope that is only declared so far, if `is_forward` says so of its
    /// kind.
    pub fn forward(&mut self, name: &Name, is_forward: impl Fn(&Kind) -> bool) -> Option<DefinitionId> {
        let id = self.own(self.here, &name.text)?;
        let draft = &self.drafts[id.0 as usize];
        (draft.name == name.text && is_forward(&draft.kind)).then_some(id)
    }

    /// A declaration of an interface `CORBA::TypeCode` takes the place of the one that every file knows.
    pub fn replaces_native(&mut self, name: &Name) -> Option<DefinitionId> {
        let id = self.own(self.here, &name.text).filter(|id| self.drafts[id.0 as usize].at.is_none())?;
        (*self.kind(id) == Kind::Native && &*name.text == "TypeCode").then_some(id)
    }

    /// A definition that only every file knew is declared now.
    pub fn redeclared(&mut self, id: DefinitionId, name: &Name, kind: &Kind) {
        let draft = self.draft(id);
        if draft.at.is_none() {
            draft.at = Some(name.at);
            draft.kind = kind.clone();
        }
    }

    /// The definition of what may have been declared before: its place is here.
    pub fn defined(&mut self, id: DefinitionId, name: &Name) {
        let is_included = !self.outer_prefixes.is_empty();
        let draft = self.draft(id);
        (draft.at, draft.is_included) = (Some(name.at), is_included);
    }

    /// Whether anything is declared in the scope of a definition.
    pub fn has_children(&self, id: DefinitionId) -> bool {
        !self.drafts[id.0 as usize].names.is_empty()
    }

    /// The definition that `scope` declares under this name, in any case.
    fn own(&self, scope: DefinitionId, name: &str) -> Option<DefinitionId> {
        match self.drafts[scope.0 as usize].names.get(&folded(name))? {
            Entry::Declared(id) => Some(*id),
            _ => None,
        }
    }

    /// Reports a clash of `name` with what the present scope has. Returns whether there is none.
    fn check_clash(&mut self, name: &Name, kind: &Kind) -> bool {
        let scope = &self.drafts[self.here.0 as usize];
        let is_function = matches!(scope.kind, Kind::Operation(_) | Kind::Enum(_));
        if self.here != ROOT && !is_function && scope.name.eq_ignore_ascii_case(&name.text) {
            let notes = self.note(self.here, "the scope begins here");
            let message = format!("\"{}\" is the name of the scope that it is in", name.text);
            self.session.error_with(name.at, message, &notes);
            return false;
        }
        let Some(entry) = scope.names.get(&folded(&name.text)).cloned() else {
            return self.check_inherited(name, kind);
        };
        let (message, notes) = match entry {
            Entry::Declared(id) => {
                let other = Rc::clone(&self.drafts[id.0 as usize].name);
                let case =
                    if other == name.text { "" } else { ", names that differ only in case are the same" };
                let message = format!("\"{}\" is already declared in this scope{case}", name.text);
                (message, self.note(id, format!("\"{other}\" is declared here")))
            }
            Entry::Instance(other) => {
                let case = if other.text == name.text {
                    ""
                } else {
                    ", names that differ only in case are the same"
                };
                let message = format!("\"{}\" is already declared in this scope{case}", name.text);
                (message, vec![(other.at, format!("\"{}\" is declared here", other.text))])
            }
            Entry::Used(id, used) => {
                let message = format!(
                    "\"{}\" was used in this scope for {}: it cannot be declared afterwards",
                    name.text,
                    self.full_name(id)
                );
                (message, vec![(used.at, format!("\"{}\" is used here", used.text))])
            }
        };
        self.session.error_with(name.at, message, &notes);
        false
    }

    /// Operations and attributes of bases cannot be declared again.
    fn check_inherited(&mut self, name: &Name, kind: &Kind) -> bool {
        let Kind::Interface(Interface { ancestors, .. }) = self.kind(self.here) else { return true };
        let found =
            ancestors.iter().find_map(|&ancestor| self.own(ancestor, &name.text).map(|id| (ancestor, id)));
        let Some((ancestor, id)) = found else { return true };
        let is_callable = |kind: &Kind| matches!(kind, Kind::Operation(_) | Kind::Attribute(_));
        if !is_callable(self.kind(id)) && !is_callable(kind) {
            return true;
        }
        let message = format!("\"{}\" is inherited from {}", name.text, self.full_name(ancestor));
        let notes = self.note(id, "it is declared here");
        self.session.error_with(name.at, message, &notes);
        false
    }
}
