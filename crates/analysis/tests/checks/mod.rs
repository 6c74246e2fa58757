//! Checks of one random set each, shared by the tests of this crate and the mutation check: `None` where the set
//! holds, or what is wrong with it.

pub mod arrivals;
pub mod demand;
pub mod link;
pub mod oracle;
