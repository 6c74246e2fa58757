//! Next hops of connections: found, followed, and refused with the fix.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use punctual_link::kernel::{HopKeeper, HopRoute, HopState, Mac, NextHop, PortHold, hops};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::namespaces::{ADDRESSES, MACS, Pair, privileged};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);
const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 98, 0, 7));

/// Works as the keeper's thread does until the hop is as wanted: woken by the kernel, and not by the clock.
fn until(keeper: &mut HopKeeper, hop: &NextHop, what: &str, done: impl Fn(&HopState) -> bool) -> HopState {
    let begun = Instant::now();
    loop {
        keeper.poll();
        let state = hop.state().expect("no other reader");
        if done(&state) {
            return state;
        }
        assert!(begun.elapsed() < LONG, "{what}: {state:?}");
        let mut waits = keeper.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut waits, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).expect("to wait");
    }
}

fn route(state: HopState) -> HopRoute {
    match state {
        HopState::Known(route) => route,
        other => panic!("{other:?}"),
    }
}

fn is_answered(state: &HopState) -> bool {
    matches!(state, HopState::Known(route) if route.is_answered)
}

fn refusal(keeper: &mut HopKeeper, hop: &NextHop) -> String {
    match until(keeper, hop, "a refusal", |state| matches!(state, HopState::Refused(_))) {
        HopState::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_next_hop_is_found_and_followed() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let [own, peer]: [IpAddr; 2] = ADDRESSES.map(|text| text.parse().expect("an address"));
    pair.left(&format!("ip route add 10.98.0.0/24 via {} mtu 1400", ADDRESSES[1]));
    pair.within(|| {
        let (mut hops, mut keeper) = hops("va").expect("netlink");
        // Beside us, and behind a router whose route has an MTU of its own.
        let [near, far] = [peer, FAR].map(|remote| hops.to(remote));
        for (hop, mtu) in [(&near, 1_500), (&far, 1_400)] {
            let found = route(until(&mut keeper, hop, "an answer", is_answered));
            assert_eq!(found, HopRoute { source: own, next_hop: peer, mtu, is_answered: true });
            assert_eq!(hop.destination(), Some(Mac(MACS[1])));
        }
        let version = far.version();
        // The neighbour moves.
        pair.left(&format!("ip neighbour replace {} lladdr 02:00:00:00:00:77 dev va", ADDRESSES[1]));
        let moved = Some(Mac([2, 0, 0, 0, 0, 0x77]));
        until(&mut keeper, &far, "the move", |_| far.destination() == moved);
        assert_eq!(near.destination(), moved);
        assert_ne!(far.version(), version);
        // The device's MTU, then the route's.
        pair.left("ip link set va mtu 1300");
        until(&mut keeper, &far, "the MTU", |state| route(state.clone()).mtu == 1_300);
        pair.left(&format!("ip route replace 10.98.0.0/24 via {} mtu 1290", ADDRESSES[1]));
        until(&mut keeper, &far, "the route's MTU", |state| route(state.clone()).mtu == 1_290);
        assert_eq!(route(near.state().expect("known")).mtu, 1_300);
        // The route goes, and comes again.
        pair.left("ip route del 10.98.0.0/24");
        let why = refusal(&mut keeper, &far);
        assert!(why.contains("ip route add") && why.contains("10.98.0.7"), "{why}");
        assert_eq!(far.destination(), None, "nothing is sent where no route goes");
        pair.left(&format!("ip route add 10.98.0.0/24 via {}", ADDRESSES[1]));
        until(&mut keeper, &far, "the route again", is_answered);
        // Another source address.
        pair.left("ip address add 10.99.0.9/32 dev va");
        pair.left(&format!("ip route replace 10.98.0.0/24 via {} src 10.99.0.9", ADDRESSES[1]));
        let other: IpAddr = [10, 99, 0, 9].into();
        until(&mut keeper, &far, "the address", |state| route(state.clone()).source == other);
        // The router speaks IPv6 (RFC 5549).
        pair.left("ip -6 neighbour replace fe80::7 lladdr 02:00:00:00:00:79 dev va");
        pair.left("ip route replace 10.98.0.0/24 via inet6 fe80::7 dev va onlink src 10.99.0.9");
        let router: IpAddr = "fe80::7".parse().expect("an address");
        until(&mut keeper, &far, "the router", |state| route(state.clone()).next_hop == router);
        assert_eq!(far.destination(), Some(Mac([2, 0, 0, 0, 0, 0x79])));
        // It leaves by another device.
        pair.left("ip link add other type veth peer name another");
        pair.left("ip link set other up");
        pair.left("ip route replace 10.98.0.0/24 dev other src 10.99.0.9");
        let why = refusal(&mut keeper, &far);
        assert!(why.contains("by interface other, not by va"), "{why}");
    });
}

#[test]
fn a_next_hop_outlives_its_device() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    pair.within(|| {
        let (mut hops, mut keeper) = hops("va").expect("netlink");
        let hop = hops.to(ADDRESSES[1].parse().expect("an address"));
        until(&mut keeper, &hop, "an answer", is_answered);
        pair.left("ip link del va");
        let why = refusal(&mut keeper, &hop);
        assert!(why.contains("va"), "{why}");
        pair.join();
        until(&mut keeper, &hop, "an answer of the new device", is_answered);
    });
}

/// The kernel does not see what a link sends: without a question of ours it would forget a stale neighbour.
#[test]
fn a_stale_neighbour_is_probed() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    // The kernel asks at once, and not five seconds later.
    pair.left("sh -c 'echo 0 > /proc/sys/net/ipv4/neigh/va/delay_first_probe_time'");
    pair.within(|| {
        let (mut hops, mut keeper) = hops("va").expect("netlink");
        let hop = hops.to(ADDRESSES[1].parse().expect("an address"));
        until(&mut keeper, &hop, "an answer", is_answered);
        pair.right("ip link set vb address 02:00:00:00:00:78");
        pair.left(&format!(
            "ip neighbour replace {} lladdr {} nud stale dev va",
            ADDRESSES[1], "02:70:75:00:00:02"
        ));
        let moved = Some(Mac([2, 0, 0, 0, 0, 0x78]));
        until(&mut keeper, &hop, "the new address, which only a probe finds", |_| hop.destination() == moved);
    });
}

#[test]
fn a_held_port_is_exclusive() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    pair.within(|| {
        let own: IpAddr = ADDRESSES[0].parse().expect("an address");
        let hold = PortHold::take((own, 40_000).into()).expect("a free port");
        let refused = PortHold::take((own, 40_000).into()).expect_err("held").to_string();
        assert!(refused.contains("10.99.0.1:40000"), "{refused}");
        // The kernel chooses it for no connection of its own either, even where there is but one more.
        pair.left("sh -c 'echo 40000 40001 > /proc/sys/net/ipv4/ip_local_port_range'");
        let listener = pair.within_right(|| TcpListener::bind((ADDRESSES[1], 0))).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let first = TcpStream::connect(to).expect("the other port");
        assert_eq!(first.local_addr().expect("its address").port(), 40_001);
        assert_eq!(TcpStream::connect(to).expect_err("held").kind(), std::io::ErrorKind::AddrNotAvailable);
        drop(hold);
        PortHold::take((own, 40_000).into()).expect("free again");
    });
}
