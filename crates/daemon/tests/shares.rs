//! Resources and time of the daemon's service that the programs of one user take, and the effect on others:
//! descriptors, requests of connections that hang up, rings without end, clients that are killed with many
//! channels.

mod common;

use std::time::{Duration, Instant};

use common::census::descriptors;
use common::hosts::{Hosts, Wanted};
use common::program::folder;
use common::raw::Raw;
use common::users::as_user;
use common::{contract, eventually};
use punctual::{Endsystem, Nanos};
use punctual_ipc::api::{
    Answer, ApiError, Call, FromDaemon, HostStatus, Push, Request, Resource, UserStatus,
};
use punctual_ipc::ring::RingShape;
use punctual_ipc::socket::Packet;
use punctual_proto::api::UserId;
use punctual_proto::ids::{ChannelId, Name};
use rustix::process::{Pid, Signal};

/// Belongs to no account of this system.
const ANN: u32 = 3_000_001;

fn held(host: &Endsystem, user: u32) -> UserStatus {
    let status = host.status().expect("status");
    status.users.into_iter().find(|held| held.user == UserId(user)).unwrap_or_default()
}

fn flow(slots: u32, bytes: u32) -> Request {
    let ring = RingShape::new(slots, bytes).expect("a shape");
    Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring }
}

/// Opens so many flows with the smallest rings; returns the daemon's answer to the flow that it refused.
fn flows(raw: &Raw, most: usize) -> (usize, Option<ApiError>) {
    for count in 0..most {
        match raw.ask(flow(1, 1)).0 {
            Ok(_) => {}
            Err(error) => return (count, Some(error)),
        }
    }
    (most, None)
}

/// Found with 250 flows of one user, which took a thousand.
#[test]
fn descriptors_are_within_a_quota_that_is_no_less_than_what_is_held() {
    let folder = folder("shares-descriptors");
    let daemon = "channels_per_user_max = 1000\ndescriptors_per_user_max = 300";
    let mut hosts = Hosts::start(&folder, 0, &Wanted { daemon, ..Wanted::default() }, str::to_owned);
    let path = hosts.a.socket.clone();
    let before = descriptors(hosts.a.pid());
    let Some((raw, count, error)) = as_user(ANN, || {
        let raw = Raw::greeted(&path);
        let (count, error) = flows(&raw, 1_000);
        (raw, count, error)
    }) else {
        return;
    };
    let error = error.expect("the quota");
    assert!(matches!(error, ApiError::Quota { what: Resource::Descriptors, limit: 300, .. }), "{error}");
    assert!(error.to_string().contains("descriptors") && !error.to_string().contains('\n'), "{error}");
    let host = &hosts.connections[0];
    let (grown, counted) = (descriptors(hosts.a.pid()) - before, held(host, ANN).descriptors);
    println!("{count} flows: {grown} descriptors held, {counted} counted");
    assert!(grown as u64 <= counted && counted <= 300 && count >= 50, "{grown} {counted} {count}");
    assert!(hosts.a.connect().status().is_ok(), "another user");
    hosts.are_undisturbed();
    drop(raw);
    let host = &hosts.connections[0];
    eventually("all are given back", || held(host, ANN) == UserStatus::default());
    eventually("and closed", || descriptors(hosts.a.pid()) <= before);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Packets that wait for a program that does not read count, too, with the descriptors of its rings.
#[test]
fn descriptors_in_unread_answers_count() {
    let folder = folder("shares-unread");
    let daemon = "channels_per_user_max = 1000\ndescriptors_per_user_max = 400\n\
                  request_share_per_user_max = \"100%\"";
    let mut hosts = Hosts::start(&folder, 1, &Wanted { daemon, ..Wanted::default() }, str::to_owned);
    let path = hosts.a.socket.clone();
    let before = descriptors(hosts.a.pid());
    let open = Packet::new(&Call { id: 7, request: flow(1, 1) }, Vec::new()).expect("short");
    let Some(crowd) = as_user(ANN, || {
        let crowd: Vec<Raw> = (0..20).map(|_| Raw::greeted(&path)).collect();
        // More than its quota permits, and the client reads no answer.
        for raw in &crowd {
            (0..100).all(|_| raw.try_send(&open));
        }
        crowd
    }) else {
        return;
    };
    let host = &hosts.connections[0];
    let mut last = 0;
    eventually("the daemon takes no more of them", || {
        let now = host.status().expect("status").api.requests;
        let settled = now == last + 1;
        last = now;
        settled
    });
    let (grown, counted) = (descriptors(hosts.a.pid()) - before, held(host, ANN).descriptors);
    println!("{grown} descriptors held, {counted} counted");
    assert!(grown as u64 <= counted && counted <= 400, "{grown} {counted}");
    hosts.are_undisturbed();
    drop(crowd);
    std::fs::remove_dir_all(folder).expect("removed");
}

fn requests(status: &HostStatus) -> u64 {
    status.api.requests
}

/// Each connection that hung up had 16 requests a turn.
#[test]
fn requests_of_closed_connections_count_in_their_users_turn() {
    let folder = folder("shares-hung-up");
    let wanted = Wanted { daemon: "request_share_per_user_max = \"100%\"", hello: "5s", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 2, &wanted, str::to_owned);
    let path = hosts.a.socket.clone();
    let root = Raw::greeted(&path);
    let status = Packet::new(&Call { id: 7, request: Request::Status }, Vec::new()).expect("short");
    let Some(crowd) = as_user(ANN, || (0..40).map(|_| Raw::greeted(&path)).collect::<Vec<_>>()) else {
        return;
    };
    let before = requests(&hosts.connections[0].status().expect("status"));
    // Stopped, so that all of it is there in one turn.
    hosts.a.freeze();
    let asked: usize = crowd.iter().map(|raw| (0..30).take_while(|_| raw.try_send(&status)).count()).sum();
    drop(crowd);
    root.send(&status.bytes);
    hosts.a.signal(Signal::CONT);
    let Some((FromDaemon::Answer { result: Ok(Answer::Status(first)), .. }, _)) = root.receive() else {
        panic!("a status");
    };
    let served = requests(&first) - before;
    println!("{asked} requests of 40 connections that hung up, {served} were served before root's");
    assert!(asked >= 600 && served <= 2 * 16, "{served} of {asked}");
    let host = &hosts.connections[0];
    eventually("what they asked is done all the same", || {
        host.status().expect("status").api.requests >= before + asked as u64
    });
    eventually("and they are gone", || held(host, ANN) == UserStatus::default());
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// CPU time of the thread that serves, as the kernel counts it.
fn service_time(pid: Pid) -> Duration {
    let pid = pid.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).expect("/proc");
    let run_ns = stat.split_whitespace().next().expect("three fields").parse().expect("nanoseconds");
    Duration::from_nanos(run_ns)
}

/// Requests of root within which a user that may still be served is served.
const UNTIL_REFUSED: u32 = 2_000;

/// The time in which the service makes rings was charged to no user, so such a user could take all of it.
#[test]
fn a_user_that_requests_rings_without_end_is_charged_for_the_services_time() {
    let folder = folder("shares-rings");
    let daemon = "request_share_per_user_max = \"0.01%\"";
    let mut hosts = Hosts::start(&folder, 3, &Wanted { daemon, ..Wanted::default() }, str::to_owned);
    let path = hosts.a.socket.clone();
    let (pid, host) = (hosts.a.pid(), &hosts.connections[0]);
    let before = service_time(pid);
    let ring = Packet::new(&Call { id: 7, request: flow(32, 1 << 20) }, Vec::new()).expect("short");
    let Some(greedy) = as_user(ANN, || Raw::greeted(&path)) else { return };
    let (mut rings, mut of_root) = (0, 0);
    // Requests one ring of 32 MiB after the other, until a request stays unanswered while root has many
    // answers.
    let cost_of_root = 'asking: loop {
        // If this finds no room, the earlier requests are not served yet.
        greedy.try_send(&ring);
        let (begun, mut served) = (service_time(pid), 0);
        while !greedy.is_readable() {
            host.status().expect("root is served");
            served += 1;
            of_root += 1;
            if served == UNTIL_REFUSED {
                break 'asking (service_time(pid) - begun) / UNTIL_REFUSED;
            }
        }
        let Some((FromDaemon::Answer { result, .. }, descriptors)) = greedy.receive() else {
            panic!("an answer")
        };
        drop(descriptors);
        match result {
            Ok(Answer::Ring { channel, .. }) => {
                rings += 1;
                let close = Call { id: 7, request: Request::Close { channel } };
                greedy.send(&Packet::new(&close, Vec::new()).expect("short").bytes);
            }
            // The ring before is still being unmapped, or that was closed.
            Ok(Answer::Done) | Err(ApiError::Quota { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    let total = service_time(pid) - before;
    let greedys = total.saturating_sub(cost_of_root * of_root);
    println!(
        "{rings} rings of 32 MiB, the service ran for {total:?}: {of_root} requests of root of {cost_of_root:?}, \
         {greedys:?} for the other user"
    );
    assert!(rings >= 2);
    // A second at once (ten times 100 ms), and the overdraft of the last one.
    assert!(greedys <= Duration::from_millis(1_500), "{greedys:?}");
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A client with a thousand ends kept the service for a thousand round trips to the processor.
#[test]
fn a_client_that_ends_with_a_thousand_flows_delays_no_other() {
    let folder = folder("shares-dies");
    let daemon = "channels_per_user_max = 1100\ndescriptors_per_user_max = 8000\n\
                  request_share_per_user_max = \"100%\"";
    let mut hosts = Hosts::start(&folder, 4, &Wanted { daemon, ..Wanted::default() }, str::to_owned);
    let path = hosts.a.socket.clone();
    let Some(raw) = as_user(ANN, || {
        let raw = Raw::greeted(&path);
        assert_eq!(flows(&raw, 1_000), (1_000, None));
        raw
    }) else {
        return;
    };
    let root = Raw::greeted(&path);
    let status = Packet::new(&Call { id: 7, request: Request::Status }, Vec::new()).expect("short");
    // Stopped, so that these requests are there with the end of the client.
    hosts.a.freeze();
    drop(raw);
    (0..QUEUED).for_each(|_| root.send(&status.bytes));
    hosts.a.signal(Signal::CONT);
    let first: Vec<u64> = (0..QUEUED).map(|_| flows_of_ann(&root)).collect();
    let (mut more, mut longest) = (0, Duration::ZERO);
    loop {
        let begun = Instant::now();
        root.send(&status.bytes);
        let left = flows_of_ann(&root);
        (more, longest) = (more + 1, longest.max(begun.elapsed()));
        if left == 0 {
            break;
        }
    }
    println!(
        "left at the requests that waited: {first:?}; then {more} until none was, the longest took {longest:?}"
    );
    // Each turn serves at least one of root's requests, and ends 8 channels.
    let least = 1_000 - 8 * QUEUED as u64;
    assert!(first.iter().all(|left| *left >= least), "{first:?}");
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Requests of root that wait while a client of another user ends: their answers fit into its socket.
const QUEUED: usize = 8;

/// The number of Ann's flows in the next answer, which is a status.
fn flows_of_ann(root: &Raw) -> u64 {
    let Some((FromDaemon::Answer { result: Ok(Answer::Status(status)), .. }, _)) = root.receive() else {
        panic!("a status");
    };
    status.users.iter().find(|held| held.user == UserId(ANN)).map_or(0, |held| held.channels)
}

/// The next incoming channel; skips other pushes.
fn incoming(raw: &Raw) -> ChannelId {
    loop {
        if let FromDaemon::Push(Push::Incoming { channel, .. }) = raw.receive().expect("news").0 {
            return channel;
        }
    }
}

/// A channel of which a thousand small messages may be under way: what its host has for them is more than its burst's, and
/// more than its ring.
#[test]
fn all_that_a_channel_takes_counts_at_both_ends() {
    /// Minimum size of a message's place in a queue, and of a packet's.
    const PLACE_BYTES: u64 = 48;
    let folder = folder("shares-rooms");
    let mut hosts = Hosts::start(&folder, 5, &Wanted::default(), str::to_owned);
    let paths = [hosts.a.socket.clone(), hosts.socket_of_b().to_owned()];
    let [Some(source), Some(sink)] = paths.map(|path| as_user(ANN, || Raw::greeted(&path))) else { return };
    let port = Name::new("small").expect("a name");
    sink.ask(Request::Listen { port, handler_time: Nanos::ZERO }).0.expect("a listener");
    let open = Request::Open {
        to: "small@b".parse().expect("an address"),
        contract: contract(8, 1_000, 1_500),
        token: None,
    };
    let open = Packet::new(&Call { id: 7, request: open }, Vec::new()).expect("short");
    assert!(source.try_send(&open));
    let channel = incoming(&sink);
    let Ok(Answer::Ring { ring: inbox, .. }) = sink.ask(Request::Consent { channel, stall: None }).0 else {
        panic!("no ring")
    };
    let (FromDaemon::Answer { result: Ok(Answer::Opened { grant, ring: outbox, .. }), .. }, _) =
        source.receive().expect("an answer")
    else {
        panic!("it was not opened")
    };
    let counted = [0, 1].map(|host| held(&hosts.connections[host], ANN).buffer_bytes);
    println!("{counted:?} B count, of which {} and {} are rings", outbox.outbox_bytes(), inbox.inbox_bytes());
    let places = u64::from(grant.outbox_messages) * PLACE_BYTES;
    assert!(places > 10 * PLACE_BYTES && counted[0] >= outbox.outbox_bytes() + places, "{counted:?}");
    // All that are under way may wait at the sink.
    assert!(counted[1] >= inbox.inbox_bytes() + 1_000 * PLACE_BYTES, "{counted:?}");
    hosts.are_undisturbed();
    drop((source, sink));
    let left = || [0, 1].map(|host| held(&hosts.connections[host], ANN));
    eventually("all is given back", || left() == [UserStatus::default(); 2]);
    std::fs::remove_dir_all(folder).expect("removed");
}
