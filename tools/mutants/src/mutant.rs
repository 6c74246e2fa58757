//! A mutant: one mistake, and how it is switched on.

use std::path::PathBuf;

use crate::sites::Site;

/// The environment variable that switches a mutant on: its number; 0 for none; or `trace:FILE`, which writes the numbers of
/// all that are reached.
pub const SWITCH: &str = "PUNCTUAL_MUTANT";

/// A mistake in a file of the workspace.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// From 1, in the order in which they are drawn.
    pub id: u32,
    /// Path from the root of the workspace.
    pub file: PathBuf,
    /// The place and the change.
    pub site: Site,
    /// The path of the switch, seen from there.
    pub switch: &'static str,
}
