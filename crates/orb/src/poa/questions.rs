//! What a key says without a call: where its object is, and how the requests for it are served.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_giop::Reference;
use punctual_giop::message::{Message, Target};
use punctual_giop::reassembly::Whole;

use super::Poa;
use super::key::{Key, ObjectId};
use super::manager::State;
use super::policy::{Bidirectional, ThreadModel};
use super::refusal::Refusal;
use super::registry::{Adapter, Chosen, Registry};
use super::serving::Serving;

/// Where an object is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Located {
    /// Here. Its servant may yet be made, or send the caller elsewhere.
    Here,
    /// Nowhere.
    Unknown,
    /// There.
    Forward(Reference),
}

impl Registry {
    /// Where an object is.
    pub fn locate(self: &Arc<Self>, key: &[u8]) -> Located {
        let Some(key) = Key::parse(key) else {
            return match self.of_key(key) {
                // It never stands for a key that is none.
                Some(Chosen::Own(own)) if Key::is(&own) => self.locate(&own),
                Some(Chosen::Elsewhere(to)) => Located::Forward(to),
                Some(Chosen::Own(_)) | None => Located::Unknown,
            };
        };
        let here = (key.process == self.process).then(|| self.adapter_at(key.adapter)).flatten();
        let poa = match here {
            Some(adapter) => Ok(Poa::of(self, &adapter)),
            None => self.find(&key),
        };
        match poa {
            Ok(poa) if poa.may_serve(&key.id()) => Located::Here,
            // Its request waits.
            Err(Refusal::Held(_)) => Located::Here,
            Ok(_) | Err(Refusal::Diverted(_)) => Located::Unknown,
        }
    }

    /// Whether a request is for an adapter whose servants run in the main thread, and this is another one. A request that
    /// the adapter's manager does not let pass yet is not handed over.
    pub fn wants_main_thread(self: &Arc<Self>, whole: Whole<'_>) -> bool {
        if !self.uses_main.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(Message::Request(request, _)) = Message::read_whole(whole) else { return false };
        self.wants_main_thread_of(&request.target)
    }

    /// The same for a target.
    pub fn wants_main_thread_of(self: &Arc<Self>, target: &Target<'_>) -> bool {
        self.uses_main.load(Ordering::Relaxed)
            && !self.main.is_here()
            && target.object_key().is_ok_and(|key| self.is_of_main_thread(key))
    }

    fn is_of_main_thread(self: &Arc<Self>, key: &[u8]) -> bool {
        let Some(key) = Key::parse(key) else {
            return match self.of_key(key) {
                Some(Chosen::Own(own)) if Key::is(&own) => self.is_of_main_thread(&own),
                _ => false,
            };
        };
        let here = (key.process == self.process).then(|| self.adapters.get(key.adapter)).flatten();
        let adapter = match here {
            Some(adapter) => Ok(Arc::clone(&adapter)),
            None => self.find(&key).map(|poa| Arc::clone(poa.adapter())),
        };
        let is_it = |adapter: Arc<Adapter>| {
            adapter.policies.thread_model == ThreadModel::MainThread
                && adapter.manager.state() == State::Active
        };
        adapter.is_ok_and(is_it)
    }

    /// Whether requests for the object with this key may use connections on which both ends call. Keys that name no
    /// adapter of this process lead to one elsewhere: they may.
    pub fn is_bidirectional(&self, key: &[u8]) -> bool {
        let Some(key) = Key::parse(key) else {
            return match self.of_key(key) {
                Some(Chosen::Own(own)) if Key::is(&own) => self.is_bidirectional(&own),
                _ => true,
            };
        };
        let here = (key.process == self.process).then(|| self.adapters.get(key.adapter)).flatten();
        let adapter = match (here, key.names()) {
            (Some(adapter), _) => Some(Arc::clone(&adapter)),
            (None, Some(mut names)) => {
                let root = self.root();
                names.try_fold(root, |poa, name| poa.child(name)).map(|poa| Arc::clone(poa.adapter()))
            }
            (None, None) => None,
        };
        adapter.is_none_or(|adapter| adapter.policies.bidirectional == Bidirectional::Both)
    }

    /// Whether a reference with this key is one of this process.
    pub fn is_own(&self, key: &[u8]) -> bool {
        Key::parse(key).is_some_and(|key| key.process == self.process)
    }
}

impl Poa {
    fn may_serve(&self, id: &ObjectId) -> bool {
        self.adapter().objects().place(id).is_some() || !matches!(self.adapter().serving(), Serving::Nobody)
    }
}
