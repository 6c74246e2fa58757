//! The `[[link]]` tables: configures the link scheduler and admission, and reads the settings of the driver.

use std::collections::HashMap;

use punctual_analysis::{RunPolicy, one_of};
use punctual_os::realtime::RealTime;
use punctual_proto::config::{Interference, LinkConfig, SignallingConfig};
use punctual_proto::ids::NodeId;
use punctual_proto::limits;
use toml::Spanned;

use super::super::drivers::LinkInput;
use super::super::file::LinkTable;
use super::super::given::{bytes_u32, given_bytes, pick};
use super::super::rate::{is_auto, tried};
use super::super::{ConfigError, Driver, LinkDriver, OtherTraffic, Source, kernel_rate};
use super::{Hosts, addresses, devices, lookup, rate};

/// Memory that a link's receive buffers take at most unless configured otherwise.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// The configuration of each link, its driver, and the other traffic on its device.
type Links = (Vec<LinkConfig>, Vec<Box<dyn LinkDriver>>, Vec<OtherTraffic>);

/// The context in which a link's table is read.
pub(super) struct LinkContext<'a> {
    pub hosts: &'a Hosts,
    /// This host.
    pub own: NodeId,
    /// Largest fragment.
    pub fragment_bytes: u32,
    pub real_time: RealTime,
    pub signalling: &'a SignallingConfig,
}

/// The driver that each table names.
///
/// # Errors
/// The first that is none of those known.
pub(super) fn drivers(
    tables: &[Spanned<LinkTable>],
    known: &[Driver],
    source: &Source<'_>,
) -> Result<Vec<Driver>, ConfigError> {
    let driver = |table: &Spanned<LinkTable>| {
        let name = &table.get_ref().driver;
        known.iter().copied().find(|driver| driver.name() == name.get_ref()).ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|driver| format!("`{driver}`")).collect();
            let (name, at) = (name.get_ref(), name.span().start);
            source
                .error(at, format!("driver: unknown variant `{name}`, expected one of {}", names.join(", ")))
        })
    };
    tables.iter().map(driver).collect()
}

/// `named` are the drivers of the tables, `known` all that there are.
pub(super) fn links(
    tables: &[Spanned<LinkTable>],
    named: &[Driver],
    known: &[Driver],
    context: &LinkContext<'_>,
    source: &Source<'_>,
) -> Result<Links, ConfigError> {
    let &LinkContext { hosts, own, fragment_bytes, real_time, signalling } = context;
    let mut links = Vec::with_capacity(tables.len());
    let mut drivers = Vec::with_capacity(tables.len());
    let mut other_traffic_by_link = Vec::with_capacity(tables.len());
    for (table, driver) in tables.iter().zip(named.iter().copied()) {
        let (at, table) = (table.span().start, table.get_ref());
        let refuse = |what: String| source.error(at, format!("[[link]] \"{}\": {what}", table.name));
        let default = default_of(table);
        let input =
            |link, other_traffic| LinkInput { table, source, at, link, other_traffic, real_time, signalling };
        only_own_keys(&input(&default, OtherTraffic::Unknown), driver, known).map_err(refuse)?;
        rate::check(table, driver).map_err(refuse)?;
        let other_traffic = devices::other_traffic(table, driver, &default).map_err(refuse)?;
        let link = link(table, other_traffic, hosts, fragment_bytes, at, source)?;
        link.check(fragment_bytes, own).map_err(|error| refuse(error.what))?;
        let settings = driver.read(&input(&link, other_traffic))?;
        addresses::check(&*settings, table.neighbour.as_str()).map_err(refuse)?;
        drivers.push(settings);
        links.push(link);
        other_traffic_by_link.push(other_traffic);
    }
    one_device_each(tables, &drivers, source)?;
    one_link_each(tables, source)?;
    devices::share(tables, &drivers, &other_traffic_by_link, &mut links, source)?;
    known.iter().for_each(|driver| driver.complete(&mut drivers));
    Ok((links, drivers, other_traffic_by_link))
}

/// Refuses a link with keys that another driver claims.
fn only_own_keys(input: &LinkInput<'_>, driver: Driver, known: &[Driver]) -> Result<(), String> {
    driver.refuse_keys(input)?;
    for other in known.iter().filter(|other| **other != driver) {
        let own = driver.claimed_keys();
        let keys: Vec<&str> = other.claimed_keys().iter().copied().filter(|key| !own.contains(key)).collect();
        let why = format!("only for driver \"{other}\": leave it out, or change the driver");
        input.has_none_of(&keys, &why)?;
    }
    Ok(())
}

/// A link with the defaults for all keys that the table does not contain.
fn default_of(table: &LinkTable) -> LinkConfig {
    LinkConfig::new(&table.name, NodeId(0), tried(table))
}

fn link(
    table: &LinkTable,
    other_traffic: OtherTraffic,
    hosts: &Hosts,
    fragment_bytes: u32,
    at: usize,
    source: &Source<'_>,
) -> Result<LinkConfig, ConfigError> {
    let what = format!("[[link]] \"{}\"", table.name);
    let neighbour = lookup(hosts, &table.neighbour, &format!("{what}: neighbour"), at, source)?;
    let default = LinkConfig::new(&table.name, neighbour, tried(table));
    let admission = table.admission.unwrap_or(default.admission);
    if admission.run != RunPolicy::Edf {
        let by_deadline = one_of(RunPolicy::Edf.admissions().map(|admission| admission.name));
        return Err(source.error(
            at,
            format!(
                "{what}: admission does not match its scheduler, which serves by deadline: use {by_deadline}"
            ),
        ));
    }
    let packet_bytes =
        default.packet_bytes_max.max(fragment_bytes.saturating_add(limits::HEADER_BYTES as u32));
    Ok(LinkConfig {
        rate_error: pick(&table.rate_error, default.rate_error),
        rate_auto: is_auto(table),
        rate_ceiling: table.rate_max.as_ref().map(|most| most.0),
        packet_bytes_max: bytes_u32(&table.packet, packet_bytes, "packet", source, at)?,
        packet_best_effort_bytes_max: given_bytes(
            &table.packet_best_effort,
            "packet_best_effort",
            source,
            at,
        )?,
        overhead_bytes: bytes_u32(&table.overhead, default.overhead_bytes, "overhead", source, at)?,
        pipeline_depth: table.pipeline_depth.unwrap_or(default.pipeline_depth),
        pace: table.pace.unwrap_or(default.pace),
        reaction: pick(&table.reaction, default.reaction),
        propagation_min: pick(&table.propagation_min, default.propagation_min),
        propagation_max: pick(&table.propagation_max, default.propagation_max),
        prediction_error: pick(&table.prediction_error, default.prediction_error),
        interference: match other_traffic {
            OtherTraffic::Behind(rate) => devices::behind(rate, pick(&table.reaction, default.reaction)),
            _ => interference(table, &default, at, source)?,
        },
        kernel_traffic: devices::kernel_traffic(other_traffic),
        kernel_share_max: kernel_rate::share_to_follow(table, at, source)?,
        best_effort_share_min: pick(&table.best_effort_share_min, default.best_effort_share_min),
        best_effort_flow_cap: pick(&table.best_effort_flow_cap, default.best_effort_flow_cap),
        best_effort_cap: pick(&table.best_effort_cap, default.best_effort_cap),
        best_effort_flow_bytes_max: bytes_u32(
            &table.best_effort_flow_queue,
            default.best_effort_flow_bytes_max,
            "best_effort_flow_queue",
            source,
            at,
        )?,
        frames: table.frames.unwrap_or_else(|| frames_default(packet_bytes)),
        admission,
        ..default
    })
}

/// Number of frames unless configured: the usual number, or fewer if packets are so large that they would
/// take too much memory.
fn frames_default(packet_bytes: u32) -> u32 {
    limits::FRAMES_DEFAULT.min(FRAME_BYTES_MAX / packet_bytes.max(1)).max(limits::FRAMES_MIN)
}

/// The traffic that the shaper lets through, unless the table states another interference.
fn interference(
    table: &LinkTable,
    default: &LinkConfig,
    at: usize,
    source: &Source<'_>,
) -> Result<Interference, ConfigError> {
    let rate_error = pick(&table.rate_error, default.rate_error);
    let bounded = kernel_rate::of(table, rate_error, at, source)?;
    let bound = bounded.map_or(default.interference, |kernel| kernel.interference);
    Ok(Interference {
        sigma: pick(&table.interference_burst, bound.sigma),
        rho: pick(&table.interference_share, bound.rho),
    })
}

/// A device has one XDP program, one qdisc at its root and one pace.
fn one_device_each(
    tables: &[Spanned<LinkTable>],
    drivers: &[Box<dyn LinkDriver>],
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let mut seen = HashMap::new();
    for (table, link) in tables.iter().zip(drivers).filter(|(_, link)| link.driver().bypasses_kernel()) {
        let (Some(device), at, name) = (link.device(), table.span().start, &table.get_ref().name) else {
            continue;
        };
        if let Some(other) = seen.insert(device, name) {
            let (driver, shared) = (link.driver(), Driver::default());
            return Err(source.error(
                at,
                format!(
                    "[[link]] \"{name}\": link \"{other}\" has driver \"{driver}\" on device {device} already: use a \
                     device for each, or driver \"{shared}\""
                ),
            ));
        }
    }
    Ok(())
}

/// Routes name hosts, not links.
fn one_link_each(tables: &[Spanned<LinkTable>], source: &Source<'_>) -> Result<(), ConfigError> {
    let mut seen = HashMap::new();
    for table in tables {
        let LinkTable { name, neighbour, .. } = table.get_ref();
        if let Some(other) = seen.insert(neighbour, name) {
            let what = format!("link \"{other}\" leads to neighbour {neighbour} already: remove one");
            return Err(source.error(table.span().start, format!("[[link]] \"{name}\": {what}")));
        }
    }
    Ok(())
}
