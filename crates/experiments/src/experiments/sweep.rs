//! Runs the same streams through both systems, point by point, in turns.

use anyhow::Context;
use punctual::{Contract, Nanos, Ppm};

use super::findings::{Figure, Findings};
use super::{Conditions, Measured};
use crate::excuse::{Excuses, WatcherRecords};
use crate::loads::Arrivals;
use crate::measure::{Question, StreamSummary, Windows};
use crate::testbed::{
    Daemons, Finished, LinkSpec, Network, NetworkSpec, Options, StreamSpec, System, Track, World,
};
use crate::witness::Witness;

/// The settings of one point.
#[derive(Clone, Debug)]
pub struct Point {
    /// Place of the point on the axis.
    pub x: f64,
    /// New times for some streams; the others continue as before.
    pub set: Vec<(&'static str, Arrivals)>,
}

/// A sweep over one link a - b.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Which curve family.
    pub part: &'static str,
    /// The link.
    pub link: LinkSpec,
    /// The streams.
    pub streams: Vec<StreamSpec>,
    /// The points, in ascending load: a channel that was saturated leaves messages behind.
    pub points: Vec<Point>,
    /// One turn of one system at one point: `warm_up` and a whole number of every guaranteed interval.
    pub slice: Nanos,
    /// Rates are measured from here on in a turn.
    pub warm_up: Nanos,
    /// Further lines for every link of the daemons' configuration.
    pub link_options: String,
}

impl Sweep {
    /// Runs it on worlds of its own.
    pub fn run(&self, conditions: &Conditions) -> anyhow::Result<Findings> {
        Worlds::create(self.link, &self.link_options, conditions)?.run(self, conditions)
    }
}

/// Both systems, each on its network a - b.
pub struct Worlds {
    worlds: [World; 2],
}

/// The buffers of a reservation in use at the source, by port.
type Occupancy = Vec<(String, u32)>;

impl Worlds {
    /// Sets both up.
    ///
    /// # Errors
    /// If a network or a daemon does not come up.
    pub fn create(link: LinkSpec, link_options: &str, conditions: &Conditions) -> anyhow::Result<Self> {
        let spec = NetworkSpec { hosts: vec!["a", "b"], links: vec![link] };
        let network = Network::create(&spec)?;
        let options =
            Options { real_time: conditions.real_time, link: link_options.into(), ..Options::default() };
        let daemons = Daemons::start(&network, &spec, &options, &conditions.directory.join("logs"))?;
        let punctual = World::Daemons { daemons, network };
        Ok(Self { worlds: [punctual, World::kernel(Some(Network::create(&spec)?))] })
    }

    fn occupancy(&self) -> anyhow::Result<Occupancy> {
        let channels = self.worlds[0].endsystem("a")?.channels()?;
        Ok(channels.into_iter().map(|one| (one.to.port.to_string(), one.counters.occupancy_max)).collect())
    }

    /// Runs a sweep.
    ///
    /// # Errors
    /// If a stream is refused or breaks, or the run is interrupted.
    pub fn run(&mut self, sweep: &Sweep, conditions: &Conditions) -> anyhow::Result<Findings> {
        let (slice, warm_up) = (conditions.brief(sweep.slice), conditions.brief(sweep.warm_up));
        let sweep = &Sweep { slice, warm_up, ..sweep.clone() };
        let [punctual, kernel] = &mut self.worlds;
        let open = |world: &mut World| Track::open(world, &sweep.streams, conditions.real_time);
        let mut tracks = [open(punctual).context("guaranteed channels")?, open(kernel).context("baseline")?];
        let guaranteed_load = self.worlds[0].guaranteed_load(&["a"])?;
        let witness = conditions.witness()?;
        let mut windows: Vec<[Windows; 2]> = Vec::with_capacity(sweep.points.len());
        for (number, point) in sweep.points.iter().enumerate() {
            if conditions.progress {
                eprint!("\r{}  point {} of {} ", sweep.part, number + 1, sweep.points.len());
            }
            let mut of_point = [Windows::default(), Windows::default()];
            for (track, windows) in tracks.iter_mut().zip(&mut of_point) {
                for (name, arrivals) in &point.set {
                    track.set_arrivals(name, arrivals.clone());
                }
                let slice = track.slice(sweep.slice, |_| true)?;
                windows.push(slice.from, slice.until);
            }
            windows.push(of_point);
        }
        let occupancy = self.occupancy()?;
        let [of_punctual, of_kernel] = tracks;
        let finished = [of_punctual.finish()?, of_kernel.finish()?];
        let testimony = witness.map(Witness::stop).unwrap_or_default();
        if conditions.progress {
            eprintln!();
        }
        let judged = Judged { sweep, finished, windows, occupancy, guaranteed_load };
        Ok(judged.findings(testimony))
    }
}

/// The logs of a sweep.
struct Judged<'a> {
    sweep: &'a Sweep,
    finished: [Vec<Finished>; 2],
    windows: Vec<[Windows; 2]>,
    occupancy: Occupancy,
    guaranteed_load: Ppm,
}

impl Judged<'_> {
    fn findings(self, testimony: WatcherRecords) -> Findings {
        let excuses = Excuses::new(&testimony.holes, self.guaranteed_load);
        let mut figures = Vec::new();
        for (point, windows) in self.sweep.points.iter().zip(&self.windows) {
            for ((system, finished), loaded) in System::COMPARED.into_iter().zip(&self.finished).zip(windows)
            {
                let steady = loaded.after(self.sweep.warm_up);
                figures.extend(finished.iter().map(|one| {
                    let contract = one.spec.contract.as_ref();
                    let question =
                        Question { contract, excuses: &excuses, judged: loaded, loaded, steady: &steady };
                    self.figure(point, system, one, &question)
                }));
            }
        }
        Findings { figures, measured: Measured { testimony, ..Measured::default() } }
    }

    fn figure(&self, point: &Point, system: System, one: &Finished, question: &Question<'_>) -> Figure {
        let name = one.spec.name;
        let slots = self.occupancy.iter().find(|(port, _)| port == name).map(|(_, slots)| *slots);
        Figure {
            part: self.sweep.part,
            x: point.x,
            system,
            stream: name,
            guaranteed: one.spec.contract.is_some(),
            slots_max: slots.filter(|_| system == System::Punctual),
            figures: StreamSummary::new(&one.sent, &one.received, question),
        }
    }
}

/// Periodic at `bytes_per_s` in messages of `bytes`.
pub fn at_rate(bytes: usize, bytes_per_s: f64) -> Arrivals {
    Arrivals::Periodic { interval: Nanos((bytes as f64 / bytes_per_s * 1e9) as u64) }
}

/// The payload rate that a contract reserves, in KB/s.
pub fn reserved_kb_s(contract: &Contract) -> f64 {
    f64::from(contract.message_bytes_max) * contract.rate_max.as_per_second_f64() / 1e3
}

/// Mbit/s as KB/s, the papers' unit.
pub fn kb_s(mbit_s: f64) -> f64 {
    mbit_s * 125.0
}
