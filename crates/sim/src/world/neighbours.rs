//! Agreement of neighbours once the network is idle: each receives the other, and drivers accept exactly the
//! open paths.

use std::collections::BTreeSet;

use punctual_proto::api::NodeStatus;
use punctual_proto::ids::PathId;

use super::World;
use super::channel::State;
use crate::scenario::{host_of, node_id};

impl World {
    pub(super) fn compare_neighbours(&mut self, host: usize, status: &NodeStatus) {
        for link in status.links.iter().filter(|link| !link.alive) {
            let what = format!("host {host} does not hear its neighbour {}, though all is well", link.name);
            self.violate(&what);
        }
        for link in &status.links {
            if let Some(foreign) = link.foreign {
                let what = format!("host {host} still takes its neighbour {} for {foreign:?}", link.name);
                self.violate(&what);
            }
        }
        let reported: BTreeSet<(u16, PathId)> = self.hosts[host].filters.paths().collect();
        let expected: BTreeSet<(u16, PathId)> = self.incoming_paths(host).collect();
        if reported != expected {
            let what = format!("host {host} lets in {reported:?}, what its neighbours send is {expected:?}");
            self.violate(&what);
        }
    }

    /// Open paths that arrive at `host`, with their links.
    fn incoming_paths(&self, host: usize) -> impl Iterator<Item = (u16, PathId)> {
        let open = self.channels.iter().filter(|channel| channel.state == State::Open);
        open.filter_map(move |channel| {
            let route = &channel.grant.as_ref()?.route;
            let here = route.iter().position(|node| *node == node_id(host))?;
            let before = host_of(*route.get(here.checked_sub(1)?)?)?;
            let links = &self.scenario.hosts[host].links;
            let link = links.iter().position(|link| link.peer == before)?;
            Some((link as u16, channel.path?))
        })
    }
}
