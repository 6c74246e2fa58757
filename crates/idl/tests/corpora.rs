//! Files that others wrote are accepted or refused as they say themselves.
//!
//! | corpus | where |
//! |---|---|
//! | Debian's package `omniorb-idl`, 71 files | installed by `scripts/setup`; without it the test is skipped |
//! | `TAO/tests/IDL_Test` of DOCGroup/ACE_TAO, 69 files | `make idl-corpus DIR=...`, a checkout of ACE_TAO |

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{errors_of, files};
use punctual_idl::{Disk, Options};

/// Both corpora together must be read in this time.
const TIME_MAX: Duration = Duration::from_secs(3);

/// Files of omniorb-idl that need what the package does not have, and what.
const OMNIORB_REFUSED: &[(&str, &str)] = &[
    ("CosTSPortability.idl", "\"Environment\" is not declared in CORBA"),
    ("DCE_CIOPSecurity.idl", "cannot find the file \"IOP.idl\""),
    ("NRService.idl", "\"ServiceOption\" is not declared in CORBA"),
    ("SECIOP.idl", "cannot find the file \"IOP.idl\""),
    ("SSLIOP.idl", "cannot find the file \"IOP.idl\""),
    ("Security.idl", "\"ServiceOption\" is not declared in CORBA"),
    ("SecurityAdmin.idl", "\"ServiceOption\" is not declared in CORBA"),
    ("SecurityLevel1.idl", "\"ServiceOption\" is not declared in CORBA"),
    ("SecurityLevel2.idl", "\"ServiceOption\" is not declared in CORBA"),
    ("SecurityReplaceable.idl", "\"ServiceOption\" is not declared in CORBA"),
];

/// Files of `IDL_Test` that a compiler must refuse, as `run_test.pl` or their comments say.
const TAO_REFUSED: &[(&str, &str)] = &[
    ("exception_misuse1.idl", "\"exc_t\" is not a type"),
    ("exception_misuse2.idl", "\"exc_t\" is not a type"),
    ("invalid_scoping.idl", "\"mylong\" is not declared in A::B::A"),
    ("invalid_scoping1.idl", "\"mylong\" is not declared in A::B::A"),
    ("invalid_scoping2.idl", "\"numbers2\" is not declared in A::B::target"),
    ("keyword_case_diff.idl", "\"PortType\" differs from the keyword \"porttype\" only in case"),
];

/// Reads each file; those of `refused` are refused, with this error first.
fn check(files: &[PathBuf], include_dirs: &[PathBuf], refused: &[(&str, &str)]) {
    let begin = Instant::now();
    let mut refused: BTreeMap<&str, &str> = refused.iter().copied().collect();
    for file in files {
        let beside = file.parent().map(Path::to_owned);
        let options = Options {
            include_dirs: include_dirs.iter().cloned().chain(beside).collect(),
            // Some files of omniORB are for omniidl only, and say so with this macro.
            defines: vec![("__OMNIIDL__".into(), "1".into())],
        };
        let outcome = punctual_idl::read(file, &options, &mut Disk).expect("a file");
        let errors = errors_of(&outcome);
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match refused.remove(name) {
            Some(why) => {
                assert!(errors.first().is_some_and(|first| first.contains(why)), "{name}: {errors:#?}");
                assert!(outcome.specification.is_none(), "{name}");
            }
            None => assert_eq!(errors, Vec::<String>::new(), "{name}"),
        }
    }
    assert!(refused.is_empty(), "no such files: {refused:?}");
    let took = begin.elapsed();
    eprintln!("{} files in {took:?}", files.len());
    if std::env::var_os("PUNCTUAL_TEST_WALL_CLOCK").is_some() {
        assert!(took < TIME_MAX / 2, "{took:?}");
    }
}

#[test]
fn files_of_omniorb_are_accepted_but_for_those_that_need_more_than_the_package_has() {
    let folder = PathBuf::from("/usr/share/idl/omniORB");
    if !folder.is_dir() {
        punctual_skip::skipped!("{} is missing: apt-get install omniorb-idl", folder.display());
        return;
    }
    let found = files(&folder);
    assert!(found.len() >= 71, "{} files", found.len());
    check(&found, &[folder.clone(), folder.join("COS")], OMNIORB_REFUSED);
}

#[test]
fn files_of_tao_are_accepted_or_refused_as_its_own_test_says() {
    let Some(tree) = std::env::var_os("PUNCTUAL_ACE_TAO").map(PathBuf::from) else {
        punctual_skip::skipped!("run make idl-corpus DIR=..., with a checkout of DOCGroup/ACE_TAO");
        return;
    };
    let found = files(&tree.join("TAO/tests/IDL_Test"));
    assert!(found.len() >= 60, "{} files", found.len());
    check(&found, &[tree.join("TAO"), tree.join("TAO/tao")], TAO_REFUSED);
}
