//! Which driver the worlds of Punctual run on.

use std::path::Path;

use punctual::BitRate;
use punctual_host::config;

use super::configuration::{self, Driver, Options};
use super::network::{LinkSpec, NetworkSpec};

/// `xdp` where this build has it and the process may load programs, else `udp`.
pub fn default(root: bool) -> Driver {
    if root && is_built(Driver::Xdp) { Driver::Xdp } else { Driver::Udp }
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
        assert!(is_built(Driver::Udp));
        assert_eq!(default(false), Driver::Udp);
    }
}
