//! Code sets: what a server says, what a client chooses, and strings in each. Service contexts of ORBs.

use punctual_giop::characters::CodeSetId;
use punctual_giop::codeset::{Chosen, CodeSets, Incompatible, Understood};
use punctual_giop::context::{CODE_SETS, ListenPoints};
use punctual_giop::reference::{Address, Component};
use punctual_giop::{
    Any, ByteOrder, CharacterSet, Decode, Decoder, Encode, Encoder, Error, Tagged, TaggedList, Version,
};

const UTF_8: u32 = CodeSetId::UTF_8.0;
const LATIN1: u32 = CodeSetId::ISO_8859_1.0;
const UTF_16: u32 = CodeSetId::UTF_16.0;

fn server(native: u32, conversions: &[u32], wide: u32) -> CodeSets {
    CodeSets {
        characters: Understood { native, conversions: conversions.to_vec() },
        wide: Understood { native: wide, conversions: vec![] },
    }
}

#[test]
fn a_client_chooses_what_loses_least() {
    let chosen = |characters, wide| Ok(Chosen { characters, wide });
    assert_eq!(server(LATIN1, &[UTF_8], UTF_16).choose(), chosen(CharacterSet::Utf8, true), "omniORB");
    assert_eq!(CodeSets::own().choose(), chosen(CharacterSet::Utf8, true));
    assert_eq!(server(LATIN1, &[], 0).choose(), chosen(CharacterSet::Latin1, false));
    assert_eq!(server(5, &[9], UTF_16).choose(), Err(Incompatible));
}

#[test]
fn components_come_back() {
    let own = CodeSets::own();
    let component = own.component().expect("it has bytes");
    assert_eq!(CodeSets::of_component(&component), Ok(Some(own)));
    assert_eq!(CodeSets::of_component(&Component { tag: 0, data: vec![] }), Ok(None));
    for end in 0..component.data.len() {
        let cut = Component { data: component.data[..end].to_vec(), ..component };
        assert!(CodeSets::of_component(&cut).is_err());
    }
}

#[test]
fn contexts_come_back() {
    for characters in [CharacterSet::Utf8, CharacterSet::Latin1] {
        for wide in [false, true] {
            let chosen = Chosen { characters, wide };
            let context = chosen.to_context();
            assert_eq!(Chosen::of_context(&context), Ok(chosen));
            let all = [Tagged { id: CODE_SETS, data: &context }];
            assert_eq!(Chosen::of_contexts(&TaggedList::from(&all[..])), Ok(Some(chosen)));
            assert_eq!(Chosen::of_contexts(&TaggedList::default()), Ok(None));
            assert!(Chosen::of_context(&context[..11]).is_err());
        }
    }
    let unknown = [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
    assert_eq!(Chosen::of_context(&unknown), Err(Error::Character));
    let points =
        ListenPoints(vec![Address { host: "::1".into(), port: 1 }, Address { host: "h".into(), port: 2 }]);
    let context = points.to_context().expect("it has bytes");
    assert_eq!(ListenPoints::of_context(&context).as_ref(), Ok(&points));
    for end in 0..context.len() {
        assert!(ListenPoints::of_context(&context[..end]).is_err());
    }
}

fn in_latin1(value: &impl Encode) -> Result<Vec<u8>, Error> {
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    to.set_characters(CharacterSet::Latin1);
    value.encode(&mut to)?;
    Ok(to.into_bytes())
}

fn from_latin1<T: Decode>(bytes: &[u8]) -> Result<T, Error> {
    let mut from = Decoder::new(bytes, ByteOrder::Big, Version::V1_2);
    from.set_characters(CharacterSet::Latin1);
    T::decode(&mut from)
}

#[test]
fn strings_are_in_the_code_set_of_the_connection() {
    let text = String::from("Käse");
    let bytes = in_latin1(&text).expect("it is in Latin-1");
    assert_eq!(bytes, [0, 0, 0, 5, b'K', 0xE4, b's', b'e', 0]);
    assert_eq!(from_latin1::<String>(&bytes).as_ref(), Ok(&text));
    assert_eq!(
        String::decode(&mut Decoder::new(&bytes, ByteOrder::Big, Version::V1_2)),
        Err(Error::Character)
    );
    assert_eq!(in_latin1(&String::from("€")), Err(Error::Character));
    let mut from = Decoder::new(&bytes, ByteOrder::Big, Version::V1_2);
    from.set_characters(CharacterSet::Latin1);
    assert_eq!(from.text(), Err(Error::Character), "it must be converted");
    // The value of an any is converted, too.
    let any = Any::new(&text).expect("a value");
    let bytes = in_latin1(&any).expect("it is in Latin-1");
    assert_eq!(from_latin1::<Any>(&bytes).and_then(|any| any.get::<String>()), Ok(text));
}
