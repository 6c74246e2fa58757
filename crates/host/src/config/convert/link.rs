//! The `[[link]]` tables: what the link scheduler and admission are told, and what the driver is.

use std::collections::HashMap;

use punctual_analysis::{RunPolicy, one_of};
use punctual_link::kernel::{CareOptions, FIRST_CLASS, ShaperRate};
use punctual_link::xdp::{AttachMode, ClassifierOptions, ZeroCopy};
use punctual_link::{Spins, Stream, UdpOptions};
use punctual_os::realtime::{RealTime, SchedulingClass};
use punctual_proto::config::{Interference, LinkConfig, SignallingConfig};
use punctual_proto::ids::NodeId;
use punctual_proto::{Nanos, limits};
use toml::Spanned;

use super::super::file::{DriverName, KernelTrafficName, LinkTable, XdpMode, ZeroCopyChoice};
use super::super::xdp::PACKET_BYTES_MAX;
use super::super::{
    Beside, ConfigError, DATA_PORT_DEFAULT, LinkDriver, SIGNALLING_PORT_DEFAULT, Source, XdpSettings,
};
use super::addresses;
use super::kernel_rate::{self, KernelRate};
use super::{Hosts, bytes_u32, devices, given_bytes, lookup, pick, rate, signals};

/// Memory that a link's receive buffers take at most unless configured otherwise.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// What the node is told of each link, its driver, and what its device carries beside it.
type Links = (Vec<LinkConfig>, Vec<LinkDriver>, Vec<Beside>);

pub(super) fn links(
    tables: &[Spanned<LinkTable>],
    hosts: &Hosts,
    own: NodeId,
    fragment_bytes: u32,
    real_time: RealTime,
    signalling: &SignallingConfig,
    source: &Source<'_>,
) -> Result<Links, ConfigError> {
    let mut links = Vec::with_capacity(tables.len());
    let mut drivers = Vec::with_capacity(tables.len());
    let mut besides = Vec::with_capacity(tables.len());
    for table in tables {
        let (at, table) = (table.span().start, table.get_ref());
        let refuse = |what: String| source.error(at, format!("[[link]] \"{}\": {what}", table.name));
        if table.driver != DriverName::Xdp {
            no_xdp_keys(table).map_err(refuse)?;
        }
        rate::check(table).map_err(refuse)?;
        let beside = devices::beside(table, &default_of(table)).map_err(refuse)?;
        let link = link(table, beside, hosts, fragment_bytes, at, source)?;
        link.check(fragment_bytes, own).map_err(|error| refuse(error.what))?;
        let driver = match table.driver {
            DriverName::Memory => memory(table, at, source)?,
            DriverName::Udp => udp(table, &link, beside, real_time, at, source)?,
            DriverName::Xdp => xdp(table, &link, signalling, at, source)?,
        };
        addresses::check(&driver, table.neighbour.as_str()).map_err(refuse)?;
        drivers.push(driver);
        links.push(link);
        besides.push(beside);
    }
    one_device_each(tables, &drivers, source)?;
    one_link_each(tables, source)?;
    devices::share(tables, &drivers, &besides, &mut links, source)?;
    share_ports(&mut drivers);
    Ok((links, drivers, besides))
}

/// A link with the defaults for all that the table does not say.
fn default_of(table: &LinkTable) -> LinkConfig {
    LinkConfig::new(&table.name, NodeId(0), rate::tried(table))
}

fn link(
    table: &LinkTable,
    beside: Beside,
    hosts: &Hosts,
    fragment_bytes: u32,
    at: usize,
    source: &Source<'_>,
) -> Result<LinkConfig, ConfigError> {
    let what = format!("[[link]] \"{}\"", table.name);
    let neighbour = lookup(hosts, &table.neighbour, &format!("{what}: neighbour"), at, source)?;
    let default = LinkConfig::new(&table.name, neighbour, rate::tried(table));
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
        rate_auto: rate::is_auto(table),
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
        interference: match beside {
            Beside::Behind(rate) => devices::behind(rate, pick(&table.reaction, default.reaction)),
            _ => interference(table, &default, at, source)?,
        },
        kernel_traffic: devices::kernel_traffic(beside),
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

/// As many frames as usual, fewer where packets are so large that they would take too much memory.
fn frames_default(packet_bytes: u32) -> u32 {
    limits::FRAMES_DEFAULT.min(FRAME_BYTES_MAX / packet_bytes.max(1)).max(limits::FRAMES_MIN)
}

fn memory(table: &LinkTable, at: usize, source: &Source<'_>) -> Result<LinkDriver, ConfigError> {
    let keys = [
        ("local", table.local.is_some()),
        ("peer", table.peer.is_some()),
        ("device", table.device.is_some()),
        ("data_port", table.data_port.is_some()),
        ("signalling_port", table.signalling_port.is_some()),
        ("peer_data_port", table.peer_data_port.is_some()),
        ("peer_signalling_port", table.peer_signalling_port.is_some()),
        ("kernel_traffic", table.kernel_traffic.is_some()),
        ("device_rate", table.device_rate.is_some()),
    ];
    let why = "driver \"memory\" has no addresses, devices or ports: leave it out";
    none_of(&keys, why).map_err(|what| source.error(at, format!("[[link]] \"{}\": {what}", table.name)))?;
    Ok(LinkDriver::Memory)
}

/// That none of these keys is given; else the first that is, and why it must not.
fn none_of(keys: &[(&str, bool)], why: &str) -> Result<(), String> {
    match keys.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((key, _)) => Err(format!("{key}: {why}")),
    }
}

fn udp(
    table: &LinkTable,
    link: &LinkConfig,
    beside: Beside,
    real_time: RealTime,
    at: usize,
    source: &Source<'_>,
) -> Result<LinkDriver, ConfigError> {
    let (Some(local), Some(peer)) = (table.local, table.peer) else {
        let what = format!(
            "[[link]] \"{}\": driver \"udp\" needs local and peer: give two IP addresses",
            table.name
        );
        return Err(source.error(at, what));
    };
    if let (Beside::Behind(_), Some(_)) = (beside, table.socket_priority) {
        let what = "socket_priority follows from kernel_traffic = \"shaped\": leave it out";
        return Err(source.error(at, format!("[[link]] \"{}\": {what}", table.name)));
    }
    let data_port = table.data_port.unwrap_or(DATA_PORT_DEFAULT);
    let signalling_port = table.signalling_port.unwrap_or(SIGNALLING_PORT_DEFAULT);
    let default = UdpOptions::new(local, peer, data_port, signalling_port);
    Ok(LinkDriver::Udp(UdpOptions {
        peer_data_port: table.peer_data_port.unwrap_or(data_port),
        peer_signalling_port: table.peer_signalling_port.unwrap_or(signalling_port),
        device: table.device.clone(),
        packet_bytes_max: link.packet_bytes_max as usize,
        frames: link.frames,
        socket_buffer_bytes: bytes_u32(
            &table.socket_buffer,
            default.socket_buffer_bytes as u32,
            "socket_buffer",
            source,
            at,
        )? as usize,
        socket_buffer_required: real_time.class != SchedulingClass::BestEffortHost,
        priority: match beside {
            Beside::Behind(_) => FIRST_CLASS,
            _ => table.socket_priority.map_or(default.priority, u32::from),
        },
        ..default
    }))
}

fn xdp(
    table: &LinkTable,
    link: &LinkConfig,
    signalling: &SignallingConfig,
    at: usize,
    source: &Source<'_>,
) -> Result<LinkDriver, ConfigError> {
    let refuse = |what: String| Err(source.error(at, format!("[[link]] \"{}\": {what}", table.name)));
    let (Some(device), Some(local), Some(peer)) = (&table.device, table.local, table.peer) else {
        return refuse(
            "driver \"xdp\" needs device, local and peer: give an interface and two IP addresses".into(),
        );
    };
    if table.socket_buffer.is_some() || table.socket_priority.is_some() {
        return refuse("socket_buffer and socket_priority are for driver \"udp\": use frames".into());
    }
    if link.packet_bytes_max > PACKET_BYTES_MAX {
        let bytes = link.packet_bytes_max;
        return refuse(format!(
            "packets of {bytes} B do not fit the frames of driver \"xdp\": at most {PACKET_BYTES_MAX} B, lower packet \
             and fragment"
        ));
    }
    if let Some(priority) = table.napi_priority.filter(|priority| !(1..=98).contains(priority)) {
        return refuse(format!("napi_priority {priority}: give 1 to 98"));
    }
    let data_port = table.data_port.unwrap_or(DATA_PORT_DEFAULT);
    let signalling_port = table.signalling_port.unwrap_or(SIGNALLING_PORT_DEFAULT);
    let kernel_rate = kernel_rate::of(table, link.rate_error, at, source)?;
    Ok(LinkDriver::Xdp(XdpSettings {
        classifier: ClassifierOptions {
            peer_data_port: table.peer_data_port.unwrap_or(data_port),
            peer_signalling_port: table.peer_signalling_port.unwrap_or(signalling_port),
            packet_bytes_max: link.packet_bytes_max,
            mode: match table.xdp_mode.unwrap_or_default() {
                XdpMode::Auto => AttachMode::Auto,
                XdpMode::Native => AttachMode::Native,
                XdpMode::Generic => AttachMode::Generic,
            },
            signalling_rate: signals::bound(signalling, link),
            strangers_rate: signals::strangers_bound(signalling),
            // Best effort may take all that is left of the link, in packets of any size: no rate of packets is too many.
            // What bounds it are its own buffers, taken only while nothing more urgent waits for the processor.
            best_effort_rate: None,
            ..ClassifierOptions::new(device, local, peer, data_port, signalling_port)
        },
        queue: table.queue.unwrap_or(0),
        frames: link.frames,
        zero_copy: match table.zero_copy.unwrap_or_default() {
            ZeroCopyChoice::Auto => ZeroCopy::Auto,
            ZeroCopyChoice::Yes => ZeroCopy::Yes,
            ZeroCopyChoice::No => ZeroCopy::No,
        },
        care: CareOptions {
            kernel_rate: kernel_rate
                .map(|KernelRate { rate_bps, burst_bytes, .. }| ShaperRate { rate_bps, burst_bytes }),
            link_rate_bps: kernel_rate.and_then(|kernel| kernel.follows).map(|(_, drained_bps)| drained_bps),
            whole_rate: None,
            napi_priority: table.napi_priority,
            interrupt_defer_ns: pick(&table.interrupt_defer, Nanos::ZERO).0,
        },
        spins: spins(table),
        pace_by_device: table.pace.is_none(),
    }))
}

/// What the shaper lets through, unless said otherwise.
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

/// How long to wait awake after packets of each class: what is said of the class, else of all.
fn spins(table: &LinkTable) -> Spins {
    let all = pick(&table.spin, Nanos::ZERO);
    Spins::new(|stream| {
        let own = match stream {
            Stream::Signalling => &table.spin_signalling,
            Stream::LowLatency => &table.spin_low_latency,
            Stream::Guaranteed => &table.spin_guaranteed,
            Stream::BestEffort => &table.spin_best_effort,
        };
        pick(own, all).0
    })
}

/// Keys that only the driver "xdp" can carry out.
fn no_xdp_keys(table: &LinkTable) -> Result<(), String> {
    let kernel_keys =
        [("kernel_rate", table.kernel_rate.is_some()), ("kernel_rate_max", table.kernel_rate_max.is_some())];
    if table.driver == DriverName::Udp {
        none_of(&kernel_keys, kernel_rate_over_udp(table))?;
    }
    let keys = [
        ("queue", table.queue.is_some()),
        ("xdp_mode", table.xdp_mode.is_some()),
        ("zero_copy", table.zero_copy.is_some()),
        ("napi_priority", table.napi_priority.is_some()),
        ("interrupt_defer", table.interrupt_defer.is_some()),
        ("spin", table.spin.is_some()),
        ("spin_signalling", table.spin_signalling.is_some()),
        ("spin_low_latency", table.spin_low_latency.is_some()),
        ("spin_guaranteed", table.spin_guaranteed.is_some()),
        ("spin_best_effort", table.spin_best_effort.is_some()),
    ];
    let why = "only for driver \"xdp\": leave it out, or change the driver";
    none_of(&keys, why).and_then(|()| none_of(&kernel_keys, why))
}

/// Why a link over `udp` bounds kernel traffic otherwise, and how.
fn kernel_rate_over_udp(table: &LinkTable) -> &'static str {
    match table.kernel_traffic {
        Some(KernelTrafficName::Shaped) => {
            "only for driver \"xdp\"; here kernel_traffic = \"shaped\" says it all, kernel traffic goes behind ours and \
             has what that leaves: leave it out"
        }
        _ => {
            "only for driver \"xdp\"; on a udp link kernel_traffic = \"shaped\" bounds kernel traffic: set that instead"
        }
    }
}

/// A device has one XDP program, one qdisc at its root and one pace.
fn one_device_each(
    tables: &[Spanned<LinkTable>],
    drivers: &[LinkDriver],
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let device = |driver: &LinkDriver| match driver {
        LinkDriver::Xdp(settings) => Some(settings.classifier.device.clone()),
        _ => None,
    };
    let mut seen = HashMap::new();
    for (table, device) in tables.iter().zip(drivers.iter().map(device)) {
        let (Some(device), at, name) = (device, table.span().start, &table.get_ref().name) else { continue };
        if let Some(other) = seen.insert(device.clone(), name) {
            return Err(source.error(
                at,
                format!(
                    "[[link]] \"{name}\": link \"{other}\" has driver \"xdp\" on device {device} already: use a \
                     device for each, or driver \"udp\""
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

/// Links of one address to several neighbours use the same ports.
fn share_ports(drivers: &mut [LinkDriver]) {
    let ends: Vec<_> = drivers
        .iter()
        .map(|driver| match driver {
            LinkDriver::Udp(udp) => Some((udp.local, udp.data_port, udp.signalling_port)),
            LinkDriver::Xdp(_) | LinkDriver::Memory => None,
        })
        .collect();
    for (driver, end) in drivers.iter_mut().zip(&ends) {
        if let LinkDriver::Udp(udp) = driver {
            udp.shared_port = ends.iter().filter(|other| *other == end).count() > 1;
        }
    }
}
