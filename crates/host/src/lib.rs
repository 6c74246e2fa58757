//! Runs a host for other programs: an engine, and the service that gives programs their channels.
//!
//! [`service`] connects requests of programs with events of the node, on one owner thread. [`EngineHost`]
//! connects it to an engine in this process. `punctuald` adds a socket to which programs connect. An
//! embedding program has an [`EmbeddedHost`], whose one connection is its own.

mod calibration;
pub mod config;
mod embedded;
pub mod finding;
mod journal;
mod nominal_rate;
pub mod priorities;
pub mod profile_rings;
mod ringer_rank;
mod running;
pub mod service;
mod tcp;

pub use calibration::{CalibrationError, calibrate, check_profile};
pub use config::{GivenCosts, Mismatch, ProfileSettings};
pub use embedded::{EmbeddedHost, TcpCloser, TcpEnds, TcpListening};
pub use nominal_rate::nominal_rate;
pub use running::{EngineHost, HostError, Prepared, quotas};
pub use tcp::daemon::{DaemonTcp, TcpHostEvent};
pub use tcp::opener::TcpNews;
pub use tcp::{TcpError, TcpWish, api_end, api_settings, api_state, engine_setting, tcp_rings_bytes};
