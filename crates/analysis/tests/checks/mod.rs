//! Checks of one random set each, shared by the tests of this crate and the mutation check: `None` if the
//! check passes, or a description of the failure.

pub mod arrivals;
pub mod demand;
pub mod link;
pub mod oracle;
pub mod soft_limit;
