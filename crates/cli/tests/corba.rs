//! `punctual naming`, `punctual call` and `punctual ior`: a service is started, called by the IDL file of its interface, and its
//! references are explained.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use punctual_orb::Stub as _;
use punctual_orb::naming::cos_naming::{NameComponent, NamingContextExtClient};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PUNCTUAL: &str = env!("CARGO_BIN_EXE_punctual");
const IDL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../orb/src/naming/CosNaming.idl");

/// A naming service, which ends with the test.
struct Naming {
    child: Child,
    corbaloc: String,
    reference: String,
}

impl Naming {
    fn start() -> Self {
        Self::listening(&["127.0.0.1:0"])
    }

    fn listening(at: &[&str]) -> Self {
        Self::with(&at.iter().flat_map(|address| ["--listen", address]).collect::<Vec<_>>())
    }

    fn with(arguments: &[&str]) -> Self {
        let mut command = Command::new(PUNCTUAL);
        command.arg("naming").args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        let (corbaloc, reference) = (line(), line());
        Self { child, corbaloc, reference }
    }

    fn call(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PUNCTUAL);
        command.args(["call", &self.corbaloc]).args(arguments).args(["--idl", IDL, "--json"]);
        // The reference does not say its interface.
        command.args(["--interface", "CosNaming::NamingContextExt"]);
        command.output().expect("it starts")
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What it printed, and its exit code.
fn read(output: &Output) -> (Value, Option<i32>) {
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (value, output.status.code())
}

fn name(parts: &[&str]) -> String {
    json!(parts.iter().map(|id| json!({ "id": id, "kind": "" })).collect::<Vec<_>>()).to_string()
}

#[test]
fn operations_are_called_by_their_idl_file() {
    let naming = Naming::start();
    assert_eq!(read(&naming.call(&["bind", &name(&["a"]), &naming.reference])), (json!({}), Some(0)));
    let (resolved, code) = read(&naming.call(&["resolve_str", "a"]));
    assert_eq!((resolved["result"].as_str(), code), (Some(&*naming.reference), Some(0)));
    let (listed, _) = read(&naming.call(&["list", "10"]));
    let bound = json!({ "binding_name": [{ "id": "a", "kind": "" }], "binding_type": "nobject" });
    assert_eq!(listed["out"], json!({ "bl": [bound], "bi": null }));
    let (to_name, _) = read(&naming.call(&["to_name", "x.y"]));
    assert_eq!(to_name["result"], json!([{ "id": "x", "kind": "y" }]));
}

#[test]
fn exceptions_are_printed_with_their_members() {
    let naming = Naming::start();
    let (raised, code) = read(&naming.call(&["resolve", &name(&["b", "c"])]));
    assert_eq!(code, Some(1));
    assert_eq!(raised["exception"], "IDL:omg.org/CosNaming/NamingContext/NotFound:1.0");
    let rest = json!([{ "id": "b", "kind": "" }, { "id": "c", "kind": "" }]);
    assert_eq!(raised["members"], json!({ "why": "missing_node", "rest_of_name": rest }));
    let (failed, code) = read(&naming.call(&["destroy"]));
    assert_eq!(code, Some(1));
    assert!(
        failed["error"]["message"].as_str().is_some_and(|line| line.contains("NO_PERMISSION")),
        "{failed}"
    );
}

#[test]
fn wrong_arguments_are_wrong_usage() {
    let naming = Naming::start();
    for (arguments, expected) in [
        (&["resolve"][..], "0 arguments, expected 1: n"),
        (&["resolve", "x"], "n: `x` is no JSON"),
        (&["resolve", "[{}]"], "n: [0]: `id` is missing"),
        (&["resolve", r#"[{"id": 1, "kind": ""}]"#], "n: [0]: id: `1` is not a string"),
        (&["resolve", r#"[{"id": "", "kind": "", "x": 1}]"#], "there is no member `x`"),
        (&["list", "-1"], "how_many: `-1` is not an integer in the range"),
        (&["list", "4294967296"], "how_many: `4294967296` is not an integer in the range"),
        (&["fly"], "no such operation or attribute: fly"),
    ] {
        let output = naming.call(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn names_in_references_are_found() {
    let naming = Naming::start();
    read(&naming.call(&["bind", &name(&["a"]), &naming.reference]));
    let corbaname = format!("{}#a", naming.corbaloc.replace("corbaloc:", "corbaname:"));
    let call = |reference: &str| {
        let arguments = ["call", reference, "to_name", "z", "--idl", IDL, "--json"];
        Command::new(PUNCTUAL).args(arguments).output().expect("it starts")
    };
    let (named, code) = read(&call(&corbaname));
    assert_eq!((&named["result"], code), (&json!([{ "id": "z", "kind": "" }]), Some(0)));
    let missing = call(&corbaname.replace("#a", "#b"));
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("does not know the name"));
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let naming = Naming::start();
    let corbaloc = naming.corbaloc.clone();
    drop(naming);
    let arguments = ["call", &corbaloc, "new_context", "--idl", IDL, "--json"];
    let (failed, code) = read(&Command::new(PUNCTUAL).args(arguments).output().expect("it starts"));
    assert_eq!(code, Some(1), "{failed}");
}

#[test]
fn references_are_explained() {
    let naming = Naming::start();
    let ior = |reference: &str| {
        read(&Command::new(PUNCTUAL).args(["ior", reference, "--json"]).output().expect("it starts"))
    };
    let (explained, code) = ior(&naming.reference);
    assert_eq!(
        (&explained["interface"], code),
        (&json!("IDL:omg.org/CosNaming/NamingContextExt:1.0"), Some(0))
    );
    let profile = &explained["profiles"][0];
    assert_eq!((&profile["transport"], &profile["version"]), (&json!("IIOP"), &json!("1.2")));
    let (explained, _) = ior(&naming.corbaloc);
    assert_eq!(explained["profiles"][0]["address"], profile["address"]);
    assert_eq!(explained["profiles"][0]["key"], "NameService");
    let (failed, code) = ior("http://host");
    assert_eq!((code, failed["error"]["exit_code"].as_i64()), (Some(2), Some(2)));
}

/// A file that is no socket is somebody's file.
#[test]
fn a_naming_service_replaces_no_ordinary_file() {
    let path = format!("{}/a-document", env!("CARGO_TARGET_TMPDIR"));
    let (link, _) = (format!("{path}.link"), std::fs::remove_file(format!("{path}.link")));
    std::fs::write(&path, "words").expect("written");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    for at in [&path, &link] {
        let output = Command::new(PUNCTUAL).args(["naming", "--listen", &format!("unix:{at}")]).output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(std::fs::read_to_string(at).expect("it is there"), "words");
    }
}

/// Each client sends the begin of a message, and waits.
#[test]
fn half_messages_keep_no_threads_of_a_naming_service() {
    let naming = Naming::start();
    let address = naming.corbaloc.trim_start_matches("corbaloc:iiop:1.2@").trim_end_matches("/NameService");
    let threads = || {
        let all = std::fs::read_dir(format!("/proc/{}/task", naming.child.id())).expect("it runs");
        all.count()
    };
    let before = threads();
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let mut client = std::net::TcpStream::connect(address).expect("it listens");
            client.write_all(b"GIOP\x01\x02\x01\x00\x00\x01\x00\x00half").expect("sent");
            client
        })
        .collect();
    // It serves others meanwhile, so it has read what came before.
    let (resolved, code) = read(&naming.call(&["resolve_str", "nothing"]));
    assert_eq!(code, Some(1), "{resolved}");
    assert!(threads() <= before + 2, "{before} threads before, {} with {} clients", threads(), clients.len());
}

/// Names and contexts that clients leave behind take bounded memory, and keep nobody from binding.
#[test]
fn a_naming_service_has_limits() {
    let naming = Naming::start();
    let client = punctual_orb::Orb::new(punctual_orb::Options::default()).expect("an ORB");
    let root: NamingContextExtClient = client.resolve(&naming.corbaloc).expect("a naming context");
    let part = |id: String| NameComponent { id, kind: String::new() };
    let long = "x".repeat(4 << 20);
    for _ in 0..20 {
        // Longer than a request may be: its connection ends.
        assert!(root.bind(&[part(long.clone())], root.object().reference()).is_err());
    }
    for number in 0..11_000 {
        root.new_context().unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", naming.child.id())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 100_000, "{peak} kB");
    root.bind_new_context(&[part("a".into())]).expect("a new name");
}

/// Sockets are removed at the end, and where the service does not start.
#[test]
fn a_naming_service_leaves_no_socket_behind() {
    let path = format!("{}/ended.sock", env!("CARGO_TARGET_TMPDIR"));
    let at = format!("unix:{path}");
    let is_there = || std::path::Path::new(&path).exists();
    for signal in [Signal::TERM, Signal::INT] {
        let mut naming = Naming::listening(&[&at]);
        assert!(is_there());
        kill_process(Pid::from_child(&naming.child), signal).expect("it runs");
        assert_eq!(naming.child.wait().expect("it ends").code(), Some(0), "{signal:?}");
        assert!(!is_there(), "{signal:?}");
    }
    let twice = Command::new(PUNCTUAL).args(["naming", "--listen", &at, "--listen", &at]).output();
    assert_eq!(twice.expect("it starts").status.code(), Some(1));
    assert!(!is_there());
}

/// A client that reaches the service at another address than the published one stays there.
#[test]
fn a_published_address_is_not_needed() {
    let naming = Naming::with(&["--listen", "127.0.0.1:0", "--publish", "192.0.2.1:1"]);
    let port = {
        let sockets =
            std::fs::read_to_string(format!("/proc/{}/net/tcp", naming.child.id())).expect("it runs");
        let own: Vec<_> = std::fs::read_dir(format!("/proc/{}/fd", naming.child.id()))
            .expect("it runs")
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .map(|link| link.display().to_string())
            .collect();
        let listens = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[3] == "0A" && own.contains(&format!("socket:[{}]", fields[9]))
        };
        let line = sockets.lines().skip(1).find(listens).expect("it listens").to_owned();
        let local = line.split_whitespace().nth(1).expect("an address").to_owned();
        u16::from_str_radix(local.split_once(':').expect("a port").1, 16).expect("a number")
    };
    let reference = format!("corbaloc::127.0.0.1:{port}/NameService");
    let arguments = ["call", &reference, "to_name", "z", "--idl", IDL, "--json", "--timeout", "5s"];
    let (named, code) = read(&Command::new(PUNCTUAL).args(arguments).output().expect("it starts"));
    assert_eq!((&named["result"], code), (&json!([{ "id": "z", "kind": "" }]), Some(0)));
}

#[test]
fn a_naming_service_listens_at_a_unix_socket() {
    let path = format!("{}/naming.sock", env!("CARGO_TARGET_TMPDIR"));
    let only = Naming::listening(&[&format!("unix:{path}")]);
    assert_eq!(only.corbaloc, format!("corbaloc:omniunix:{path}:/NameService"));
    read(&only.call(&["bind", &name(&["a"]), &only.reference]));
    let (resolved, code) = read(&only.call(&["resolve_str", "a"]));
    assert_eq!((resolved["result"].as_str(), code), (Some(&*only.reference), Some(0)));
    for reference in [&only.reference, &only.corbaloc] {
        let explained =
            Command::new(PUNCTUAL).args(["ior", reference, "--json"]).output().expect("it starts");
        let (explained, _) = read(&explained);
        let profile = &explained["profiles"][0];
        assert_eq!(profile["transport"], "omniunix");
        assert!(profile["address"].as_str().is_some_and(|address| address.starts_with(&path)), "{profile}");
    }
    drop(only);
    // The socket that is left is replaced.
    let both = Naming::listening(&["127.0.0.1:0", &format!("unix:{path}")]);
    let (tcp, unix) = both.corbaloc.split_once(',').expect("two addresses");
    assert!(tcp.starts_with("corbaloc:iiop:1.2@127.0.0.1:"), "{tcp}");
    assert_eq!(unix, format!("omniunix:{path}:/NameService"));
}

#[test]
fn operations_of_all_objects_need_no_idl_file() {
    let naming = Naming::start();
    let call = |reference: &str, arguments: &[&str]| {
        let mut command = Command::new(PUNCTUAL);
        command.args(["call", reference]).args(arguments).arg("--json").output().expect("it starts")
    };
    let id = "IDL:omg.org/CosNaming/NamingContextExt:1.0";
    let missing = naming.corbaloc.replace("NameService", "nobody");
    for (reference, arguments, expected) in [
        (&naming.corbaloc, &["_is_a", id][..], json!(true)),
        (&naming.corbaloc, &["_is_a", "IDL:Nothing:1.0"], json!(false)),
        (&naming.corbaloc, &["_non_existent"], json!(false)),
        (&missing, &["_non_existent"], json!(true)),
        (&naming.corbaloc, &["_repository_id"], json!(id)),
        (&naming.corbaloc, &["_component"], json!(null)),
    ] {
        let (answer, code) = read(&call(reference, arguments));
        assert_eq!((&answer["result"], code), (&expected, Some(0)), "{reference} {arguments:?}");
    }
    let failed = call(&naming.corbaloc, &["_interface"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("INTF_REPOS"), "{failed:?}");
}

#[test]
fn what_is_known_after_a_oneway_operation_depends_on_how_long_it_waits() {
    let idl = format!("{}/ping.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&idl, "interface P { oneway void ping(); };\n").expect("written");
    let naming = Naming::start();
    let missing = naming.corbaloc.replace("NameService", "nobody");
    let call = |scope: &str| {
        let arguments = ["call", &missing, "ping", "--idl", &idl, "--sync", scope, "--json"];
        Command::new(PUNCTUAL).args(arguments).output().expect("it starts")
    };
    for (scope, known) in [("none", "nothing"), ("transport", "sent")] {
        assert_eq!(read(&call(scope)), (json!({ "known": known }), Some(0)), "{scope}");
    }
    for scope in ["server", "target"] {
        let (failed, code) = read(&call(scope));
        assert_eq!(code, Some(1), "{scope}");
        let said = failed["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("OBJECT_NOT_EXIST"), "{scope}: {said}");
    }
}

#[test]
fn a_oneway_operation_is_sent_before_the_command_ends() {
    let idl = format!("{}/sent.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&idl, "interface P { oneway void ping(); };\n").expect("written");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let reference = format!("corbaloc::{}/x", listener.local_addr().expect("bound"));
    let arguments = ["call", &reference, "ping", "--idl", &idl, "--sync", "none"];
    let sent = Command::new(PUNCTUAL).args(arguments).output().expect("it starts");
    assert_eq!(sent.status.code(), Some(0), "{sent:?}");
    let (mut stream, _) = listener.accept().expect("it has connected");
    let mut message = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut message).expect("its bytes");
    assert!(message.windows(4).any(|bytes| bytes == b"ping"), "{message:?}");
}
