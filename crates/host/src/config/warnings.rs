//! What of a configuration works, and is no guarantee.

use punctual_proto::config::{KernelTraffic, LinkConfig};

use super::{Driver, HostConfig};

/// The two ways that always work.
const SAID: &str = "kernel_traffic = \"exclusive\" says that there is none, interference_burst and \
                    interference_share say how much there is";

impl HostConfig {
    /// A line for each link whose configuration permits no guarantee, with the fix.
    pub fn warnings(&self) -> Vec<String> {
        let drivers = self.drivers.iter().map(|link| link.driver());
        let links = self.node.links.iter().zip(drivers);
        let unbounded = links.filter(|(link, _)| link.kernel_traffic == KernelTraffic::Unbounded);
        let line = |(link, driver): (&LinkConfig, Driver)| {
            format!(
                "link {} is degraded: nothing bounds the kernel's traffic on its device, so nothing is guaranteed across it: {}",
                link.name,
                self.kernel_traffic_fix(link, driver)
            )
        };
        unbounded.map(line).collect()
    }

    /// The advice how to bound the kernel's traffic beside a link, with keys that fit the rest of its
    /// configuration.
    pub fn kernel_traffic_fix(&self, link: &LinkConfig, driver: Driver) -> String {
        if link.rate_auto {
            return format!("{SAID}; to have the daemon bound it, give the link a rate instead of \"auto\"");
        }
        if driver.bypasses_kernel() {
            format!("kernel_rate = \"10%\" has the daemon bound it; or {SAID}")
        } else if self.is_best_effort_host() {
            format!("a best-effort host cannot shape it; {SAID}")
        } else {
            format!("kernel_traffic = \"shaped\" has the daemon order and bound it; or {SAID}")
        }
    }
}
