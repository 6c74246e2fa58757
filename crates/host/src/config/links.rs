//! Opens the drivers of a host's links.

use punctual_link::Link;
use punctual_proto::config::{LinkConfig, Pacing};

use super::devices::Devices;
use super::drivers::{OpeningLink, OpeningLinks};
use super::{ConfigError, Driver, HostConfig};

impl HostConfig {
    /// Opens a driver for every link.
    ///
    /// # Errors
    /// The first that cannot be opened; memory links among them, see [`HostConfig::open_links_with`].
    pub fn open_links(&self) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        self.open_links_with(|_| None)
    }

    /// Opens a driver for every link; `memory` returns the ends of memory links by their names.
    ///
    /// # Errors
    /// The first link that cannot be opened, or that `memory` does not have.
    pub fn open_links_with<F>(&self, mut memory: F) -> Result<Vec<Box<dyn Link>>, ConfigError>
    where
        F: FnMut(&str) -> Option<Box<dyn Link>>,
    {
        let mut devices = Devices::take(self)?;
        let mut links: Vec<Option<Box<dyn Link>>> = self.drivers.iter().map(|_| None).collect();
        for driver in self.drivers_in_use() {
            let places: Vec<usize> = self.places_of(driver).collect();
            let opened = self.open_links_of(driver, &places, &mut devices, &mut memory)?;
            if opened.len() != places.len() {
                let (opened, wanted) = (opened.len(), places.len());
                return Err(ConfigError::Opened { driver: driver.name(), opened, wanted });
            }
            places.into_iter().zip(opened).for_each(|(place, link)| links[place] = Some(link));
        }
        Ok(links.into_iter().flatten().collect())
    }

    /// The drivers of the links, each once: first those that bypass the kernel, because they change their
    /// devices most.
    pub fn drivers_in_use(&self) -> Vec<Driver> {
        let mut drivers: Vec<Driver> = Vec::new();
        for driver in self.drivers.iter().map(|link| link.driver()) {
            if !drivers.contains(&driver) {
                drivers.push(driver);
            }
        }
        drivers.sort_by_key(|driver| !driver.bypasses_kernel());
        drivers
    }

    /// The places of the links that run on a driver.
    pub fn places_of(&self, driver: Driver) -> impl Iterator<Item = usize> {
        let links = self.drivers.iter().enumerate();
        links.filter(move |(_, link)| link.driver() == driver).map(|(place, _)| place)
    }

    fn open_links_of(
        &self,
        driver: Driver,
        places: &[usize],
        devices: &mut Devices,
        given: &mut dyn FnMut(&str) -> Option<Box<dyn Link>>,
    ) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        let opening = |place: &usize| OpeningLink {
            name: &self.node.links[*place].name,
            settings: &*self.drivers[*place],
            watched: devices.watched(*place),
        };
        let links = places.iter().map(opening).collect();
        driver.open(OpeningLinks { links, forbidden: self.forbidden_calls, given })
    }

    /// The links with the pace of their devices, if none was configured.
    pub(super) fn paced_links(&self) -> Vec<LinkConfig> {
        let mut links = self.node.links.clone();
        for (link, driver) in links.iter_mut().zip(&self.drivers) {
            if driver.has_own_pace() {
                link.pace = Pacing::Completion;
            }
        }
        links
    }
}
