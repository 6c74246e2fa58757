//! Accounts of a node: the counts that it keeps, beside the sums over what is counted.

use crate::ids::LinkId;

/// A count that a node keeps, and the value that follows from the objects which hold a part of it. The
/// program that runs a node may compare the two whenever the node is not in the middle of a call. A part that
/// is counted but that no object holds is leaked until the node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of the count: a short phrase, such as `bytes of buffers`.
    pub what: &'static str,
    /// Link that the count belongs to; `None` for a count of the whole node.
    pub link: Option<LinkId>,
    /// Value of the count that the node keeps.
    pub counted: u64,
    /// Sum over everything that holds a part of it. It equals `counted` unless a part was leaked.
    pub held: u64,
}
