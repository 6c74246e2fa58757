//! What a server of `demo.idl` must do, whoever made it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use punctual_giop::{Any, Completion, Reference, SystemExceptionKind as Kind, WString};
use punctual_orb::{Orb, Stub as _};

use crate::demo::demo::{EchoClient, Point, Refused, Shape, echo};
use crate::echo::{octets, ten};

/// All types there and back.
pub fn values(echo: &EchoClient) {
    assert_eq!(echo.echo_octet(200), Ok(200));
    assert_eq!(echo.echo_string("grüß").as_deref(), Ok("grüß"));
    let wide = WString("w€".into());
    assert_eq!(echo.echo_wstring(&wide), Ok(wide));
    assert!(echo.echo_octets(&octets()) == Ok(octets()), "octets come back");
    assert_eq!(echo.length_of(&octets()), Ok(300_000));
    assert_eq!(echo.echo_longs(&[-1, 2, 1 << 30]), Ok(vec![-1, 2, 1 << 30]));
    let points = vec![Point { x: 0, y: 0.0 }, Point { x: 3, y: 4.5 }];
    assert_eq!(echo.echo_points(&points), Ok(points));
    assert_eq!(echo.echo_ten(&ten(1)), Ok(ten(1)));
    let tens: Vec<_> = (0..1_000).map(ten).collect();
    assert_eq!(echo.echo_tens(&tens), Ok(tens));
    let shape = Shape::Name("square".into());
    assert_eq!(echo.echo_shape(&shape), Ok(shape));
    let any = Any::new(&ten(6)).expect("it has bytes");
    assert_eq!(echo.echo_any(&any).expect("it comes back").get(), Ok(ten(6)));
    let reference = echo.object().reference().clone();
    let back = echo.echo_object(&reference).expect("it comes back");
    assert_eq!(back.type_id, reference.type_id);
    assert_eq!(echo.echo_object(&Reference::default()), Ok(Reference::default()));
}

/// All ways of calling.
pub fn calls(echo: &EchoClient) {
    assert_eq!(echo.divide(17, 5), Ok((3, 2)));
    let refused = Refused { why: "division by zero".into(), code: 7 };
    assert_eq!(echo.divide(7, 0), Err(echo::DivideError::Refused(refused)));
    assert_eq!(echo.divide(0, 1), Err(echo::DivideError::Empty(echo::Empty {})));
    let failed = echo.fail(1).expect_err("it fails");
    assert_eq!((failed.kind, failed.minor, failed.completed), (Kind::NoPermission, 7, Completion::Yes));
    assert_eq!(echo.turn(&Point { x: 3, y: 4.0 }, "abc"), Ok((Point { x: 4, y: 3.0 }, "cba".into())));
    echo.note(5).expect("it is sent");
    // The next call may be on the same connection, or overtake.
    while echo.noted().expect("a number") != 5 {
        std::thread::yield_now();
    }
    let before = echo.count().expect("a number");
    assert_eq!(echo.count(), Ok(before + 1));
    echo.set_label("new").expect("it is set");
    assert_eq!(echo.label().as_deref(), Ok("new"));
    assert_eq!(echo.object().is_non_existent(), Ok(false));
    assert_eq!(echo.object().is_a("IDL:punctual/Demo/Counter:1.0"), Ok(true));
    assert_eq!(echo.object().is_a("IDL:punctual/Demo/Callback:1.0"), Ok(false));
}

/// Calls that do not wait: as futures, by polling, and with a callback.
pub fn calls_later(echo: &EchoClient) {
    let all: Vec<_> = (0..100).map(|number| (number, echo.echo_octet_async(number))).collect();
    for (number, pending) in all {
        assert_eq!(pending.wait(), Ok(number));
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    echo.divide_async(7, 0).on_reply(move |outcome| drop(sender.send(outcome)));
    let refused = Refused { why: "division by zero".into(), code: 7 };
    assert_eq!(receiver.recv(), Ok(Err(echo::DivideError::Refused(refused))));
    let mut pending = echo.echo_string_async("polled");
    let back = loop {
        match pending.wait_for(std::time::Duration::from_millis(1)) {
            Ok(outcome) => break outcome,
            Err(again) => pending = again,
        }
    };
    assert_eq!(back.as_deref(), Ok("polled"));
    let both = async { (echo.echo_octet_async(1).await, echo.echo_octet_async(2).await) };
    assert_eq!(block_on(both), (Ok(1), Ok(2)));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor of one future: its thread sleeps until it is woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

/// An ORB that only calls.
pub fn client() -> Orb {
    Orb::new(punctual_orb::Options::default()).expect("a client needs nothing")
}
