//! A servant of `Callback` that does what a test says.

use std::sync::Arc;

use punctual_giop::Reference;
use punctual_orb::poa::Policies;
use punctual_orb::{Endpoint, Options, Orb, Servant, SystemException};

use crate::demo::demo::{Callback, CallbackClient, CallbackServant, CallbackSkeleton};

/// Does with each number what the test says.
pub struct Probe<F>(pub F);

impl<F: Fn(i32) -> Result<(), SystemException> + Send + Sync> CallbackServant for Probe<F> {
    fn called(&self, number: i32) -> Result<(), SystemException> {
        (self.0)(number)
    }
}

/// A servant that does what the test says.
pub fn servant(
    does: impl Fn(i32) -> Result<(), SystemException> + Send + Sync + 'static,
) -> Arc<dyn Servant> {
    Arc::new(CallbackSkeleton::new(Probe(does)))
}

/// An object that does what the test says.
pub fn object(
    orb: &Orb,
    does: impl Fn(i32) -> Result<(), SystemException> + Send + Sync + 'static,
) -> Reference {
    orb.root_poa().serve(CallbackSkeleton::new(Probe(does))).expect("it is active")
}

/// A client of such an object, over a connection.
pub fn client(orb: &Orb, reference: &Reference) -> CallbackClient {
    Callback(reference.clone()).connect(orb).expect("a usable reference")
}

/// Options of a server at a free port of this host.
pub fn listening() -> Options {
    Options::listening(Endpoint::tcp("127.0.0.1", 0))
}

/// A server whose root adapter is active.
pub fn server(options: Options) -> Orb {
    let orb = Orb::new(options).expect("it listens");
    orb.root_poa().manager().activate().expect("it is not inactive");
    orb
}

/// Policies that differ from the standard's by what `change` does.
pub fn policies(change: impl FnOnce(&mut Policies)) -> Policies {
    let mut policies = Policies::default();
    change(&mut policies);
    policies
}
