//! Three hosts in namespaces of their own, two cables, and a small disk.

use std::path::PathBuf;
use std::process::Command;

use crate::common::harm::{Disk, SteppedClock};
use crate::common::network::{Cable, Network, driver};
use crate::common::program::{Program, folder, write};
use crate::common::text::Text;
use crate::common::witness::may_be_real_time;

/// `a` in the middle; `b`, which the faults hit; and `c`, which no fault hits.
pub const NAMES: [&str; 3] = ["a", "b", "c"];
pub const TO_B: Cable = Cable { number: 0, hosts: [0, 1] };
pub const TO_C: Cable = Cable { number: 1, hosts: [0, 2] };

/// The hosts, cables and disk of a soak test.
pub struct Stage {
    pub network: Network,
    pub folder: PathBuf,
    pub driver: &'static str,
    pub flags: &'static str,
    /// Disk of `b`, with its log.
    pub disk: Disk,
    pub log: PathBuf,
    pub clock: Option<SteppedClock>,
}

impl Stage {
    pub fn new() -> Option<Self> {
        let network = Network::new("soak", NAMES.len())?;
        let folder = folder("soak");
        let disk = Disk::mount(&folder.join("disk"))?;
        network.join(TO_B);
        network.join(TO_C);
        let flags = if may_be_real_time() { "" } else { "--best-effort-host" };
        let log = disk.log();
        let driver = if std::env::var("PUNCTUAL_SOAK_DRIVER").is_ok_and(|name| name == "udp") {
            "udp"
        } else {
            driver()
        };
        Some(Self { network, folder, driver, flags, log, disk, clock: SteppedClock::take() })
    }

    pub fn socket(&self, host: usize) -> PathBuf {
        self.folder.join(format!("{}.sock", NAMES[host]))
    }

    /// Does `work` with the configuration of a host.
    pub fn text<R>(&self, host: usize, work: impl FnOnce(Text<'_>) -> R) -> R {
        let rest = "rate = \"200Mbit/s\"\nprediction_error = \"20ms\"\n";
        let end = |cable: Cable, end| format!("{}{rest}", cable.link(end, self.driver));
        let third = "[[host]]\nname = \"c\"\nid = 3\n";
        let second = "[[link]]\nname = \"to-c\"\nneighbour = \"c\"\n";
        let link = match host {
            0 => format!("{}{third}{second}{}", end(TO_B, 0), end(TO_C, 0)),
            1 => format!("{}{third}", end(TO_B, 1)),
            _ => format!("{}{third}[[route]]\nvia = [\"a\", \"b\"]\n", end(TO_C, 1)),
        };
        let (name, socket) = (NAMES[host], self.socket(host));
        let processor = "profile_measure = false";
        let signalling = "lease = \"4s\"\ngrace = \"300ms\"";
        let daemon = "connections_per_user_max = 500";
        work(Text { name, socket: &socket, processor, daemon, hello: "100ms", signalling, link: &link })
    }

    pub fn start(&self, host: usize) -> Program {
        let line = |line: &str| match host {
            1 => format!("{} 2>>{}", self.network.inside(host, line), self.log.display()),
            _ => self.network.inside(host, line),
        };
        self.text(host, |text| Program::start_as(&self.folder, text, self.flags, line))
    }

    /// `b` does not start if it must store its epoch on a full disk, and reports the reason.
    pub fn refuses_to_start(&self) {
        let config = self.text(1, |text| write(&self.folder, text));
        let text = std::fs::read_to_string(&config).expect("read");
        let epoch = format!("epoch_file = \"{}\"\n[processor]", self.disk.path("epoch").display());
        std::fs::write(&config, text.replace("[processor]", &epoch)).expect("written");
        let program = env!("CARGO_BIN_EXE_punctuald");
        let line = self.network.inside(1, &format!("{program} {} --config {}", self.flags, config.display()));
        let failed = Command::new("sh").args(["-c", &line]).output().expect("punctuald runs");
        let printed = String::from_utf8_lossy(&failed.stderr);
        assert!(failed.status.code() == Some(1) && printed.contains("No space left"), "{printed}");
    }
}
