//! What applications give an adapter for objects that are not active, and for adapters that do not exist.

use std::any::Any;
use std::sync::{Arc, PoisonError};

use punctual_giop::{Reference, SystemException};

use super::Poa;
use super::error::PoaError;
use super::key::ObjectId;
use super::policy::RequestProcessing;
use crate::reply::Servant;

/// Why a request is not served here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Diversion {
    /// The object is there.
    #[error("the object is elsewhere")]
    Forward(Reference),
    /// The client gets this exception.
    #[error(transparent)]
    Exception(#[from] SystemException),
}

/// Makes servants for objects that have none, and is told when they are not needed any more (`Retain`).
pub trait ServantActivator: Send + Sync {
    /// The servant of this object, which is active from now on.
    ///
    /// # Errors
    /// If there is no such object, or it is elsewhere.
    fn incarnate(&self, id: &ObjectId, adapter: &Poa) -> Result<Arc<dyn Servant>, Diversion>;

    /// The object is not active any more, and its last request has ended. Servants of one adapter are made and
    /// given back one at a time.
    fn etherealize(&self, id: &ObjectId, adapter: &Poa, servant: Arc<dyn Servant>, ending: Ending);
}

/// How an object ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// All objects of the adapter end: it is destroyed, or its manager is deactivated.
    pub is_cleanup: bool,
    /// The servant implements other objects of the adapter, which are active.
    pub is_used: bool,
}

/// What a locator remembers from before a request until after it.
pub type Cookie = Box<dyn Any + Send>;

/// Names a servant for each request (`NonRetain`).
pub trait ServantLocator: Send + Sync {
    /// The servant for this request.
    ///
    /// # Errors
    /// If there is no such object, or it is elsewhere.
    fn preinvoke(
        &self,
        id: &ObjectId,
        adapter: &Poa,
        operation: &str,
    ) -> Result<(Arc<dyn Servant>, Cookie), Diversion>;

    /// The request has ended.
    fn postinvoke(
        &self,
        id: &ObjectId,
        adapter: &Poa,
        operation: &str,
        cookie: Cookie,
        servant: Arc<dyn Servant>,
    );
}

/// Makes adapters for references whose adapter does not exist.
pub trait AdapterActivator: Send + Sync {
    /// Makes the child `name` of `parent` if it can: `true` if it has.
    fn unknown_adapter(&self, parent: &Poa, name: &str) -> bool;
}

/// Who serves objects that are not active.
#[derive(Clone)]
pub(super) enum Serving {
    Nobody,
    Default(Arc<dyn Servant>),
    Activator(Arc<dyn ServantActivator>),
    Locator(Arc<dyn ServantLocator>),
}

impl Poa {
    fn set_serving(
        &self,
        needed: RequestProcessing,
        retains: bool,
        serving: Serving,
    ) -> Result<(), PoaError> {
        let policies = &self.adapter.policies;
        let is_default = needed == RequestProcessing::DefaultServant;
        if policies.request_processing != needed || !is_default && self.retains() != retains {
            return Err(PoaError::WrongPolicy);
        }
        *self.adapter.serving.write().unwrap_or_else(PoisonError::into_inner) = serving;
        Ok(())
    }

    /// The servant of all objects that are not active.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`].
    pub fn set_default_servant(&self, servant: Arc<dyn Servant>) -> Result<(), PoaError> {
        self.set_serving(RequestProcessing::DefaultServant, true, Serving::Default(servant))
    }

    /// Who makes servants of objects that are not active.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`].
    pub fn set_servant_activator(&self, activator: Arc<dyn ServantActivator>) -> Result<(), PoaError> {
        self.set_serving(RequestProcessing::ServantManager, true, Serving::Activator(activator))
    }

    /// Who names a servant for each request.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`].
    pub fn set_servant_locator(&self, locator: Arc<dyn ServantLocator>) -> Result<(), PoaError> {
        self.set_serving(RequestProcessing::ServantManager, false, Serving::Locator(locator))
    }
}
