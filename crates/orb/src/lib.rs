//! An ORB: calls of objects in other processes and on other hosts, by CORBA's protocol GIOP.
//!
//! | module | owns |
//! |---|---|
//! | `limits`, [`options`], `counted` | every limit, what is configured, and what tests count |
//! | `tick`, `transport`, `framing`, `inbox`, `budget` | streams, the messages that go and come on them, and the memory of those of clients |
//! | `session`, `duplex`, `served` | what messages mean where they come; connections on which both ends call, and the requests of the other end |
//! | `call`, `outcome`, `link`, `shared`, `peer` | calls of servers: blocking ones on a connection each, others on one |
//! | `route`, `object`, `pending` | objects, the ways to them, outcomes that come later |
//! | [`operations`], `frames`, `reply`, [`poa`], `answer` | servants, the requests of a thread, and from a request to its servant and its reply |
//! | [`current`], [`Contexts`], [`SyncScope`], `later` | what a request says beside its arguments, and how far its caller waits |
//! | `publish`, `core`, `server`, `serving_permit`, `main_thread`, `main_thread_request`, `duty`, `orb` | one ORB; which threads serve |
//! | [`naming`] | the naming service, and its clients |
//!
//! A blocking call is led by its caller: the thread that calls writes the request and reads the reply, and no
//! other thread wakes. In steady state it takes no lock and allocates nothing of its own.

#![forbid(unsafe_code)]

// Generated code names this crate so.
extern crate self as punctual_orb;

mod answer;
mod budget;
mod call;
mod contexts;
mod core;
mod counted;
pub mod current;
mod duplex;
mod duty;
mod exception;
mod frames;
mod framing;
mod inbox;
mod later;
mod limits;
mod link;
mod long;
mod main_thread;
mod main_thread_request;
pub mod naming;
mod object;
pub mod operations;
pub mod options;
mod orb;
mod outcome;
mod owed;
mod peer;
mod pending;
pub mod poa;
mod publish;
mod reply;
mod route;
mod scope;
mod served;
mod server;
mod serving_permit;
mod session;
mod shared;
mod tick;
mod transport;
mod turns;
mod wakeup;

pub use std::borrow::Cow;
pub use std::sync::Arc;

pub use contexts::Contexts;
pub use exception::{bad_operation, unlisted_exception};
pub use object::{Object, Stub};
pub use operations::Operations;
pub use options::{Concurrency, Options, Pool};
pub use orb::Orb;
pub use outcome::{Outcome, argument, numbers, result, text};
pub use pending::Pending;
pub use punctual_giop::{Reference, SystemException};
pub use reply::{Reply, Servant};
pub use scope::SyncScope;
pub use transport::Endpoint;
