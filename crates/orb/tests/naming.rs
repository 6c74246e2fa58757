//! The naming service, and omniORB's `nameclt` as its client.

use std::process::Command;

use punctual_giop::exception::minor;
use punctual_giop::{Reference, SystemExceptionKind};
use punctual_orb::naming::cos_naming::naming_context::{BindError, ResolveError};
use punctual_orb::naming::cos_naming::{
    BindingIteratorClient, NameComponent, NamingContext, NamingContextClient, NamingContextExtClient,
};
use punctual_orb::naming::{find, serve};
use punctual_orb::{Endpoint, Options, Orb, Stub as _};

struct Service {
    _orb: Orb,
    /// `corbaloc::HOST:PORT/NameService`.
    address: String,
    root: Reference,
}

fn service() -> Service {
    let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
    let root = serve(&orb).expect("a service");
    let profile = root.iiop_profiles().next().expect("a profile").expect("it is whole");
    let address = format!("corbaloc:iiop:1.2@{}/NameService", profile.address);
    Service { _orb: orb, address, root }
}

fn name(parts: &[&str]) -> Vec<NameComponent> {
    parts.iter().map(|id| NameComponent { id: (*id).into(), kind: String::new() }).collect()
}

#[test]
fn names_lead_through_contexts() {
    let service = service();
    let client = Orb::new(Options::default()).expect("an ORB");
    let root: NamingContextExtClient = client.resolve(&service.address).expect("a naming context");
    let context = root.bind_new_context(&name(&["a"])).expect("a new name");
    root.bind(&name(&["a", "b"]), &service.root).expect("a new name");
    assert_eq!(root.resolve(&name(&["a", "b"])).expect("it is bound"), service.root);
    assert_eq!(root.resolve_str("a/b").expect("it is bound"), service.root);
    assert!(matches!(root.bind(&name(&["a", "b"]), &service.root), Err(BindError::AlreadyBound(_))));
    let Err(ResolveError::NotFound(not_found)) = root.resolve(&name(&["a", "c"])) else {
        panic!("no such name")
    };
    assert_eq!(not_found.rest_of_name, name(&["c"]));
    let Err(ResolveError::NotFound(not_found)) = root.resolve(&name(&["a", "b", "c"])) else {
        panic!("no context")
    };
    assert_eq!(not_found.rest_of_name, name(&["b", "c"]));
    assert!(matches!(root.resolve(&[]), Err(ResolveError::InvalidName(_))));
    let inner = NamingContextClient::new(client.object(&context.0).expect("a reference"));
    assert!(inner.destroy().is_err(), "it has a name");
    root.unbind(&name(&["a", "b"])).expect("it is bound");
    inner.destroy().expect("it is empty");
    assert!(root.destroy().is_err(), "the root stays");
}

#[test]
fn long_lists_come_in_parts() {
    let service = service();
    let client = Orb::new(Options::default()).expect("an ORB");
    let root: NamingContextExtClient = client.resolve(&service.address).expect("a naming context");
    for number in 0..5 {
        root.bind(&name(&[&number.to_string()]), &service.root).expect("a new name");
    }
    let (first, rest) = root.list(2).expect("a list");
    assert_eq!(first.len(), 2);
    let rest = BindingIteratorClient::new(client.object(&rest.0).expect("there is more"));
    assert_eq!(rest.next_one().expect("one").1.binding_name, name(&["2"]));
    let (is_there, two) = rest.next_n(9).expect("the others");
    assert_eq!((is_there, two.len()), (true, 2));
    assert_eq!(rest.next_n(9).expect("no more"), (false, vec![]));
    rest.destroy().expect("it ends");
    let (all, rest) = root.list(9).expect("a list");
    assert_eq!((all.len(), rest.0.is_nil()), (5, true));
}

/// Contexts that nobody can find any more keep nobody from making others.
#[test]
fn contexts_without_a_name_give_way() {
    let service = service();
    let client = Orb::new(Options::default()).expect("an ORB");
    let root: NamingContextExtClient = client.resolve(&service.address).expect("a naming context");
    let named = root.bind_new_context(&name(&["named"])).expect("a new name");
    let first = root.new_context().expect("there is room");
    for _ in 0..10_000 {
        root.new_context().expect("others give way");
    }
    let object = |context: &NamingContext| client.object(&context.0).expect("a reference");
    assert_eq!(object(&first).is_non_existent(), Ok(true));
    assert_eq!(object(&named).is_non_existent(), Ok(false));
    root.bind_new_context(&name(&["named", "inner"])).expect("a new name");
    // One that gets no name is not kept, and a destroyed one is no object any more.
    assert!(root.bind_new_context(&name(&["named"])).is_err());
    let destroyed = root.new_context().expect("there is room");
    NamingContextClient::new(object(&destroyed)).destroy().expect("it is empty");
    assert_eq!(object(&destroyed).is_non_existent(), Ok(true));
}

#[test]
fn long_names_are_no_names_and_large_references_are_beyond_a_limit() {
    let service = service();
    let client = Orb::new(Options::default()).expect("an ORB");
    let root: NamingContextExtClient = client.resolve(&service.address).expect("a naming context");
    let long = "x".repeat(4 << 20);
    assert!(matches!(root.bind(&name(&[&long]), &service.root), Err(BindError::InvalidName(_))));
    let large = Reference { type_id: long, ..service.root.clone() };
    let Err(BindError::System(refused)) = root.bind(&name(&["a"]), &large) else { panic!("it is too large") };
    assert_eq!(refused.kind, SystemExceptionKind::ImpLimit);
}

#[test]
fn names_in_references_are_resolved() {
    let service = service();
    let client = Orb::new(Options::default()).expect("an ORB");
    let root: NamingContextExtClient = client.resolve(&service.address).expect("a naming context");
    root.bind(&name(&["x.y"]), &service.root).expect("a new name");
    let url = service.address.replace("corbaloc", "corbaname");
    assert_eq!(find(&client, &format!("{url}#x%5c.y")).expect("it is bound"), service.root);
    let missing = find(&client, &format!("{url}#z")).expect_err("no such name").to_string();
    assert!(missing.contains("does not know the name"), "{missing}");
    let address = url.trim_start_matches("corbaname:").replace("/NameService", "");
    assert_eq!(root.to_url(&address, "a.b").expect("an address"), format!("corbaname:{address}#a.b"));
    assert_eq!(root.to_url(":host:9999", "a/b c").as_deref(), Ok("corbaname::host:9999#a/b%20c"));
    assert!(root.to_url(&format!("{address}#a"), "b").is_err());
    assert!(root.to_url("", "a").is_err() && root.to_url(&address, "/").is_err());
    assert_eq!(root.to_name("x\\.y").expect("a name"), name(&["x.y"]));
    assert_eq!(root.to_string(&name(&["x.y"])).as_deref(), Ok("x\\.y"));
}

#[test]
fn an_orb_finds_what_it_was_told_and_asks_naming_services() {
    let service = service();
    let client = Orb::new(Options::default()).expect("an ORB");
    let refused = |text: &str| {
        let failed = client.reference(text).expect_err("it leads nowhere");
        (failed.kind, failed.standard_minor())
    };
    let bad = |minor: u16| (SystemExceptionKind::BadParam, Some(minor.into()));
    for unknown in ["corbaloc:rir:", "corbaloc:rir:/Other", "corbaname:rir:#a"] {
        assert_eq!(refused(unknown), bad(minor::BAD_REFERENCE), "{unknown}");
    }
    client.set_initial_reference("NameService", service.root.clone());
    let root: NamingContextExtClient = client.resolve("corbaloc:rir:").expect("a naming context");
    root.bind(&name(&["a"]), &service.root).expect("a new name");
    for text in
        ["corbaloc:rir:/NameService", "corbaname:rir:", "corbaname:rir:#a", "corbaname:rir:/NameService#a"]
    {
        assert_eq!(client.reference(text), Ok(service.root.clone()), "{text}");
    }
    let elsewhere = service.address.replace("corbaloc", "corbaname");
    assert_eq!(client.reference(&format!("{elsewhere}#a")), Ok(service.root.clone()));
    // By name, an object of an interface.
    assert!(client.resolve::<NamingContextExtClient>(&format!("{elsewhere}#a")).is_ok());
    assert_eq!(refused(&format!("{elsewhere}#b")), bad(minor::BAD_REFERENCE));
    assert_eq!(refused("corbaloc:rir:/Other"), bad(minor::BAD_REFERENCE));
    assert_eq!(refused("file:///tmp/x"), bad(minor::BAD_SCHEME));
    assert_eq!(refused("corbaloc:carrier:pigeon/key"), bad(minor::BAD_ADDRESS));
    assert_eq!(refused("corbaname::host#a%"), bad(minor::BAD_SCHEME_SPECIFIC));
}

/// omniORB's client of naming services.
fn nameclt(service: &Service, arguments: &[&str]) -> Option<(bool, String)> {
    let initial = format!("NameService={}", service.address);
    let mut command = Command::new("timeout");
    command.args(["60", "nameclt", "-advanced", "-ORBInitRef", &initial]).args(arguments);
    if Command::new("nameclt").output().is_err() {
        punctual_skip::skipped!("needs nameclt: apt-get install omniorb");
        return None;
    }
    let output = command.output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn the_client_of_omniorb_binds_lists_resolves_and_unbinds() {
    let service = service();
    let Some((is_done, said)) = nameclt(&service, &["bind_new_context", "c.k"]) else { return };
    assert!(is_done, "{said}");
    let object = punctual_giop::reference::stringify(&service.root).expect("it has bytes");
    let run = |arguments: &[&str]| nameclt(&service, arguments).expect("it ran before");
    assert!(run(&["bind", "c.k/o", &object]).0);
    let (_, listed) = run(&["list", "c.k"]);
    assert!(listed.contains('o'), "{listed}");
    let (_, resolved) = run(&["resolve", "c.k/o"]);
    assert!(resolved.contains("IOR:"), "{resolved}");
    assert!(!run(&["resolve", "c.k/p"]).0, "no such name");
    assert!(run(&["unbind", "c.k/o"]).0);
    assert!(!run(&["resolve", "c.k/o"]).0, "it is unbound");
}

/// omniORB's naming service, with our client.
#[test]
fn the_service_of_omniorb_is_called() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let folder = std::env::temp_dir().join(format!("punctual-omninames-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let endpoint = format!("giop:tcp:127.0.0.1:{port}");
    let mut command = Command::new("omniNames");
    command
        .arg("-start")
        .arg(port.to_string())
        .arg("-datadir")
        .arg(&folder)
        .args(["-ORBendPoint", &endpoint]);
    let Ok(mut names) = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() else {
        punctual_skip::skipped!("needs omniNames: apt-get install omniorb-nameserver");
        return;
    };
    // It says so when it listens.
    let mut lines = BufReader::new(names.stderr.take().expect("piped")).lines();
    let is_ready = lines.any(|line| line.is_ok_and(|line| line.contains("Root context is")));
    assert!(is_ready, "omniNames starts");
    let client = Orb::new(Options::default()).expect("an ORB");
    let address = format!("corbaloc:iiop:1.2@127.0.0.1:{port}/NameService");
    let root: NamingContextExtClient = client.resolve(&address).expect("a naming context");
    root.bind_new_context(&name(&["c"])).expect("a new name");
    let object = service().root;
    root.bind(&name(&["c", "o"]), &object).expect("a new name");
    let found = find(&client, &format!("corbaname:iiop:1.2@127.0.0.1:{port}#c/o")).expect("it is bound");
    assert_eq!(found.type_id, object.type_id);
    let (all, _) = root.list(10).expect("a list");
    assert_eq!(all.len(), 1);
    names.kill().expect("it runs");
    names.wait().expect("it ends");
    std::fs::remove_dir_all(&folder).expect("it is there");
}
