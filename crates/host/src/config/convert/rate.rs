//! What `rate` and `rate_max` of a link must not contradict.

use punctual_proto::words::rate_text;

use super::super::Driver;
use super::super::file::{KernelTrafficName, LinkTable};
use super::super::quantity::RateOrAuto;
use super::super::rate::is_auto;

/// What contradicts a rate that is to be measured.
///
/// # Errors
/// The first contradiction, with the fix.
pub(super) fn check(table: &LinkTable, driver: Driver) -> Result<(), String> {
    if let (RateOrAuto::Rate(rate), Some(most)) = (table.rate.0, &table.rate_max)
        && most.0 < rate
    {
        let (rate, most) = (rate_text(rate.0), rate_text(most.0.0));
        return Err(format!("rate_max {most} is less than rate {rate}: raise it, or leave it out"));
    }
    if !is_auto(table) {
        return Ok(());
    }
    let shaped = table.kernel_traffic == Some(KernelTrafficName::Shaped) || table.kernel_rate.is_some();
    let no_wire = format!("driver \"{driver}\" has no wire");
    let keys = [
        (shaped, "the shaper of kernel traffic needs the rate before there is a measurement"),
        (table.device_rate.is_some(), "device_rate is for links that share what is known of a device"),
        (!driver.has_wire(), &no_wire),
    ];
    match keys.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, why)) => Err(format!(
            "rate = \"auto\": {why}: write the rate down (punctual profile --link {} measures it)",
            table.name
        )),
    }
}
