//! The main demonstration: a film, a control loop and a flood over three hosts, through Punctual, through the
//! kernel, and through the kernel with strict priority at every hop, the best that a user can configure by
//! hand.
//!
//! a - r - b, r forwards, r - b is the bottleneck. The systems take turns on identical networks; half-way a
//! second video joins that breaks its contract threefold. At last the channel too many, which Punctual has
//! refused, runs on the systems that refuse none. [`scenario`] defines what is sent, [`phase`] when,
//! [`table`] shows it while it runs, [`outcome`] judges it from what [`ran`], [`by_hand`] compares, [`page`]
//! draws it.

pub mod by_hand;
pub mod outcome;
pub mod page;
pub mod phase;
pub mod ran;
pub mod scenario;
pub mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use outcome::{CompletedRun, Outcome, Refused, Setting};
use phase::{Phase, Timetable};
use punctual::{Contract, OpenError};
use punctual_os::clock::{now, wait_until};
use punctual_os::interrupt;
use table::LiveTable;

use crate::excuse::Excuses;
use crate::loads::Content;
use crate::report::{ensure_writable, save};
use crate::testbed::priority::prioritise;
use crate::testbed::{
    Daemons, Embedded, Network, Options, Privilege, StreamSpec, System, Track, World, privilege,
};
use crate::witness::Witness;

/// The caller's options.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Folder of the report.
    pub directory: PathBuf,
    /// The frames of the film that it plays.
    pub film: Arc<[Vec<u8>]>,
    /// Whether to show the running figures.
    pub show: bool,
}

/// Runs the demo: the exit status, and the outcome unless another process (inside a user namespace) has it.
///
/// # Errors
/// If the test setup cannot be set up, a stream breaks, or the run is interrupted.
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
    let film = Content::Bodies(Arc::clone(&options.film));
    let mut worlds = worlds(privilege, &options.directory.join("logs"))?;
    let [punctual, kernel, by_hand] = &mut worlds;
    let specs = scenario::streams(&film);
    let with_extra: Vec<StreamSpec> = specs.iter().cloned().chain([scenario::extra()]).collect();
    let mut tracks = [
        Track::open(punctual, &specs, real_time).context("opening the guaranteed channels")?,
        Track::open(kernel, &specs, real_time).context("opening the baseline's sockets")?,
        Track::open(by_hand, &with_extra, real_time).context("opening the prioritised sockets")?,
    ];
    let refused = ask_too_much(punctual)?;
    let load = punctual.guaranteed_load(&["a", "r"])?;
    let mut witness =
        if real_time { Some(Witness::start().context("witness of platform holes")?) } else { None };
    let mut table = LiveTable::new(options.show, privilege, &refused);
    let timetables = run_all(&mut tracks, |tracks, turn| {
        let holes = witness.as_mut().map(Witness::so_far).unwrap_or_default().holes;
        table.show(tracks, turn, &Excuses::new(&holes, load));
    })?;
    let ran = finish(tracks, timetables)?;
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    table.end();
    drop(worlds);
    let setting = Setting { privilege, guaranteed_load: load, refused, testimony };
    Ok(Outcome::judge(setting, &ran))
}

/// All slices of all systems in turns, then the phase of the channel too many on the systems that refuse
/// none.
fn run_all(
    tracks: &mut [Track; 3],
    mut show: impl FnMut(&[Track; 3], usize),
) -> anyhow::Result<[Timetable; 3]> {
    let mut timetables = <[Timetable; 3]>::default();
    let mut run = |tracks: &mut [Track; 3], turn: usize, phase: Phase| -> anyhow::Result<()> {
        let mut running = tracks[turn].begin(scenario::SLICE, |spec| phase.sends(spec))?;
        while running.goes_on() {
            show(tracks, turn);
        }
        timetables[turn].push(phase, tracks[turn].end(running)?);
        Ok(())
    };
    for number in 0..scenario::SLICES {
        for turn in 0..tracks.len() {
            run(tracks, turn, Phase::of_slice(number))?;
        }
    }
    // Wait until the queues contain no packets of the last slice.
    wait_until(now() + phase::SETTLE)?;
    let by_hand = System::KernelPriority as usize;
    tracks[by_hand].set_arrivals(scenario::INTRUDER, scenario::FRAMES);
    run(tracks, by_hand, Phase::ChannelTooMany)?;
    Ok(timetables)
}

fn finish(tracks: [Track; 3], timetables: [Timetable; 3]) -> anyhow::Result<[CompletedRun; 3]> {
    let mut ran = Vec::with_capacity(tracks.len());
    for (track, timetable) in tracks.into_iter().zip(timetables) {
        ran.push(CompletedRun { system: track.system(), timetable, finished: track.finish()? });
    }
    ran.try_into().map_err(|_| anyhow::anyhow!("three systems ran"))
}

/// The systems, each on hosts of its own.
fn worlds(privilege: Privilege, logs: &Path) -> anyhow::Result<[World; 3]> {
    let spec = scenario::network();
    let options = Options { real_time: privilege == Privilege::Root, ..Options::default() };
    if privilege == Privilege::InProcess {
        let embedded = World::Embedded(Embedded::start(&spec, &options)?);
        return Ok([embedded, World::kernel(None), World::kernel_priority(None)]);
    }
    let network = Network::create(&spec)?;
    let daemons = Daemons::start(&network, &spec, &options, logs)?;
    let kernel = World::kernel(Some(Network::create(&spec)?));
    let by_hand = Network::create(&spec)?;
    prioritise(&by_hand, &spec)?;
    Ok([World::Daemons { daemons, network }, kernel, World::kernel_priority(Some(by_hand))])
}

/// Requests a channel that does not fit any more, and keeps the answer.
fn ask_too_much(world: &World) -> anyhow::Result<Refused> {
    let contract = scenario::too_much();
    let (a, b) = (world.endsystem("a")?, world.endsystem("b")?);
    let _listener = b.listen("extra", |_| punctual::Consent::Accept)?;
    match a.open("extra@b", contract) {
        Ok(_) => Ok(Refused::granted(contract)),
        Err(OpenError::Refused { refusal, .. }) => Ok(Refused::new(contract, &refusal)),
        Err(error) => Err(error).context("asking for one channel too many"),
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
