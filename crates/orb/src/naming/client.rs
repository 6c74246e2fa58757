//! References with names in them.

use punctual_giop::exception::minor;
use punctual_giop::reference::corbaloc::Corbaloc;
use punctual_giop::reference::corbaname::Corbaname;
use punctual_giop::reference::{Error, Link};
use punctual_giop::{Completion, Reference, SystemException, SystemExceptionKind as Kind};

use super::cos_naming::{NameComponent, NamingContextClient, naming_context};
use crate::publish::host_name;
use crate::{Orb, Stub};

/// Why a reference leads to no object.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The text is no reference.
    #[error(transparent)]
    Reference(#[from] Error),
    /// The naming service does not know the name.
    #[error("the naming service does not know the name: {0}")]
    Name(naming_context::ResolveError),
    /// The naming service cannot be asked.
    #[error("the naming service cannot be asked: {0}")]
    Service(SystemException),
    /// `rir:`: the ORB was not told which object has this name.
    #[error(
        "`rir:` names a service of the ORB's configuration, and this one has no `{0}`: write its address"
    )]
    Resolve(String),
}

impl Orb {
    /// A reference from its text: `IOR:`, `corbaloc:`, or `corbaname:`, whose naming service is asked.
    ///
    /// # Errors
    /// `BAD_PARAM` if it is none, or names what nobody knows; those of calling the naming service.
    /// [`naming::find`](crate::naming::find) says more.
    pub fn reference(&self, text: &str) -> Result<Reference, SystemException> {
        find(self, text).map_err(|error| match error {
            FindError::Service(exception) => exception,
            FindError::Reference(error) => {
                let minor = match error {
                    Error::Scheme => minor::BAD_SCHEME,
                    Error::Address(_) | Error::Transport(_) => minor::BAD_ADDRESS,
                    _ => minor::BAD_SCHEME_SPECIFIC,
                };
                SystemException::new(Kind::BadParam, minor, Completion::No)
            }
            FindError::Name(_) | FindError::Resolve(_) => {
                SystemException::new(Kind::BadParam, minor::BAD_REFERENCE, Completion::No)
            }
        })
    }

    /// The object of a reference as text, for clients of an interface. It is asked whether it has the interface
    /// if its reference does not say so.
    ///
    /// # Errors
    /// Those of [`Orb::reference`] and [`Orb::object`]; `BAD_PARAM` if it has another interface.
    pub fn resolve<S: Stub>(&self, text: &str) -> Result<S, SystemException> {
        self.narrow(&self.reference(text)?)
    }
}

/// The reference that text stands for. A `corbaname:` is asked for at its naming service.
///
/// # Errors
/// [`FindError`].
pub fn find(orb: &Orb, text: &str) -> Result<Reference, FindError> {
    match text.parse()? {
        Link::Reference(reference) => Ok(reference),
        Link::Corbaloc(at) => locate(orb, &at),
        Link::Corbaname(name) => resolve(orb, &name),
    }
}

fn locate(orb: &Orb, at: &Corbaloc) -> Result<Reference, FindError> {
    if let Corbaloc::Resolve(name) = at {
        return orb.initial_reference(name).ok_or_else(|| FindError::Resolve(name.clone()));
    }
    let reference = at.reference(&host_name()).map_err(Error::from)?;
    reference.ok_or(FindError::Reference(Error::Resolve))
}

fn resolve(orb: &Orb, name: &Corbaname) -> Result<Reference, FindError> {
    let context = locate(orb, &name.context)?;
    let Some(name) = &name.name else { return Ok(context) };
    let part = |part: &punctual_giop::reference::corbaname::NamePart| NameComponent {
        id: part.id.clone(),
        kind: part.kind.clone(),
    };
    let parts: Vec<NameComponent> = name.0.iter().map(part).collect();
    let object = orb.object(&context).map_err(FindError::Service)?;
    NamingContextClient::new(object).resolve(&parts).map_err(|error| match error {
        naming_context::ResolveError::System(exception) => FindError::Service(exception),
        other => FindError::Name(other),
    })
}
