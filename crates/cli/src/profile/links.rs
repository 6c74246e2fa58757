//! Measures the configured links whose neighbour answers: their drain rate, and the backlog in the adapter.

use anyhow::Context;
use punctual::{Endsystem, Instant, Nanos};
use punctual_host::config::{self, Driver, HostConfig};
use punctual_link::{Link, Port};
use punctual_os::clock::{now, wait_until};
use serde::Serialize;

use super::{Extent, Request};

/// A running neighbour sends a HELLO within this time.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(3);
const POLL: Nanos = Nanos::from_millis(20);
/// Limit of the packets that are handed over and not completed: more would measure the kernel's queue.
const WINDOW_PACKETS: u64 = 64;

/// Single packets whose completion is timed.
const COMPLETIONS: usize = 500;
const REST: Nanos = Nanos::from_micros(200);

/// One link of the configuration.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredLink {
    /// Name of the link.
    pub name: String,
    /// Driver of the link.
    pub driver: Driver,
    /// The configured rate, in bit/s.
    pub rate_configured: u64,
    /// The measured drain rate, in bit/s; absent if no host answers.
    pub rate_measured: Option<u64>,
    /// Most bytes that were handed over and not yet completed.
    pub backlog_bytes_max: Option<u64>,
    /// Time from handing one largest packet to an idle link until the driver reports its completion, without
    /// its time at the drained rate, in ns: the median and the 99th percentile. Delta consists of this and
    /// the processor's turn.
    pub completion_ns: Option<[u64; 2]>,
    /// Why it was not measured.
    pub not_measured: Option<String>,
}

pub(super) fn measure(
    request: &Request,
    extent: Extent,
    print: &dyn Fn(&str),
) -> anyhow::Result<Vec<MeasuredLink>> {
    let Some(path) = &request.config else {
        anyhow::ensure!(
            request.link.is_none(),
            "--link names a link of a configuration: give --config FILE too"
        );
        return Ok(Vec::new());
    };
    let mut config = config::load(path)?;
    config.profile.measure = false;
    config.profile.file = None;
    if let Some(wanted) = &request.link {
        let names: Vec<&str> = config.node.links.iter().map(|link| link.name.as_str()).collect();
        anyhow::ensure!(
            names.contains(&wanted.as_str()),
            "no link \"{wanted}\": there are {}",
            names.join(", ")
        );
    }
    if !config.drivers.iter().any(|link| link.driver().has_wire()) {
        return Ok(unmeasured(&config, "it connects engines inside one process"));
    }
    print("the neighbours of the configured links");
    let alive = alive(&config).with_context(|| {
        format!("{} cannot be measured while punctuald runs: stop it first", path.display())
    })?;
    let mut measured = unmeasured(&config, "the other end does not answer");
    for (index, one) in measured.iter_mut().enumerate() {
        if !alive[index] || request.link.as_ref().is_some_and(|wanted| *wanted != one.name) {
            continue;
        }
        print(&format!("link {}", one.name));
        let mut links = config.open_links()?;
        let overhead = config.node.links[index].overhead_bytes;
        let (rate, backlog) = drain(links[index].as_mut(), overhead, extent.drain)?;
        (one.rate_measured, one.backlog_bytes_max, one.not_measured) = (Some(rate), Some(backlog), None);
        one.completion_ns = completions(links[index].as_mut(), overhead, rate, extent.drain)?;
    }
    Ok(measured)
}

fn unmeasured(config: &HostConfig, why: &str) -> Vec<MeasuredLink> {
    let links = config.node.links.iter().zip(&config.drivers);
    let of = links.map(|(link, of)| MeasuredLink {
        name: link.name.clone(),
        driver: of.driver(),
        rate_configured: link.rate.0,
        rate_measured: None,
        backlog_bytes_max: None,
        completion_ns: None,
        not_measured: Some(why.into()),
    });
    of.collect()
}

/// The links whose neighbours send HELLOs to an engine with this configuration.
fn alive(config: &HostConfig) -> anyhow::Result<Vec<bool>> {
    let endsystem = Endsystem::embedded(config)?;
    let until = now() + ANSWER_WITHIN;
    loop {
        let alive: Vec<bool> = endsystem.status()?.node.links.iter().map(|link| link.alive).collect();
        if now() >= until || alive.iter().all(|alive| *alive) {
            return Ok(alive);
        }
        wait_until(now() + POLL)?;
    }
}

/// Sends largest packets, which the neighbour drops as malformed, as fast as they are completed.
fn drain(link: &mut dyn Link, overhead: u32, span: Nanos) -> anyhow::Result<(u64, u64)> {
    let payload = link.packet_bytes_max();
    let wire_bytes = payload as u32 + overhead;
    let window = WINDOW_PACKETS * u64::from(wire_bytes);
    let (mut sent, mut done, mut backlog) = (0_u64, 0_u64, 0);
    let begun = now();
    let until = begun + span;
    while now() < until {
        while sent - done + u64::from(wire_bytes) <= window {
            let Some(buffer) = link.transmit_buffer() else { break };
            buffer.fill(0);
            link.transmit(Port::Data, payload, wire_bytes)?;
            sent += u64::from(wire_bytes);
        }
        link.flush()?;
        backlog = backlog.max(sent - done);
        done += u64::from(link.completed());
    }
    let rate = u128::from(done) * 8 * 1_000_000_000 / u128::from(now().since(begun).0.max(1));
    Ok((u64::try_from(rate).unwrap_or(u64::MAX), backlog))
}

/// Sends single packets on an idle link, until the driver (the completion ring of AF_XDP, the socket's queue
/// of udp) reports the completion of each. Absent if none comes.
fn completions(
    link: &mut dyn Link,
    overhead: u32,
    rate: u64,
    span: Nanos,
) -> anyhow::Result<Option<[u64; 2]>> {
    let payload = link.packet_bytes_max();
    let wire_bytes = payload as u32 + overhead;
    let drain_ns = u64::from(wire_bytes) * 8_000_000_000 / rate.max(1);
    let until = now() + span;
    let mut outstanding = settle(link, until)?;
    let mut took = Vec::new();
    while outstanding && now() < until && took.len() < COMPLETIONS {
        let Some(buffer) = link.transmit_buffer() else { break };
        buffer.fill(0);
        let begun = now();
        link.transmit(Port::Data, payload, wire_bytes)?;
        outstanding = settle_one(link, wire_bytes, until)?;
        took.push(now().since(begun).0.saturating_sub(drain_ns));
        wait_until(now() + REST)?;
    }
    took.sort_unstable();
    let at = |per_mille: usize| took.get((took.len() * per_mille).div_ceil(1_000).saturating_sub(1)).copied();
    Ok(at(500).zip(at(990)).map(|(half, most)| [half, most]))
}

/// Waits until the packets of the drain are completed; returns whether the link is idle then.
fn settle(link: &mut dyn Link, until: Instant) -> anyhow::Result<bool> {
    let quiet = Nanos::from_millis(20);
    let mut idle_since = now();
    while now() < until {
        link.flush()?;
        if link.completed() > 0 || link.is_pending() {
            idle_since = now();
        }
        if now().since(idle_since) > quiet {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Hands one packet over and polls until it is completed; returns whether it was.
fn settle_one(link: &mut dyn Link, wire_bytes: u32, until: Instant) -> anyhow::Result<bool> {
    let mut done = 0;
    while done < wire_bytes && now() < until {
        link.flush()?;
        done += link.completed();
    }
    Ok(done >= wire_bytes)
}
