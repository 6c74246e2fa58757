//! Two hosts on a cable: `a`, which may have a relay, and `b` with the kernel's TCP.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::Size;
use crate::basics::basics;
use crate::host::Host;
use crate::process::Server;

const PUNCTUAL: &str = env!("CARGO_BIN_EXE_punctual");
const A: &str = "10.97.0.1";
const B: &str = "10.97.0.2";
const LOOPBACK: &str = "127.0.0.1";
/// How long a server may take to listen.
const START_WAIT: Duration = Duration::from_secs(20);

/// The host on which the relay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// No relay: client on `b`, server on `a`.
    Kernel,
    /// On `a`, together with the server; the client is on `b`.
    BeforeServer,
    /// On `a`, together with the client; the server is on `b`.
    BeforeClient,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Kernel, Self::BeforeServer, Self::BeforeClient];
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kernel => "kernel alone",
            Self::BeforeServer => "relay before server",
            Self::BeforeClient => "relay before client",
        })
    }
}

/// A daemon or a relay, which ends when it is dropped.
struct Ours {
    child: Child,
    /// Thread that reads the program's log, so that the program never waits for a full pipe.
    log: Option<std::thread::JoinHandle<String>>,
}

impl Ours {
    /// Starts it and waits until a line of its log contains `ready`.
    fn start(host: &Host, program: &Path, arguments: &[&str], (ready, out): (&str, Stdio)) -> Self {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", host.name())).arg(program).args(arguments);
        let mut child = command.stdout(out).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut text = String::new();
        while !text.lines().last().is_some_and(|line| line.contains(ready)) {
            assert!(
                errors.read_line(&mut text).expect("a line") > 0,
                "it ended before it was ready:\n{text}"
            );
        }
        let log = std::thread::spawn(move || {
            let _ = errors.read_to_string(&mut text);
            text
        });
        Self { child, log: Some(log) }
    }

    /// Whether the process still runs.
    fn runs(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    fn end(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.log.take().and_then(|log| log.join().ok()).unwrap_or_default()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let text = self.end();
        if std::thread::panicking() {
            eprintln!("{text}");
        }
    }
}

/// The order of the fields matters: they are dropped in this order.
pub struct World {
    relays: Mutex<Vec<Ours>>,
    daemon: Option<Mutex<Ours>>,
    pub folder: PathBuf,
    way: Way,
    a: Host,
    b: Host,
}

impl World {
    pub fn new(way: Way, size: Size) -> Self {
        let (a, b) = (Host::new(), Host::new());
        a.run(&format!("ip link add va type veth peer name vb netns {}", b.name()));
        for (host, device, ip) in [(&a, "va", A), (&b, "vb", B)] {
            host.ip_batch(&format!(
                "link set lo up\nlink set {device} up\naddress add {ip}/30 dev {device}\n"
            ));
        }
        a.await_up("va");
        b.await_up("vb");
        let folder =
            std::env::temp_dir().join(format!("punctual-programs-{}-{}", std::process::id(), a.name()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let daemon = (way != Way::Kernel).then(|| Mutex::new(daemon(&a, &folder, size)));
        Self { relays: Mutex::default(), daemon, folder, way, a, b }
    }

    /// Host on which the server runs.
    pub fn server_host(&self) -> &Host {
        if self.way == Way::BeforeClient { &self.b } else { &self.a }
    }

    /// Host on which the client runs.
    pub fn client_host(&self) -> &Host {
        if self.way == Way::BeforeClient { &self.a } else { &self.b }
    }

    /// The address that the server listens at.
    pub fn server_address(&self) -> &'static str {
        match self.way {
            Way::Kernel => A,
            Way::BeforeServer => LOOPBACK,
            Way::BeforeClient => B,
        }
    }

    /// The address that the client connects to.
    pub fn client_address(&self) -> &'static str {
        if self.way == Way::BeforeClient { LOOPBACK } else { A }
    }

    /// Starts a relay for this port, with the arguments of the class.
    pub fn relay(&self, port: u16, class: &str) {
        let ends = match self.way {
            Way::Kernel => return,
            Way::BeforeServer => format!("--listen {A}:{port} --to {LOOPBACK}:{port}"),
            Way::BeforeClient => format!("--from {LOOPBACK}:{port} --connect {B}:{port}"),
        };
        let socket = self.folder.join("api.sock");
        let line = format!("relay --json --socket {} {ends} --class {class}", socket.display());
        let arguments: Vec<_> = line.split(' ').collect();
        let out = File::create(self.folder.join(format!("relay-{port}.json"))).expect("a file");
        let relay =
            Ours::start(&self.a, Path::new(PUNCTUAL), &arguments, ("relay: listening on", out.into()));
        self.relays.lock().expect("no panic").push(relay);
    }

    /// Starts a server and waits until it listens at the port.
    pub fn serve(&self, port: u16, line: &[&str]) -> Result<Server, String> {
        let log = self.folder.join(format!("{port}.log"));
        let server = Server::start(self.server_host(), &log, line)?;
        let until = Instant::now() + START_WAIT;
        // Do not connect to find out: some servers serve only one connection.
        while self.server_host().run(&format!("ss -Hltn sport = :{port}")).is_empty() {
            if Instant::now() >= until {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                return Err(format!("{} does not listen: {}", line[0], text.trim()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Checks that the daemon and the relays still run.
    pub fn runs(&self) -> Result<(), String> {
        let relays = self.relays.lock().expect("no panic").iter_mut().all(Ours::runs);
        let daemon = self.daemon.as_ref().is_none_or(|daemon| daemon.lock().expect("no panic").runs());
        if relays && daemon { Ok(()) } else { Err(format!("runs: the relays {relays}, the daemon {daemon}")) }
    }

    /// Ends everything. Returns the output of the servers, the relays and the daemon.
    pub fn end(&self) -> String {
        let mut text: String = self.relays.lock().expect("no panic").iter_mut().map(Ours::end).collect();
        text.extend(self.daemon.iter().map(|daemon| daemon.lock().expect("no panic").end()));
        for entry in std::fs::read_dir(&self.folder).expect("its folder").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|kind| kind == "log" || kind == "json") {
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                text += &format!("{}:\n{}\n", path.display(), log.trim());
            }
        }
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.relays.lock().expect("no panic").clear();
        self.daemon = None;
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("warning: {} stays behind: {error}", self.folder.display());
        }
    }
}

/// A daemon on `a`.
fn daemon(a: &Host, folder: &Path, size: Size) -> Ours {
    let file = folder.join("a.toml");
    let text = format!(
        r#"
        {basics}
        [[link]]
        name = "to-b"
        neighbour = "b"
        driver = "xdp"
        device = "va"
        local = "{A}"
        peer = "{B}"
        rate = "10Gbit/s"
        packet = "1464B"
        pipeline_depth = 16
        reaction = "20us"
        kernel_traffic = "exclusive"
        prediction_error = "500ms"
        flows_max = 2048
        listeners_max = 4
        [daemon]
        socket = "{socket}"
        channels_per_user_max = 4096
        descriptors_per_user_max = 32768
        buffers_per_user_max = "4GiB"
        "#,
        basics = basics("a", size == Size::Sample),
        socket = folder.join("api.sock").display(),
    );
    std::fs::write(&file, text).expect("written");
    let program = Path::new(PUNCTUAL).with_file_name("punctuald");
    assert!(program.is_file(), "{} is not there: cargo build -p punctual-daemon", program.display());
    Ours::start(a, &program, &["--config", file.to_str().expect("text")], ("ready", Stdio::null()))
}
