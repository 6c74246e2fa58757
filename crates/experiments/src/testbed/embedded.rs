//! The hosts of a line as engines in this process, joined by memory links: for environments without
//! namespaces.
//!
//! Only the engines' own pacing limits the links' rates.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use punctual::Endsystem;
use punctual_host::config::{self, Driver};
use punctual_link::Link;
use punctual_link::memory::{MemoryLink, MemoryOptions};
use punctual_os::clock::now;

use super::configuration::{self, Options, neighbours};
use super::network::NetworkSpec;
use super::roles::{READY_WITHIN, see_neighbours};

/// Engines in this process; they stop when dropped.
pub struct Embedded {
    endsystems: Vec<(&'static str, Endsystem)>,
}

impl Embedded {
    /// Starts all of them and waits until they see their neighbours.
    ///
    /// # Errors
    /// If an engine does not start.
    pub fn start(spec: &NetworkSpec, options: &Options) -> anyhow::Result<Self> {
        let key = configuration::domain_key()?;
        let options = Options { driver: Driver::MEMORY, ..options.clone() };
        let mut ends: HashMap<(usize, usize), Box<dyn Link>> = HashMap::new();
        for left in 0..spec.links.len() {
            let (one, other) = MemoryLink::pair(MemoryOptions::default())?;
            ends.insert((left, left + 1), Box::new(one));
            ends.insert((left + 1, left), Box::new(other));
        }
        let mut endsystems = Vec::with_capacity(spec.hosts.len());
        for (place, &name) in spec.hosts.iter().enumerate() {
            let unused = Path::new("/dev/null");
            let text = configuration::text(spec, place, &options, &key, unused);
            let host = config::parse(&text, Path::new(name))?;
            // In the order of the configuration.
            let links = neighbours(place, spec.hosts.len()).filter_map(|other| ends.remove(&(place, other)));
            let endsystem = Endsystem::embedded_with(&host, links.collect());
            endsystems.push((name, endsystem.with_context(|| format!("engine of {name}"))?));
        }
        let embedded = Self { endsystems };
        embedded.see_neighbours()?;
        Ok(embedded)
    }

    /// The connection to a host's engine.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn endsystem(&self, host: &str) -> anyhow::Result<&Endsystem> {
        let found = self.endsystems.iter().find(|(name, _)| *name == host);
        found.map(|(_, endsystem)| endsystem).with_context(|| format!("no engine for {host}"))
    }

    fn see_neighbours(&self) -> anyhow::Result<()> {
        let until = now() + READY_WITHIN;
        self.endsystems.iter().try_for_each(|(_, endsystem)| see_neighbours(endsystem, until, || Ok(())))
    }
}
