//! Repository identifiers, as omniidl computes them.

mod common;

use std::process::Command;

use common::{accepted, errors, read_files};
use punctual_idl::Specification;
use punctual_idl::model::Kind;

/// The identifiers of all definitions but modules, enumerators and natives, in the order of the text.
fn identifiers(specification: &Specification) -> Vec<String> {
    let named = specification
        .all()
        .filter(|(_, one)| !matches!(one.kind(), Kind::Module | Kind::Enumerator(..)) && !one.is_included());
    named.map(|(_, one)| one.repository_id().to_owned()).collect()
}

const PREFIXES: &str = "#pragma prefix \"P1\"
module M1 { typedef long T1; };
module M2 {
  typedef long T0;
#pragma prefix \"P2\"
  module M3 {
#pragma prefix \"P3\"
    typedef long T3; struct S { struct N { long a; } m; };
    interface I { struct K { long b; }; attribute long x; void op(); };
  };
  typedef long T4;
#pragma ID T4 \"LOCAL:x\"
};
module M2 { typedef long T5[3];
#pragma version T5 3.4
  enum E { a, b };
};
#pragma prefix \"\"
typedef long T6;
";

#[test]
fn pragmas_and_scopes_make_identifiers() {
    let expected = [
        "IDL:P1/M1/T1:1.0",
        "IDL:P1/M2/T0:1.0",
        "IDL:P3/T3:1.0",
        "IDL:P3/S:1.0",
        "IDL:P3/S/N:1.0",
        "IDL:P3/I:1.0",
        "IDL:P3/I/K:1.0",
        "IDL:P3/I/x:1.0",
        "IDL:P3/I/op:1.0",
        "LOCAL:x",
        "IDL:P1/M2/T5:3.4",
        "IDL:P1/M2/E:1.0",
        "IDL:T6:1.0",
    ];
    assert_eq!(identifiers(&accepted(PREFIXES)), expected);
}

#[test]
fn an_included_file_has_no_prefix_and_gives_none() {
    let files = [
        ("a.idl", "#pragma prefix \"A\"\ntypedef long T;\n#include \"b.idl\"\ntypedef long U;"),
        ("b.idl", "typedef long V;\n#pragma prefix \"B\"\ntypedef long W;"),
    ];
    let specification = read_files(&files, &[]).specification.expect("accepted");
    let all: Vec<&str> = specification.all().map(|(_, one)| one.repository_id()).collect();
    assert_eq!(all, ["IDL:A/T:1.0", "IDL:V:1.0", "IDL:B/W:1.0", "IDL:A/U:1.0"]);
    assert_eq!(identifiers(&specification), ["IDL:A/T:1.0", "IDL:A/U:1.0"]);
    // As cpp writes it.
    let markers = "# 1 \"a.idl\"\n#pragma prefix \"A\"\n# 1 \"b.idl\" 1\ntypedef long V;\n# 3 \"a.idl\" 2\ntypedef long U;";
    let all: Vec<String> = accepted(markers).all().map(|(_, one)| one.repository_id().to_owned()).collect();
    assert_eq!(all, ["IDL:V:1.0", "IDL:A/U:1.0"]);
}

/// The identifiers that `TAO/tests/IDL_Test/main.cpp` expects of `repo_id_mod.idl`, in other words.
#[test]
fn typeprefix_is_for_the_whole_scope_and_typeid_for_one_name() {
    let specification = accepted(
        "module g { local interface a {}; typeprefix g \"gp\"; };
        module g { local interface b {};
          module f { local interface c {}; local interface d;
        #pragma version g::f::d 524.23
            local interface d {};
            module v { local interface e {}; typeprefix f::v \"vp\"; };
          };
        };
        typeid g::f::c \"ABRA:cadabra/hocus/pocus:1.23\";
        typeprefix ::g::f \"fp\";",
    );
    assert_eq!(
        identifiers(&specification),
        [
            "IDL:gp/g/a:1.0",
            "IDL:gp/g/b:1.0",
            "ABRA:cadabra/hocus/pocus:1.23",
            "IDL:fp/g/f/d:524.23",
            "IDL:vp/g/f/v/e:1.0",
        ]
    );
}

#[test]
fn a_definition_has_one_identifier() {
    assert_eq!(
        errors(
            "interface A {};\n#pragma ID A \"IDL:A:1.1\"\n#pragma ID A \"IDL:A:1.1\"\n#pragma ID A \"IDL:B:1.1\"\n"
        ),
        ["4:2: A already has the identifier \"IDL:A:1.1\""]
    );
    assert_eq!(
        errors("interface A {};\n#pragma version A 1.1\n#pragma version A 1.2\n#pragma version A x.2\n")
            .len(),
        2
    );
    assert_eq!(errors("interface A {};\n#pragma ID A \"none\"\n#pragma ID B \"IDL:B:1.0\"\n").len(), 2);
}

/// omniidl, with a back end that prints identifiers, agrees over its own files.
#[test]
fn identifiers_are_those_of_omniidl() {
    let idl = "/usr/share/idl/omniORB";
    if Command::new("omniidl").arg("-V").output().is_err() || !std::path::Path::new(idl).is_dir() {
        punctual_skip::skipped!("apt-get install omniidl omniorb-idl, to compare with omniidl");
        return;
    }
    let back_end = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/omniidl");
    let options = punctual_idl::Options {
        include_dirs: vec![idl.into(), format!("{idl}/COS").into()],
        defines: vec![("__OMNIIDL__".into(), "1".into())],
    };
    let mut compared = 0;
    for name in [
        "ir.idl",
        "poa.idl",
        "echo.idl",
        "COS/CosNotifyFilter.idl",
        "COS/CosTrading.idl",
        "COS/CosTransactions.idl",
    ] {
        let file = format!("{idl}/{name}");
        let arguments =
            [format!("-p{back_end}"), "-bidentifiers".into(), format!("-I{idl}"), format!("-I{idl}/COS")];
        let output = Command::new("omniidl").args(arguments).arg(&file).output().expect("omniidl runs");
        let mut theirs: Vec<String> =
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        let outcome = punctual_idl::read(file.as_ref(), &options, &mut punctual_idl::Disk).expect("a file");
        let specification = outcome.specification.expect("accepted");
        let declared = specification.all().filter(|(_, one)| {
            !one.is_included() && !matches!(one.kind(), Kind::Module | Kind::Enumerator(..))
        });
        // omniidl gives initializers and interfaces that are only declared no identifier of their own.
        let mut ours: Vec<String> = declared
            .filter(|(_, one)| !matches!(one.kind(), Kind::Interface(of) if !of.is_defined))
            .map(|(_, one)| one.repository_id().to_owned())
            .collect();
        ours.sort();
        theirs.sort();
        theirs.dedup();
        let only_ours: Vec<_> = ours.iter().filter(|id| !theirs.contains(id)).collect();
        let only_theirs: Vec<_> = theirs.iter().filter(|id| !ours.contains(id)).collect();
        assert_eq!((only_ours, only_theirs), (Vec::new(), Vec::new()), "{name}");
        compared += ours.len();
    }
    assert!(compared > 400, "{compared}");
}
