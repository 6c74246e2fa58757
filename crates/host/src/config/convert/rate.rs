//! `rate` and `rate_max`: the configured drain rate of a link, or the upper limit for a measurement.

use punctual_proto::BitRate;
use punctual_proto::words::rate_text;

use super::super::Driver;
use super::super::file::{KernelTrafficName, LinkTable};
use super::super::quantity::RateOrAuto;
use crate::nominal_rate::nominal_rate;

/// Rate that a measurement tries if neither the file nor a device states more. The result is then "at least"
/// this rate.
const TRIED_DEFAULT: BitRate = BitRate(1_000_000_000);

/// Whether the link measures its rate itself.
pub(super) fn is_auto(table: &LinkTable) -> bool {
    table.rate.0 == RateOrAuto::Auto
}

/// The configured rate. With `rate = "auto"`, the highest rate that a measurement tries: `rate_max`, or else the nominal rate of
/// the device, or else [`TRIED_DEFAULT`].
pub(super) fn tried(table: &LinkTable) -> BitRate {
    let nominal = || table.device.as_deref().and_then(nominal_rate);
    match table.rate.0 {
        RateOrAuto::Rate(rate) => rate,
        RateOrAuto::Auto => {
            table.rate_max.as_ref().map(|most| most.0).or_else(nominal).unwrap_or(TRIED_DEFAULT)
        }
    }
}

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
