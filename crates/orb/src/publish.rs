//! References to objects of this ORB.

use std::sync::OnceLock;

use punctual_giop::codeset::CodeSets;
use punctual_giop::reference::component::TAG_ORB_TYPE;
use punctual_giop::reference::{Address, Component, IiopProfile, UnixAddress};
use punctual_giop::{Encode, Error, Reference, Version};

use crate::transport::Endpoint;

/// This ORB: the first letters of its name.
const ORB_TYPE: u32 = u32::from_be_bytes(*b"PUNC");

/// Where others reach this ORB.
#[derive(Debug, Default)]
pub(crate) struct Published {
    endpoints: OnceLock<Vec<Endpoint>>,
}

impl Published {
    /// Sets the addresses, once.
    pub fn set(&self, endpoints: Vec<Endpoint>) {
        let _ = self.endpoints.set(endpoints);
    }

    /// The addresses.
    pub fn endpoints(&self) -> &[Endpoint] {
        self.endpoints.get().map_or(&[], Vec::as_slice)
    }

    /// A reference to an object with this interface and key. `None` without an address.
    pub fn reference(&self, interface: &str, key: Vec<u8>) -> Option<Reference> {
        if self.endpoints().is_empty() {
            return None;
        }
        self.profile(key).and_then(|profile| Reference::iiop(interface, &profile)).ok()
    }

    fn profile(&self, object_key: Vec<u8>) -> Result<IiopProfile, Error> {
        let mut addresses = self.endpoints().iter().filter_map(|endpoint| match endpoint {
            Endpoint::Tcp(address) => Some(address.clone()),
            Endpoint::Unix(_) => None,
        });
        // Without TCP there is no port; clients of this host use the socket.
        let address = addresses.next().unwrap_or_else(|| Address { host: host_name(), port: 0 });
        let mut components =
            vec![Component::new(TAG_ORB_TYPE, |to| ORB_TYPE.encode(to))?, CodeSets::own().component()?];
        for other in addresses {
            components.push(Component::of_address(&other)?);
        }
        for endpoint in self.endpoints() {
            if let Endpoint::Unix(path) = endpoint {
                let path = path.to_string_lossy().into_owned();
                components.push(Component::of_unix(&UnixAddress { host: host_name(), path })?);
            }
        }
        Ok(IiopProfile { version: Version::V1_2, address, object_key, components })
    }
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
