//! The hostile program: this test's own, started once more with its orders in the environment. It becomes user 65534 before
//! it does anything, unless it sits on a cable, and names the sockets from the folder that they are in: there are roots that
//! other users cannot search.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use punctual_trial::Defence;
use rustix::fs::{Gid, Uid};

use crate::common::PATIENCE;
use crate::field::{Field, Page, serve_own};
use crate::judge::Bounds;
use crate::world::{Setup, World};

/// The mechanism, whether at objects of its own, and the sockets.
const ORDERS: &str = "PUNCTUAL_TEST_ATTACK";
const OWN: &str = "PUNCTUAL_TEST_ATTACK_OWN";
/// What the daemons that it attacks leave out.
const WITHOUT: &str = "PUNCTUAL_WITHOUT";
/// Who attacks.
pub const NOBODY: u32 = 65_534;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A program of user 65534 on the hosts.
    Program,
    /// The same, in the network namespace of this host.
    Host(usize),
    /// With all rights in the network namespace of this host, in place of one who sits on its cables, without the domain's key.
    Cable(usize),
}

/// One way to attack.
#[derive(Clone, Copy)]
pub struct Mechanism {
    pub name: &'static str,
    /// What of Punctual's holds it.
    pub guards: &'static str,
    pub place: Place,
    pub setup: Setup,
    pub bounds: Bounds,
    /// The program beside the control: it uses the daemon as the attack does, and does no harm. Where the harm comes
    /// once in so many turns, the control must have as many.
    pub beside_control: Option<&'static Self>,
    /// What is laid ready before it loses its rights.
    pub page: Option<Page>,
    /// Begins, and returns once it is under way; it goes on in threads and processes of its own.
    pub run: fn(&Field),
}

impl Mechanism {
    /// Of a program, beside hosts over udp.
    pub const fn new(name: &'static str, guards: &'static str, run: fn(&Field)) -> Self {
        let place = Place::Program;
        let (setup, bounds) = (Setup::DEFAULT, Bounds::DEFAULT);
        Self { name, guards, place, setup, bounds, beside_control: None, page: None, run }
    }

    pub fn all() -> impl Iterator<Item = &'static Self> {
        crate::ALL.iter().copied().flatten()
    }

    /// Starts who runs beside its control.
    pub fn begin_beside_control(&self, world: &World) -> Option<Attacker> {
        self.beside_control.map(|peaceful| begin(world, peaceful, false))
    }

    pub fn find(name: &str) -> &'static Self {
        let peaceful = Self::all().filter_map(|mechanism| mechanism.beside_control);
        let found = Self::all().chain(peaceful).find(|mechanism| mechanism.name == name);
        found.unwrap_or_else(|| panic!("no mechanism {name}"))
    }
}

/// Whether daemons do without `defence`: then it may succeed.
pub fn lacks(defence: Defence) -> bool {
    std::env::var(WITHOUT).is_ok_and(|names| names.split(',').any(|name| name == defence.name()))
}

/// What the test `attacker` does: nothing, unless [`begin`] has started it.
pub fn follow_orders() {
    let Ok(name) = std::env::var(ORDERS) else { return };
    let mechanism = Mechanism::find(&name);
    // Whichever thread fails, the attack has.
    std::panic::set_hook(Box::new(|info| {
        // Also after a trial, when its daemons end: this is no failure of the test, and must not read like one.
        let place =
            info.location().map_or(String::new(), |place| format!("{}:{}: ", place.file(), place.line()));
        eprintln!("attacker ended: {place}{}", info.payload_as_str().unwrap_or("no message"));
        std::process::exit(101);
    }));
    let page = mechanism.page.map(Page::lay);
    crate::proc::prepare();
    if !matches!(mechanism.place, Place::Cable(_)) {
        // Of this thread, and so of those that it starts: the test's own thread does nothing.
        rustix::thread::set_thread_groups(&[]).expect("no groups");
        let group = Gid::from_raw(NOBODY);
        rustix::thread::set_thread_res_gid(group, group, group).expect("another group");
        let user = Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
    }
    let field = Field { own: std::env::var_os(OWN).is_some(), page };
    if field.own {
        serve_own();
    }
    (mechanism.run)(&field);
    println!("begun");
    loop {
        std::thread::park();
    }
}

/// Starts an attack, and returns once it has begun.
pub fn begin(world: &World, mechanism: &Mechanism, own: bool) -> Attacker {
    std::fs::set_permissions(&world.folder, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let program = std::env::current_exe().expect("this program").display().to_string();
    let line = match mechanism.place {
        Place::Program => program,
        Place::Host(host) | Place::Cable(host) => world.network.inside(host, &program),
    };
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec {line} --exact attacker --nocapture")])
        .current_dir(&world.folder)
        .env(ORDERS, mechanism.name)
        .env(WITHOUT, world.without)
        .stdout(Stdio::piped());
    if own {
        command.env(OWN, "1");
    }
    let mut process = command.spawn().expect("it runs");
    let mut printed = BufReader::new(process.stdout.take().expect("its output")).lines();
    let begun = printed.by_ref().any(|line| line.expect("a line").ends_with("begun"));
    let (over, ended) = channel();
    let attacker = Attacker { process, ended };
    assert!(begun, "the attack {} did not begin", mechanism.name);
    std::thread::spawn(move || {
        // Later output must not block it. Its children hold its output, too.
        printed.for_each(drop);
        let _ = over.send(());
    });
    attacker
}

/// The hostile program; killed where the test drops it.
pub struct Attacker {
    process: Child,
    /// Said once it and its children are gone.
    ended: Receiver<()>,
}

impl Attacker {
    /// Ends it, and waits until its children are gone, too.
    pub fn end(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Children of one that makes them without end may stay.
        let _ = self.ended.recv_timeout(PATIENCE);
    }

    /// It has not given up, nor found that anything is not as it expects.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("its state").is_none()
    }
}

#[cfg(feature = "trials")]
impl Attacker {
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.process)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
