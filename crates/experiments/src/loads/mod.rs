//! Loads.
pub mod h264;
