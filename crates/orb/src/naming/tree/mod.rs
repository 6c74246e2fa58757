//! Contexts, and what is bound in them.
//!
//! The tree only knows its own contexts: a context of another service is a reference like others. All that clients
//! can fill is bounded: contexts, bindings, and the bytes of both.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use punctual_giop::Reference;

use super::cos_naming::NameComponent;
use crate::limits::{
    NAMING_BINDING_BYTES, NAMING_BINDINGS_MAX, NAMING_BYTES_MAX, NAMING_CONTEXT_BYTES, NAMING_CONTEXTS_MAX,
    NAMING_LIST_BYTES_MAX, NAMING_PART_BYTES_MAX, NAMING_REFERENCE_BYTES_MAX,
};

/// A context of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContextNumber(u64);

/// The context that is made first: names begin there.
const ROOT: ContextNumber = ContextNumber(0);

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

    fn bytes(&self) -> usize {
        let reference = self.reference();
        let profile = |data: &Vec<u8>| data.len() + size_of_val(data);
        let profiles: usize = reference.profiles.iter().map(|one| profile(&one.data)).sum();
        reference.type_id.len() + profiles
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
    /// The name is too long.
    LongName,
    /// A limit is reached.
    Full,
}

/// A part of a name, as a key.
pub(super) type Part = (String, String);

/// Some names of a context, each with whether it is that of a context.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    pub all: Vec<(NameComponent, bool)>,
    /// The last of them, if more follow. `Some(None)`: none of them are here.
    pub continues: Option<Option<Part>>,
}

#[derive(Debug)]
struct Context {
    bindings: BTreeMap<Part, Bound>,
    last_used: Cell<Instant>,
}

/// All contexts.
#[derive(Debug, Default)]
pub(super) struct Tree {
    contexts: HashMap<ContextNumber, Context>,
    next: u64,
    bindings: usize,
    /// Of contexts and bindings.
    bytes: usize,
}

fn key(part: &NameComponent) -> Part {
    (part.id.clone(), part.kind.clone())
}

fn named_bytes(part: &Part, bound: &Bound) -> usize {
    NAMING_BINDING_BYTES + part.0.len() + part.1.len() + bound.bytes()
}

impl Tree {
    /// Whether there is no room for another context.
    pub fn is_full(&self) -> bool {
        self.contexts.len() >= NAMING_CONTEXTS_MAX || self.bytes + NAMING_CONTEXT_BYTES > NAMING_BYTES_MAX
    }

    pub fn has(&self, number: ContextNumber) -> bool {
        self.contexts.contains_key(&number)
    }

    /// A new context, which is bound nowhere.
    pub fn create(&mut self) -> Result<ContextNumber, Refused> {
        if self.is_full() {
            return Err(Refused::Full);
        }
        let number = ContextNumber(self.next);
        self.next += 1;
        let last_used = Cell::new(Instant::now());
        self.contexts.insert(number, Context { bindings: BTreeMap::new(), last_used });
        self.bytes += NAMING_CONTEXT_BYTES;
        Ok(number)
    }

    /// Removes an empty context. What is bound to it leads nowhere.
    pub fn destroy(&mut self, number: ContextNumber) -> Result<(), Refused> {
        if !self.find(number)?.bindings.is_empty() {
            return Err(Refused::NotEmpty);
        }
        self.remove(number);
        Ok(())
    }

    fn remove(&mut self, number: ContextNumber) {
        let Some(context) = self.contexts.remove(&number) else { return };
        let bindings = &context.bindings;
        self.bindings -= bindings.len();
        let named: usize = bindings.iter().map(|(part, bound)| named_bytes(part, bound)).sum();
        self.bytes -= NAMING_CONTEXT_BYTES + named;
    }

    /// Removes contexts to which no name leads from the root: empty ones, and those that nobody has used for so long. Of
    /// those, the half that was not used for longest goes, so that this is done rarely. Which they were.
    pub fn make_room(&mut self, now: Instant, idle: Duration) -> Vec<ContextNumber> {
        let named = self.named();
        let may_go = |(number, context): (&ContextNumber, &Context)| {
            let used = context.last_used.get();
            let is_left = context.bindings.is_empty() || now.saturating_duration_since(used) >= idle;
            (is_left && !named.contains(number)).then_some((used, number.0))
        };
        let mut by_age: Vec<(Instant, u64)> = self.contexts.iter().filter_map(may_go).collect();
        by_age.sort_unstable();
        by_age.truncate(by_age.len().div_ceil(2));
        let gone: Vec<ContextNumber> = by_age.into_iter().map(|(_, number)| ContextNumber(number)).collect();
        gone.iter().for_each(|number| self.remove(*number));
        gone
    }

    /// The contexts to which names lead from the root.
    fn named(&self) -> HashSet<ContextNumber> {
        let (mut named, mut open) = (HashSet::from([ROOT]), vec![ROOT]);
        while let Some(context) = open.pop().and_then(|number| self.contexts.get(&number)) {
            for bound in context.bindings.values() {
                if let Bound::Context(_, Some(inner)) = bound
                    && self.has(*inner)
                    && named.insert(*inner)
                {
                    open.push(*inner);
                }
            }
        }
        named
    }

    fn find(&self, number: ContextNumber) -> Result<&Context, Refused> {
        let context = self.contexts.get(&number).ok_or(Refused::Gone)?;
        context.last_used.set(Instant::now());
        Ok(context)
    }

    pub fn get(&self, context: ContextNumber, part: &NameComponent) -> Result<&Bound, Refused> {
        self.find(context)?.bindings.get(&key(part)).ok_or(Refused::Missing)
    }

    /// Binds a name. With `replaces`, what has the name must be of the same kind.
    pub fn bind(
        &mut self,
        context: ContextNumber,
        part: &NameComponent,
        bound: Bound,
        replaces: bool,
    ) -> Result<(), Refused> {
        if part.id.len() + part.kind.len() > NAMING_PART_BYTES_MAX {
            return Err(Refused::LongName);
        }
        let part = key(part);
        let old = match self.find(context)?.bindings.get(&part) {
            Some(_) if !replaces => return Err(Refused::AlreadyBound),
            Some(old) if old.is_context() != bound.is_context() => return Err(Refused::OtherKind),
            old => old.map(|old| named_bytes(&part, old)),
        };
        let bytes = self.bytes - old.unwrap_or_default() + named_bytes(&part, &bound);
        let is_full = old.is_none() && self.bindings >= NAMING_BINDINGS_MAX;
        if is_full || bytes > NAMING_BYTES_MAX || bound.bytes() > NAMING_REFERENCE_BYTES_MAX {
            return Err(Refused::Full);
        }
        self.bytes = bytes;
        self.bindings += usize::from(old.is_none());
        let found = self.contexts.get_mut(&context).ok_or(Refused::Gone)?;
        found.bindings.insert(part, bound);
        Ok(())
    }

    pub fn unbind(&mut self, context: ContextNumber, part: &NameComponent) -> Result<(), Refused> {
        self.find(context)?;
        let found = self.contexts.get_mut(&context).ok_or(Refused::Gone)?;
        let (part, bound) = found.bindings.remove_entry(&key(part)).ok_or(Refused::Missing)?;
        self.bindings -= 1;
        self.bytes -= named_bytes(&part, &bound);
        Ok(())
    }

    /// Names of a context behind one of them, in their order: at most so many, and no more than an answer may have.
    pub fn list(
        &self,
        context: ContextNumber,
        after: Option<&Part>,
        how_many: usize,
    ) -> Result<Page, Refused> {
        let begin = after.map_or(Unbounded, Excluded);
        let mut rest = self.find(context)?.bindings.range::<Part, _>((begin, Unbounded)).peekable();
        let (mut page, mut bytes, mut last) = (Page::default(), 0, after);
        while let Some((part, bound)) = rest.next_if(|_| page.all.len() < how_many) {
            let (id, kind) = part.clone();
            page.all.push((NameComponent { id, kind }, bound.is_context()));
            last = Some(part);
            bytes += NAMING_BINDING_BYTES + part.0.len() + part.1.len();
            if bytes >= NAMING_LIST_BYTES_MAX {
                break;
            }
        }
        page.continues = rest.peek().map(|_| last.cloned());
        Ok(page)
    }
}
