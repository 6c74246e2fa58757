//! References as bytes and as text: those of omniORB, there and back, and text that is none.

use punctual_giop::reference::component::{TAG_CODE_SETS, TAG_ORB_TYPE};
use punctual_giop::reference::corbaloc::{Corbaloc, Place};
use punctual_giop::reference::corbaname::{Corbaname, Name, NamePart};
use punctual_giop::reference::{
    Address, Component, Error, IiopProfile, Link, Reference, UnixAddress, iiop, stringify,
};
use punctual_giop::{Error as CdrError, Version};

/// omniORB 4.2.5 with the end points `giop:tcp:127.0.0.1:51323` and `giop:unix:/tmp/giopt/s`, on a host that is called `vm`.
const OMNIORB: &str = "IOR:010000000d00000049444c3a4563686f3a312e3000000000010000000000000079000000010102000a0000003132372e\
    302e302e31007bc801000000780000000300000000000000080000000100000000545441010000001c000000010000000100\
    01000100000001000105090101000100000009010100025454411d0000000100000003000000766d00000d0000002f746d70\
    2f67696f70742f7300";

fn reference(text: &str) -> Reference {
    match text.parse() {
        Ok(Link::Reference(reference)) => reference,
        other => panic!("{text}: {other:?}"),
    }
}

fn corbaloc(text: &str) -> Corbaloc {
    match text.parse() {
        Ok(Link::Corbaloc(corbaloc)) => corbaloc,
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> Error {
    text.parse::<Link>().expect_err(text)
}

fn address(host: &str, port: u16) -> Address {
    Address { host: host.into(), port }
}

#[test]
fn a_reference_of_omniorb_is_read() {
    let reference = reference(OMNIORB);
    assert_eq!(reference.type_id, "IDL:Echo:1.0");
    let profiles: Vec<_> = reference.iiop_profiles().collect::<Result<_, _>>().expect("profiles");
    let [profile] = &profiles[..] else { panic!("one profile") };
    assert_eq!(profile.version, Version::V1_2);
    assert_eq!(profile.address, address("127.0.0.1", 51323));
    assert_eq!(profile.object_key, b"x");
    assert_eq!(iiop::object_key(&reference.profiles[0].data), Ok(&b"x"[..]));
    let tags: Vec<u32> = profile.components.iter().map(|component| component.tag).collect();
    assert_eq!(tags, [TAG_ORB_TYPE, TAG_CODE_SETS, 0x4154_5402]);
    assert_eq!(profile.components[0].orb_type(), Ok(Some(0x4154_5400)));
    assert_eq!(profile.components[1].orb_type(), Ok(None));
    let unix = UnixAddress { host: "vm".into(), path: "/tmp/giopt/s".into() };
    assert_eq!(profile.components[2].unix_address(), Ok(Some(unix)));
    assert_eq!(stringify(&reference).expect("it has bytes"), OMNIORB);
    assert_eq!(self::reference(&OMNIORB.to_uppercase()), reference, "digits have no case");
}

#[test]
fn profiles_come_back_in_each_version() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let components = vec![
            Component::of_address(&address("10.0.0.1", 99)).expect("it has bytes"),
            Component::of_unix(&UnixAddress { host: "h".into(), path: "/run/x".into() })
                .expect("it has bytes"),
            Component { tag: 20, data: vec![1, 2, 3] },
            Component::of_address(&address("::1", 98)).expect("it has bytes"),
        ];
        let components = if version == Version::V1_0 { vec![] } else { components };
        let object_key = vec![0, 255, b'/'];
        let profile = IiopProfile { version, address: address("host", 1), object_key, components };
        let bytes = profile.to_bytes().expect("it has bytes");
        assert_eq!(IiopProfile::parse(&bytes).as_ref(), Ok(&profile));
        for end in 0..bytes.len() {
            assert!(IiopProfile::parse(&bytes[..end]).is_err());
        }
        let hosts: Vec<String> =
            profile.addresses().expect("addresses").iter().map(ToString::to_string).collect();
        let all = ["host:1", "10.0.0.1:99", "[::1]:98"];
        assert_eq!(hosts, all[..if version == Version::V1_0 { 1 } else { 3 }]);
    }
}

#[test]
fn versions_of_profiles_are_checked() {
    let profile = IiopProfile {
        version: Version::V1_2,
        address: address("host", 1),
        object_key: vec![],
        components: vec![],
    };
    let mut bytes = profile.to_bytes().expect("it has bytes");
    bytes[2] = 3;
    assert_eq!(IiopProfile::parse(&bytes), Ok(profile), "1.3 is read as 1.2");
    bytes[1] = 2;
    assert_eq!(IiopProfile::parse(&bytes), Err(Error::Version(2, 3)));
    bytes[0] = 2;
    assert_eq!(IiopProfile::parse(&bytes), Err(Error::Cdr(CdrError::Boolean(2))));
}

#[test]
fn corbaloc_names_servers_and_a_key() {
    let one = |version, host, port| Place::Iiop(version, address(host, port));
    let key = |text: &str| text.as_bytes().to_vec();
    let cases = [
        ("corbaloc::host/k", vec![one(Version::V1_0, "host", 2809)], key("k")),
        ("CORBALOC:iiop:host:77/a/b", vec![one(Version::V1_0, "host", 77)], key("a/b")),
        ("corbaloc:iiop:1.2@[::1]:5/%00%fF", vec![one(Version::V1_2, "::1", 5)], vec![0, 255]),
        ("corbaloc::1.1@[fe80::1%eth0]/k", vec![one(Version::V1_1, "fe80::1%eth0", 2809)], key("k")),
        ("corbaloc::1.1@[fe80::1%25eth0]/k%25", vec![one(Version::V1_1, "fe80::1%eth0", 2809)], key("k%")),
        ("corbaloc::[fe80::1%25]/k", vec![one(Version::V1_0, "fe80::1%25", 2809)], key("k")),
        (
            "corbaloc::a,iiop:1.2@b:2,:c/k",
            vec![one(Version::V1_0, "a", 2809), one(Version::V1_2, "b", 2), one(Version::V1_0, "c", 2809)],
            key("k"),
        ),
        ("corbaloc::host", vec![one(Version::V1_0, "host", 2809)], key("")),
        (
            "corbaloc:omniunix:/run/a/b:,:h/k",
            vec![Place::Unix("/run/a/b".into()), one(Version::V1_0, "h", 2809)],
            key("k"),
        ),
    ];
    for (text, places, key) in cases {
        let read = corbaloc(text);
        assert_eq!(read, Corbaloc::Places(places, key), "{text}");
        assert_eq!(corbaloc(&read.to_string()), read, "{text}");
        let reference = read.reference("here").expect("it has bytes").expect("it is no name");
        assert_eq!(self::reference(&stringify(&reference).expect("it has bytes")), reference);
    }
}

/// omniORB made this from the same text.
#[test]
fn a_unix_socket_has_the_profile_of_omniorb() {
    let reference = corbaloc("corbaloc:omniunix:/tmp/giopt/s:/key").reference("vm").expect("it has bytes");
    let theirs = reference_of_their_text();
    assert_eq!(reference, Some(theirs));
}

fn reference_of_their_text() -> Reference {
    reference(
        "IOR:0100000001000000000000000100000000000000410000000101020003000000766d000000000000030000006b65790001000000\
        025454411d0000000100000003000000766d00000d0000002f746d702f67696f70742f7300",
    )
}

#[test]
fn corbaloc_names_a_service() {
    for (text, name) in [
        ("corbaloc:rir:", "NameService"),
        ("corbaloc:rir:/", "NameService"),
        ("corbaloc:rir:/TradingService", "TradingService"),
        ("corbaloc:rir:/a%20b", "a b"),
    ] {
        let read = corbaloc(text);
        assert_eq!(read, Corbaloc::Resolve(name.into()));
        assert_eq!(read.reference("here"), Ok(None));
        assert_eq!(corbaloc(&read.to_string()), read);
    }
}

#[test]
fn corbaname_names_a_name() {
    let part = |id: &str, kind: &str| NamePart { id: id.into(), kind: kind.into() };
    let cases: [(&str, Option<Name>, &[u8]); 4] = [
        ("corbaname::host", None, b"NameService"),
        ("corbaname::host/Other#a.b/c", Some(Name(vec![part("a", "b"), part("c", "")])), b"Other"),
        ("corbaname::host#a%20b", Some(Name(vec![part("a b", "")])), b"NameService"),
        (
            "corbaname::h#%5c./.x/.",
            Some(Name(vec![part(".", ""), part("", "x"), part("", "")])),
            b"NameService",
        ),
    ];
    for (text, name, key) in cases {
        let Ok(Link::Corbaname(read)) = text.parse() else { panic!("{text}") };
        assert_eq!(read.name, name, "{text}");
        assert!(matches!(&read.context, Corbaloc::Places(_, of) if of == key), "{text}");
        assert_eq!(read.to_string().parse(), Ok(Link::Corbaname(read.clone())), "{read}");
    }
    let Ok(Link::Corbaname(Corbaname { context, .. })) = "corbaname:rir:#a".parse() else { panic!("a name") };
    assert_eq!(context, Corbaloc::Resolve("NameService".into()));
}

#[test]
fn names_come_back_as_text() {
    for text in ["a", "a.b", ".b", ".", "a/b/c", "a\\/b/c\\.d.e\\\\", "a/./.b"] {
        let name = Name::parse(text).expect(text);
        assert_eq!(name.to_string(), text);
    }
    for text in ["", "/", "a/", "/a", "a//b", "a.", "a.b.c", "\\a", "a\\"] {
        assert_eq!(Name::parse(text), Err(Error::Name(text.into())), "{text}");
    }
}

#[test]
fn text_that_is_no_reference_is_refused() {
    assert_eq!(refused(""), Error::Scheme);
    assert_eq!(refused("http://host/"), Error::Scheme);
    assert_eq!(refused("é"), Error::Scheme);
    assert_eq!(refused("IOR:0"), Error::Hexadecimal);
    assert_eq!(refused("IOR:0g"), Error::Hexadecimal);
    assert_eq!(refused("IOR:"), Error::Cdr(CdrError::Truncated));
    assert_eq!(refused("IOR:01000000ffffffff"), Error::Cdr(CdrError::Length(u32::MAX.into())));
    assert_eq!(refused("corbaloc:"), Error::Address("".into()));
    assert_eq!(refused("corbaloc:host"), Error::Address("host".into()));
    assert_eq!(refused("corbaloc:tcp:host/k"), Error::Transport("tcp".into()));
    assert_eq!(refused("corbaloc:iiop:2.0@host/k"), Error::Version(2, 0));
    assert_eq!(refused("corbaloc:iiop:x@host/k"), Error::VersionText("x".into()));
    for text in ["h:", "h:0", "h:x", "h:65536", "h:1:2", "[::1", "[::1]x", "a b", "", "h,", "h:+1"] {
        assert!(matches!(refused(&format!("corbaloc::{text}/k")), Error::Address(_)), "{text}");
    }
    assert_eq!(refused("corbaloc::h/%0"), Error::Escape);
    assert_eq!(refused("corbaloc::h/%0x"), Error::Escape);
    assert_eq!(refused("corbaloc:rir:/%ff"), Error::NameText);
    assert_eq!(refused("corbaname::h#a%ff"), Error::NameText);
    assert_eq!(refused("corbaloc::h,rir:/k"), Error::Resolve);
    assert_eq!(refused("corbaloc:rir:x/k"), Error::Resolve);
    assert!(matches!(refused("corbaloc:omniunix:/tmp/x/k"), Error::Address(_)));
    assert!(matches!(refused("corbaloc:omniunix:/tmp/\0:/k"), Error::Address(_)));
    assert_eq!(refused("corbaname::h#a//b"), Error::Name("a//b".into()));
    assert_eq!(refused(&format!("IOR:{}", "0".repeat(2 << 20))), Error::Long((2 << 20) + 4));
}

/// Every byte of a reference is changed: it is read or refused.
#[test]
fn damaged_references_are_read_or_refused() {
    let whole = reference(OMNIORB);
    let (mut read, mut other) = (0, 0);
    for at in 0..whole.profiles[0].data.len() {
        for bit in 0..8 {
            let mut data = whole.profiles[0].data.clone();
            data[at] ^= 1 << bit;
            match IiopProfile::parse(&data) {
                Ok(profile) => {
                    read += 1;
                    for component in &profile.components {
                        let (orb, unix) = (component.orb_type(), component.unix_address());
                        other += usize::from(orb.is_err() || unix.is_err());
                    }
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    assert!(read > 100 && other > 10, "{read} were read, {other} had damaged components");
}
