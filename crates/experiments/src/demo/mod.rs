//! The main job: a film, a control loop and a flood over three hosts, through Punctual and through the kernel.
//!
//! a - r - b, r forwards, r - b is the bottleneck. The two systems take turns on identical networks; half-way a
//! second video joins that breaks its contract threefold. [`scenario`] says what is sent, [`table`] shows it
//! while it runs, [`outcome`] judges it, [`page`] draws it.

pub mod outcome;
pub mod page;
pub mod scenario;
pub mod table;

use std::path::{Path, PathBuf};

use anyhow::Context;
use punctual::{Contract, OpenError};

use crate::excuse::Excuses;
use crate::interrupt;
use crate::loads::film;
use crate::report::{ensure_writable, save};
use crate::session::{System, Track, World};
use crate::testbed::{Daemons, Embedded, Network, Options, Privilege, privilege};
use crate::witness::Witness;
use outcome::{Outcome, Refused, Setting};
use table::LiveTable;

/// What the caller wants.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Where the report goes.
    pub directory: PathBuf,
    /// Whether to show the running figures.
    pub show: bool,
}

/// Runs the demo: the exit status, and the outcome unless another process (inside a user namespace) has it.
///
/// # Errors
/// Where the test bed cannot be set up, a stream breaks, or the run is interrupted.
pub fn run(options: &DemoOptions) -> anyhow::Result<(i32, Option<Outcome>)> {
    interrupt::install()?;
    let privilege = Privilege::detect()?;
    if privilege == Privilege::UserNamespace
        && let Some(status) = privilege::enter_user_namespace()?
    {
        return Ok((status, None));
    }
    for name in ["report.html", "report.json"] {
        ensure_writable(&options.directory.join(name)).context("--directory")?;
    }
    let outcome = perform(options, privilege)?;
    page::write(&outcome, &options.directory)?;
    let json = serde_json::to_string_pretty(&outcome)?;
    save(&options.directory.join("report.json"), &json)?;
    Ok((outcome.verdict.exit_status(), Some(outcome)))
}

fn perform(options: &DemoOptions, privilege: Privilege) -> anyhow::Result<Outcome> {
    let real_time = privilege == Privilege::Root;
    let film = film::load()?;
    let specs = scenario::streams(&film);
    let (mut punctual, mut kernel) = worlds(privilege, &options.directory.join("logs"))?;
    let mut tracks = [
        Track::open(&mut punctual, &specs, real_time).context("opening the guaranteed channels")?,
        Track::open(&mut kernel, &specs, real_time).context("opening the baseline's sockets")?,
    ];
    let refused = ask_too_much(&punctual)?;
    let load = punctual.guaranteed_load(&["a", "r"])?;
    let mut witness =
        if real_time { Some(Witness::start().context("witness of platform holes")?) } else { None };
    let mut table = LiveTable::new(options.show, privilege, &refused);
    for number in 0..scenario::SLICES {
        let second_half = number >= scenario::SLICES / 2;
        for turn in 0..tracks.len() {
            let active = |spec: &crate::session::StreamSpec| second_half || spec.name != scenario::INTRUDER;
            let (running, others) = split(&mut tracks, turn);
            running.slice(scenario::SLICE, active, |running| {
                let holes = witness.as_mut().map(Witness::so_far).unwrap_or_default().holes;
                table.show(running, others, &Excuses::new(&holes, load));
            })?;
        }
    }
    let [of_punctual, of_kernel] = tracks;
    let loaded = [of_punctual.loaded.clone(), of_kernel.loaded.clone()];
    let finished = [of_punctual.finish()?, of_kernel.finish()?];
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    table.end();
    drop((punctual, kernel));
    let setting = Setting { privilege, guaranteed_load: load, refused, testimony };
    Ok(Outcome::judge(setting, loaded, finished))
}

/// Both systems, each on hosts of its own.
fn worlds(privilege: Privilege, logs: &Path) -> anyhow::Result<(World, World)> {
    let spec = scenario::network();
    let options = Options { real_time: privilege == Privilege::Root, ..Options::default() };
    if privilege == Privilege::InProcess {
        return Ok((World::Embedded(Embedded::start(&spec, &options)?), World::kernel(None)));
    }
    let network = Network::create(&spec)?;
    let daemons = Daemons::start(&network, &spec, &options, logs)?;
    Ok((World::Daemons { daemons, network }, World::kernel(Some(Network::create(&spec)?))))
}

/// Asks for a channel that does not fit any more, and keeps the answer.
fn ask_too_much(world: &World) -> anyhow::Result<Refused> {
    let contract = scenario::too_much();
    let (a, b) = (world.endsystem("a")?, world.endsystem("b")?);
    let _listener = b.listen("extra", |_| punctual::Consent::Accept)?;
    match a.open("extra@b", contract) {
        Ok(_) => Ok(Refused::granted(contract)),
        Err(OpenError::Refused(refusal)) => Ok(Refused::new(contract, &refusal)),
        Err(error) => Err(error).context("asking for one channel too many"),
    }
}

fn split(tracks: &mut [Track; 2], turn: usize) -> (&mut Track, &Track) {
    let [punctual, kernel] = tracks;
    if turn == 0 { (punctual, kernel) } else { (kernel, punctual) }
}

/// Which column of a pair belongs to a system.
pub const fn column(system: System) -> usize {
    match system {
        System::Punctual => 0,
        System::Kernel => 1,
    }
}

/// A contract in one line.
pub fn describe(contract: &Contract) -> String {
    format!(
        "{} B, {}, burst {}, within {}",
        contract.message_bytes_max,
        contract.rate_max.at_most(),
        contract.burst_messages_max,
        contract.deadline.at_least()
    )
}
