//! Our client, and servers that do what the protocol allows, or do not.

#[path = "common/script.rs"]
#[allow(dead_code)]
mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use punctual_giop::exception::Cause;
use punctual_giop::long::LONG_BYTES;
use punctual_giop::message::{
    Addressing, LocateReply, LocateStatus, Message, MessageType, ReplyStatus, RequestId, Target,
};
use punctual_giop::{ByteOrder, Completion, Encode, SystemExceptionKind as Kind, Version};
use punctual_orb::{Options, SystemException};
use script::{End, Script, answer, bare, call, call_later, cut, header, reply, written};

/// Runs a call, blocking or not, beside a server that a test plays.
fn beside<T>(
    script: &Script,
    is_blocking: bool,
    serve: impl FnOnce(&Script) -> T,
) -> (Result<u8, SystemException>, T) {
    std::thread::scope(|scope| {
        let object = &script.object;
        let called = scope.spawn(move || if is_blocking { call(object) } else { call_later(object).wait() });
        let served = serve(script);
        (called.join().expect("it does not panic"), served)
    })
}

const BOTH: [bool; 2] = [true, false];

#[test]
fn a_call_that_ends_at_its_time_is_cancelled() {
    for is_blocking in BOTH {
        let timeout = Some(Duration::from_millis(20));
        let script = Script::new(Options { timeout, ..Options::default() });
        let (called, (asked, cancelled)) = beside(&script, is_blocking, |script| {
            let mut end = script.accept();
            let asked = end.request();
            let message = end.expect(MessageType::CancelRequest);
            let Ok(Message::CancelRequest(cancelled)) = Message::read(&message) else {
                panic!("it was read")
            };
            (asked, cancelled)
        });
        assert_eq!(called.expect_err("nobody answers").kind, Kind::Timeout);
        assert_eq!(asked, cancelled);
    }
}

#[test]
fn a_call_that_an_orderly_server_did_not_begin_is_sent_again() {
    for is_blocking in BOTH {
        let script = Script::new(Options::default());
        let (called, ()) = beside(&script, is_blocking, |script| {
            let mut first = script.accept();
            first.request();
            first.send(&bare(MessageType::CloseConnection));
            let mut second = script.accept();
            let id = second.request();
            second.send(&answer(id));
        });
        assert_eq!(called, Ok(7));
    }
}

#[test]
fn a_call_that_may_have_been_performed_is_not_sent_again() {
    for is_blocking in BOTH {
        let script = Script::new(Options::default());
        let (called, ()) = beside(&script, is_blocking, |script| {
            script.accept().request();
        });
        let failed = called.expect_err("the connection broke");
        assert_eq!((failed.kind, failed.completed), (Kind::CommFailure, Completion::Maybe));
        script.listener.set_nonblocking(true).expect("a socket");
        assert!(script.listener.accept().is_err(), "it connects again");
    }
}

#[test]
fn a_server_that_always_closes_is_given_up() {
    for is_blocking in BOTH {
        let script = Script::new(Options::default());
        let (sender, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            let object = &script.object;
            scope.spawn(move || {
                let called = if is_blocking { call(object) } else { call_later(object).wait() };
                sender.send(called).expect("somebody waits");
            });
            script.listener.set_nonblocking(true).expect("a socket");
            loop {
                if let Ok((stream, _)) = script.listener.accept() {
                    stream.set_nonblocking(false).expect("a socket");
                    let mut end = End::new(stream);
                    end.request();
                    end.send(&bare(MessageType::CloseConnection));
                }
                if let Ok(called) = ended.try_recv() {
                    let failed = called.expect_err("nobody answers");
                    assert_eq!((failed.kind, failed.completed), (Kind::Transient, Completion::No));
                    return;
                }
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn an_object_is_named_as_its_server_wants() {
    for is_blocking in BOTH {
        for wanted in [Addressing::Profile, Addressing::Reference] {
            let script = Script::new(Options::default());
            let (called, ()) = beside(&script, is_blocking, |script| {
                let mut end = script.accept();
                let id = end.request();
                end.send(&reply(id, ReplyStatus::NeedsAddressingMode, |to| wanted.encode(to)));
                let message = end.expect(MessageType::Request);
                let Ok(Message::Request(request, _)) = Message::read(&message) else { panic!("a request") };
                assert_eq!(request.target.object_key(), Ok(&b"key"[..]));
                match (wanted, &request.target) {
                    (Addressing::Profile, Target::Profile(_)) => {}
                    (Addressing::Reference, Target::Reference(0, reference)) => {
                        assert_eq!(**reference, script.reference());
                    }
                    (_, target) => panic!("{target:?}"),
                }
                end.send(&answer(request.id));
            });
            assert_eq!(called, Ok(7));
        }
    }
}

#[test]
fn a_server_that_never_has_enough_of_addresses_is_given_up() {
    for is_blocking in BOTH {
        let script = Script::new(Options { timeout: Some(Duration::from_secs(60)), ..Options::default() });
        let (called, ()) = beside(&script, is_blocking, |script| {
            let mut end = script.accept();
            while let Some(message) = end.read() {
                let Ok(Message::Request(request, _)) = Message::read(&message) else { panic!("a request") };
                end.send(&reply(request.id, ReplyStatus::NeedsAddressingMode, |to| {
                    Addressing::Key.encode(to)
                }));
                // Each kind of call ends after some attempts.
                if request.id.0 >= if is_blocking { 2 } else { 20 } {
                    break;
                }
            }
        });
        assert_eq!(called.expect_err("it is never content").kind, Kind::Transient);
    }
}

#[test]
fn replies_that_nobody_awaits_are_dropped() {
    for is_blocking in BOTH {
        let script = Script::new(Options::default());
        let (called, ()) = beside(&script, is_blocking, |script| {
            let mut end = script.accept();
            let id = end.request();
            end.send(&reply(RequestId(id.0 + 1), ReplyStatus::NoException, |to| 9u8.encode(to)));
            end.send(&located(RequestId(99), LocateStatus::ObjectHere));
            end.send(&answer(id));
        });
        assert_eq!(called, Ok(7));
    }
}

#[test]
fn what_a_server_must_not_send_is_answered_with_a_message_error() {
    let key = b"key";
    let wrong = [
        script::request(1, key, "echo", |_| Ok(())),
        script::cancel(1),
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        // A fragment of nothing, and a version that does not exist.
        [&b"GIOP\x01\x02\x01\x07\x04\0\0\0"[..], &[9, 0, 0, 0]].concat(),
        b"GIOP\x01\x09\x01\x01\0\0\0\0".to_vec(),
        // A reply of nearly 2 GiB.
        b"GIOP\x01\x02\x01\x01\xff\xff\xff\x7f".to_vec(),
    ];
    for is_blocking in BOTH {
        for wrong in &wrong {
            let script = Script::new(Options::default());
            let (called, ()) = beside(&script, is_blocking, |script| {
                let mut end = script.accept();
                end.request();
                end.send(wrong);
                end.expect(MessageType::MessageError);
                assert_eq!(end.read(), None);
            });
            let failed = called.expect_err("no reply");
            assert_eq!((failed.kind, failed.completed), (Kind::CommFailure, Completion::Maybe), "{wrong:?}");
            // The caller must not look for the fault in the network.
            assert_eq!(failed.cause(), Some(Cause::NoMessage.text()), "{wrong:?}");
        }
    }
}

#[test]
fn a_message_error_ends_the_calls_of_its_connection() {
    for is_blocking in BOTH {
        let script = Script::new(Options::default());
        let (called, ()) = beside(&script, is_blocking, |script| {
            let mut end = script.accept();
            end.request();
            end.send(&bare(MessageType::MessageError));
            assert_eq!(end.read(), None, "nobody answers it");
        });
        let failed = called.expect_err("no reply");
        assert_eq!((failed.kind, failed.completed), (Kind::CommFailure, Completion::Maybe));
    }
}

fn located(id: RequestId, status: LocateStatus) -> Vec<u8> {
    let head = LocateReply { id, status };
    written(ByteOrder::NATIVE, Version::V1_2, |to| head.begin(to), |_| Ok(()))
}

fn location_asked(end: &mut End) -> RequestId {
    let message = end.expect(MessageType::LocateRequest);
    let Ok(Message::LocateRequest(asked)) = Message::read(&message) else { panic!("it was read") };
    assert_eq!(asked.target.object_key(), Ok(&b"key"[..]));
    asked.id
}

#[test]
fn a_client_asks_where_an_object_is_and_follows_it() {
    let (script, elsewhere) = (Script::new(Options::default()), Script::new(Options::default()));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| (0..3).map(|_| script.object.locate()).collect::<Vec<_>>());
        let mut end = script.accept();
        let id = location_asked(&mut end);
        end.send(&located(id, LocateStatus::ObjectHere));
        let id = location_asked(&mut end);
        end.send(&located(id, LocateStatus::UnknownObject));
        let id = location_asked(&mut end);
        let forward = LocateReply { id, status: LocateStatus::ObjectForward };
        let to = elsewhere.reference();
        end.send(&written(ByteOrder::NATIVE, Version::V1_2, |to| forward.begin(to), |into| to.encode(into)));
        let mut there = elsewhere.accept();
        let id = location_asked(&mut there);
        there.send(&located(id, LocateStatus::ObjectHere));
        assert_eq!(asked.join().expect("it does not panic"), [Ok(true), Ok(false), Ok(true)]);
        // Calls go there, too.
        let called = scope.spawn(|| call(&script.object));
        let id = there.request();
        there.send(&answer(id));
        assert_eq!(called.join().expect("it does not panic"), Ok(7));
    });
}

#[test]
fn fragments_of_several_replies_mix() {
    let script = Script::new(Options::default());
    let mut calls: Vec<_> = (0..3).map(|_| call_later(&script.object)).collect();
    let mut end = script.accept();
    let replies: Vec<_> = (0..3)
        .map(|_| {
            let id = end.request();
            let long = |to: &mut punctual_giop::Encoder| {
                7u8.encode(to)?;
                vec![id.0; 100].encode(to)
            };
            cut(&reply(id, ReplyStatus::NoException, long), 64)
        })
        .collect();
    for number in 0..replies[0].len() {
        replies.iter().for_each(|pieces| end.send(&pieces[number]));
    }
    for call in calls.drain(..) {
        assert_eq!(call.wait(), Ok(7));
    }
}

#[test]
fn half_a_reply_holds_its_caller_for_the_time_of_a_message() {
    for is_blocking in BOTH {
        for is_in_pieces in BOTH {
            let message_time = Some(Duration::from_millis(20));
            let script = Script::new(Options { message_time, ..Options::default() });
            let (called, _end) = beside(&script, is_blocking, |script| {
                let mut end = script.accept();
                let id = end.request();
                let long = |to: &mut punctual_giop::Encoder| vec![7u8; 100].encode(to);
                let whole = reply(id, ReplyStatus::NoException, long);
                if is_in_pieces {
                    end.send(&cut(&whole, 64)[0]);
                } else {
                    end.send(&whole[..whole.len() - 1]);
                }
                end
            });
            let failed = called.expect_err("half a reply");
            assert!(matches!(failed.kind, Kind::Timeout | Kind::CommFailure), "{failed}");
            assert_eq!(failed.completed, Completion::Maybe);
        }
    }
}

/// What a server on a machine with the other order of bytes sent: `7`, for the request 0.
const BIG_ENDIAN_REPLY: [u8; 25] = [
    b'G', b'I', b'O', b'P', 1, 2, 0, 1, 0, 0, 0, 13, // header: big-endian, Reply, 13 bytes
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // request 0, NO_EXCEPTION, no contexts
    7,
];

#[test]
fn a_big_endian_server_is_understood() {
    for is_blocking in BOTH {
        let script = Script::new(Options::default());
        let (called, ()) = beside(&script, is_blocking, |script| {
            let mut end = script.accept();
            assert_eq!(end.request(), RequestId(0));
            end.send(&BIG_ENDIAN_REPLY);
        });
        assert_eq!(called, Ok(7));
    }
}

#[test]
fn arguments_that_change_while_they_are_sent_end_their_connection() {
    let script = Script::new(Options::default());
    let (called, ()) = std::thread::scope(|scope| {
        let called = scope.spawn(|| {
            let times = AtomicUsize::new(0);
            let longer = || LONG_BYTES + times.fetch_add(1, Ordering::Relaxed);
            let read = |outcome: punctual_orb::Outcome<'_>| outcome.end();
            script.object.call::<_, SystemException>("put", |to| vec![5u8; longer()].encode(to), read)
        });
        // Nothing that its header does not promise.
        assert_eq!(script.accept().read(), None);
        (called.join().expect("it does not panic"), ())
    });
    let exception = called.expect_err("it is not sent");
    assert_eq!((exception.kind, exception.completed), (Kind::Marshal, Completion::No));
}

#[test]
fn long_requests_are_sent_in_fragments() {
    for is_blocking in BOTH {
        let script = Script::new(Options { fragment_bytes: Some(64), ..Options::default() });
        std::thread::scope(|scope| {
            let called = scope.spawn(|| {
                let write = |to: &mut punctual_giop::Encoder| vec![5u8; 1_000].encode(to);
                let read = |outcome: punctual_orb::Outcome<'_>| outcome.end();
                match is_blocking {
                    true => script.object.call("put", write, read),
                    false => script.object.call_async("put", write, read).wait(),
                }
            });
            let mut end = script.accept();
            let mut all = punctual_giop::reassembly::Reassembly::new(1 << 20, 1);
            let (mut count, mut is_whole) = (0, false);
            while !is_whole {
                let piece = end.read().expect("a fragment");
                assert!(piece.len() <= 64);
                count += 1;
                is_whole = match all.push(&header(&piece), &piece).expect("a fragment") {
                    punctual_giop::reassembly::Pushed::Completed(joined) => {
                        let Ok(Message::Request(request, mut body)) = Message::read_whole(joined.whole())
                        else {
                            panic!("a request")
                        };
                        assert_eq!(body.octets(), Ok(&[5; 1_000][..]));
                        end.send(&reply(request.id, ReplyStatus::NoException, |_| Ok(())));
                        true
                    }
                    _ => false,
                };
            }
            assert!(count > 20);
            assert_eq!(called.join().expect("it does not panic"), Ok(()));
        });
    }
}

/// Asynchronous calls share a connection. One that waits for ever until its server reads holds up no other.
#[test]
fn calls_end_at_their_time_behind_one_that_has_none() {
    let script = Script::new(Options::default());
    let timeout = |time| script.object.with_timeout(Some(time)).expect("the same object");
    let before = call_later(&timeout(Duration::from_secs(2)));
    let (server, _) = script.listener.accept().expect("the ORB connects");
    let stuck = script.object.clone();
    let endless = std::thread::spawn(move || {
        let long = vec![0u8; 64 << 20];
        let read = |outcome: punctual_orb::Outcome<'_>| punctual_orb::result::<u8>(&mut outcome.result()?);
        stuck.call_async("long", |to| long.encode(to), read).wait()
    });
    // Its begin is there, and nobody reads the rest.
    while server.peek(&mut [0; 4_096]).expect("an open connection") < 4_096 {
        std::thread::yield_now();
    }
    let behind = call_later(&timeout(Duration::from_millis(50)));
    assert_eq!(behind.wait().map_err(|failed| failed.kind), Err(Kind::Timeout));
    assert_eq!(before.wait().map_err(|failed| failed.kind), Err(Kind::Timeout));
    assert!(!endless.is_finished());
    drop(server);
    endless.join().expect("no panic").expect_err("the server is gone");
}
