//! References with names in them.

use punctual_giop::reference::Link;
use punctual_giop::reference::corbaloc::Corbaloc;
use punctual_giop::reference::corbaname::Corbaname;
use punctual_giop::{Reference, SystemException};

use super::cos_naming::{NameComponent, NamingContextClient, naming_context};
use crate::publish::host_name;
use crate::{Orb, Stub as _};

/// Why a reference leads to no object.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The text is no reference.
    #[error(transparent)]
    Reference(#[from] punctual_giop::reference::Error),
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
    let reference = at.reference(&host_name()).map_err(punctual_giop::reference::Error::from)?;
    reference.ok_or(FindError::Reference(punctual_giop::reference::Error::Resolve))
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
