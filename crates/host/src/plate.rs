//! What stands on the name plate of a network device. It says what the adapter and its cable may carry, not what gets through.

use std::fs;
use std::path::Path;

use punctual_proto::BitRate;

/// The speed that the device of this name says it has; `None` where it is virtual, whose figure is made up, or has no cable, or
/// belongs to another network namespace than `/sys`.
pub fn name_plate(device: &str) -> Option<BitRate> {
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
    use super::name_plate;

    #[test]
    fn what_has_no_adapter_has_no_name_plate() {
        assert_eq!(name_plate("lo"), None);
        assert_eq!(name_plate("no-such-interface"), None);
    }
}
