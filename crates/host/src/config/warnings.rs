//! What of a configuration works, and is no guarantee.

use punctual_proto::config::{KernelTraffic, LinkConfig};

use super::{Driver, HostConfig};

/// The advice that fits every link.
const STATED: &str = "state it: kernel_traffic = \"exclusive\" if there is none, else interference_burst and \
                      interference_share";

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
            return format!("{STATED}; or set a rate instead of \"auto\", then the daemon can limit it");
        }
        if driver.bypasses_kernel() {
            format!("set kernel_rate = \"10%\", then the daemon limits it; or {STATED}")
        } else if self.is_best_effort_host() {
            format!("a best-effort host cannot limit it: {STATED}")
        } else {
            format!("set kernel_traffic = \"shaped\", then the daemon limits it; or {STATED}")
        }
    }
}
