//! Which driver the worlds of Punctual run on.

use std::path::Path;

use punctual::BitRate;
use punctual_host::config::{self, Driver};

use super::configuration::{self, Options};
use super::network::{LinkSpec, NetworkSpec};

/// A driver that bypasses the kernel if the process may load programs, else the usual one.
pub fn default(root: bool) -> Driver {
    let best = Driver::ALL.into_iter().find(|driver| driver.bypasses_kernel() && is_built(*driver));
    best.filter(|_| root).unwrap_or_default()
}

/// Whether a host can be configured with it.
pub fn is_built(driver: Driver) -> bool {
    let spec = NetworkSpec { hosts: vec!["a", "b"], links: vec![LinkSpec::direct(BitRate(1_000_000_000))] };
    let options = Options { driver, ..Options::default() };
    let unused = Path::new("/dev/null");
    let text = configuration::text(&spec, 0, &options, &"0".repeat(64), unused);
    config::parse(&text, unused).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_always_there() {
        assert!(is_built(Driver::default()));
        assert_eq!(default(false), Driver::default());
        assert!(default(true).bypasses_kernel());
    }
}
