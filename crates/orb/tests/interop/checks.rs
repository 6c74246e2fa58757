//! What a client of ours checks of a server.

use punctual_giop::typecode::Typed;
use punctual_giop::{Any, Completion, Reference, SystemExceptionKind as Kind, Version, WChar, WString};
use punctual_orb::{Orb, Stub as _};

use crate::generated::interop::{
    Choice, Colour, Labels, Listener, ListenerSkeleton, Maybe, Peer, PeerClient, Point, Price, Refused, Ten,
    Tree, peer,
};
use crate::servant::Ear;

/// Everything.
pub fn all(orb: &Orb, peer: &PeerClient, version: Version) {
    simple(peer);
    // GIOP 1.0 has no wide characters. omniORB publishes no code sets with 1.1, and refuses them.
    if version > Version::V1_1 {
        assert_eq!(peer.echo_wide(&"h€llo".into()), Ok(WString::from("h€llo")));
        assert_eq!(peer.echo_wide_character(WChar(0x20AC)), Ok(WChar(0x20AC)));
    }
    let tens: Vec<Ten> = (0..1_000).map(ten).collect();
    constructed(peer, &tens);
    described(peer, &tens);
    large(peer);
    exceptions(peer);
    calls(peer);
    references(orb, peer);
}

fn simple(peer: &PeerClient) {
    assert_eq!(peer.echo("hello").as_deref(), Ok("hello"));
    assert_eq!(peer.echo("").as_deref(), Ok(""));
    assert_eq!(peer.echo_character('x'), Ok('x'));
    assert_eq!(peer.echo_colour(Colour::Blue), Ok(Colour::Blue));
    let price = Price::new(-123_456_789).expect("nine digits");
    assert_eq!(peer.echo_price(&price), Ok(price));
    let grid = [[1, 2, 3], [4, 5, 6]];
    assert_eq!(peer.echo_grid(&grid), Ok(grid));
    let texts = vec![String::new(), "two".into()];
    assert_eq!(peer.echo_texts(&texts), Ok(texts));
}

const POINT: Point = Point { level: 7, x: 1.5, y: -2.5 };

fn ten(number: i32) -> Ten {
    Ten {
        a: number % 2 == 1,
        b: 'b',
        c: number as u8,
        d: -number as i16,
        e: number as u16,
        f: -1_000 * number,
        g: 1_000 * number as u32,
        h: -1_000_000_007 * i64::from(number),
        i: number as f32 * 0.5,
        j: "j".repeat(number as usize % 10),
    }
}

fn tree() -> Tree {
    let leaf = |value| Tree { value, children: vec![] };
    Tree { value: 1, children: vec![leaf(2), Tree { value: 3, children: vec![leaf(4)] }] }
}

fn choices() -> [Choice; 3] {
    let place = Choice::Place { label: Colour::Blue, value: POINT };
    [Choice::Number(5), Choice::Text("t".into()), place]
}

fn constructed(peer: &PeerClient, tens: &[Ten]) {
    assert_eq!(peer.echo_point(&POINT), Ok(POINT));
    assert!(peer.echo_tens(tens).is_ok_and(|back| back == tens), "structures come back");
    for choice in choices() {
        assert_eq!(peer.echo_choice(&choice), Ok(choice));
    }
    for maybe in [Maybe::Value("v".into()), Maybe::Nothing { label: false }] {
        assert_eq!(peer.echo_maybe(&maybe), Ok(maybe));
    }
    assert_eq!(peer.echo_tree(&tree()), Ok(tree()));
    let label = punctual_giop::Bounded::new("12345678".into()).expect("eight characters");
    let labels: Labels = punctual_giop::Bounded::new(vec![label]).expect("one of three");
    assert_eq!(peer.echo_labels(&labels), Ok(labels));
}

/// Values that bring the description of their type, and descriptions.
fn described(peer: &PeerClient, tens: &[Ten]) {
    let any = Any::new(&tens.to_vec()).expect("a value");
    assert!(peer.echo_any(&any).expect("it comes back").get::<Vec<Ten>>().is_ok_and(|back| back == tens));
    for choice in choices() {
        let any = Any::new(&choice).expect("a value");
        assert_eq!(peer.echo_any(&any).expect("it comes back").get(), Ok(choice));
    }
    let any = Any::new(&tree()).expect("a value");
    assert_eq!(peer.echo_any(&any).expect("it comes back").get(), Ok(tree()));
    let any = Any::new(&any).expect("a value");
    let inner: Any = peer.echo_any(&any).expect("it comes back").get().expect("an any in an any");
    assert_eq!(inner.get(), Ok(tree()));
    for code in [Tree::type_code(), Choice::type_code(), Price::type_code(), Vec::<Ten>::type_code()] {
        assert_eq!(peer.echo_type(&code), Ok(code));
    }
}

/// Longer than the buffers of omniORB: it sends them in fragments where the version has some.
fn large(peer: &PeerClient) {
    let octets: Vec<u8> = (0..1 << 20).map(|number: u32| (number * 7) as u8).collect();
    assert!(peer.echo_octets(&octets) == Ok(octets), "a MiB of octets");
    let doubles: Vec<f64> = (0..100_000).map(|number| f64::from(number) * 0.5).collect();
    assert!(peer.echo_doubles(&doubles) == Ok(doubles), "many numbers");
    let point = |number: u32| Point { level: number as u8, x: number.into(), y: number.into() };
    let points: Vec<Point> = (0..20_000).map(point).collect();
    assert!(peer.echo_points(&points) == Ok(points), "many structures");
}

fn exceptions(peer: &PeerClient) {
    let refused = peer::RefuseError::Refused(Refused { why: "because".into(), code: 7 });
    assert_eq!(peer.refuse(false), Err(refused));
    assert!(matches!(peer.refuse(true), Err(peer::RefuseError::Empty(_))));
    let failed = peer.fail().expect_err("it fails");
    assert_eq!((failed.kind, failed.minor, failed.completed), (Kind::NoPermission, 3, Completion::Yes));
}

fn calls(peer: &PeerClient) {
    peer.set_level(42).expect("it is set");
    assert_eq!(peer.level(), Ok(42));
    assert!(["omniORB", "punctual"].contains(&&*peer.orb().expect("a name")));
    assert_eq!(peer.all_ways(1, 2), Ok((2, 1, 1)));
    peer.tell("something").expect("it is sent");
    // Another thread of the server may be slower with it.
    let told = (0..1_000).find(|_| peer.told().as_deref() == Ok("something"));
    assert!(told.is_some(), "it arrived");
    assert_eq!(peer.object().is_a("IDL:Interop/Base:1.0"), Ok(true));
    assert_eq!(peer.object().is_a("IDL:Other:1.0"), Ok(false));
    assert_eq!(peer.object().is_non_existent(), Ok(false));
}

fn references(orb: &Orb, peer: &PeerClient) {
    let reference = peer.object().reference().clone();
    let back = peer.echo_reference(&Peer(reference)).expect("it comes back");
    let again = back.connect(orb).expect("it leads somewhere");
    assert_eq!(again.echo("through it").as_deref(), Ok("through it"));
    assert_eq!(peer.echo_object(&Reference::default()), Ok(Reference::default()));
    let listener = orb.root_poa().serve(ListenerSkeleton::new(Ear)).expect("it is active");
    assert_eq!(peer.call_back(&Listener(listener), 5), Ok(5 * 11));
}
