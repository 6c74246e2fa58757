//! The file as it is written: one structure for each table, one field for each key. No meaning yet.

use std::net::IpAddr;
use std::path::PathBuf;

use punctual_os::calls::Forbidden;

use punctual_proto::config::{Admission, Pacing, RunPolicy, WhileBroken};
use punctual_proto::ids::Name;
use punctual_proto::{BitRate, Nanos, Ppm};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::quantity::{Bytes, RateOrAuto, RateOrShare, Spin, Text};
use super::tcp_rights::TcpRightTable;
use crate::config::profile::Mismatch;

type Maybe<Q> = Option<Text<Q>>;

/// Parses the text. The keys of each `[[link]]` that only its driver accepts are separated: `own_keys` names
/// them, for the driver's name.
pub(super) fn read(
    text: &str,
    own_keys: impl Fn(&str) -> &'static [&'static str],
) -> Result<File, toml::de::Error> {
    let mut whole = DeTable::parse(text)?;
    let mut apart = Vec::new();
    if let Some(DeValue::Array(links)) = whole.get_mut().get_mut("link").map(|links| links.get_mut()) {
        for link in links.iter_mut() {
            apart.push(keys_apart(link.get_mut(), &own_keys)?);
        }
    }
    let mut file = File::deserialize(toml::Deserializer::from(whole))?;
    for (link, (keys, own)) in file.link.iter_mut().zip(apart) {
        let link = link.get_mut();
        (link.keys, link.own) = (keys, own);
    }
    Ok(file)
}

/// Separates the keys of a `[[link]]` from those that only its driver accepts, which are removed from the
/// table.
fn keys_apart(
    link: &mut DeValue<'_>,
    own_keys: impl Fn(&str) -> &'static [&'static str],
) -> Result<(Vec<String>, toml::Table), toml::de::Error> {
    let mut own = toml::Table::new();
    let DeValue::Table(table) = link else { return Ok((Vec::new(), own)) };
    let keys = table.keys().map(|key| key.get_ref().to_string()).collect();
    let name = table.get("driver").and_then(|name| name.get_ref().as_str());
    for key in name.map_or(&[][..], own_keys) {
        if let Some(value) = table.remove(*key) {
            own.insert((*key).to_owned(), toml::Value::deserialize(ValueDeserializer::from(value))?);
        }
    }
    Ok((keys, own))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub node: Spanned<NodeTable>,
    #[serde(default = "unplaced")]
    pub processor: Spanned<ProcessorTable>,
    #[serde(default = "unplaced")]
    pub daemon: Spanned<DaemonTable>,
    pub signalling: Spanned<SignallingTable>,
    #[serde(default)]
    pub host: Vec<Spanned<HostTable>>,
    #[serde(default)]
    pub link: Vec<Spanned<LinkTable>>,
    #[serde(default)]
    pub route: Vec<Spanned<RouteTable>>,
}

fn unplaced<T: Default>() -> Spanned<T> {
    Spanned::new(0..0, T::default())
}

/// Parses an address. A common mistake is the name of an interface.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<IpAddr>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = |_| {
        format!(
            "{text:?} is no IP address: give the host's on that link, as \"10.0.0.1\" or \"fd00::1\" (the name of an \
             interface is for the key device)"
        )
    };
    text.parse().map(Some).map_err(wrong).map_err(D::Error::custom)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTable {
    pub name: Name,
    pub epoch_file: Option<PathBuf>,
    pub clock_tolerance: Maybe<Ppm>,
    pub fragment: Maybe<Bytes>,
    pub fragment_low_latency: Maybe<Bytes>,
    pub buffers: Maybe<Bytes>,
    pub wakeup_margin: Maybe<Nanos>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessorTable {
    pub cpu: Option<u32>,
    pub class: Option<ClassName>,
    pub priority: Option<u8>,
    pub deadline_period: Maybe<Nanos>,
    pub best_effort_host: Option<bool>,
    pub lock_memory: Option<bool>,
    pub spin: Maybe<Spin>,
    pub policy: Option<RunPolicy>,
    pub admission: Option<Admission>,
    pub quantum: Option<u32>,
    pub plan: Option<PathBuf>,
    pub best_effort_cpu_cap: Maybe<Ppm>,
    pub best_effort_flow_cpu_cap: Maybe<Ppm>,
    pub release_latency: Maybe<Nanos>,
    pub cpu_share_max: Maybe<Ppm>,
    pub best_effort_share_min: Maybe<Ppm>,
    pub interference_burst: Maybe<Nanos>,
    pub interference_share: Maybe<Ppm>,
    pub profile: Option<PathBuf>,
    pub profile_margin: Maybe<Ppm>,
    pub profile_mismatch: Option<Mismatch>,
    pub profile_measure: Option<bool>,
    pub co_schedule: Option<bool>,
    #[serde(default)]
    pub priorities: PrioritiesTable,
    #[serde(default)]
    pub costs: CostsTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrioritiesTable {
    pub low: Option<u8>,
    pub high: Option<u8>,
    #[serde(default)]
    pub level: Vec<LevelTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelTable {
    pub period_max: Text<Nanos>,
    pub activation: Option<LevelActivation>,
    pub priority: u8,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LevelActivation {
    LowLatency,
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostsTable {
    pub send_message: Maybe<Nanos>,
    pub send_packet: Maybe<Nanos>,
    pub send_packet_later: Maybe<Nanos>,
    pub forward_packet: Maybe<Nanos>,
    pub receive_packet: Maybe<Nanos>,
    pub deliver_message: Maybe<Nanos>,
    pub copy_kib: Maybe<Nanos>,
    pub cold_start: Maybe<Nanos>,
    pub segment: Maybe<Nanos>,
    pub segment_call: Maybe<Nanos>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DaemonTable {
    pub socket: Option<PathBuf>,
    pub socket_mode: Option<String>,
    pub users_max: Option<u32>,
    pub connections_per_user_max: Option<u32>,
    pub channels_per_user_max: Option<u32>,
    pub listeners_per_user_max: Option<u32>,
    pub buffers_per_user_max: Maybe<Bytes>,
    pub unread_per_user_max: Maybe<Bytes>,
    pub descriptors_per_user_max: Option<u32>,
    pub request_share_per_user_max: Maybe<Ppm>,
    pub forbidden_calls: Option<Forbidden>,
    #[serde(default)]
    pub tcp: Vec<TcpRightTable>,
    #[serde(default)]
    pub capture_users: Vec<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignallingTable {
    pub key: Option<String>,
    pub key_file: Option<PathBuf>,
    pub lease: Maybe<Nanos>,
    pub hello: Maybe<Nanos>,
    pub retransmit: Maybe<Nanos>,
    pub retransmits_max: Option<u32>,
    pub consent_timeout: Maybe<Nanos>,
    pub grace: Maybe<Nanos>,
    pub packets_per_second: Option<u32>,
    pub while_broken: Option<WhileBroken>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub name: Name,
    pub id: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteTable {
    pub via: Vec<Name>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ClassName {
    #[default]
    Fifo,
    Deadline,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KernelTrafficName {
    Shaped,
    Exclusive,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum XdpMode {
    #[default]
    Auto,
    Native,
    Generic,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ZeroCopyChoice {
    #[default]
    Auto,
    Yes,
    No,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
    pub name: String,
    pub neighbour: Name,
    pub driver: Spanned<String>,
    /// All keys of the table.
    #[serde(skip)]
    pub(super) keys: Vec<String>,
    /// Keys that only the link's driver accepts, with their values.
    #[serde(skip)]
    pub(super) own: toml::Table,
    // The driver's.
    #[serde(default, deserialize_with = "address")]
    pub local: Option<IpAddr>,
    #[serde(default, deserialize_with = "address")]
    pub peer: Option<IpAddr>,
    pub device: Option<String>,
    pub data_port: Option<u16>,
    pub signalling_port: Option<u16>,
    pub peer_data_port: Option<u16>,
    pub peer_signalling_port: Option<u16>,
    pub socket_buffer: Maybe<Bytes>,
    pub socket_priority: Option<u8>,
    pub frames: Option<u32>,
    pub queue: Option<u32>,
    pub xdp_mode: Option<XdpMode>,
    pub zero_copy: Option<ZeroCopyChoice>,
    pub flows_max: Option<u32>,
    pub listeners_max: Option<u32>,
    pub napi_priority: Option<u8>,
    pub kernel_rate: Maybe<RateOrShare>,
    pub kernel_rate_max: Maybe<RateOrShare>,
    pub kernel_traffic: Option<KernelTrafficName>,
    pub device_rate: Maybe<BitRate>,
    pub interrupt_defer: Maybe<Nanos>,
    pub spin: Maybe<Nanos>,
    pub spin_signalling: Maybe<Nanos>,
    pub spin_low_latency: Maybe<Nanos>,
    pub spin_guaranteed: Maybe<Nanos>,
    pub spin_best_effort: Maybe<Nanos>,
    // The scheduler's and admission's.
    pub rate: Text<RateOrAuto>,
    pub rate_max: Maybe<BitRate>,
    pub rate_error: Maybe<Ppm>,
    pub packet: Maybe<Bytes>,
    pub packet_best_effort: Maybe<Bytes>,
    pub overhead: Maybe<Bytes>,
    pub pipeline_depth: Option<u32>,
    pub pace: Option<Pacing>,
    pub reaction: Maybe<Nanos>,
    pub propagation_min: Maybe<Nanos>,
    pub propagation_max: Maybe<Nanos>,
    pub prediction_error: Maybe<Nanos>,
    pub interference_burst: Maybe<Nanos>,
    pub interference_share: Maybe<Ppm>,
    pub best_effort_share_min: Maybe<Ppm>,
    pub best_effort_flow_cap: Maybe<Ppm>,
    pub best_effort_cap: Maybe<Ppm>,
    pub best_effort_flow_queue: Maybe<Bytes>,
    pub admission: Option<Admission>,
}
