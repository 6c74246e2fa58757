//! Rests of lists of bindings, which clients fetch.
//!
//! A rest is a place in a context, and no list: a client that asks for many takes little memory. Clients that end
//! without a word leave their rests here: so there is a limit, and idle ones end.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cos_naming::{
    Binding, BindingIterator, BindingIteratorServant, BindingIteratorSkeleton, BindingList, BindingType,
};
use super::tree::{ContextNumber, Page, Part};
use crate::counted::Mutex;
use crate::limits::{NAMING_ITERATOR_IDLE, NAMING_ITERATORS_MAX};
use crate::poa::{ObjectId, Poa, PoaError};
use crate::{Servant, SystemException, current};

/// Has the bindings.
pub(super) trait Pages: Send + Sync {
    /// Those behind one of them: at most so many. Nothing, if the context does not exist any more.
    fn page(&self, context: ContextNumber, after: Option<&Part>, how_many: usize) -> Page;
}

/// Bindings, as clients have them.
pub(super) fn bindings(page: Page) -> Vec<Binding> {
    let binding = |(part, is_context)| Binding {
        binding_name: vec![part],
        binding_type: if is_context { BindingType::Ncontext } else { BindingType::Nobject },
    };
    page.all.into_iter().map(binding).collect()
}

/// The rests of all lists.
pub(super) struct Iterators {
    poa: Poa,
    last_used: Mutex<HashMap<ObjectId, Instant>>,
}

impl Iterators {
    pub fn new(poa: Poa) -> Arc<Self> {
        Arc::new(Self { poa, last_used: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Instant>> {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object that gives the bindings of a context behind this one.
    pub fn begin(
        self: &Arc<Self>,
        pages: Arc<dyn Pages>,
        context: ContextNumber,
        after: Option<Part>,
    ) -> Result<BindingIterator, PoaError> {
        self.make_room(Instant::now(), NAMING_ITERATORS_MAX, NAMING_ITERATOR_IDLE);
        let rest = Mutex::new(Some(after));
        let iterator = Iterator { pages, context, rest, all: Arc::clone(self) };
        let servant: Arc<dyn Servant> = Arc::new(BindingIteratorSkeleton::<Iterator>::new(iterator));
        let id = self.poa.activate_object(servant)?;
        self.used(&id);
        Ok(BindingIterator(self.poa.id_to_reference(&id)?))
    }

    /// Ends those that were idle for too long, and others until there is room for one more.
    fn make_room(&self, now: Instant, iterators_max: usize, idle: Duration) {
        let mut last_used = self.lock();
        let mut by_age: Vec<(Instant, ObjectId)> =
            last_used.iter().map(|(id, used)| (*used, id.clone())).collect();
        by_age.sort();
        let surplus = (by_age.len() + 1).saturating_sub(iterators_max);
        for (number, (used, id)) in by_age.into_iter().enumerate() {
            if number >= surplus && now.saturating_duration_since(used) < idle {
                break;
            }
            last_used.remove(&id);
            // Its client may have ended it.
            let _ = self.poa.deactivate_object(&id);
        }
    }

    fn used(&self, id: &ObjectId) {
        self.lock().insert(id.clone(), Instant::now());
    }

    fn end(&self, id: &ObjectId) {
        self.lock().remove(id);
        // A second call of a client that does not wait finds it gone.
        let _ = self.poa.deactivate_object(id);
    }
}

/// Bindings that a client has not asked for yet.
struct Iterator {
    pages: Arc<dyn Pages>,
    context: ContextNumber,
    /// Behind which they are; `None` at the end.
    rest: Mutex<Option<Option<Part>>>,
    all: Arc<Iterators>,
}

impl Iterator {
    fn take(&self, how_many: usize) -> Vec<Binding> {
        if let Ok(id) = current::object_id() {
            self.all.used(&id);
        }
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(after) = rest.take() else { return Vec::new() };
        let mut page = self.pages.page(self.context, after.as_ref(), how_many);
        *rest = page.continues.take();
        bindings(page)
    }
}

impl BindingIteratorServant for Iterator {
    fn next_one(&self) -> Result<(bool, Binding), SystemException> {
        // Without one, the value has no meaning.
        let nothing = || Binding { binding_name: vec![], binding_type: BindingType::Nobject };
        let found = self.take(1).pop();
        Ok((found.is_some(), found.unwrap_or_else(nothing)))
    }

    fn next_n(&self, how_many: u32) -> Result<(bool, BindingList), SystemException> {
        let found = self.take(how_many as usize);
        Ok((!found.is_empty(), found))
    }

    fn destroy(&self) -> Result<(), SystemException> {
        if let Ok(id) = current::object_id() {
            self.all.end(&id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use crate::{Endpoint, Options, Orb};

    struct Nothing;

    impl Pages for Nothing {
        fn page(&self, _: ContextNumber, _: Option<&Part>, _: usize) -> Page {
            Page::default()
        }
    }

    #[test]
    fn the_longest_idle_ones_give_way_and_all_idle_ones_end() {
        let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
        let iterators = Iterators::new(orb.root_poa());
        let context = Tree::default().create().expect("the first one");
        for _ in 0..4 {
            iterators.begin(Arc::new(Nothing), context, None).expect("there is room");
        }
        let mut ids: Vec<ObjectId> = iterators.lock().keys().cloned().collect();
        ids.sort();
        iterators.used(&ids[0]);
        let is_active = |number: usize| orb.root_poa().id_to_servant(&ids[number]).is_ok();
        iterators.make_room(Instant::now(), 3, Duration::from_secs(600));
        assert_eq!([0, 1, 2, 3].map(is_active), [true, false, false, true]);
        iterators.make_room(Instant::now() + Duration::from_secs(601), 3, Duration::from_secs(600));
        assert_eq!([0, 1, 2, 3].map(is_active), [false; 4]);
        assert!(iterators.lock().is_empty());
    }
}
