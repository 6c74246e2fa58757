//! The nominal rate of a network device: the rate of the adapter and its cable. The actual throughput may be
//! lower.

use std::fs;
use std::path::Path;

use punctual_proto::BitRate;

/// The speed that the device of this name reports. `None` if the device is virtual (then the figure is made up), has no cable, or
/// belongs to another network namespace than `/sys`.
pub fn nominal_rate(device: &str) -> Option<BitRate> {
    let folder = Path::new("/sys/class/net").join(device);
    // Only an adapter has a device behind it.
    if !folder.join("device").exists() {
        return None;
    }
    let text = fs::read_to_string(folder.join("speed")).ok()?;
    let mbit: u64 = text.trim().parse().ok()?;
    (mbit > 0).then(|| BitRate(mbit.saturating_mul(1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::nominal_rate;

    #[test]
    fn a_device_without_an_adapter_has_no_nominal_rate() {
        assert_eq!(nominal_rate("lo"), None);
        assert_eq!(nominal_rate("no-such-interface"), None);
    }
}
