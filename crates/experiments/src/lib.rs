//! The demo and the experiments of the papers: test beds, loads, measurement, reports.
//!
//! All runs use network namespaces that a run makes and removes itself ([`testbed`]). Loads send the same
//! traffic through Punctual and through plain kernel sockets ([`loads`]); the output is measured from the
//! logical arrival ([`measure`]); a witness watches the platform ([`witness`], [`excuse`]); results go to one
//! self-contained page and to JSON ([`report`]).

pub mod demo;
pub mod excuse;
pub mod experiments;
pub mod loads;
pub mod measure;
pub mod report;
pub mod testbed;
pub mod witness;
