//! The recorded code of `tests/generated`: values there and back in both orders of bytes, at every alignment,
//! and bytes that are no value.

use punctual_giop::typecode::{Typed, kind};
use punctual_giop::{Any, Bounded, ByteOrder, Decode, Decoder, Encode, Encoder, Error, Fixed, Reference};
use punctual_giop::{TypeCode, Version, WChar, WString, value::LongDouble};

#[allow(dead_code, reason = "the benchmark uses all of it")]
#[path = "generated/figures.rs"]
mod figures;
#[allow(dead_code, reason = "names of sequences are part of the example")]
#[path = "generated/types.rs"]
mod types;

use figures::figures::Ten;
use types::types::{
    Colour, Either, Empty, GREETING, LIMIT, Node, NotFound, Person, Point, Sample, Shape, Wide,
};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Big, ByteOrder::Little];

/// There and back in both orders, at every alignment; each shorter part is refused.
fn returns<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T) {
    for (order, padding) in ORDERS.into_iter().flat_map(|order| (0..8).map(move |padding| (order, padding))) {
        let mut to = Encoder::new(order, Version::V1_2);
        to.write(&[7; 8][..padding]);
        value.encode(&mut to).expect("it has bytes");
        let bytes = to.into_bytes();
        assert!(bytes.len() - padding >= T::BYTES_MIN, "{value:?} from {padding}");
        let mut from = Decoder::new(&bytes, order, Version::V1_2);
        from.read(padding).expect("the padding");
        assert_eq!(T::decode(&mut from).as_ref(), Ok(value), "{order:?} from {padding}");
        assert_eq!(from.remaining(), 0);
        for end in padding..bytes.len() {
            let mut from = Decoder::new(&bytes[..end], order, Version::V1_2);
            from.read(padding).expect("the padding");
            assert!(T::decode(&mut from).is_err(), "{value:?} from {end} bytes");
        }
    }
}

fn sample(number: u8) -> Sample {
    Sample {
        valid: number.is_multiple_of(2),
        paint: Colour::Blue,
        values: [f64::from(number), -0.5],
        flag: number,
        at: Point { x: -1, y: i32::from(number) << 24 },
        letter: 'é',
    }
}

fn ten(number: i64) -> Ten {
    let (a, b, c) = (-5, 0xFEDC_BA98, number as f64);
    Ten { a, b, c, d: -2, e: 65_535, f: 1.5, g: true, h: 200, i: -number, j: 9 }
}

fn person() -> Person {
    Person {
        name: "Ada".into(),
        title: WString::from("Gräfin €"),
        tag: Bounded::new("eight ch".into()).expect("eight"),
        salary: Fixed::new(-1_234_567).expect("seven digits"),
        places: Bounded::new(vec![Point { x: 1, y: 2 }; 3]).expect("three"),
        extra: Any::new(&sample(3)).expect("a value"),
        self_: Reference { type_id: "IDL:X:1.0".into(), profiles: vec![] },
    }
}

/// A description that keeps the bytes of a value the same, part by part.
fn part_by_part(value: &Sample, to: &mut Encoder) -> Result<(), Error> {
    value.valid.encode(to)?;
    (value.paint as u32).encode(to)?;
    value.values.encode(to)?;
    value.flag.encode(to)?;
    value.at.x.encode(to)?;
    value.at.y.encode(to)?;
    value.letter.encode(to)
}

#[test]
fn values_of_all_kinds_of_types_come_back() {
    returns(&Point { x: 1, y: -2 });
    returns(&sample(1));
    returns(&ten(7));
    returns(&person());
    returns(&Colour::Green);
    returns(&Either::Number(-1));
    returns(&Either::Text("text".into()));
    returns(&Either::Nothing { label: Colour::Blue });
    returns(&Shape::Radius(0.5));
    returns(&Shape::Corners { label: -2, value: [Point { x: 1, y: 2 }, Point { x: 3, y: 4 }] });
    returns(&Shape::Other { label: 77, value: String::new() });
    returns(&NotFound { which: "x".into(), code: -9 });
    returns(&Empty {});
    let leaf = Node { name: "leaf".into(), children: vec![] };
    returns(&Node { name: "root".into(), children: vec![leaf.clone(), leaf] });
    let precise = LongDouble([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    returns(&Wide { letter: WChar(0x20AC), precise, big: i64::MIN, small: 65_535 });
}

#[test]
fn sequences_of_structures_come_back() {
    for count in [0, 1, 2, 9] {
        returns(&(0..count).map(sample).collect::<Vec<_>>());
        returns(&(0..count).map(|number| ten(number.into())).collect::<Vec<_>>());
        returns(&vec![Point { x: 5, y: 6 }; count.into()]);
    }
    returns(&[sample(1), sample(2)]);
}

/// A structure that is written in one piece has the bytes of its parts one by one.
#[test]
fn one_piece_has_the_same_bytes_as_its_parts() {
    for (order, padding) in ORDERS.into_iter().flat_map(|order| (0..8).map(move |padding| (order, padding))) {
        let mut whole = Encoder::new(order, Version::V1_2);
        let mut parts = whole.clone();
        whole.write(&[7; 8][..padding]);
        parts.write(&[7; 8][..padding]);
        let all: Vec<Sample> = (0..5).map(sample).collect();
        all.encode(&mut whole).expect("bytes");
        parts.length(all.len()).expect("a length");
        all.iter().try_for_each(|one| part_by_part(one, &mut parts)).expect("bytes");
        assert_eq!(whole.into_bytes(), parts.into_bytes(), "{order:?} from {padding}");
    }
}

#[test]
fn bytes_are_those_of_the_standard() {
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    ten(1).encode(&mut to).expect("bytes");
    let expected = [
        &[0xFF, 0xFF, 0xFF, 0xFB, 0xFE, 0xDC, 0xBA, 0x98][..],
        &[0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE, 0xFF, 0xFF, 0x3F, 0xC0, 0, 0],
        &[1, 200, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 9],
    ];
    assert_eq!(to.into_bytes(), expected.concat());
    assert_eq!((LIMIT, GREETING), (8, "hello"));
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    let read = |bytes: &[u8]| Sample::decode(&mut Decoder::new(bytes, ByteOrder::Little, Version::V1_2));
    let mut to = Encoder::new(ByteOrder::Little, Version::V1_2);
    sample(1).encode(&mut to).expect("bytes");
    let good = to.into_bytes();
    assert_eq!(read(&good), Ok(sample(1)));
    for (place, byte, error) in [(0, 2, Error::Boolean(2)), (4, 3, Error::Enumerator(3))] {
        let mut bad = good.clone();
        bad[place] = byte;
        assert_eq!(read(&bad), Err(error));
    }
    let refused =
        |bytes: &[u8]| Vec::<Ten>::decode(&mut Decoder::new(bytes, ByteOrder::Little, Version::V1_2));
    assert_eq!(refused(&[0xFF; 60]), Err(Error::Length(u32::MAX.into())));
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    assert_eq!(Sample { letter: '€', ..sample(1) }.encode(&mut to), Err(Error::Character));
    assert_eq!(Either::Nothing { label: Colour::Red }.encode(&mut to), Err(Error::Discriminator));
    let other_label = Shape::Corners { label: 4, value: [Point { x: 0, y: 0 }; 2] };
    assert_eq!(other_label.encode(&mut to), Err(Error::Discriminator));
    assert_eq!(Shape::Other { label: 1, value: String::new() }.encode(&mut to), Err(Error::Discriminator));
}

#[test]
fn values_travel_in_anys_with_the_description_of_their_type() {
    let any = Any::new(&person()).expect("a value");
    returns(&any);
    assert_eq!(any.get::<Person>(), Ok(person()));
    assert_eq!(any.get::<Point>(), Err(Error::Type));
    let shapes = vec![Shape::Radius(1.0), Shape::Other { label: 0, value: "o".into() }];
    let any = Any::new(&shapes).expect("a value");
    returns(&any);
    assert_eq!(any.get::<Vec<Shape>>(), Ok(shapes));
    let tree = Node { name: "a".into(), children: vec![Node { name: "b".into(), children: vec![] }] };
    let any = Any::new(&tree).expect("a value");
    returns(&any);
    assert_eq!(any.get::<Node>(), Ok(tree));
}

#[test]
fn descriptions_have_names_and_identifiers() {
    let TypeCode::Struct(named, members) = Node::type_code() else { panic!("{:?}", Node::type_code()) };
    assert_eq!((&*named.id, &*named.name), ("IDL:example.org/Types/Node:1.0", "Node"));
    assert_eq!(members[0].type_, TypeCode::String(0, false));
    let itself = TypeCode::Recursive("IDL:example.org/Types/Node:1.0".into());
    assert_eq!(members[1].type_, TypeCode::Sequence(Box::new(itself), 0));
    let TypeCode::Union(_, discriminator, arms, default) = Shape::type_code() else { panic!("no union") };
    assert_eq!((*discriminator, default), (TypeCode::Simple(kind::SHORT), Some(3)));
    assert_eq!(arms.iter().map(|arm| arm.label).collect::<Vec<_>>(), [1, -2, 3, 0]);
    assert_eq!(NotFound::REPOSITORY_ID, "IDL:example.org/Types/NotFound:1.0");
    assert!(matches!(Empty::type_code(), TypeCode::Exception(_, members) if members.is_empty()));
    for code in [Person::type_code(), Sample::type_code(), Wide::type_code(), Ten::type_code()] {
        returns(&code);
    }
}
