//! What a node counts, beside what there is.

use crate::ids::LinkId;

/// A count that a node keeps, and what it should be by those that hold something of it. Whoever runs a node may compare them
/// whenever it is not in the middle of a call: what is counted and held by nobody is lost until the node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// What is counted: a short phrase, such as `bytes of buffers`.
    pub what: &'static str,
    /// Link that the count belongs to; `None` for a count of the whole node.
    pub link: Option<LinkId>,
    /// Value of the count that the node keeps.
    pub counted: u64,
    /// Sum over everything that holds a part of it. It equals `counted` unless something was lost.
    pub held: u64,
}
