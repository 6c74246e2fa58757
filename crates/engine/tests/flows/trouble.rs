//! What is not as it should be.
