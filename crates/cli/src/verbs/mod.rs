//! One verb a file.

pub mod admit;
pub mod analyze;
pub mod bench;
pub mod call;
pub mod capture;
pub mod channels;
pub mod connections;
pub mod demo;
pub mod doctor;
pub mod ior;
pub mod naming;
pub mod plan;
pub mod profile;
pub mod recv;
pub mod relay;
pub mod send;
pub mod sim;
pub mod status;
pub mod suggest;
