//! Contexts, and what is bound in them.
//!
//! The tree only knows its own contexts: a context of another service is a reference like others.

use std::collections::{BTreeMap, HashMap};

use punctual_giop::Reference;

use super::cos_naming::NameComponent;
use crate::limits::{NAMING_BINDINGS_MAX, NAMING_CONTEXTS_MAX};

/// A context of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContextNumber(u64);

/// What is bound to a part of a name.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Object(Reference),
    /// A context, and its number if it is one of this service.
    Context(Reference, Option<ContextNumber>),
}

impl Bound {
    pub fn reference(&self) -> &Reference {
        match self {
            Self::Object(reference) | Self::Context(reference, _) => reference,
        }
    }

    pub fn is_context(&self) -> bool {
        matches!(self, Self::Context(..))
    }
}

/// Why something is not bound, or a context is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The context does not exist any more.
    Gone,
    /// Nothing has this name.
    Missing,
    /// Something has this name.
    AlreadyBound,
    /// What has this name is no context, or no object.
    OtherKind,
    /// The context has bindings.
    NotEmpty,
    /// A limit is reached.
    Full,
}

/// A part of a name, as a key.
type Part = (String, String);

/// All contexts.
#[derive(Debug, Default)]
pub(super) struct Tree {
    contexts: HashMap<ContextNumber, BTreeMap<Part, Bound>>,
    next: u64,
    bindings: usize,
}

fn key(part: &NameComponent) -> Part {
    (part.id.clone(), part.kind.clone())
}

impl Tree {
    /// A new context, which is bound nowhere.
    pub fn create(&mut self) -> Result<ContextNumber, Refused> {
        if self.contexts.len() >= NAMING_CONTEXTS_MAX {
            return Err(Refused::Full);
        }
        let number = ContextNumber(self.next);
        self.next += 1;
        self.contexts.insert(number, BTreeMap::new());
        Ok(number)
    }

    /// Removes an empty context. What is bound to it leads nowhere.
    pub fn destroy(&mut self, number: ContextNumber) -> Result<(), Refused> {
        let is_empty = self.contexts.get(&number).ok_or(Refused::Gone)?.is_empty();
        if !is_empty {
            return Err(Refused::NotEmpty);
        }
        self.contexts.remove(&number);
        Ok(())
    }

    pub fn get(&self, context: ContextNumber, part: &NameComponent) -> Result<&Bound, Refused> {
        self.contexts.get(&context).ok_or(Refused::Gone)?.get(&key(part)).ok_or(Refused::Missing)
    }

    /// Binds a name. With `replaces`, what has the name must be of the same kind.
    pub fn bind(
        &mut self,
        context: ContextNumber,
        part: &NameComponent,
        bound: Bound,
        replaces: bool,
    ) -> Result<(), Refused> {
        let is_full = self.bindings >= NAMING_BINDINGS_MAX;
        let bindings = self.contexts.get_mut(&context).ok_or(Refused::Gone)?;
        match bindings.get_mut(&key(part)) {
            Some(_) if !replaces => Err(Refused::AlreadyBound),
            Some(old) if old.is_context() != bound.is_context() => Err(Refused::OtherKind),
            Some(old) => {
                *old = bound;
                Ok(())
            }
            None if is_full => Err(Refused::Full),
            None => {
                bindings.insert(key(part), bound);
                self.bindings += 1;
                Ok(())
            }
        }
    }

    pub fn unbind(&mut self, context: ContextNumber, part: &NameComponent) -> Result<(), Refused> {
        let bindings = self.contexts.get_mut(&context).ok_or(Refused::Gone)?;
        bindings.remove(&key(part)).ok_or(Refused::Missing)?;
        self.bindings -= 1;
        Ok(())
    }

    /// All names of a context, and whether each is that of a context.
    pub fn list(&self, context: ContextNumber) -> Result<Vec<(NameComponent, bool)>, Refused> {
        let bindings = self.contexts.get(&context).ok_or(Refused::Gone)?;
        let named = |((id, kind), bound): (&Part, &Bound)| {
            (NameComponent { id: id.clone(), kind: kind.clone() }, bound.is_context())
        };
        Ok(bindings.iter().map(named).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(id: &str) -> NameComponent {
        NameComponent { id: id.into(), kind: String::new() }
    }

    fn object() -> Bound {
        Bound::Object(Reference::default())
    }

    #[test]
    fn names_are_bound_once_and_replaced_by_their_kind() {
        let mut tree = Tree::default();
        let root = tree.create().expect("the first one");
        assert_eq!(tree.bind(root, &part("a"), object(), false), Ok(()));
        assert_eq!(tree.bind(root, &part("a"), object(), false), Err(Refused::AlreadyBound));
        assert_eq!(tree.bind(root, &part("a"), object(), true), Ok(()));
        let context = Bound::Context(Reference::default(), None);
        assert_eq!(tree.bind(root, &part("a"), context, true), Err(Refused::OtherKind));
        assert_eq!(tree.destroy(root), Err(Refused::NotEmpty));
        assert_eq!(tree.unbind(root, &part("a")), Ok(()));
        assert_eq!(tree.unbind(root, &part("a")), Err(Refused::Missing));
        assert_eq!(tree.destroy(root), Ok(()));
        assert_eq!(tree.destroy(root), Err(Refused::Gone));
        assert_eq!(tree.bind(root, &part("a"), object(), false), Err(Refused::Gone));
    }

    #[test]
    fn contexts_are_bounded() {
        let mut tree = Tree::default();
        for _ in 0..NAMING_CONTEXTS_MAX {
            tree.create().expect("below the limit");
        }
        assert_eq!(tree.create(), Err(Refused::Full));
    }
}
