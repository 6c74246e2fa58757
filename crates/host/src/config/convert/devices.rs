//! The other traffic on a link's device, and links that share a device.
//!
//! Two links share a device if both name it, or if they have one local address and do not name two devices.
//! Each is paced at its own rate, so the sum of their rates must fit the device's rate. A packet of one link
//! then waits for at most one window of each other link, in the device's time, and that is interference.
//! Loopback has no wire to share. Devices that only the routing table determines are checked when the links
//! are opened.

use punctual_link::kernel::ShaperRate;
use punctual_proto::config::{Interference, KernelTraffic, LinkConfig};
use punctual_proto::words::rate_text;
use punctual_proto::{BitRate, Nanos, Ppm};
use toml::Spanned;

use super::super::file::{KernelTrafficName, LinkTable};
use super::super::given::pick;
use super::super::{ConfigError, Driver, LinkDriver, OtherTraffic, Source, rate};

/// Smallest burst unless configured otherwise: two packets of 1,500 B on the wire, tagged.
const BURST_BYTES_MIN: u64 = 2 * 1_542;
/// Minimum length of larger bursts, because timers are not exact.
const BURST: Nanos = Nanos::from_micros(250);
/// The largest part of the passed traffic that the shaper does not count: preambles, checksums and gaps of
/// the second and further full packets of a segmented run (24 B of 1,538).
const UNCOUNTED: Ppm = Ppm(16_000);

/// The other traffic on the device, as the table states it.
///
/// # Errors
/// A contradiction in the table, with the fix.
pub(super) fn other_traffic(
    table: &LinkTable,
    driver: Driver,
    default: &LinkConfig,
) -> Result<OtherTraffic, String> {
    if !driver.has_wire() {
        return Ok(OtherTraffic::Nothing);
    }
    let is_loopback = driver.stays_on_machine() && table.local.is_some_and(|local| local.is_loopback());
    let stated = table.interference_burst.is_some() || table.interference_share.is_some();
    match table.kernel_traffic {
        Some(KernelTrafficName::Shaped) if is_loopback => {
            Err("kernel_traffic: loopback has no wire to share: leave it out".into())
        }
        _ if is_loopback => Ok(OtherTraffic::Nothing),
        Some(KernelTrafficName::Exclusive) if table.kernel_rate.is_some() => {
            Err("kernel_traffic = \"exclusive\" and kernel_rate exclude each other: leave one out".into())
        }
        Some(KernelTrafficName::Exclusive) => Ok(OtherTraffic::Exclusive),
        Some(KernelTrafficName::Shaped) if !driver.bypasses_kernel() => {
            shaper(table, default).map(OtherTraffic::Behind)
        }
        Some(KernelTrafficName::Shaped) if table.kernel_rate.is_none() => Err(format!(
            "kernel_traffic = \"shaped\" with driver \"{driver}\" needs kernel_rate: set how much the kernel \
            may send, as \
             \"10%\""
        )),
        _ if table.kernel_rate.is_some() => Ok(OtherTraffic::Shaped),
        _ if stated => Ok(OtherTraffic::Stated),
        _ => Ok(OtherTraffic::Unknown),
    }
}

/// The shaper of a device whose kernel traffic is sent behind ours: at the device's guaranteed rate.
fn shaper(table: &LinkTable, default: &LinkConfig) -> Result<ShaperRate, String> {
    if table.interference_share.is_some() {
        return Err("interference_share follows from kernel_traffic = \"shaped\": leave it out".into());
    }
    let device_rate = pick(&table.device_rate, rate::tried(table));
    let rate = device_rate.less(pick(&table.rate_error, default.rate_error)).less(UNCOUNTED);
    let burst = pick(&table.interference_burst, BURST);
    let bytes = (u128::from(rate.0) * u128::from(burst.0) / 8_000_000_000) as u64;
    let least = if table.interference_burst.is_some() { 0 } else { BURST_BYTES_MIN };
    u32::try_from(bytes.max(least))
        .map(|burst_bytes| ShaperRate { rate_bps: rate.0, burst_bytes })
        .map_err(|_| "interference_burst is too long: give less, as \"1ms\"".into())
}

/// Interference behind such a shaper: a burst that it let through at once, a unit that it holds already,
/// which is no longer than the burst (longer ones are cut), and its timer.
pub(super) fn behind(rate: ShaperRate, reaction: Nanos) -> Interference {
    let burst = BitRate(rate.rate_bps).time_of(rate.burst_bytes.into());
    Interference { sigma: burst * 2 + reaction, rho: UNCOUNTED }
}

/// Kernel traffic in the node's configuration.
pub(super) const fn kernel_traffic(other_traffic: OtherTraffic) -> KernelTraffic {
    match other_traffic {
        OtherTraffic::Unknown => KernelTraffic::Unbounded,
        OtherTraffic::Behind(_) => KernelTraffic::Behind,
        OtherTraffic::Nothing | OtherTraffic::Exclusive | OtherTraffic::Stated | OtherTraffic::Shaped => {
            KernelTraffic::Bounded
        }
    }
}

/// The device of one link, as far as the file describes it.
#[derive(Clone, Copy)]
struct Place<'a> {
    table: &'a LinkTable,
    driver: Driver,
    other_traffic: OtherTraffic,
}

impl Place<'_> {
    fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.table.device, &other.table.device) {
            (Some(one), Some(another)) => one == another,
            _ => self.table.local == other.table.local,
        }
    }

    fn device(&self) -> String {
        match (&self.table.device, self.table.local) {
            (Some(device), _) => format!("device {device}"),
            (None, Some(local)) => format!("the device of {local}"),
            (None, None) => "its device".into(),
        }
    }

    /// The mistake in sharing a device with `others`, with the fix.
    fn check(&self, others: &[Self]) -> Result<(), String> {
        let Self { table, .. } = self;
        let Some(first) = others.first() else {
            return match table.device_rate.as_ref().filter(|rate| rate.0 < rate::tried(table)) {
                Some(device) => Err(format!(
                    "device_rate {} is less than the link's rate {}: lower rate, or leave device_rate out",
                    rate_text(device.0.0),
                    rate_text(rate::tried(table).0)
                )),
                None => Ok(()),
            };
        };
        let (device, name) = (self.device(), &first.table.name);
        if let Some(auto) = others.iter().chain([self]).find(|place| rate::is_auto(place.table)) {
            return Err(format!(
                "{device} is shared by links, and what one of them drains depends on the others: give link \"{}\" a rate \
                 instead of \"auto\"",
                auto.table.name
            ));
        }
        let mut drivers = others.iter().chain([self]).map(|place| place.driver);
        if let Some(alone) = drivers.find(|driver| driver.bypasses_kernel()) {
            let shared = Driver::default();
            return Err(format!(
                "link \"{name}\" is on {device}, too, and driver \"{alone}\" needs a device of its own: use another \
                 device, or driver \"{shared}\" for both"
            ));
        }
        let rates =
            || others.iter().chain([self]).map(|place| place.table.device_rate.as_ref().map(|it| it.0));
        let fix = "give each of them device_rate, what the device drains, and rates that fit it together";
        let claims = || {
            let claim =
                |place: &Self| format!("\"{}\" {}", place.table.name, rate_text(rate::tried(place.table).0));
            others.iter().chain([self]).map(claim).collect::<Vec<_>>().join(", ")
        };
        let Some(whole) = rates().next().flatten().filter(|whole| rates().all(|rate| rate == Some(*whole)))
        else {
            return Err(format!(
                "{device} is shared by links that each claim their rate of it ({}): {fix}",
                claims()
            ));
        };
        let sum: u64 = others.iter().chain([self]).map(|place| rate::tried(place.table).0).sum();
        if sum > whole.0 {
            return Err(format!(
                "{device} drains {}, and its links together claim {} ({}): lower their rates",
                rate_text(whole.0),
                rate_text(sum),
                claims()
            ));
        }
        if others.iter().any(|other| other.other_traffic != self.other_traffic) {
            return Err(format!(
                "link \"{name}\" is on {device}, too, with other settings for kernel traffic: give both the \
                 same kernel_traffic, rate_error and interference_burst"
            ));
        }
        Ok(())
    }
}

/// Links of one device: what does not fit is refused, what each waits for the others' windows is counted.
///
/// # Errors
/// The first link that does not fit, with the fix.
pub(super) fn share(
    tables: &[Spanned<LinkTable>],
    drivers: &[Box<dyn LinkDriver>],
    other_traffic_by_link: &[OtherTraffic],
    links: &mut [LinkConfig],
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let places: Vec<Place<'_>> = tables
        .iter()
        .zip(drivers)
        .zip(other_traffic_by_link)
        .map(|((table, driver), other_traffic)| Place {
            table: table.get_ref(),
            driver: driver.driver(),
            other_traffic: *other_traffic,
        })
        .collect();
    let windows: Vec<Nanos> = places.iter().zip(&*links).map(|(place, link)| window(place, link)).collect();
    for (index, place) in places.iter().enumerate() {
        if place.other_traffic == OtherTraffic::Nothing {
            continue;
        }
        let shares = |other: &usize| {
            *other != index
                && places[*other].other_traffic != OtherTraffic::Nothing
                && places[*other].is_shared_with(place)
        };
        let others: Vec<usize> = (0..places.len()).filter(shares).collect();
        let sharers: Vec<Place<'_>> = others.iter().map(|other| places[*other]).collect();
        place.check(&sharers).map_err(|what| {
            source.error(tables[index].span().start, format!("[[link]] \"{}\": {what}", place.table.name))
        })?;
        let waits: Nanos = others.iter().map(|other| windows[*other]).sum();
        links[index].interference.sigma += waits;
    }
    Ok(())
}

/// The bytes that a link may hand over at once, in its device's time.
fn window(place: &Place<'_>, link: &LinkConfig) -> Nanos {
    let bytes =
        u64::from(link.pipeline_depth) * u64::from(link.packet_bytes_max.saturating_add(link.overhead_bytes));
    let drained = match place.other_traffic {
        OtherTraffic::Behind(rate) => BitRate(rate.rate_bps),
        _ => pick(&place.table.device_rate, link.rate).less(link.rate_error),
    };
    drained.time_of(bytes)
}
