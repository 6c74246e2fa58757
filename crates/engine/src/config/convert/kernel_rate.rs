//! `kernel_rate`: what the kernel's own packets may take of a link, and what admission is told of it.
//!
//! In any time t they put at most `burst + rate * t` bytes on the wire, which takes a link that drains at its rate less
//! its error so long. An explicit `interference_burst` chooses the burst, an explicit `interference_share` may only say
//! more than the rate is.

use punctual_proto::node::config::Interference;
use punctual_proto::{BitRate, Nanos, Ppm};

use super::super::file::LinkTable;
use super::super::{ConfigError, Source};
use super::rate;

/// Smallest burst unless configured otherwise: two packets of 1,500 B on the wire, tagged.
const BURST_BYTES_MIN: u64 = 2 * 1_542;
/// Larger ones last so long at the kernel's rate: timers are not exact.
const BURST: Nanos = Nanos::from_millis(1);

/// A bound on kernel traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelRate {
    /// Bits of the wire a second.
    pub rate_bps: u64,
    /// Bytes of the wire.
    pub burst_bytes: u32,
    /// The same in the link's time.
    pub interference: Interference,
}

/// What the table says.
pub(super) fn of(
    table: &LinkTable,
    rate_error: Ppm,
    at: usize,
    source: &Source<'_>,
) -> Result<Option<KernelRate>, ConfigError> {
    let Some(given) = &table.kernel_rate else { return Ok(None) };
    let refuse = |what: String| Err(source.error(at, format!("[[link]] \"{}\": {what}", table.name)));
    let whole = rate::tried(table);
    let rate = given.0.of(whole);
    let drained = whole.less(rate_error);
    if rate.0 < 8 || rate.0 >= drained.0 {
        return refuse(
            "kernel_rate takes none or all of the link: write it like \"10%\" or \"10Mbit/s\"".into(),
        );
    }
    let burst_bytes = match &table.interference_burst {
        Some(sigma) => bytes_in(drained, sigma.0),
        None => bytes_in(rate, BURST).max(BURST_BYTES_MIN),
    };
    let Ok(burst_bytes) = u32::try_from(burst_bytes) else {
        return refuse("interference_burst is too long: give less, as \"1ms\"".into());
    };
    let interference = Interference {
        sigma: drained.time_of(burst_bytes.into()),
        rho: Ppm((u128::from(rate.0) * 1_000_000).div_ceil(drained.0.into()) as u32),
    };
    if let Some(share) = table.interference_share.as_ref().filter(|share| share.0 < interference.rho) {
        return refuse(format!(
            "interference_share of {} ppm is less than kernel_rate ({} ppm): leave it out",
            share.0.0, interference.rho.0
        ));
    }
    Ok(Some(KernelRate { rate_bps: rate.0, burst_bytes, interference }))
}

fn bytes_in(rate: BitRate, time: Nanos) -> u64 {
    (u128::from(rate.0) * u128::from(time.0) / 8_000_000_000) as u64
}
