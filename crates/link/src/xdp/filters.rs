//! Filters as the program sees them, and the accounts of their paths.
