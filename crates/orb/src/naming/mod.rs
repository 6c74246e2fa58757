//! The naming service (OMG Naming Service 1.3): a tree of contexts in which objects have names, and its clients.
//!
//! | module | owns |
//! |---|---|
//! | [`cos_naming`] | clients and skeletons, generated from `CosNaming.idl` |
//! | `tree` | contexts and what is bound in them |
//! | `servant`, `iterator`, `failure` | the service: contexts and iterators as objects, and why their operations fail |
//! | `client` | names in references: `corbaname:` |

mod client;
mod failure;
mod iterator;
mod servant;
mod tree;

// A dispatcher has one arm for each operation.
#[allow(clippy::too_many_lines)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/CosNaming.rs"));
}

pub use client::{FindError, find};
pub use generated::cos_naming;
pub use servant::serve;
