//! What a node counts, beside what there is.

use crate::ids::LinkId;

/// A count that a node keeps, and what it should be by those that hold something of it. Whoever runs a node may compare them
/// whenever it is not in the middle of a call: what is counted and held by nobody is lost until the node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Of what.
    pub what: &'static str,
    /// On which link, where it is a link's.
    pub link: Option<LinkId>,
    /// The node's count.
    pub counted: u64,
    /// The sum over those that hold it.
    pub held: u64,
}
