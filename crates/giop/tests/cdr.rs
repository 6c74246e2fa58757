//! Bytes as the standard has them, values there and back, and bytes that lie.

use punctual_giop::typecode::{Arm, Member, Named, TypeCode, kind};
use punctual_giop::value::LongDouble;
use punctual_giop::{
    Any, Bounded, ByteOrder, Decode, Decoder, Encode, Encoder, Error, Fixed, Version, WChar, WString,
};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Big, ByteOrder::Little];
const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

fn bytes(value: &(impl Encode + ?Sized), order: ByteOrder, version: Version) -> Vec<u8> {
    let mut to = Encoder::new(order, version);
    value.encode(&mut to).expect("it has bytes");
    to.into_bytes()
}

fn big(value: &(impl Encode + ?Sized)) -> Vec<u8> {
    bytes(value, ByteOrder::Big, Version::V1_2)
}

fn read<T: Decode>(bytes: &[u8], order: ByteOrder, version: Version) -> Result<T, Error> {
    let mut from = Decoder::new(bytes, order, version);
    let value = T::decode(&mut from)?;
    assert_eq!(from.remaining(), 0);
    Ok(value)
}

fn read_big<T: Decode>(bytes: &[u8]) -> Result<T, Error> {
    read(bytes, ByteOrder::Big, Version::V1_2)
}

/// There and back in all orders, at all alignments, and each shorter part is refused.
fn returns<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: T, versions: &[Version]) {
    for (order, version) in
        ORDERS.into_iter().flat_map(|order| versions.iter().map(move |&version| (order, version)))
    {
        for padding in 0..8usize {
            let mut to = Encoder::new(order, version);
            to.write(&vec![7; padding]);
            value.encode(&mut to).expect("it has bytes");
            let bytes = to.into_bytes();
            let mut from = Decoder::new(&bytes, order, version);
            from.read(padding).expect("the padding");
            assert_eq!(T::decode(&mut from).as_ref(), Ok(&value));
            assert_eq!(from.remaining(), 0);
            assert!(bytes.len() >= padding + T::BYTES_MIN, "{value:?}");
            for end in padding..bytes.len() {
                let mut from = Decoder::new(&bytes[..end], order, version);
                from.read(padding).expect("the padding");
                assert!(T::decode(&mut from).is_err(), "{value:?} from {end} bytes");
            }
        }
    }
}

#[test]
fn values_come_back_in_both_orders_and_at_every_alignment() {
    returns(-2i8, &VERSIONS);
    returns(0x1234u16, &VERSIONS);
    returns(-3i32, &VERSIONS);
    returns(0x0102_0304_0506_0708u64, &VERSIONS);
    returns((1.5f32, 0).0, &VERSIONS);
    returns(-2.5e300f64, &VERSIONS);
    returns(LongDouble([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]), &VERSIONS);
    returns(true, &VERSIONS);
    returns('é', &VERSIONS);
    returns(String::from("häuser"), &VERSIONS);
    returns(WChar(0x20AC), &VERSIONS[1..]);
    returns(WString::from("a€😀"), &VERSIONS[1..]);
    // They begin like a byte order mark.
    for unit in [0xFEFF, 0xFFFE] {
        returns(WChar(unit), &VERSIONS[1..]);
        returns(WString(String::from_utf16(&[unit, 0x41]).expect("two characters")), &VERSIONS[1..]);
    }
    returns(vec![1u8, 2, 3], &VERSIONS);
    returns(vec![1i16, -2, 3], &VERSIONS);
    returns(vec![1.5f64, -2.0], &VERSIONS);
    returns(vec![vec![1u32], vec![], vec![2, 3]], &VERSIONS);
    returns(vec![String::from("a"), String::new()], &VERSIONS);
    returns([[1u64, 2], [3, 4]], &VERSIONS);
    returns(Fixed::<5, 2>::new(-12345).expect("five digits"), &VERSIONS);
    returns(Fixed::<4, 0>::new(9999).expect("four digits"), &VERSIONS);
}

#[test]
fn bytes_are_those_of_the_standard() {
    assert_eq!(big(&0x0102_0304u32), [1, 2, 3, 4]);
    assert_eq!(bytes(&0x0102_0304u32, ByteOrder::Little, Version::V1_0), [4, 3, 2, 1]);
    assert_eq!(big("ab"), [0, 0, 0, 3, b'a', b'b', 0]);
    assert_eq!(big(&vec![0x0102u16, 3]), [0, 0, 0, 2, 1, 2, 0, 3]);
    // An empty sequence is not aligned for its elements.
    assert_eq!(big(&Vec::<f64>::new()), [0, 0, 0, 0]);
    assert_eq!(big(&vec![1.0f64]), [0, 0, 0, 1, 0, 0, 0, 0, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(big(&WString::from("a")), [0, 0, 0, 2, 0, b'a']);
    assert_eq!(bytes(&WString::from("a"), ByteOrder::Little, Version::V1_1), [2, 0, 0, 0, b'a', 0, 0, 0]);
    assert_eq!(big(&WChar(0x20AC)), [2, 0x20, 0xAC]);
    assert_eq!(bytes(&WChar(0x20AC), ByteOrder::Big, Version::V1_1), [0x20, 0xAC]);
    // -123.45 and 1.2 (CORBA 15.3.2.8).
    assert_eq!(big(&Fixed::<5, 2>::new(-12345).expect("five digits")), [0x12, 0x34, 0x5D]);
    assert_eq!(big(&Fixed::<2, 1>::new(12).expect("two digits")), [0x01, 0x2C]);
    assert_eq!(Fixed::<5, 2>::new(-5).expect("a digit").to_string(), "-0.05");
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    to.write(&[9]);
    to.encapsulation(|to| 7u16.encode(to)).expect("it has bytes");
    assert_eq!(to.into_bytes(), [9, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 7]);
}

#[test]
fn wide_strings_with_a_mark_are_read_by_it() {
    assert_eq!(read_big::<WString>(&[0, 0, 0, 4, 0xFF, 0xFE, b'a', 0]), Ok(WString::from("a")));
    assert_eq!(read_big::<WString>(&[0, 0, 0, 4, 0xFE, 0xFF, 0, b'a']), Ok(WString::from("a")));
    assert_eq!(read_big::<WChar>(&[4, 0xFF, 0xFE, 0xAC, 0x20]), Ok(WChar(0x20AC)));
    assert_eq!(read_big::<WString>(&[0, 0, 0, 3, 0, 0x41, 0]), Err(Error::Character));
    assert_eq!(read_big::<WString>(&[0, 0, 0, 2, 0xD8, 0]), Err(Error::Character));
    assert_eq!(read::<WString>(&[], ByteOrder::Big, Version::V1_0), Err(Error::Version));
}

#[test]
fn lengths_that_lie_are_refused_before_memory_is_taken() {
    let lie = [0xFF, 0xFF, 0xFF, 0xFF, 0];
    assert_eq!(read_big::<String>(&lie), Err(Error::Length(u32::MAX.into())));
    assert_eq!(read_big::<Vec<u8>>(&lie), Err(Error::Length(u32::MAX.into())));
    assert_eq!(read_big::<Vec<[u8; 0]>>(&lie), Err(Error::Length(u32::MAX.into())));
    assert_eq!(read_big::<Vec<Vec<String>>>(&lie), Err(Error::Length(u32::MAX.into())));
    assert_eq!(
        read_big::<Vec<u64>>(&[0, 0, 0, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        Err(Error::Length(2))
    );
    assert_eq!(read_big::<WString>(&lie), Err(Error::Length(u32::MAX.into())));
    let mut from = Decoder::new(&lie, ByteOrder::Big, Version::V1_2);
    assert_eq!(from.encapsulation(|_| Ok(())), Err(Error::Length(u32::MAX.into())));
    assert_eq!(read_big::<[u8; 1 << 10]>(&lie), Err(Error::Truncated));
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    assert_eq!(read_big::<bool>(&[2]), Err(Error::Boolean(2)));
    assert_eq!(read_big::<String>(&[0, 0, 0, 2, b'a', b'b']), Err(Error::Terminator));
    assert_eq!(read_big::<String>(&[0, 0, 0, 3, 0, b'b', 0]), Err(Error::Terminator));
    assert_eq!(read_big::<String>(&[0, 0, 0, 2, 0xFF, 0]), Err(Error::Character));
    assert_eq!(read_big::<String>(&[0, 0, 0, 0]), Ok(String::new()));
    assert_eq!(read_big::<Fixed<3, 0>>(&[0x12, 0x3A]), Err(Error::Fixed));
    assert_eq!(read_big::<Fixed<3, 0>>(&[0xA2, 0x3C]), Err(Error::Fixed));
    assert_eq!(read_big::<Fixed<2, 0>>(&[0x12, 0x3C]), Err(Error::Fixed));
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_0);
    assert_eq!("a\0".encode(&mut to), Err(Error::Terminator));
    assert_eq!('€'.encode(&mut to), Err(Error::Character));
    assert_eq!(WChar(1).encode(&mut to), Err(Error::Version));
    assert_eq!(Fixed::<3, 1>::new(1000), Err(Error::Fixed));
}

fn named(name: &str) -> Named {
    Named { id: format!("IDL:{name}:1.0"), name: name.into() }
}

fn member(name: &str, type_: TypeCode) -> Member {
    Member { name: name.into(), type_ }
}

/// A tree: a structure with a sequence of itself, and a union.
fn tree() -> TypeCode {
    let long = TypeCode::Simple(kind::LONG);
    let of_itself = TypeCode::Sequence(Box::new(TypeCode::Recursive("IDL:Node:1.0".into())), 0);
    let colour = TypeCode::Enum(named("Colour"), vec!["red".into(), "green".into()]);
    let arms = vec![
        Arm { label: 0, member: member("number", TypeCode::Alias(named("Number"), Box::new(long.clone()))) },
        Arm { label: 0, member: member("text", TypeCode::String(8, false)) },
    ];
    let union = TypeCode::Union(named("Either"), Box::new(colour), arms, Some(1));
    TypeCode::Struct(
        named("Node"),
        vec![
            member("value", union),
            member("children", of_itself),
            member("pair", TypeCode::Array(Box::new(long), 2)),
            member("price", TypeCode::Fixed(5, 2)),
            member("object", TypeCode::Reference(kind::OBJREF, named("Object"))),
        ],
    )
}

#[test]
fn descriptions_of_types_come_back() {
    returns(tree(), &VERSIONS);
    returns(TypeCode::Exception(named("E"), vec![]), &VERSIONS);
    returns(TypeCode::String(0, true), &VERSIONS);
}

#[test]
fn references_between_descriptions_lead_nowhere_else() {
    // An indirection to itself, forward, before the message, and into the middle of nothing.
    for offset in [0i32, -4 + 4, 4, -400, i32::MIN, i32::MAX] {
        let mut bytes = vec![0xFF; 4];
        bytes.extend(offset.to_be_bytes());
        assert!(read_big::<TypeCode>(&bytes).is_err(), "{offset}");
    }
    assert!(read_big::<TypeCode>(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFC]).is_err(), "to itself");
    // A sequence of itself has no identifier to refer to.
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    kind::SEQUENCE.encode(&mut to).expect("bytes");
    to.encapsulation(|to| {
        u32::MAX.encode(to)?;
        (-16i32).encode(to)?;
        0u32.encode(to)
    })
    .expect("bytes");
    assert_eq!(read_big::<TypeCode>(&to.into_bytes()), Err(Error::TypeCode));
    // Recursion to a type that is not around it.
    let lost = TypeCode::Sequence(Box::new(TypeCode::Recursive("IDL:Lost:1.0".into())), 0);
    assert_eq!(lost.encode(&mut Encoder::new(ByteOrder::Big, Version::V1_2)), Err(Error::TypeCode));
}

#[test]
fn nested_types_end_at_the_limit() {
    let mut deep = TypeCode::Simple(kind::LONG);
    for _ in 0..1_000 {
        deep = TypeCode::Sequence(Box::new(deep), 0);
    }
    assert_eq!(read_big::<TypeCode>(&big(&deep)), Err(Error::Depth));
    // An any in an any in an any.
    let any = Any::new(&1i32).expect("a value");
    let nested = |levels| (0..levels).try_fold(any.clone(), |any, _| Any::new(&any));
    assert!(nested(20).is_ok());
    assert_eq!(nested(100), Err(Error::Depth));
}

#[test]
fn anys_change_their_order_and_alignment() {
    let any = Any::new(&vec![String::from("a"), String::from("bc")]).expect("a value");
    returns(any.clone(), &VERSIONS);
    assert_eq!(any.get::<Vec<String>>(), Ok(vec!["a".to_owned(), "bc".to_owned()]));
    assert_eq!(any.get::<Vec<i32>>(), Err(Error::Type));
    returns(Any::new(&[1.5f64, 2.5]).expect("a value"), &VERSIONS);
    returns(Any::new(&WString::from("€")).expect("a value"), &VERSIONS[1..]);
    returns(Any::default(), &VERSIONS);
}

/// The bytes of a node of [`tree`].
fn write_node(to: &mut Encoder, levels: usize) -> Result<(), Error> {
    match levels % 2 {
        0 => {
            0u32.encode(to)?;
            (levels as i32).encode(to)?;
        }
        _ => {
            1u32.encode(to)?;
            "text".encode(to)?;
        }
    }
    to.length(usize::from(levels > 0) * 2)?;
    if levels > 0 {
        write_node(to, levels - 1)?;
        write_node(to, levels - 1)?;
    }
    [1i32, 2].encode(to)?;
    Fixed::<5, 2>::new(levels as i128)?.encode(to)?;
    "IDL:Object:1.0".encode(to)?;
    to.length(1)?;
    0u32.encode(to)?;
    vec![1u8, 2, 3].encode(to)
}

#[test]
fn recursive_values_in_anys_are_copied() {
    for order in ORDERS {
        let mut to = Encoder::new(order, Version::V1_0);
        tree().encode(&mut to).expect("bytes");
        write_node(&mut to, 5).expect("bytes");
        let bytes = to.into_bytes();
        let any = read::<Any>(&bytes, order, Version::V1_0).expect("a value");
        assert_eq!(any.type_code(), &tree());
        for other in ORDERS {
            let again = self::bytes(&any, other, Version::V1_2);
            assert_eq!(read::<Any>(&again, other, Version::V1_2), Ok(any.clone()));
        }
        let mut to = Encoder::new(order, Version::V1_0);
        tree().encode(&mut to).expect("bytes");
        // An enumerator that the type does not have.
        2u32.encode(&mut to).expect("bytes");
        assert_eq!(read::<Any>(&to.into_bytes(), order, Version::V1_0), Err(Error::Enumerator(2)));
    }
}

/// Elements without bytes: a few of them would be read where more bytes follow, and could not be written again.
#[test]
fn sequences_of_elements_without_bytes_are_refused() {
    let code = TypeCode::Sequence(Box::new(TypeCode::Simple(kind::NULL)), 0);
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    code.encode(&mut to).expect("it has bytes");
    [1u32, 0].iter().for_each(|number| number.encode(&mut to).expect("it has bytes"));
    let bytes = to.into_bytes();
    assert_eq!(Any::decode(&mut Decoder::new(&bytes, ByteOrder::Big, Version::V1_2)), Err(Error::Length(1)));
}

/// What a peer sends is held to the bounds of the IDL file, too.
#[test]
fn values_beyond_their_bounds_are_refused() {
    let list = |length: u8| big(&(0..length).collect::<Vec<u8>>());
    let texts = |text: &str| (big(&text.to_owned()), big(&WString(text.into())));
    for length in 0..8u8 {
        let is_within = length <= 3;
        let expected = Err(Error::Length(length.into()));
        let read = read_big::<Bounded<Vec<u8>, 3>>(&list(length));
        assert_eq!(read.map(|_| ()), if is_within { Ok(()) } else { expected });
        let (narrow, wide) = texts(&"x".repeat(length.into()));
        let read = read_big::<Bounded<String, 3>>(&narrow);
        assert_eq!(read.map(|_| ()), if is_within { Ok(()) } else { expected });
        let read = read_big::<Bounded<WString, 3>>(&wide);
        assert_eq!(read.map(|_| ()), if is_within { Ok(()) } else { expected });
    }
}
