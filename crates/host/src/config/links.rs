//! Opens the drivers of a host's links.

use punctual_link::kernel::{Device, FollowError, FollowedLink};
use punctual_link::{Link, UdpLink};
use punctual_proto::config::{LinkConfig, Pacing};

use super::devices::Devices;
use super::xdp::{self, XdpSettings};
use super::{ConfigError, HostConfig, LinkDriver};

/// Links with their places in the configuration.
type Placed = Vec<(usize, FollowedLink)>;

impl HostConfig {
    /// Opens a driver for every link.
    ///
    /// # Errors
    /// The first that cannot be opened; memory links among them, see [`HostConfig::open_links_with`].
    pub fn open_links(&self) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        self.open_links_with(|_| None)
    }

    /// Opens a driver for every link; `memory` gives the ends of memory links by their names.
    ///
    /// # Errors
    /// The first that cannot be opened, or that `memory` does not know.
    pub fn open_links_with<F>(&self, mut memory: F) -> Result<Vec<Box<dyn Link>>, ConfigError>
    where
        F: FnMut(&str) -> Option<Box<dyn Link>>,
    {
        let mut devices = Devices::take(self)?;
        let name = |index: usize| self.node.links[index].name.clone();
        let mut links: Vec<Option<Box<dyn Link>>> = self.drivers.iter().map(|_| None).collect();
        for (index, mut link) in self.open_xdp()? {
            devices.watched(index).into_iter().for_each(|watched| link.watch(watched));
            links[index] = Some(Box::new(link));
        }
        for (index, driver) in self.drivers.iter().enumerate() {
            match driver {
                LinkDriver::Udp(options) => {
                    let failed = |error| ConfigError::Link { name: name(index), error };
                    let mut link = UdpLink::open(options).map_err(failed)?;
                    devices.watched(index).into_iter().for_each(|watched| link.watch(watched));
                    links[index] = Some(Box::new(link));
                }
                LinkDriver::Memory => {
                    let name = name(index);
                    links[index] = Some(memory(&name).ok_or(ConfigError::MemoryLink { name })?);
                }
                LinkDriver::Xdp(_) => {}
            }
        }
        Ok(links.into_iter().flatten().collect())
    }

    /// The links over AF_XDP with what they are told, by their places.
    pub fn xdp_links(&self) -> impl Iterator<Item = (usize, &XdpSettings)> {
        self.drivers.iter().enumerate().filter_map(|(index, driver)| match driver {
            LinkDriver::Xdp(settings) => Some((index, settings)),
            _ => None,
        })
    }

    /// All together: they share the memory of their frames.
    fn open_xdp(&self) -> Result<Placed, ConfigError> {
        let (places, settings): (Vec<usize>, Vec<&XdpSettings>) = self.xdp_links().unzip();
        let opened =
            xdp::open(&settings, self.forbidden_calls).map_err(|FollowError { link, error }| match link {
                Some(place) => ConfigError::Link { name: self.node.links[places[place]].name.clone(), error },
                None => ConfigError::Xdp { error },
            })?;
        Ok(places.into_iter().zip(opened).collect())
    }

    /// The links with the pace of their devices, where none was configured.
    pub(super) fn paced_links(&self) -> Vec<LinkConfig> {
        let mut links = self.node.links.clone();
        for (index, settings) in self.xdp_links().filter(|(_, settings)| settings.pace_by_device) {
            let device = Device::named(&settings.classifier.device);
            if device.is_ok_and(|device| device.has_own_pace()) {
                links[index].pace = Pacing::Completion;
            }
        }
        links
    }
}
