//! A server with many objects in nested adapters, and a client that calls some of them.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use punctual_giop::Reference;
use punctual_orb::{Endpoint, Options, Orb, Servant as _, Stub as _, SystemException};

use generated::demux::{AccountClient, AccountServant, AccountSkeleton};

// A dispatcher has one arm for each operation.
#[allow(dead_code, missing_docs, clippy::all, clippy::too_many_lines)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/demux.rs"));
}

/// Objects that the client calls: as many for each server, so that all clients have as much memory.
const CALLED_MAX: usize = 256;

struct Account;

type Answer = Result<u8, SystemException>;

macro_rules! operations {
    ($($name:ident),*) => {
        impl AccountServant for Account {
            $(fn $name(&self, value: u8) -> Answer {
                Ok(value)
            })*
        }

        /// Calls the operation with this number.
        fn call(account: &AccountClient, operation: usize, value: u8) -> Answer {
            const CALLS: &[fn(&AccountClient, u8) -> Answer] = &[$(|account, value| account.$name(value)),*];
            CALLS[operation % CALLS.len()](account, value)
        }
    };
}

operations!(
    open,
    close,
    deposit,
    withdraw,
    transfer,
    balance,
    history,
    interest,
    set_interest,
    owner,
    set_owner,
    currency,
    set_currency,
    freeze,
    release,
    limit,
    set_limit,
    statement,
    last_statement,
    notify
);

/// The names of an account's operations, by their numbers.
pub fn operations() -> &'static [&'static str] {
    AccountSkeleton::new(Account).operations().names()
}

/// A server and its client.
pub struct Served {
    server: Orb,
    /// The key of each object.
    pub keys: Vec<Vec<u8>>,
    _client: Orb,
    accounts: Vec<AccountClient>,
}

/// The key of an object of this program.
fn key(reference: &Reference) -> anyhow::Result<Vec<u8>> {
    let profile = reference.iiop_profiles().next().context("a reference without an address")??;
    Ok(profile.object_key)
}

impl Served {
    /// Adapters with these names, one in the other; the innermost has so many objects.
    pub fn new(adapters: &[String], objects: u64) -> anyhow::Result<Self> {
        let server = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0)))?;
        let mut poa = server.root_poa();
        for name in adapters {
            poa = poa.create_poa(name, poa.policies(), Some(poa.manager()))?;
        }
        poa.manager().activate()?;
        let client = Orb::new(Options::default())?;
        let (mut keys, mut accounts) = (Vec::new(), Vec::new());
        // Spread over all objects.
        let step = (objects as usize / CALLED_MAX).max(1);
        for number in 0..objects as usize {
            let id = poa.activate_object(Arc::new(AccountSkeleton::new(Account)))?;
            let reference = poa.id_to_reference(&id)?;
            keys.push(key(&reference)?);
            if number % step == 0 && accounts.len() < CALLED_MAX {
                accounts.push(AccountClient::new(client.object(&reference)?));
            }
        }
        Ok(Self { server, keys, _client: client, accounts })
    }

    /// The number of an operation of the object with this key.
    pub fn find(&self, key: &[u8], operation: &str) -> Option<usize> {
        self.server.find_operation(key, operation)
    }

    /// Calls objects and operations in an order that `draw` gives: how long each call took, ns.
    pub fn call(&self, calls: usize, mut draw: impl FnMut(usize) -> usize) -> anyhow::Result<Vec<f64>> {
        let mut spans = Vec::with_capacity(calls);
        for _ in 0..calls {
            let (account, operation) = (draw(self.accounts.len()), draw(operations().len()));
            let begun = Instant::now();
            let answered = call(&self.accounts[account], operation, 7);
            spans.push(begun.elapsed().as_nanos() as f64);
            let answered = answered.map_err(io::Error::other)?;
            ensure!(answered == 7, "an object answered something else");
        }
        Ok(spans)
    }
}
