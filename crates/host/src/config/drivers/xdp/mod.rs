//! AF_XDP: the XDP program classifies packets in the adapter's driver.

mod cost;
mod doctor;
mod settings;
mod signals;

use punctual_engine::profile::{MeasureError, Wires, xdp_wires};
use punctual_link::kernel::{CareOptions, Device, FollowError, ShaperRate};
use punctual_link::xdp::{AttachMode, ClassifierOptions, FLOWS_MAX, LISTENERS_MAX, ZeroCopy};
use punctual_link::{Link, Spins, Stream};
use punctual_proto::Nanos;
use rustix::thread::CapabilitySet;

use self::settings::PACKET_BYTES_MAX;
use super::{CheckedLink, Driver, DriverKind, Ends, LinkDriver, LinkInput, OpeningLinks, settings_of};
use crate::config::ConfigError;
use crate::config::file::{LinkTable, XdpMode, ZeroCopyChoice};
use crate::config::given::pick;
use crate::config::kernel_rate::{self, KernelRate};
use crate::finding::Finding;

pub use self::settings::{XdpSettings, frame_bytes};

/// AF_XDP sockets, and the classifier whenever the device comes back.
const RIGHTS: CapabilitySet = CapabilitySet::NET_RAW.union(CapabilitySet::BPF);

pub(super) struct Xdp;

impl DriverKind for Xdp {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn medium(&self) -> &'static str {
        "AF_XDP rings"
    }

    fn bypasses_kernel(&self) -> bool {
        true
    }

    fn rights(&self) -> CapabilitySet {
        RIGHTS
    }

    fn claimed_keys(&self) -> &'static [&'static str] {
        &[
            "queue",
            "xdp_mode",
            "zero_copy",
            "flows_max",
            "listeners_max",
            "napi_priority",
            "interrupt_defer",
            "spin",
            "spin_signalling",
            "spin_low_latency",
            "spin_guaranteed",
            "spin_best_effort",
            "kernel_rate",
            "kernel_rate_max",
        ]
    }

    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError> {
        let (Some(device), Some(ends)) = (input.device(), input.ends()) else {
            return Err(input.refuse(
                "driver \"xdp\" needs device, local and peer: give an interface and two IP addresses",
            ));
        };
        check(input).map_err(|what| input.refuse(what))?;
        let (table, link) = (input.table, input.link);
        let kernel_rate = kernel_rate::of(table, link.rate_error, input.at, input.source)?;
        Ok(Box::new(XdpSettings {
            classifier: classifier(input, device, ends),
            queue: table.queue.unwrap_or(0),
            frames: link.frames,
            zero_copy: match table.zero_copy.unwrap_or_default() {
                ZeroCopyChoice::Auto => ZeroCopy::Auto,
                ZeroCopyChoice::Yes => ZeroCopy::Yes,
                ZeroCopyChoice::No => ZeroCopy::No,
            },
            care: care(table, kernel_rate),
            spins: spins(table),
            pace_by_device: table.pace.is_none(),
        }))
    }

    fn open(&self, opening: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        let settings = settings_of(opening.links.iter().map(|link| link.settings));
        // All together: they share the memory of their frames.
        let opened = settings::open(&settings, opening.forbidden).map_err(
            |FollowError { link, error }| match link {
                Some(place) => ConfigError::Link { name: opening.links[place].name.to_owned(), error },
                None => ConfigError::Driver { driver: self.name(), error },
            },
        )?;
        let watched = opened.into_iter().zip(opening.links).map(|(mut link, of)| {
            of.watched.into_iter().for_each(|watched| link.watch(watched));
            Box::new(link) as Box<dyn Link>
        });
        Ok(watched.collect())
    }

    fn packet_cost(&self) -> u8 {
        100
    }

    fn wires(&self) -> Result<Wires, MeasureError> {
        xdp_wires()
    }

    fn wires_need(&self) -> Option<&'static str> {
        Some("Over a veth pair in a network of its own: needs root")
    }

    /// Driver that is profiled instead if veth pairs cannot be made.
    fn substitute(&self) -> Option<Driver> {
        Some(Driver::UDP)
    }

    fn examine(&self, links: &[CheckedLink<'_>], serving: bool) -> Vec<Finding> {
        doctor::examine(links, serving)
    }
}

impl LinkDriver for XdpSettings {
    fn driver(&self) -> Driver {
        Driver::XDP
    }

    fn ends(&self) -> Option<Ends> {
        let of = &self.classifier;
        Some(Ends {
            local: of.local,
            ports: [of.data_port, of.signalling_port],
            peer: of.peer,
            peer_ports: [of.peer_data_port, of.peer_signalling_port],
        })
    }

    fn device(&self) -> Option<&str> {
        Some(&self.classifier.device)
    }

    fn tcp_rooms(&self) -> [u32; 2] {
        [self.classifier.flows_max, self.classifier.listeners_max]
    }

    fn has_own_pace(&self) -> bool {
        let device = || Device::named(&self.classifier.device);
        self.pace_by_device && device().is_ok_and(|device| device.has_own_pace())
    }
}

/// Refuses settings that no link over AF_XDP can have.
fn check(input: &LinkInput<'_>) -> Result<(), String> {
    let (table, bytes) = (input.table, input.link.packet_bytes_max);
    if table.socket_buffer.is_some() || table.socket_priority.is_some() {
        return Err("socket_buffer and socket_priority are for driver \"udp\": use frames".into());
    }
    let [flows, listeners] = [table.flows_max, table.listeners_max].map(|max| max.unwrap_or(0));
    if flows > FLOWS_MAX || listeners > LISTENERS_MAX {
        return Err(format!(
            "flows_max = {flows}, listeners_max = {listeners}: give at most {FLOWS_MAX} and {LISTENERS_MAX}"
        ));
    }
    if listeners > 0 && flows == 0 {
        return Err("listeners_max without flows_max: a listener's connections are flows, give both".into());
    }
    if flows > 0 && table.xdp_mode == Some(XdpMode::Generic) {
        return Err(
            "flows_max needs native XDP: set xdp_mode = \"native\" or \"auto\", or leave flows_max out"
                .into(),
        );
    }
    if bytes > PACKET_BYTES_MAX {
        return Err(format!(
            "packets of {bytes} B do not fit the frames of driver \"xdp\": at most {PACKET_BYTES_MAX} B, lower packet \
             and fragment"
        ));
    }
    match table.napi_priority.filter(|priority| !(1..=98).contains(priority)) {
        Some(priority) => Err(format!("napi_priority {priority}: give 1 to 98")),
        None => Ok(()),
    }
}

fn classifier(input: &LinkInput<'_>, device: &str, ends: Ends) -> ClassifierOptions {
    ClassifierOptions {
        peer_data_port: ends.peer_ports[0],
        peer_signalling_port: ends.peer_ports[1],
        packet_bytes_max: input.link.packet_bytes_max,
        mode: match input.table.xdp_mode.unwrap_or_default() {
            XdpMode::Auto => AttachMode::Auto,
            XdpMode::Native => AttachMode::Native,
            XdpMode::Generic => AttachMode::Generic,
        },
        signalling_rate: signals::bound(input.signalling, input.link),
        unknown_senders_rate: signals::unknown_bound(input.signalling),
        // Best effort may take the rest of the link, in packets of any size, so there is no limit on its
        // packet rate. It is bounded by its own buffers, which are read only while no more urgent packet
        // waits for the processor.
        best_effort_rate: None,
        flows_max: input.table.flows_max.unwrap_or(0),
        listeners_max: input.table.listeners_max.unwrap_or(0),
        ..ClassifierOptions::new(device, ends.local, ends.peer, ends.ports[0], ends.ports[1])
    }
}

fn care(table: &LinkTable, kernel_rate: Option<KernelRate>) -> CareOptions {
    CareOptions {
        kernel_rate: kernel_rate
            .map(|KernelRate { rate_bps, burst_bytes, .. }| ShaperRate { rate_bps, burst_bytes }),
        link_rate_bps: kernel_rate.and_then(|kernel| kernel.follows).map(|(_, drained_bps)| drained_bps),
        whole_rate: None,
        napi_priority: table.napi_priority,
        interrupt_defer_ns: pick(&table.interrupt_defer, Nanos::ZERO).0,
    }
}

/// How long to poll after packets of each class: the time of the class, or else the time of all classes.
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
