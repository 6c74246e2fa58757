//! Directories and candidate routes: shortest ones, and for each the best that leaves by another link.

use std::collections::{BTreeSet, VecDeque};

use punctual_proto::config::RouteConfig;
use punctual_proto::limits::ROUTE_NODES_MAX;

use super::{HostPlan, node_id};

/// Up to this number of hosts, every directory has all hosts; in larger networks only those that the host
/// communicates with.
const HOSTS_KNOWN: usize = 64;

/// Whether a host has a route to another: a request for a host that was cut off would fail in another way.
pub(crate) fn is_routed(hosts: &[HostPlan], from: usize, to: usize) -> bool {
    let (config, there) = (&hosts[from].config, node_id(to));
    config.links.iter().any(|link| link.neighbour == there)
        || config.routes.iter().any(|route| route.via.last() == Some(&there))
}

/// Gives every host its routes and its directory; `ends` are the pairs that communicate.
pub(super) fn give_routes(hosts: &mut [HostPlan], ends: impl Iterator<Item = (usize, usize)>) {
    let all = hosts.len() <= HOSTS_KNOWN;
    let others = |from: usize| (0..hosts.len()).filter(move |to| *to != from).map(move |to| (from, to));
    let pairs: BTreeSet<_> = if all { (0..hosts.len()).flat_map(others).collect() } else { ends.collect() };
    for (from, to) in pairs {
        let routes = candidates(hosts, from, to);
        hosts[from].config.routes.extend(routes);
    }
    for host in 0..hosts.len() {
        let links = hosts[host].links.iter().map(|link| link.peer);
        let routes = hosts[host].config.routes.iter().flat_map(|route| &route.via);
        let met = routes.map(|node| node.0 as usize - 1).chain(links).chain([host]);
        let known: BTreeSet<usize> = if all { (0..hosts.len()).collect() } else { met.collect() };
        let entry = |n: &usize| (hosts[*n].config.name.clone(), node_id(*n));
        hosts[host].config.directory = known.iter().map(entry).collect();
    }
}

fn candidates(hosts: &[HostPlan], from: usize, to: usize) -> Vec<RouteConfig> {
    let Some(best) = shortest(hosts, from, to, None) else { return Vec::new() };
    let other = shortest(hosts, from, to, best.first().copied());
    let fits = |path: &Vec<usize>| path.len() < ROUTE_NODES_MAX;
    let route = |path: Vec<usize>| RouteConfig { via: path.into_iter().map(node_id).collect() };
    [Some(best), other].into_iter().flatten().filter(fits).map(route).collect()
}

fn shortest(hosts: &[HostPlan], from: usize, to: usize, not_first: Option<usize>) -> Option<Vec<usize>> {
    let mut before: Vec<Option<usize>> = vec![None; hosts.len()];
    let mut open = VecDeque::from([from]);
    while let Some(here) = open.pop_front() {
        if here == to {
            break;
        }
        for peer in hosts[here].links.iter().map(|link| link.peer) {
            let barred = here == from && Some(peer) == not_first;
            if peer != from && before[peer].is_none() && !barred {
                before[peer] = Some(here);
                open.push_back(peer);
            }
        }
    }
    let mut path = vec![to];
    while *path.last()? != from {
        path.push(before[*path.last()?]?);
    }
    path.pop();
    path.reverse();
    Some(path)
}
