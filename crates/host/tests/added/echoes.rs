//! A link whose other end is in the same process and belongs to nobody: what is sent arrives nowhere.

use punctual_engine::profile::{MeasureError, Wires};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use rustix::thread::CapabilitySet;
use serde::Deserialize;

use super::{CheckedLink, Driver, DriverKind, LinkDriver, LinkInput, OpeningLinks};
use crate::config::ConfigError;
use crate::finding::Finding;

pub(super) struct Echoes;

/// The key that no other driver has.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct EchoesSettings {
    valley: String,
}

impl DriverKind for Echoes {
    fn name(&self) -> &'static str {
        "echoes"
    }

    fn medium(&self) -> &'static str {
        "the air of a valley"
    }

    fn has_wire(&self) -> bool {
        false
    }

    fn rights(&self) -> CapabilitySet {
        CapabilitySet::SYS_TIME
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["valley"]
    }

    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError> {
        Ok(Box::new(input.own::<EchoesSettings>()?))
    }

    fn open(&self, opening: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        let open = |name: &str| match MemoryLink::pair(MemoryOptions::default()) {
            Ok((end, _)) => Ok(Box::new(end) as Box<dyn Link>),
            Err(error) => Err(ConfigError::Link { name: name.to_owned(), error }),
        };
        opening.links.iter().map(|link| open(link.name)).collect()
    }

    fn packet_cost(&self) -> u8 {
        u8::MAX
    }

    fn wires(&self) -> Result<Wires, MeasureError> {
        Ok(Wires::memory()?)
    }

    fn examine(&self, links: &[CheckedLink<'_>], _serving: bool) -> Vec<Finding> {
        vec![Finding::ok("valleys", format!("{} of this host", links.len()))]
    }
}

impl LinkDriver for EchoesSettings {
    fn driver(&self) -> Driver {
        Driver::ECHOES
    }

    fn examine(&self, link: &CheckedLink<'_>, _serving: bool) -> Vec<Finding> {
        vec![Finding::note("valley", format!("{} of {}", self.valley, link.name), "listen")]
    }
}
