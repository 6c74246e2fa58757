//! What object adapters refuse (CORBA 11.3).

/// Why an object adapter does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoaError {
    /// The name is taken.
    #[error("an object adapter of this name exists already")]
    AdapterAlreadyExists,
    /// No adapter has the name.
    #[error("there is no object adapter of this name")]
    AdapterNonExistent,
    /// The adapter was destroyed.
    #[error("the object adapter was destroyed")]
    Destroyed,
    /// Policies that do not go together.
    #[error("the policies do not go together: {0}")]
    InvalidPolicy(&'static str),
    /// There is no default servant, or no servant manager.
    #[error("no servant is set for objects that are not active")]
    NoServant,
    /// The object has a servant.
    #[error("the object is active already")]
    ObjectAlreadyActive,
    /// The object has no servant.
    #[error("the object is not active")]
    ObjectNotActive,
    /// The servant implements an object, and may implement one only.
    #[error("the servant is active already, and the adapter's policy is one object a servant")]
    ServantAlreadyActive,
    /// The servant implements no object here.
    #[error("the servant is not active, and is not activated on demand")]
    ServantNotActive,
    /// The reference is one of another adapter.
    #[error("the reference was made by another object adapter")]
    WrongAdapter,
    /// The adapter's policies do not allow it.
    #[error("the policies of the object adapter do not allow this")]
    WrongPolicy,
    /// No request is being served.
    #[error("this thread serves no request")]
    NoRequest,
    /// The ORB has no address.
    #[error("the ORB listens nowhere, so nobody could use the reference: give `Options::listen` an address")]
    NoAddress,
}
