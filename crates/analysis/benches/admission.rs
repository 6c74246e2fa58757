//! Admission decisions a second.
fn main() {}
