//! `rate` and `rate_max`: the configured drain rate of a link, or the upper limit for a measurement.

use punctual_proto::BitRate;

use super::file::LinkTable;
use super::quantity::RateOrAuto;
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
