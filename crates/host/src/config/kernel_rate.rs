//! `kernel_rate`: the share of a link that the kernel's own packets may take, and the interference that
//! admission assumes for it. `kernel_rate_max`: the share beyond that, which they get while the admitted
//! channels allow it.
//!
//! In any time t the kernel's packets put at most `burst + rate * t` bytes on the wire. A link that drains at
//! its rate less its error needs as long as these bytes take at that rate. An explicit `interference_burst`
//! chooses the burst; an explicit `interference_share` may only be larger than the rate is.

use punctual_analysis::{Admission, one_of};
use punctual_link::kernel::FOLLOWING_UNITS;
use punctual_proto::config::{Interference, LinkConfig, Pacing};
use punctual_proto::ids::NodeId;
use punctual_proto::{BitRate, Nanos, Ppm};

use super::file::LinkTable;
use super::given::pick;
use super::{ConfigError, Source, rate};

/// Smallest burst unless configured otherwise: two packets of 1,500 B on the wire, tagged.
const BURST_BYTES_MIN: u64 = 2 * PACKET_BYTES;
/// Smallest burst if the rate follows admission: this many packets.
const BURST_FOLLOWING_BYTES_MIN: u64 = FOLLOWING_UNITS as u64 * PACKET_BYTES;
const PACKET_BYTES: u64 = 1_542;
/// Largest part of the configured rate, and of the link's drain rate, that is left to the kernel. With more,
/// our packets would be paced at almost zero.
const SHARE_MAX: Ppm = Ppm(950_000);
/// Time that a larger burst lasts at the kernel's rate, because timers are not exact.
const BURST: Nanos = Nanos::from_millis(1);

/// A bound on kernel traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelRate {
    /// Rate in bits on the wire a second.
    pub rate_bps: u64,
    /// Burst in bytes on the wire.
    pub burst_bytes: u32,
    /// The bound as interference: what kernel traffic takes of the link's time.
    pub interference: Interference,
    /// If the rate follows admission: the largest part of the link's drain rate, and that part in bits a
    /// second.
    pub follows: Option<(Ppm, u64)>,
}

/// Reads the bound from the table.
pub(super) fn of(
    table: &LinkTable,
    rate_error: Ppm,
    at: usize,
    source: &Source<'_>,
) -> Result<Option<KernelRate>, ConfigError> {
    let refuse = |what: String| Err(source.error(at, format!("[[link]] \"{}\": {what}", table.name)));
    let Some(given) = &table.kernel_rate else {
        return match table.kernel_rate_max {
            Some(_) => refuse(
                "kernel_rate_max without kernel_rate: give that too, it is what the kernel always has".into(),
            ),
            None => Ok(None),
        };
    };
    let whole = rate::tried(table);
    let rate = given.0.of(whole);
    let drained = whole.less(rate_error);
    if rate.0 < 8 || rate.0 >= drained.0 {
        return refuse(
            "kernel_rate takes none or all of the link: write it like \"10%\" or \"10Mbit/s\"".into(),
        );
    }
    let least = Ppm((u128::from(rate.0) * 1_000_000).div_ceil(drained.0.into()) as u32);
    let share_max = match share_max(table, rate, drained) {
        Ok(share) => share,
        Err(what) => return refuse(what),
    };
    let follows = Some(share_max).filter(|share| *share > least && may_follow(table));
    let burst_bytes = match &table.interference_burst {
        Some(sigma) => bytes_in(drained, sigma.0),
        None if follows.is_some() => bytes_in(rate, BURST).max(BURST_FOLLOWING_BYTES_MIN),
        None => bytes_in(rate, BURST).max(BURST_BYTES_MIN),
    };
    let Ok(burst_bytes) = u32::try_from(burst_bytes) else {
        return refuse("interference_burst is too long: give less, as \"1ms\"".into());
    };
    let interference = Interference { sigma: drained.time_of(burst_bytes.into()), rho: least };
    if let Some(share) = table.interference_share.as_ref().filter(|share| share.0 < interference.rho) {
        return refuse(format!(
            "interference_share of {} ppm is less than kernel_rate ({} ppm): leave it out",
            share.0.0, interference.rho.0
        ));
    }
    let follows = follows.map(|share| (share, drained.0));
    Ok(Some(KernelRate { rate_bps: rate.0, burst_bytes, interference, follows }))
}

/// Only the pacer's own clock can make room, and only the order of deadlines tolerates the change
/// (`LinkConfig::follows`). A larger share in the configuration overrides what the shaper implies.
fn may_follow(table: &LinkTable) -> bool {
    let bears_it = table.admission.unwrap_or_default().bears_changing_share;
    table.pace != Some(Pacing::Completion) && bears_it && table.interference_share.is_none()
}

fn share_max(table: &LinkTable, rate: BitRate, drained: BitRate) -> Result<Ppm, String> {
    let Some(given) = &table.kernel_rate_max else { return Ok(SHARE_MAX) };
    let whole = rate::tried(table);
    let most = given.0.of(whole);
    if most > rate && most > BitRate((u128::from(whole.0) * u128::from(SHARE_MAX.0) / 1_000_000) as u64) {
        return Err("kernel_rate_max leaves channels next to nothing: give at most 95% of the rate".into());
    }
    if most < rate {
        return Err(
            "kernel_rate_max is less than kernel_rate, which the kernel always has: give at least that"
                .into(),
        );
    }
    if most > rate && !may_follow(table) {
        let bearing = Admission::ALL.into_iter().filter(|policy| policy.bears_changing_share);
        let names: Vec<String> = bearing.map(|policy| format!("\"{}\"", policy.name)).collect();
        return Err(format!(
            "kernel_rate_max takes a pace by the clock, admission {} and no interference_share: leave it out",
            one_of(names.iter().map(String::as_str))
        ));
    }
    let share = u32::try_from(u128::from(most.0) * 1_000_000 / u128::from(drained.0.max(1)));
    Ok(share.map_or(SHARE_MAX, Ppm).min(SHARE_MAX))
}

fn bytes_in(rate: BitRate, time: Nanos) -> u64 {
    (u128::from(rate.0) * u128::from(time.0) / 8_000_000_000) as u64
}

/// The part of the link's drain rate up to which the kernel's rate follows admission; zero: it does not.
pub(super) fn share_to_follow(table: &LinkTable, at: usize, source: &Source<'_>) -> Result<Ppm, ConfigError> {
    let rate_error =
        pick(&table.rate_error, LinkConfig::new(&table.name, NodeId(0), rate::tried(table)).rate_error);
    let bound = of(table, rate_error, at, source)?;
    Ok(bound.and_then(|kernel| kernel.follows).map_or(Ppm(0), |(share, _)| share))
}
