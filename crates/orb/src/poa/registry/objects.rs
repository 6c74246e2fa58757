//! The active objects of one adapter, by identifier and by servant.
//!
//! Both tables have places only. The identifier and the servant are read at the place, so that a table takes 9
//! bytes for each bucket, also behind a doubling.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::HashTable;

use super::{Active, Table};
use crate::poa::key::ObjectId;
use crate::reply::Servant;

/// What tells servants apart.
pub(in crate::poa) fn address(servant: &Arc<dyn Servant>) -> usize {
    Arc::as_ptr(servant).cast::<()>() as usize
}

/// Which objects are active.
#[derive(Debug)]
pub(in crate::poa) struct Objects {
    /// The objects of all adapters. Those whose places are below stay there until their places are removed.
    all: Arc<Table<Active>>,
    by_id: HashTable<usize>,
    /// Only where a servant implements one object.
    by_servant: HashTable<usize>,
    hasher: RandomState,
    /// How many objects each servant implements. Only where an activator is told.
    pub uses: HashMap<usize, usize>,
    /// Those whose activator is not told yet. Only where there is one.
    pub ending: HashSet<ObjectId>,
    last_id: u64,
}

impl Objects {
    /// No object. Identifiers count from `last_id` on.
    pub fn new(all: &Arc<Table<Active>>, last_id: u64) -> Self {
        Self {
            all: Arc::clone(all),
            by_id: HashTable::new(),
            by_servant: HashTable::new(),
            hasher: RandomState::new(),
            uses: HashMap::new(),
            ending: HashSet::new(),
            last_id,
        }
    }

    /// The place of the object with this identifier.
    pub fn place(&self, id: &ObjectId) -> Option<usize> {
        let is_it = |&place: &usize| self.all.get(place).is_some_and(|active| active.id == *id);
        self.by_id.find(self.hasher.hash_one(id), is_it).copied()
    }

    /// The identifier of the object that this servant implements.
    pub fn id_of_servant(&self, servant: &Arc<dyn Servant>) -> Option<ObjectId> {
        let servant = address(servant);
        let is_it = |&place: &usize| self.servant(place) == Some(servant);
        let place = self.by_servant.find(self.hasher.hash_one(servant), is_it)?;
        self.all.get(*place).map(|active| active.id.clone())
    }

    fn servant(&self, place: usize) -> Option<usize> {
        self.all.get(place).map(|active| address(&active.servant))
    }

    /// Adds an object that is not there yet. It is found by its servant, too, if that implements no other one.
    pub fn insert(&mut self, active: Active, is_servant_unique: bool) {
        let hashes = [self.hasher.hash_one(&active.id), self.hasher.hash_one(address(&active.servant))];
        let place = self.all.insert(active).expect("the table has room for more than memory has");
        let Self { all, hasher, by_id, by_servant, .. } = self;
        let id_hash = |&place: &usize| all.get(place).map_or(0, |active| hasher.hash_one(&active.id));
        by_id.insert_unique(hashes[0], place, id_hash);
        if is_servant_unique {
            let servant_hash =
                |&place: &usize| all.get(place).map_or(0, |active| hasher.hash_one(address(&active.servant)));
            by_servant.insert_unique(hashes[1], place, servant_hash);
        }
    }

    /// Forgets an object: its place, which is to be removed when nobody has the lock.
    pub fn remove(&mut self, id: &ObjectId) -> Option<usize> {
        let place = self.place(id)?;
        let _ = self.by_id.find_entry(self.hasher.hash_one(id), |&other| other == place).map(remove);
        if let Some(servant) = self.servant(place) {
            let hash = self.hasher.hash_one(servant);
            let _ = self.by_servant.find_entry(hash, |&other| other == place).map(remove);
        }
        Some(place)
    }

    /// Forgets all objects: their places, which are to be removed when nobody has the lock.
    pub fn drain(&mut self) -> Vec<usize> {
        self.by_servant.clear();
        self.by_id.drain().collect()
    }

    /// All that are active have not ended yet: their activator is to be told.
    pub fn end_all(&mut self) {
        let ids = self.by_id.iter().filter_map(|&place| Some(self.all.get(place)?.id.clone()));
        self.ending.extend(ids);
    }

    /// The servant implements one object less. Whether it implements another one.
    pub fn unuse(&mut self, servant: usize) -> bool {
        let Some(uses) = self.uses.get_mut(&servant) else { return false };
        *uses -= 1;
        let is_used = *uses > 0;
        if !is_used {
            self.uses.remove(&servant);
        }
        is_used
    }

    /// An identifier that no object of this adapter had.
    pub fn next_id(&mut self) -> ObjectId {
        self.last_id = self.last_id.wrapping_add(1);
        ObjectId::System(self.last_id)
    }
}

fn remove(entry: hashbrown::hash_table::OccupiedEntry<'_, usize>) {
    let _ = entry.remove();
}
