//! Devices, routes and neighbours, and the reports of their changes.

use std::net::IpAddr;
use std::time::Duration;

use punctual_link::kernel::{
    Change, Device, KernelError, LinkPath, Mac, PathRequest, Watcher, napi, neighbour, route_to,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::namespaces::{ADDRESSES, MACS, Pair, privileged};

const PATIENCE: Duration = Duration::from_secs(3);

pub fn request() -> PathRequest {
    let [local, peer]: [IpAddr; 2] = ADDRESSES.map(|text| text.parse().expect("an address"));
    PathRequest { device: "va".into(), local, peer, queue: 0, packet_bytes_max: 1_464 }
}

#[test]
fn a_path_is_found_and_its_neighbour_resolved() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    pair.within(|| {
        let device = Device::named("va").expect("va");
        assert_eq!((device.mtu, device.rx_queues, device.kind.as_deref()), (1_500, 2, Some("veth")));
        assert!(device.up && device.carrier && device.xdp.is_none());
        let features = napi::xdp_features(&device).expect("a kernel that tells");
        assert!(features.native() && features.redirect() && !features.zero_copy(), "{features:?}");
        assert_eq!(neighbour(device.index, request().peer).expect("an answer"), None);
        let path = request().resolve(PATIENCE).expect("a path");
        let known = LinkPath {
            device: device.clone(),
            next_hop: request().peer,
            source: Mac(MACS[0]),
            destination: Some(Mac(MACS[1])),
        };
        assert_eq!(path, known);
        assert_eq!(neighbour(device.index, request().peer).expect("an answer"), Some(Mac(MACS[1])));
    });
    // With a router in between, the next hop is the router's address, not the peer's.
    pair.left(&format!("ip route add 10.98.0.0/24 via {}", ADDRESSES[1]));
    pair.within(|| {
        let far = IpAddr::from([10, 98, 0, 7]);
        let route = route_to(far).expect("a route");
        assert_eq!((route.gateway, route.source), (Some(request().peer), Some(request().local)));
        let path = PathRequest { peer: far, ..request() }.resolve(PATIENCE).expect("a path");
        assert_eq!((path.next_hop, path.destination), (request().peer, Some(Mac(MACS[1]))));
    });
}

#[test]
fn what_is_wrong_with_a_path_is_one_line_with_its_fix() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let complains = |request: PathRequest, fix: &str| {
        let error = pair.within(|| request.resolve(Duration::from_millis(20))).expect_err(fix).to_string();
        assert!(error.contains(fix) && !error.contains('\n'), "{fix}: {error}");
    };
    complains(PathRequest { device: "vx".into(), ..request() }, "no interface vx");
    complains(PathRequest { device: "lo".into(), ..request() }, "is not an Ethernet device");
    complains(PathRequest { queue: 2, ..request() }, "has 2 receive queues");
    complains(PathRequest { packet_bytes_max: 1_473, ..request() }, "mtu 1501");
    complains(PathRequest { local: [10, 99, 0, 3].into(), ..request() }, "ip address add 10.99.0.3");
    complains(PathRequest { peer: [192, 0, 2, 1].into(), ..request() }, "no route to 192.0.2.1");
    complains(PathRequest { peer: request().local, ..request() }, "is reached by interface lo, not by va");
    pair.left("ip link add other type veth peer name rehto");
    pair.left("ip link set other up");
    pair.left(&format!("ip route add {}/32 dev other", ADDRESSES[1]));
    complains(request(), "is reached by interface other, not by va");
    pair.left("ip link del other");
    pair.right("ip link set vb down");
    complains(request(), "no carrier");
    let path = pair.within(|| request().find(PATIENCE)).expect("a path without its end");
    assert_eq!(path.destination, None);
    pair.right("ip link set vb up");
    pair.right("ip link set vb arp off");
    complains(request(), "does not answer");
    pair.left("ip link set va down");
    complains(request(), "ip link set va up");
}

/// All changes that the watcher reports; waits for `least`, since the kernel reports carriers with a delay.
fn changes(watcher: &mut Watcher, least: usize) -> Vec<Change> {
    let mut reported = Vec::new();
    loop {
        while let Some((link, change)) = watcher.poll_change() {
            assert_eq!(link, 0);
            reported.push(change);
        }
        if reported.len() >= least {
            return reported;
        }
        let mut descriptors = [PollFd::from_borrowed_fd(watcher.descriptor(), PollFlags::IN)];
        let ready = poll(&mut descriptors, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })).expect("to wait");
        assert!(ready > 0, "nothing more than {reported:?}");
    }
}

#[test]
fn changes_are_reported_once_and_in_order() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let mut watcher = pair.within(|| {
        let mut watcher = Watcher::new().expect("a watcher");
        watcher.add(request(), &request().resolve(PATIENCE).expect("a path"));
        watcher
    });
    let mut after = |line: &str, end: fn(&Pair, &str) -> String| {
        end(&pair, line);
        pair.within(|| changes(&mut watcher, 1))
    };
    let mac = |source, destination| Change::Mac { source: Mac(source), destination: Some(Mac(destination)) };
    assert_eq!(after("ip link set va mtu 1400", Pair::left), [Change::Mtu { mtu: 1_400, fits: false }]);
    assert_eq!(after("ip link set va mtu 9000", Pair::left), [Change::Mtu { mtu: 9_000, fits: true }]);
    // The watcher did not check in between, and still reports it.
    let off_and_on = "sh -c 'ip link set va down && ip link set va up'";
    assert_eq!(after(off_and_on, Pair::left), [Change::Down, Change::Up]);
    let other = [2, 0, 0, 0, 0, 9];
    assert_eq!(after("ip link set va address 02:00:00:00:00:09", Pair::left), [mac(other, MACS[1])]);
    let line = format!("ip neighbour replace {} lladdr 02:00:00:00:00:08 dev va", ADDRESSES[1]);
    assert_eq!(after(&line, Pair::left), [mac(other, [2, 0, 0, 0, 0, 8])]);
    // A neighbour that the kernel has dropped keeps its address; neither another device nor a route elsewhere
    // matters.
    pair.left(&format!("ip neighbour del {} dev va", ADDRESSES[1]));
    pair.left("ip link add other type veth peer name rehto");
    pair.left("ip route add 10.97.0.0/24 dev va");
    assert_eq!(after("ip link set vb down", Pair::right), [Change::Down]);
    assert_eq!(after("ip link set vb up", Pair::right), [Change::Up]);
    let moved = after(&format!("ip route add blackhole {}/32", ADDRESSES[1]), Pair::left);
    assert!(matches!(&moved[..], [Change::RouteMoved(why)] if why.contains("no route")), "{moved:?}");
    assert_eq!(
        after(&format!("ip route del blackhole {}/32", ADDRESSES[1]), Pair::left),
        [Change::RouteBack]
    );
    assert_eq!(after("ip link del va", Pair::left), [Change::Gone]);
    pair.join();
    let back = pair.within(|| changes(&mut watcher, 2));
    assert_eq!(back, [Change::Back, mac(MACS[0], [2, 0, 0, 0, 0, 8])], "as it was, until asked anew");
    assert!(matches!(pair.within(|| Device::numbered(1 << 30)), Err(KernelError::NoDevice(_))));
}
