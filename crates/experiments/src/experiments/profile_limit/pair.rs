//! The two hosts, and the channels between them.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use punctual::{Channel, Consent, Contract, Endsystem, Listener, Nanos, OpenError, Rate, Receiver};
use punctual_engine::profile::{self, Profile};
use punctual_host::config;
use punctual_link::{Link, MemoryLink, MemoryOptions};
use punctual_os::clock::{duration, now};
use punctual_os::cpus;

use super::evidence::Evidence;
use super::{BURST, DEADLINE, INTERVAL, MESSAGE_BYTES};
use crate::testbed::configuration::domain_key;
use crate::testbed::roles::{READY_WITHIN, see_neighbours};

/// A whole message is one run.
const QUANTUM: u32 = 10;
/// Declared time of the receiving handlers: they compare two times.
const HANDLER_TIME: Nanos = Nanos::from_micros(2);
/// The processor must be the limit, and not the buffers: they hold, among other packets, ten messages for
/// each channel's jitter allowance.
const FRAMES: u32 = 65_536;
/// Divisor of the measured costs that admission uses when it is switched off.
const SWITCHED_OFF: u64 = 4;
const HOSTS: [&str; 2] = ["source", "sink"];

/// What admission goes by.
pub(super) enum Costs {
    /// The costs that the hosts measure as they start, with the default margin.
    Measured,
    /// A quarter of the measured costs: admission switched off.
    Quarter([profile::Costs; 2]),
}

/// Two hosts in this process.
pub(super) struct Pair {
    pub source: Endsystem,
    pub sink: Endsystem,
    listener: Listener,
    profiles: [PathBuf; 2],
}

pub(super) type Ends = Vec<(Channel, Receiver)>;

impl Pair {
    pub fn start(costs: Costs, directory: &Path) -> anyhow::Result<Self> {
        let key = domain_key()?;
        let cpus = cpus::usable()?;
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let profiles = HOSTS.map(|host| directory.join(format!("profile-limit-{host}.toml")));
        let options = MemoryOptions { ring_packets: 8_192, frames: FRAMES, ..MemoryOptions::default() };
        let (one, other) = MemoryLink::pair(options)?;
        let start = |place: usize, link: MemoryLink| -> anyhow::Result<Endsystem> {
            let given = match &costs {
                Costs::Measured => {
                    // One of an earlier run would be read instead.
                    let _ = std::fs::remove_file(&profiles[place]);
                    format!("profile = {:?}\n", profiles[place])
                }
                Costs::Quarter(measured) => quarter(&measured[place]),
            };
            let text = text(place, cpus[place % cpus.len()], &key, &given);
            let host = config::parse(&text, Path::new("profile-limit"))?;
            Ok(Endsystem::embedded_with(&host, vec![Box::new(link) as Box<dyn Link>])?)
        };
        let (source, sink) = (start(0, one)?, start(1, other)?);
        see_neighbours(&source, now() + READY_WITHIN, || Ok(()))?;
        let listener = sink.listen_direct("limit", HANDLER_TIME, |_| Consent::Accept)?;
        Ok(Self { source, sink, listener, profiles })
    }

    /// The costs that the hosts measured as they started.
    pub fn measured_costs(&self) -> anyhow::Result<[profile::Costs; 2]> {
        let [source, sink] = &self.profiles;
        Ok([Profile::load(source)?.costs, Profile::load(sink)?.costs])
    }

    fn contract() -> anyhow::Result<Contract> {
        let rate = Rate::every(INTERVAL).context("the interval is out of range")?;
        Ok(Contract::new(MESSAGE_BYTES, rate, BURST, DEADLINE)?)
    }

    fn open_one(&self) -> anyhow::Result<Result<(Channel, Receiver), String>> {
        let channel = match self.source.open(&format!("limit@{}", self.sink.host()), Self::contract()?) {
            Ok(channel) => channel,
            Err(OpenError::Refused { refusal, .. }) => return Ok(Err(refusal.to_string())),
            Err(error) => return Err(error.into()),
        };
        let receiver = self.listener.accept_timeout(duration(READY_WITHIN))?;
        let receiver =
            receiver.ok_or_else(|| anyhow!("a channel was granted and never reached its receiver"))?;
        Ok(Ok((channel, receiver)))
    }

    pub fn open_until_refused(&self, most: usize) -> anyhow::Result<(Ends, String)> {
        let mut ends = Vec::new();
        while ends.len() < most {
            match self.open_one()? {
                Ok(end) => ends.push(end),
                Err(refusal) => return Ok((ends, refusal)),
            }
        }
        Ok((ends, format!("nothing up to {most} channels")))
    }

    pub fn open(&self, count: usize) -> anyhow::Result<Ends> {
        (0..count).map(|_| self.open_one()?.map_err(|refusal| anyhow!("refused: {refusal}"))).collect()
    }

    pub fn profile(&self) -> anyhow::Result<String> {
        Ok(self.source.status()?.engine.profile.summary)
    }

    /// What both hosts saw since they started.
    pub fn evidence(&self) -> anyhow::Result<Evidence> {
        Evidence::of(&self.source, &self.sink)
    }
}

fn quarter(costs: &profile::Costs) -> String {
    let part = |ns: u64| format!("\"{}ns\"", (ns / SWITCHED_OFF).max(1));
    format!(
        "\n[processor.costs]\nsend_message = {}\nsend_packet = {}\nsend_packet_later = {}\nforward_packet = {}\n\
         receive_packet = {}\ndeliver_message = {}\ncopy_kib = {}\ncold_start = {}\n\
         segment = {}\nsegment_call = {}\n",
        part(costs.send_message_ns),
        part(costs.send_packet_ns),
        part(costs.send_packet_later_ns),
        part(costs.forward_packet_ns),
        part(costs.receive_packet_ns),
        part(costs.deliver_message_ns),
        part(costs.copy_kib_ns),
        part(costs.cold_start_ns),
        part(costs.segment_ns),
        part(costs.segment_call_ns),
    )
}

/// `given`: the rest of `[processor]`. At the source the sending application runs before the processor, so it is
/// declared as interference there (see [`super::traffic`]).
fn text(place: usize, cpu: u32, key: &str, given: &str) -> String {
    let (name, neighbour) = (HOSTS[place], HOSTS[1 - place]);
    let interference = match place {
        0 => "interference_burst = \"300us\"\ninterference_share = \"12%\"\n",
        _ => "",
    };
    format!(
        "[node]\nname = \"{name}\"\nbuffers = \"4GiB\"\n\n[processor]\ncpu = {cpu}\npolicy = \"edf\"\n\
         quantum = {QUANTUM}\n{interference}{given}\n\
         [signalling]\nkey = \"{key}\"\npackets_per_second = 500\n\n\
         [[host]]\nname = \"source\"\nid = 1\n\n[[host]]\nname = \"sink\"\nid = 2\n\n\
         [[link]]\nname = \"ring\"\nneighbour = \"{neighbour}\"\ndriver = \"memory\"\nrate = \"400Gbit/s\"\n\
         pace = \"completion\"\npipeline_depth = 16\nreaction = \"1us\"\npropagation_max = \"100us\"\nframes = {FRAMES}\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_configurations_are_valid() {
        let key = "00".repeat(32);
        let costs = profile::Costs {
            send_message_ns: 1,
            send_packet_ns: 2_000,
            send_packet_later_ns: 400,
            forward_packet_ns: 3_000,
            receive_packet_ns: 1_500,
            deliver_message_ns: 40,
            copy_kib_ns: 0,
            cold_start_ns: 20_000,
            segment_ns: 4_000,
            segment_call_ns: 2_000,
        };
        let quarter = quarter(&costs);
        for given in ["profile = \"/tmp/profile.toml\"\n", &quarter] {
            for place in 0..2 {
                let text = text(place, 0, &key, given);
                config::parse(&text, Path::new("test")).unwrap_or_else(|error| panic!("{error}\n{text}"));
            }
        }
        let reported =
            config::parse(&text(0, 0, &key, &quarter), Path::new("test")).expect("valid").profile.given;
        assert!(reported.is_complete(), "nothing is measured where admission is off");
        assert_eq!(reported.send_packet, Some(Nanos(500)));
        assert_eq!(reported.copy_kib, Some(Nanos(1)));
    }
}
