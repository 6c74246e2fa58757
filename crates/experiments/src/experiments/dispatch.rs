//! The work that this program does when it was started again for it ([`worker`](super::worker)).

use anyhow::Context;
use punctual_os::clock::thread_cpu;
use punctual_sim::scale;

use super::worker::{VARIABLE, Work};
use super::{instructions, rtu_scale};

/// Does the work of a worker if this is one; whether it was.
///
/// # Errors
/// If the work fails.
pub fn work_if_asked() -> anyhow::Result<bool> {
    let Ok(asked) = std::env::var(VARIABLE) else { return Ok(false) };
    match serde_json::from_str(&asked).context(VARIABLE)? {
        Work::Network(size) => println!("{}", serde_json::to_string(&scale::measure(size, thread_cpu)?)?),
        Work::Messages { policy, messages } => instructions::work(policy, messages)?,
        Work::Connect { to, count } => rtu_scale::connect(to, count)?,
    }
    Ok(true)
}
