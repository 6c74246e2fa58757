//! What programs of one user can do to those of others through the API's socket: send requests without
//! reading, send requests without end, take every place. Daemons are processes, programs run as users of
//! their own.

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use common::census::{descriptors, memory_kib, unread_files_bytes};
use common::hosts::{Hosts, Wanted};
use common::program::{Program, folder};
use common::raw::Raw;
use common::users::as_user;
use common::{PATIENCE, contract, eventually};
use punctual::{Channel, Consent, Endsystem, Nanos, Receiver};
use punctual_ipc::api::{
    Answer, ApiError, Call, FromDaemon, HostStatus, PACKET_BYTES_MAX, Push, Request, Resource, UserStatus,
    VERSION,
};
use punctual_ipc::ring::RingShape;
use punctual_ipc::socket::Packet;
use punctual_proto::api::UserId;
use punctual_proto::ids::Name;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Signal;

/// Belongs to no account of this system.
const ANN: u32 = 3_000_001;
const UNREAD_MAX: u64 = 4 << 20;

fn status_of(status: &HostStatus, user: u32) -> UserStatus {
    status.users.iter().find(|held| held.user == UserId(user)).copied().unwrap_or_default()
}

/// Open channels from `a` to `b`, so that an answer about all of them is long.
fn many_channels(hosts: &Hosts, count: usize) -> Vec<(Channel, Receiver)> {
    let [on_a, on_b] = &hosts.connections;
    let listener = on_b.listen("many", |_| Consent::Accept).expect("a listener");
    let open = || on_a.open("many@b", contract(100, 1, 2_000)).expect("a channel");
    let accept = || listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    (0..count).map(|_| (open(), accept())).collect()
}

fn ask_for_channels() -> Packet {
    Packet::new(&Call { id: 7, request: Request::Channels { after: None } }, Vec::new()).expect("short")
}

/// Found on 60 connections with 900 requests each: the daemon grew from 23 MB to 3.3 GB, and kept 1.0 GB.
#[test]
fn what_is_not_read_stays_within_the_quota_and_is_given_back() {
    let folder = folder("unread");
    let wanted = Wanted { daemon: "request_share_per_user_max = \"100%\"", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 0, &wanted, str::to_owned);
    let channels = many_channels(&hosts, 60);
    let pid = hosts.a.pid();
    let before_kib = memory_kib(pid);
    let path = hosts.a.socket.clone();
    let Some(crowd) = as_user(ANN, || (0..60).map(|_| Raw::greeted(&path)).collect::<Vec<_>>()) else {
        return;
    };
    let asked: Vec<usize> =
        crowd.iter().map(|raw| (0..900).take_while(|_| raw.try_send(&ask_for_channels())).count()).collect();
    let status = || hosts.connections[0].status().expect("status");
    let mut last = status().api.requests;
    eventually("the daemon takes no more of them", || {
        let seen = status();
        let now = seen.api.requests;
        // This status itself is one. On a busy machine two may come before any of theirs.
        let settled = now == last + 1 && status_of(&seen, ANN).unread_bytes > 0;
        last = now;
        settled
    });
    let held = status_of(&status(), ANN).unread_bytes;
    assert!((PACKET_BYTES_MAX as u64 / 2..=UNREAD_MAX).contains(&held), "{held} B wait");
    assert!(unread_files_bytes(pid) <= UNREAD_MAX + 60 * 4_096, "{} B", unread_files_bytes(pid));
    let grown_kib = memory_kib(pid).saturating_sub(before_kib);
    println!("{} asked for, {held} B wait, {grown_kib} KiB more are resident", asked.iter().sum::<usize>());
    assert!(grown_kib <= UNREAD_MAX / 1_024, "{grown_kib} KiB");
    assert_eq!(status_of(&status(), ANN).clients, 60, "no connection was cut: only their sockets are full");
    hosts.are_undisturbed();
    // A client that reads later still gets every answer.
    for _ in 0..asked[0] {
        let answer = crowd[0].receive().expect("an answer").0;
        assert!(matches!(answer, FromDaemon::Answer { id: 7, result: Ok(Answer::Channels { .. }) }));
    }
    drop(crowd);
    let status = || hosts.connections[0].status().expect("status");
    eventually("all is given back", || status_of(&status(), ANN) == UserStatus::default());
    assert_eq!(unread_files_bytes(pid), 0);
    let kept_kib = memory_kib(pid).saturating_sub(before_kib);
    assert!(kept_kib <= 2_048, "{kept_kib} KiB are kept");
    drop(channels);
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A user's programs that send requests without end get their share of the processor's time; other users and
/// root are served meanwhile.
#[test]
fn a_user_that_sends_requests_without_end_gets_its_share_and_others_are_served() {
    let folder = folder("share");
    let wanted = Wanted { daemon: "request_share_per_user_max = \"0.01%\"", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 1, &wanted, str::to_owned);
    let channels = many_channels(&hosts, 20);
    let path = hosts.a.socket.clone();
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let greedy = scope.spawn(|| {
            as_user(ANN, || {
                let raw = Raw::greeted(&path);
                while !stop.load(Ordering::SeqCst) {
                    if !raw.try_send(&ask_for_channels()) || raw.receive().is_none() {
                        return;
                    }
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        if !rustix::process::getuid().is_root() {
            return;
        }
        eventually("its share is used up, and root is served all the same", || {
            let before = answers.load(Ordering::SeqCst);
            for _ in 0..20 {
                assert!(hosts.connections[0].status().is_ok());
            }
            before > 0 && answers.load(Ordering::SeqCst) == before
        });
        hosts.are_undisturbed();
        let other = as_user(ANN + 1, || Raw::greeted(&path).ask(Request::Status).0);
        assert!(matches!(other, Some(Ok(Answer::Status(_)))), "another user is served");
        stop.store(true, Ordering::SeqCst);
        // It waits for its turn, which ends with the daemon at the latest.
        hosts.a.signal(Signal::KILL);
        greedy.join().expect("no panic");
    });
    // 100 ms at once and a ten-thousandth from then on, at least 5 us for each, and the overdraft of the last
    // one.
    let share_ns = 100_000_000 + begun.elapsed().as_nanos() as u64 / 10_000;
    let answers = answers.load(Ordering::SeqCst);
    assert!(answers <= share_ns / 5_000 + 1, "{answers} answers");
    drop(channels);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The first answer that a refused program of `user` reads, whatever it has requested by then.
fn refused(user: u32, daemon: &Program) -> Option<ApiError> {
    let hello = Request::Hello { version: VERSION, program: "raw".into() };
    let hello = Packet::new(&Call { id: 1, request: hello }, Vec::new()).expect("short");
    // The daemon is stopped, so that the request is there before the daemon handles the connection.
    daemon.freeze();
    let raw = as_user(user, || {
        let raw = Raw::connect(&daemon.socket);
        raw.send(&hello.bytes);
        raw
    });
    daemon.signal(Signal::CONT);
    let packet = raw?.receive_once().expect("no error comes before the reason").expect("the reason");
    match packet.parse() {
        Ok(FromDaemon::Answer { id: 0, result: Err(error) }) => Some(error),
        other => panic!("{other:?}"),
    }
}

/// Found with 64 users: the 65th, root too, saw that its connection was reset.
#[test]
fn users_that_take_every_place_leave_roots_place_and_others_get_the_reason() {
    let folder = folder("places");
    let wanted = Wanted { daemon: "users_max = 2", hello: "5s", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 2, &wanted, str::to_owned);
    let path = hosts.a.socket.clone();
    let taken: Vec<_> = (0..2).filter_map(|user| as_user(ANN + user, || Raw::greeted(&path))).collect();
    if taken.is_empty() {
        return;
    }
    let full = ApiError::Quota { what: Resource::Users, used: 2, limit: 2 };
    assert_eq!(refused(ANN + 2, &hosts.a), Some(full.clone()));
    let text = as_user(ANN + 2, || Endsystem::connect_to(&path).err().map(|error| error.to_string()));
    let text = text.flatten().expect("no place");
    assert!(text.contains(&full.to_string()) && !text.contains('\n'), "{text}");
    // A program that is there already, of whatever user, and root's next one.
    assert!(as_user(ANN, || Raw::greeted(&path)).is_some());
    assert!(Endsystem::connect_to(&path).expect("root has a place").status().is_ok());
    hosts.are_undisturbed();
    drop(taken);
    eventually("places are given back", || {
        as_user(ANN + 2, || Endsystem::connect_to(&path).is_ok()) == Some(true)
    });
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Users of a user namespace belong to an account if /etc/subuid assigns them to it.
#[test]
fn subordinate_users_share_the_quotas_of_their_account() {
    let folder = folder("subordinates");
    let ranges = folder.join("subuid");
    std::fs::write(&ranges, format!("{ANN}:3100000:1000\n")).expect("written");
    if !rustix::process::getuid().is_root() {
        punctual_skip::skipped!("mount namespaces need root");
        return;
    }
    let wanted = Wanted { daemon: "connections_per_user_max = 2", ..Wanted::default() };
    let beside = |line: &str| {
        format!("unshare -m sh -c 'mount --bind {} /etc/subuid && exec {line}'", ranges.display())
    };
    if !Command::new("sh").args(["-c", &beside("true")]).status().is_ok_and(|status| status.success()) {
        punctual_skip::skipped!(
            "no mount namespace of its own here (a root that is no mount point), or no /etc/subuid"
        );
        return;
    }
    let mut hosts = Hosts::start(&folder, 3, &wanted, beside);
    let path = hosts.a.socket.clone();
    let first = [ANN, 3_100_007].map(|user| as_user(user, || Raw::greeted(&path)));
    assert!(first.iter().all(Option::is_some));
    let error = as_user(3_100_900, || Endsystem::connect_to(&path).err().map(|error| error.to_string()));
    let error = error.flatten().expect("one too many");
    assert!(error.contains("2 of 2 clients"), "{error}");
    assert!(as_user(3_101_000, || Raw::greeted(&path)).is_some(), "beyond the range");
    // The file is read anew when it has changed.
    std::fs::write(&ranges, "").expect("written");
    assert!(as_user(3_100_900, || Raw::greeted(&path)).is_some(), "no user's subordinate any more");
    hosts.are_undisturbed();
    drop((first, hosts));
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The daemon never has to close a descriptor of a program, because programs cannot send any: the last close
/// of a pipe that its other holders keep busy, or of a file on their file system, waits for them.
#[test]
fn descriptors_of_programs_reach_no_daemon() {
    let folder = folder("descriptors");
    let mut hosts = Hosts::start(&folder, 4, &Wanted::default(), str::to_owned);
    let raw = Raw::greeted(&hosts.a.socket);
    let before = descriptors(hosts.a.pid());
    let status = Packet::new(&Call { id: 7, request: Request::Status }, Vec::new()).expect("short");
    for _ in 0..50 {
        let (reading, writing) = std::io::pipe().expect("a pipe");
        let file = memfd_create("foreign", MemfdFlags::CLOEXEC).expect("a file");
        let sent = raw.send_with(&status.bytes, vec![reading.into(), writing.into(), file]);
        assert_eq!(
            sent.expect_err("the kernel lets none through").kind(),
            std::io::ErrorKind::PermissionDenied
        );
        assert!(raw.ask(Request::Status).0.is_ok(), "its other requests are answered");
    }
    assert!(descriptors(hosts.a.pid()) <= before);
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The declaration of a program takes no time of a processor that does not run its handlers.
#[test]
fn a_program_cannot_declare_time_of_the_processor() {
    let folder = folder("declared");
    let wanted = Wanted { daemon: "listeners_per_user_max = 1", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 6, &wanted, str::to_owned);
    let raw = Raw::greeted(&hosts.a.socket);
    let listen = |handler_time| {
        let port = Name::new("direct").expect("a name");
        raw.ask(Request::Listen { port, handler_time }).0
    };
    for handler_time in [Nanos(1), Nanos::from_millis(5), Nanos::MAX] {
        match listen(handler_time) {
            Err(ApiError::Forbidden(why)) => assert!(why.contains("handler_time"), "{why}"),
            other => panic!("{handler_time}: {other:?}"),
        }
    }
    let listening = listen(Nanos::ZERO);
    assert!(matches!(listening, Ok(Answer::Listening { .. })), "the place is still free: {listening:?}");
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The channel that comes in answer is one too many for the user: the program that requested it receives the
/// refusal.
#[test]
fn a_request_for_a_channel_beyond_the_quota_gets_that_error() {
    let folder = folder("asked");
    let wanted = Wanted { daemon: "channels_per_user_max = 2", ..Wanted::default() };
    let hosts = Hosts::start(&folder, 7, &wanted, str::to_owned);
    let sources = Raw::greeted(hosts.socket_of_b());
    let listen =
        |port: &str| Request::Listen { port: Name::new(port).expect("a name"), handler_time: Nanos::ZERO };
    sources.ask(listen("source")).0.expect("a listener");
    let path = hosts.a.socket.clone();
    let Some(asker) = as_user(ANN, || Raw::greeted(&path)) else { return };
    asker.ask(listen("back")).0.expect("a listener");
    let ring = RingShape::new(1, 1).expect("a shape");
    for _ in 0..2 {
        let flow = Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring };
        asker.ask(flow).0.expect("a flow");
    }
    let ask = Request::Ask {
        source: "source@b".parse().expect("an address"),
        reply_to: Name::new("back").expect("a name"),
        contract: contract(100, 10, 200),
    };
    let Ok(Answer::Asked { token: asked }) = asker.ask(ask).0 else { panic!("not asked") };
    let (to, token, contract) = loop {
        if let FromDaemon::Push(Push::Requested { to, token, contract, .. }) =
            sources.receive().expect("the request").0
        {
            break (to, token, contract);
        }
    };
    let opened = sources.ask(Request::Open { to, contract, token: Some(token) }).0;
    assert!(matches!(opened, Err(ApiError::Refused(_))), "{opened:?}");
    match asker.receive().expect("news").0 {
        FromDaemon::Push(Push::AskFailed { token, refusal }) => {
            assert_eq!(token, asked);
            assert!(refusal.to_string().contains("quota"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Connections of users take every descriptor that the daemon may have: the next user is refused with a
/// reason, and root is let in.
#[test]
fn a_user_that_takes_every_descriptor_does_not_lock_root_out() {
    let folder = folder("exhausted");
    let wanted = Wanted { daemon: "connections_per_user_max = 1000", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 5, &wanted, |line| format!("prlimit --nofile=100 {line}"));
    let path = hosts.a.socket.clone();
    let mut crowd = Vec::new();
    let reported = as_user(ANN, || {
        for _ in 0..200 {
            let raw = Raw::connect(&path);
            let hello = Request::Hello { version: VERSION, program: "raw".into() };
            let hello = Packet::new(&Call { id: 1, request: hello }, Vec::new()).expect("short");
            // A refused client may be gone already.
            raw.try_send(&hello);
            match raw.receive().expect("a word").0 {
                FromDaemon::Answer { id: 1, result: Ok(_) } => crowd.push(raw),
                FromDaemon::Answer { id: 0, result: Err(error) } => return error.to_string(),
                other => panic!("{other:?}"),
            }
        }
        panic!("200 connections in 100 descriptors");
    });
    let Some(reported) = reported else { return };
    assert!(reported.contains("no descriptor left") && reported.contains("LimitNOFILE"), "{reported}");
    let root = Endsystem::connect_to(&path).expect("root has the last one");
    assert!(root.status().is_ok());
    hosts.are_undisturbed();
    drop((crowd, root));
    eventually("there is room again", || as_user(ANN, || Endsystem::connect_to(&path).is_ok()) == Some(true));
    std::fs::remove_dir_all(folder).expect("removed");
}
