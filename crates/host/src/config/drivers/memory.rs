//! Rings inside one process, between engines of a program.

use punctual_engine::profile::{MeasureError, Wires};
use punctual_link::Link;

use super::{Driver, DriverKind, LinkDriver, LinkInput, OpeningLinks};
use crate::config::ConfigError;

pub(super) struct Memory;

/// A link whose ends the embedding program provides: the driver has no keys in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings;

impl DriverKind for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn medium(&self) -> &'static str {
        "rings in memory"
    }

    fn has_wire(&self) -> bool {
        false
    }

    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError> {
        let keys = [
            "local",
            "peer",
            "device",
            "data_port",
            "signalling_port",
            "peer_data_port",
            "peer_signalling_port",
            "kernel_traffic",
            "device_rate",
        ];
        let why = "driver \"memory\" has no addresses, devices or ports: leave it out";
        input.has_none_of(&keys, why).map_err(|what| input.refuse(what))?;
        Ok(Box::new(MemorySettings))
    }

    fn open(&self, opening: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        let (driver, between_hosts) = (self.name(), Driver::default().name());
        let end = |name: &str| {
            (opening.given)(name).ok_or_else(|| ConfigError::MemoryLink {
                name: name.to_owned(),
                driver,
                between_hosts,
            })
        };
        opening.links.iter().map(|link| link.name).map(end).collect()
    }

    fn packet_cost(&self) -> u8 {
        0
    }

    fn wires(&self) -> Result<Wires, MeasureError> {
        Ok(Wires::memory()?)
    }
}

impl LinkDriver for MemorySettings {
    fn driver(&self) -> Driver {
        Driver::MEMORY
    }
}
