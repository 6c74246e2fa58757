//! The rest of a list of bindings.

use std::collections::VecDeque;
use std::sync::{OnceLock, PoisonError};

use super::cos_naming::{Binding, BindingIteratorServant, BindingList, BindingType};
use crate::SystemException;
use crate::counted::Mutex;
use crate::poa::{ObjectId, Poa};

/// Bindings that a client has not asked for yet.
pub(super) struct Iterator {
    rest: Mutex<VecDeque<Binding>>,
    poa: Poa,
    /// Its own identifier, once it is active.
    pub id: OnceLock<ObjectId>,
}

impl Iterator {
    pub fn new(rest: Vec<Binding>, poa: Poa) -> Self {
        Self { rest: Mutex::new(rest.into()), poa, id: OnceLock::new() }
    }

    fn take(&self, count: usize) -> Vec<Binding> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let count = count.min(rest.len());
        rest.drain(..count).collect()
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
        if let Some(id) = self.id.get() {
            // A second call of a client that does not wait finds it gone.
            let _ = self.poa.deactivate_object(id);
        }
        Ok(())
    }
}
