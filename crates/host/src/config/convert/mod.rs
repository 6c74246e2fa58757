//! Converts the file's tables to the settings of the node, the drivers and the engine, with the checks that
//! need line numbers. The node makes the other checks when it is created.

mod addresses;
mod devices;
mod link;
mod plan;
mod priorities;
mod rate;

use std::collections::HashMap;
use std::ops::Range;

use punctual_analysis::pairs_text;
use punctual_os::calls::Forbidden;
use punctual_os::realtime::{self, RealTime, RealTimeError, SchedulingClass};
use punctual_proto::api::UserId;
use punctual_proto::config::{
    CpuConfig, Interference, LinkConfig, NodeConfig, RouteConfig, SignallingConfig,
};
use punctual_proto::ids::{Epoch, Name, NodeId};
use punctual_proto::{Nanos, Ppm, limits};
use toml::Spanned;

use super::file::{
    ClassName, CostsTable, DaemonTable, File, HostTable, LinkTable, NodeTable, ProcessorTable, RouteTable,
    SignallingTable,
};
use super::given::{bytes_u32, given_bytes, pick};
use super::quantity::{Bytes, Spin, Text};
use super::tcp_rights::TcpRightTable;
use super::{ConfigError, DaemonConfig, Driver, HostConfig, Source, TcpRights, secrets};
use crate::config::profile::{GivenCosts, ProfileSettings};
use crate::tcp::SEGMENT_COST;

/// Priority of the processor's thread unless configured otherwise.
const PRIORITY_DEFAULT: u8 = 50;
/// Period of a deadline thread unless configured otherwise: a fraction of the deadlines that channels usually have, so that
/// a pause is short beside them, and several slices of work, so that one is not cut in two.
const DEADLINE_PERIOD_DEFAULT: Nanos = Nanos::from_millis(1);
/// How late the kernel finds out that a runtime is used up: its tick (HZ = 250).
const TICK: Nanos = Nanos::from_millis(4);
/// Bytes of buffers that channels may reserve unless configured otherwise.
const BUFFER_BYTES_DEFAULT: u64 = 64 << 20;
/// How long before its time an `at-deadline` message is handed over unless configured otherwise.
const WAKEUP_MARGIN_DEFAULT: Nanos = Nanos::from_micros(200);

type Hosts = HashMap<Name, NodeId>;

/// Links may run on these drivers.
pub(super) fn convert(file: File, known: &[Driver], source: &Source<'_>) -> Result<HostConfig, ConfigError> {
    let named = link::drivers(&file.link, known, source)?;
    let hosts = directory(&file.host, source)?;
    let at = file.node.span().start;
    let own = file.node.into_inner();
    let id = own_id(&own.name, &hosts, at, source)?;
    let fragment_bytes = bytes_u32(&own.fragment, limits::FRAGMENT_BYTES_DEFAULT, "fragment", source, at)?;
    let fragment_low_latency_bytes =
        given_bytes(&own.fragment_low_latency, "fragment_low_latency", source, at)?;
    let real_time = real_time(file.processor.get_ref(), source, file.processor.span())?;
    let spin = pick(&file.processor.get_ref().spin, Spin(Nanos::ZERO)).0;
    let fragment_max = fragment_bytes.max(fragment_low_latency_bytes.unwrap_or(0));
    let signalling = signalling(&file.signalling, source)?;
    has_links(&file.link, at, source)?;
    let context = link::LinkContext {
        hosts: &hosts,
        own: id,
        fragment_bytes: fragment_max,
        real_time,
        signalling: &signalling,
    };
    let (links, drivers, other_traffic) = link::links(&file.link, &named, known, &context, source)?;
    let routes = routes(&file.route, &hosts, id, &links, source)?;
    let node = NodeConfig {
        id,
        name: own.name.clone(),
        epoch: Epoch(0),
        fragment_bytes,
        fragment_low_latency_bytes,
        clock_tolerance: pick(&own.clock_tolerance, Ppm(limits::CLOCK_TOLERANCE_PPM_DEFAULT)),
        links,
        cpu: cpu(&file.processor, real_time.class, &own.name, source)?,
        directory: file
            .host
            .iter()
            .map(Spanned::get_ref)
            .map(|host| (host.name.clone(), NodeId(host.id)))
            .collect(),
        routes,
        signalling,
        buffer_bytes_max: buffers(&own),
        wakeup_margin: pick(&own.wakeup_margin, WAKEUP_MARGIN_DEFAULT),
    };
    node.check().map_err(|error| source.error(at, format!("[node] {error}")))?;
    let daemon = daemon(file.daemon, source)?;
    let epoch_file = own.epoch_file.map(|path| source.resolve(&path));
    let profile = profile(file.processor.get_ref(), source);
    let quantum = file.processor.get_ref().quantum;
    let co_scheduling = priorities::of(&file.processor, real_time.class, source)?;
    Ok(HostConfig {
        node,
        drivers,
        other_traffic,
        real_time,
        spin,
        co_scheduling,
        segment: profile.given.over_segment(SEGMENT_COST),
        profile,
        quantum,
        daemon,
        epoch_file,
        forbidden_calls: Forbidden::Allow,
        heap: None,
    })
}

fn own_id(name: &Name, hosts: &Hosts, at: usize, source: &Source<'_>) -> Result<NodeId, ConfigError> {
    let text = || format!("[node] name \"{name}\" has no [[host]]: add name = \"{name}\" and its id");
    hosts.get(name).copied().ok_or_else(|| source.error(at, text()))
}

fn has_links(links: &[Spanned<LinkTable>], at: usize, source: &Source<'_>) -> Result<(), ConfigError> {
    if !links.is_empty() {
        return Ok(());
    }
    let keys = "name, neighbour, driver, local, peer and rate (docs/punctuald.example.toml explains them)";
    Err(source.error(at, format!("no [[link]] leads to a neighbour: add one for each, with {keys}")))
}

fn buffers(own: &NodeTable) -> u64 {
    pick(&own.buffers, Bytes(BUFFER_BYTES_DEFAULT)).0
}

fn directory(tables: &[Spanned<HostTable>], source: &Source<'_>) -> Result<Hosts, ConfigError> {
    let mut hosts = Hosts::new();
    for table in tables {
        let (at, HostTable { name, id }) = (table.span().start, table.get_ref());
        if *id == 0 {
            return Err(source.error(at, format!("[[host]] \"{name}\" has id 0: ids start at 1")));
        }
        if let Some((other, _)) = hosts.iter().find(|(_, other)| other.0 == *id) {
            return Err(source
                .error(at, format!("[[host]] \"{name}\" has the id {id} of \"{other}\": choose another")));
        }
        if hosts.insert(name.clone(), NodeId(*id)).is_some() {
            return Err(source.error(at, format!("[[host]] \"{name}\" is listed twice: remove one")));
        }
    }
    Ok(hosts)
}

fn lookup(
    hosts: &Hosts,
    name: &Name,
    what: &str,
    at: usize,
    source: &Source<'_>,
) -> Result<NodeId, ConfigError> {
    hosts.get(name).copied().ok_or_else(|| {
        source.error(
            at,
            format!("{what} \"{name}\" is not in the directory: add a [[host]] with its name and id"),
        )
    })
}

fn real_time(
    table: &ProcessorTable,
    source: &Source<'_>,
    span: Range<usize>,
) -> Result<RealTime, ConfigError> {
    let refuse = |what: String| Err(source.error(span.start, format!("[processor] {what}")));
    let best_effort = table.best_effort_host.unwrap_or(false);
    if best_effort && table.priority.is_some() {
        return refuse("priority and best_effort_host = true exclude each other: leave one out".into());
    }
    if best_effort && table.class.is_some() {
        return refuse("class and best_effort_host = true exclude each other: leave one out".into());
    }
    let priority = table.priority.unwrap_or(PRIORITY_DEFAULT);
    if !(1..=97).contains(&priority) {
        return refuse(format!("priority {priority}: give 1 to 97 (98 is the witness's, 99 the kernel's)"));
    }
    let class = match table.class.unwrap_or_default() {
        _ if best_effort => SchedulingClass::BestEffortHost,
        ClassName::Deadline => match deadline_class(table) {
            Ok(class) => class,
            Err(what) => return refuse(what),
        },
        ClassName::Fifo if table.deadline_period.is_some() => {
            return refuse(
                "deadline_period is for class = \"deadline\": leave it out, or give that class".into(),
            );
        }
        ClassName::Fifo => SchedulingClass::Fifo { priority },
    };
    Ok(RealTime { class, cpu: table.cpu, lock_memory: table.lock_memory.unwrap_or(!best_effort) })
}

/// A class that has a period instead of a priority and is not pinned.
fn deadline_class(table: &ProcessorTable) -> Result<SchedulingClass, String> {
    let period = pick(&table.deadline_period, DEADLINE_PERIOD_DEFAULT);
    let [least, most] = realtime::PERIODS;
    if let Some(cpu) = table.cpu {
        return Err(RealTimeError::PinnedDeadline { cpu }.to_string());
    }
    if table.priority.is_some() {
        return Err("priority is for class = \"fifo\", a deadline thread has none: leave it out".into());
    }
    if pick(&table.spin, Spin(Nanos::ZERO)).0 == Nanos::MAX {
        return Err(RealTimeError::SpinningDeadline.to_string());
    }
    if !(least..=most).contains(&period) {
        return Err(format!(
            "deadline_period {period} is outside what the kernel accepts: give {least} to {most}"
        ));
    }
    Ok(SchedulingClass::Deadline { period })
}

/// The CPU time that the kernel withholds from a processor of the class: from a deadline thread all time
/// beyond [`realtime::RUNTIME_MAX`], with a delay of at most a period and the tick that detects it.
fn withheld(class: SchedulingClass) -> Interference {
    match class {
        SchedulingClass::Deadline { period } => {
            let rho = Ppm(1_000_000 - realtime::RUNTIME_MAX.0);
            Interference { sigma: rho.of(period + TICK), rho }
        }
        SchedulingClass::Fifo { .. } | SchedulingClass::BestEffortHost => Interference::default(),
    }
}

fn cpu(
    table: &Spanned<ProcessorTable>,
    class: SchedulingClass,
    own: &Name,
    source: &Source<'_>,
) -> Result<CpuConfig, ConfigError> {
    let withheld = withheld(class);
    let (at, table) = (table.span().start, table.get_ref());
    let default = CpuConfig::default();
    let run = table.policy.unwrap_or(default.run);
    let admission = table.admission.or_else(|| run.admissions().next()).unwrap_or_default();
    if admission.run != run {
        let pairs = pairs_text();
        return Err(source.error(at, format!("[processor] admission does not match policy: pair {pairs}")));
    }
    let cpu = CpuConfig {
        costs: given_costs(&table.costs).over(&default.costs),
        costs_from: default.costs_from,
        best_effort_host: class == SchedulingClass::BestEffortHost,
        release_latency: pick(&table.release_latency, default.release_latency),
        utilisation_max: pick(&table.cpu_share_max, default.utilisation_max),
        best_effort_share_min: pick(&table.best_effort_share_min, default.best_effort_share_min),
        interference: Interference {
            sigma: pick(&table.interference_burst, default.interference.sigma) + withheld.sigma,
            rho: Ppm(pick(&table.interference_share, default.interference.rho).0 + withheld.rho.0),
        },
        run,
        admission,
        quantum_packets: table.quantum.unwrap_or(default.quantum_packets),
        best_effort_call_max: default.best_effort_call_max,
        best_effort_cpu_cap: pick(&table.best_effort_cpu_cap, default.best_effort_cpu_cap),
        best_effort_flow_cpu_cap: pick(&table.best_effort_flow_cpu_cap, default.best_effort_flow_cpu_cap),
        plan: match &table.plan {
            Some(path) => plan::load(&source.resolve(path), own).map_err(|what| source.error(at, what))?,
            None => Vec::new(),
        },
    };
    cpu.check().map_err(|what| source.error(at, format!("[processor] {what}")))?;
    Ok(cpu)
}

fn given_costs(table: &CostsTable) -> GivenCosts {
    let given = |cost: &Option<Text<Nanos>>| cost.as_ref().map(|text| text.0);
    GivenCosts {
        send_message: given(&table.send_message),
        send_packet: given(&table.send_packet),
        send_packet_later: given(&table.send_packet_later),
        forward_packet: given(&table.forward_packet),
        receive_packet: given(&table.receive_packet),
        deliver_message: given(&table.deliver_message),
        copy_kib: given(&table.copy_kib),
        cold_start: given(&table.cold_start),
        segment: given(&table.segment),
        segment_call: given(&table.segment_call),
    }
}

fn profile(table: &ProcessorTable, source: &Source<'_>) -> ProfileSettings {
    let default = ProfileSettings::default();
    ProfileSettings {
        file: table.profile.as_ref().map(|path| source.resolve(path)),
        margin: pick(&table.profile_margin, default.margin),
        mismatch: table.profile_mismatch.unwrap_or(default.mismatch),
        measure: table.profile_measure.unwrap_or(default.measure),
        given: given_costs(&table.costs),
    }
}

fn daemon(table: Spanned<DaemonTable>, source: &Source<'_>) -> Result<DaemonConfig, ConfigError> {
    let (at, table) = (table.span().start, table.into_inner());
    let default = DaemonConfig::default();
    let socket_mode = match &table.socket_mode {
        None => default.socket_mode,
        Some(text) => u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
            source.error(at, format!("[daemon] socket_mode \"{text}\": write permissions like \"0660\""))
        })?,
    };
    let unread = pick(&table.unread_per_user_max, Bytes(default.unread_bytes_per_user_max)).0;
    if unread < DaemonConfig::UNREAD_BYTES_MIN {
        let what = format!(
            "[daemon] unread_per_user_max is {unread} B: at least 128KiB, two of the longest answers"
        );
        return Err(source.error(at, what));
    }
    let share = pick(&table.request_share_per_user_max, default.request_share_per_user_max);
    if share == Ppm(0) {
        let what = "[daemon] request_share_per_user_max is nothing: give users something, like \"0.5%\"";
        return Err(source.error(at, what.to_owned()));
    }
    let rights = table.tcp.iter().map(TcpRightTable::right).collect::<Result<_, _>>();
    Ok(DaemonConfig {
        socket: table.socket.map_or(default.socket, |path| source.resolve(&path)),
        socket_mode,
        users_max: table.users_max.unwrap_or(default.users_max),
        connections_per_user_max: table.connections_per_user_max.unwrap_or(default.connections_per_user_max),
        channels_per_user_max: table.channels_per_user_max.unwrap_or(default.channels_per_user_max),
        listeners_per_user_max: table.listeners_per_user_max.unwrap_or(default.listeners_per_user_max),
        buffer_bytes_per_user_max: pick(
            &table.buffers_per_user_max,
            Bytes(default.buffer_bytes_per_user_max),
        )
        .0,
        unread_bytes_per_user_max: unread,
        descriptors_per_user_max: table.descriptors_per_user_max.unwrap_or(default.descriptors_per_user_max),
        request_share_per_user_max: share,
        forbidden_calls: table.forbidden_calls.unwrap_or(default.forbidden_calls),
        tcp_rights: TcpRights(rights.map_err(|what| source.error(at, what))?),
        capture_users: table.capture_users.iter().copied().map(UserId).collect(),
    })
}

fn signalling(
    table: &Spanned<SignallingTable>,
    source: &Source<'_>,
) -> Result<SignallingConfig, ConfigError> {
    let (at, table) = (table.span().start, table.get_ref());
    let domain_key = match (&table.key, &table.key_file) {
        (Some(text), None) => secrets::key(text),
        (None, Some(path)) => secrets::key_in(&source.resolve(path)),
        _ => Err("key, key_file: give one of them".into()),
    };
    let default = SignallingConfig::default();
    let signalling = SignallingConfig {
        domain_key: domain_key.map_err(|what| source.error(at, format!("[signalling] {what}")))?,
        lease: pick(&table.lease, default.lease),
        hello_interval: pick(&table.hello, default.hello_interval),
        retransmit: pick(&table.retransmit, default.retransmit),
        retransmits_max: table.retransmits_max.unwrap_or(default.retransmits_max),
        consent_timeout: pick(&table.consent_timeout, default.consent_timeout),
        grace: pick(&table.grace, default.grace),
        packets_per_second: table.packets_per_second.unwrap_or(default.packets_per_second),
        while_broken: table.while_broken.unwrap_or(default.while_broken),
    };
    signalling.check().map_err(|what| source.error(at, format!("[signalling] {what}")))?;
    Ok(signalling)
}

fn routes(
    tables: &[Spanned<RouteTable>],
    hosts: &Hosts,
    own: NodeId,
    links: &[LinkConfig],
    source: &Source<'_>,
) -> Result<Vec<RouteConfig>, ConfigError> {
    let route = |table: &Spanned<RouteTable>| {
        let at = table.span().start;
        let via = &table.get_ref().via;
        if via.is_empty() {
            return Err(
                source.error(at, "[[route]] via is empty: name the hosts to pass, the destination last")
            );
        }
        let via = via
            .iter()
            .map(|name| lookup(hosts, name, "[[route]] host", at, source))
            .collect::<Result<_, _>>()?;
        let route = RouteConfig { via };
        route.check(own, links).map_err(|what| source.error(at, format!("[[route]] {what}")))?;
        Ok(route)
    };
    tables.iter().map(route).collect()
}
