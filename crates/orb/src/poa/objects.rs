//! The objects of an adapter: activating and deactivating them, and their references and identifiers.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_giop::Reference;

use super::Poa;
use super::error::PoaError;
use super::key::{self, NOWHERE, ObjectId, id_of_key};
use super::policy::{IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, ServantRetention};
use super::refusal::{Refusal, ending};
use super::registry::{Active, address};
use super::serving::{ServantActivator, Serving};
use crate::exception::adapter_failed;
use crate::frames::innermost;
use crate::reply::Servant;

impl Poa {
    pub(super) fn retains(&self) -> bool {
        self.adapter.policies.servant_retention == ServantRetention::Retain
    }

    /// Activates an object with an identifier of the adapter's.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`], [`PoaError::ServantAlreadyActive`].
    pub fn activate_object(&self, servant: Arc<dyn Servant>) -> Result<ObjectId, PoaError> {
        if self.adapter.policies.id_assignment == IdAssignment::User || !self.retains() {
            return Err(PoaError::WrongPolicy);
        }
        let id = self.adapter.objects().next_id();
        self.activate(id.clone(), servant, None)?;
        Ok(id)
    }

    /// Activates the object with this identifier.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`], [`PoaError::ObjectAlreadyActive`], [`PoaError::ServantAlreadyActive`].
    pub fn activate_object_with_id(&self, id: ObjectId, servant: Arc<dyn Servant>) -> Result<(), PoaError> {
        let is_own = matches!(id, ObjectId::System(_));
        if !self.retains() || is_own != (self.adapter.policies.id_assignment == IdAssignment::System) {
            return Err(PoaError::WrongPolicy);
        }
        self.activate(id, servant, None)
    }

    fn activate(
        &self,
        id: ObjectId,
        servant: Arc<dyn Servant>,
        activator: Option<&Arc<dyn ServantActivator>>,
    ) -> Result<(), PoaError> {
        let mut objects = self.adapter.objects();
        if self.adapter.is_destroyed.load(Ordering::SeqCst) {
            return Err(PoaError::Destroyed);
        }
        if objects.place(&id).is_some() {
            return Err(PoaError::ObjectAlreadyActive);
        }
        let is_unique = self.adapter.policies.id_uniqueness == IdUniqueness::Unique;
        if is_unique && objects.id_of_servant(&servant).is_some() {
            return Err(PoaError::ServantAlreadyActive);
        }
        if self.adapter.has_activator() {
            *objects.uses.entry(address(&servant)).or_default() += 1;
        }
        let activator = activator.map(|activator| Box::new((Arc::clone(activator), self.clone())));
        objects.insert(Active { adapter: Arc::clone(&self.adapter), id, servant, activator }, is_unique);
        Ok(())
    }

    /// Lets an activator make the servant of an object, and keeps it: its place. Of requests that come at once,
    /// one does.
    pub(super) fn incarnate(
        &self,
        id: &ObjectId,
        activator: &Arc<dyn ServantActivator>,
    ) -> Result<usize, Refusal> {
        self.adapter.wait_for_end(id)?;
        let _turn = self.adapter.incarnations.enter();
        let place = || self.adapter.objects().place(id);
        if let Some(place) = place() {
            return Ok(place);
        }
        let servant = activator.incarnate(id, self)?;
        match self.activate(id.clone(), servant, Some(activator)) {
            // The second one: the activator has activated it by itself.
            Ok(()) | Err(PoaError::ObjectAlreadyActive) => place().ok_or_else(|| ending().into()),
            Err(_) => Err(adapter_failed().into()),
        }
    }

    /// Deactivates an object. Requests that are being served end as they would.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`], [`PoaError::WrongPolicy`].
    pub fn deactivate_object(&self, id: &ObjectId) -> Result<(), PoaError> {
        if !self.retains() {
            return Err(PoaError::WrongPolicy);
        }
        let mut objects = self.adapter.objects();
        let place = objects.remove(id).ok_or(PoaError::ObjectNotActive)?;
        if let Some(active) = self.registry.objects.get(place) {
            match active.activator {
                Some(_) => _ = objects.ending.insert(id.clone()),
                None => _ = objects.unuse(address(&active.servant)),
            }
        }
        drop(objects);
        self.registry.objects.remove(place);
        Ok(())
    }

    /// A reference to an object that need not be active.
    ///
    /// # Errors
    /// [`PoaError::NoAddress`], [`PoaError::WrongPolicy`].
    pub fn create_reference_with_id(&self, id: &ObjectId, interface: &str) -> Result<Reference, PoaError> {
        let is_own = matches!(id, ObjectId::System(_));
        if is_own != (self.adapter.policies.id_assignment == IdAssignment::System) {
            return Err(PoaError::WrongPolicy);
        }
        let place = self.adapter.objects().place(id).unwrap_or(NOWHERE);
        let names = self.is_persistent().then_some(&self.adapter.names[..]);
        let key = key::write(self.registry.process, self.adapter.place, place, names, id);
        self.registry.publish(interface, key)
    }

    /// A reference to a new object that is not active.
    ///
    /// # Errors
    /// [`PoaError::NoAddress`], [`PoaError::WrongPolicy`].
    pub fn create_reference(&self, interface: &str) -> Result<Reference, PoaError> {
        if self.adapter.policies.id_assignment == IdAssignment::User {
            return Err(PoaError::WrongPolicy);
        }
        let id = self.adapter.objects().next_id();
        self.create_reference_with_id(&id, interface)
    }

    /// The reference of an active object.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`], [`PoaError::NoAddress`].
    pub fn id_to_reference(&self, id: &ObjectId) -> Result<Reference, PoaError> {
        let interface = *self.id_to_servant(id)?.interfaces().first().unwrap_or(&"");
        self.create_reference_with_id(id, interface)
    }

    /// The servant of an active object, or the default servant.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`].
    pub fn id_to_servant(&self, id: &ObjectId) -> Result<Arc<dyn Servant>, PoaError> {
        let place = self.adapter.objects().place(id);
        if let Some(active) = place.and_then(|place| self.registry.objects.get(place)) {
            return Ok(Arc::clone(&active.servant));
        }
        match self.adapter.serving() {
            Serving::Default(servant) => Ok(servant),
            _ => Err(PoaError::ObjectNotActive),
        }
    }

    /// The identifier in a reference that this adapter made.
    ///
    /// # Errors
    /// [`PoaError::WrongAdapter`].
    pub fn reference_to_id(&self, reference: &Reference) -> Result<ObjectId, PoaError> {
        let own = |bytes: &[u8]| {
            let key = key::Key::parse(bytes)?;
            let is_here = key.process == self.registry.process && key.adapter == self.adapter.place;
            let is_named =
                || key.names().is_some_and(|names| names.eq(self.adapter.names.iter().map(|name| &**name)));
            (is_here || self.is_persistent() && is_named()).then(|| key.id())
        };
        let mut profiles = reference.iiop_profiles();
        profiles.find_map(|profile| own(&profile.ok()?.object_key)).ok_or(PoaError::WrongAdapter)
    }

    /// The servant of the object of a reference that this adapter made.
    ///
    /// # Errors
    /// [`PoaError::WrongAdapter`], [`PoaError::ObjectNotActive`].
    pub fn reference_to_servant(&self, reference: &Reference) -> Result<Arc<dyn Servant>, PoaError> {
        self.id_to_servant(&self.reference_to_id(reference)?)
    }

    fn is_persistent(&self) -> bool {
        self.adapter.policies.lifespan == Lifespan::Persistent
    }

    /// The identifier of the object that a servant implements; it is activated if policies say so. For the
    /// default servant, while it serves a request, that of the object that is called.
    ///
    /// # Errors
    /// [`PoaError::ServantNotActive`].
    pub fn servant_to_id(&self, servant: &Arc<dyn Servant>) -> Result<ObjectId, PoaError> {
        if let Serving::Default(default) = self.adapter.serving()
            && address(&default) == address(servant)
            && let Some(id) = self.called()
        {
            return Ok(id);
        }
        if let Some(id) = self.adapter.objects().id_of_servant(servant) {
            return Ok(id);
        }
        match self.adapter.policies.implicit_activation {
            ImplicitActivation::Yes => self.activate_object(Arc::clone(servant)),
            ImplicitActivation::No => Err(PoaError::ServantNotActive),
        }
    }

    /// The object that is called by the request that this thread serves, if it is one of this adapter.
    fn called(&self) -> Option<ObjectId> {
        let called = innermost(|frame| {
            let adapter = frame.adapter.as_ref()?;
            ptr::addr_eq(Arc::as_ptr(adapter), Arc::as_ptr(&self.adapter)).then(|| id_of_key(&frame.key))
        });
        called.ok().flatten().flatten()
    }

    /// The reference of the object that a servant implements; it is activated if policies say so.
    ///
    /// # Errors
    /// [`PoaError::ServantNotActive`], [`PoaError::NoAddress`].
    pub fn servant_to_reference(&self, servant: &Arc<dyn Servant>) -> Result<Reference, PoaError> {
        let id = self.servant_to_id(servant)?;
        self.create_reference_with_id(&id, servant.interfaces().first().unwrap_or(&""))
    }

    /// Activates an object with this servant: its reference.
    ///
    /// # Errors
    /// Those of [`Poa::activate_object`] and [`Poa::id_to_reference`].
    pub fn serve(&self, servant: impl Servant + 'static) -> Result<Reference, PoaError> {
        let id = self.activate_object(Arc::new(servant))?;
        self.id_to_reference(&id)
    }
}
