//! The streams of one world: opened once, loaded in slices, judged at the end.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use punctual::{Instant, Nanos};
use punctual_os::clock::{now, wait_until};
use punctual_os::interrupt;

use super::{StreamSpec, System, World};
use crate::excuse::Excuses;
use crate::loads::{Arrivals, Receiving, Sending, Sink, Source};
use crate::measure::{Live, LiveView, ReceiveLog, SendLog, Windows};

/// Sources start this long after a slice was requested, so that all of them are ready.
const LEAD: Nanos = Nanos::from_millis(30);
/// How often a running slice is shown.
const TICK: Nanos = Nanos::from_millis(250);
/// How long after its bound a message may still come before it counts as lost.
const LOST_AFTER: Nanos = Nanos::from_millis(500);
/// Longest wait for outstanding messages.
const DRAIN_MAX: Nanos = Nanos::from_secs(6);

/// One stream of a track.
struct Stream {
    spec: StreamSpec,
    /// Its sending end while no slice runs; the sink of the stream that it answers has it otherwise.
    sending: Option<Sending>,
    sink: Sink,
    live: Arc<Live>,
}

/// The streams of one world.
pub struct Track {
    system: System,
    real_time: bool,
    streams: Vec<Stream>,
    /// When its sources ran.
    pub loaded: Windows,
    /// When those of the present slice began.
    running: Option<Instant>,
}

/// A stream with its logs, for judging.
pub struct Finished {
    /// Specification of the stream.
    pub spec: StreamSpec,
    /// The sender's log.
    pub sent: SendLog,
    /// The receiver's log.
    pub received: ReceiveLog,
}

/// A slice: when its sources ran.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// First message.
    pub from: Instant,
    /// No message after this.
    pub until: Instant,
}

/// A slice whose sources are running.
pub struct Running {
    slice: Slice,
    sources: Vec<(usize, Source)>,
    interrupted: Result<(), interrupt::Interrupted>,
}

impl Running {
    /// Waits until it is time to show it again; returns whether it continues.
    pub fn goes_on(&mut self) -> bool {
        let Slice { until, .. } = self.slice;
        let goes_on = self.interrupted.is_ok() && now() < until;
        if goes_on {
            self.interrupted = wait_until(until.min(now() + TICK));
        }
        goes_on
    }
}

impl Track {
    /// Opens `specs` in `world`. Streams that answer others come before them.
    ///
    /// # Errors
    /// If a stream is refused or a thread cannot start.
    pub fn open(world: &mut World, specs: &[StreamSpec], real_time: bool) -> anyhow::Result<Self> {
        let mut streams: Vec<Stream> = Vec::with_capacity(specs.len());
        for (number, spec) in specs.iter().enumerate() {
            let (sender, receiver) = world.connect(spec).with_context(|| format!("stream {}", spec.name))?;
            let live = Live::new(spec.deadline());
            let live = if world.system() == System::Punctual { live } else { live.from_sending() };
            let live = Arc::new(live);
            let stream = u32::try_from(number)?;
            let content = spec.content.clone();
            let sending =
                Sending::new(sender, stream, content.clone(), spec.contract.as_ref(), Arc::clone(&live));
            let answers = spec.answered_by.map(|name| take_sending(&mut streams, name)).transpose()?;
            let receiving = Receiving { receiver, stream, content, answers, live: Arc::clone(&live) };
            let sink = receiving.start(spec.receiver_class(real_time))?;
            streams.push(Stream { spec: spec.clone(), sending: Some(sending), sink, live });
        }
        Ok(Self { system: world.system(), real_time, streams, loaded: Windows::default(), running: None })
    }

    /// Which system it runs through.
    pub const fn system(&self) -> System {
        self.system
    }

    /// Sets when a stream sends from the next slice on.
    ///
    /// # Panics
    /// If there is no stream of that name: experiments name their own.
    pub fn set_arrivals(&mut self, name: &str, arrivals: Arrivals) {
        let stream = self.streams.iter_mut().find(|stream| stream.spec.name == name);
        stream.expect("a stream of this experiment").spec.arrivals = arrivals;
    }

    /// Runs the sources of the streams that `active` picks for `length`.
    ///
    /// # Errors
    /// If a stream breaks or the run is interrupted.
    pub fn slice(&mut self, length: Nanos, active: impl Fn(&StreamSpec) -> bool) -> anyhow::Result<Slice> {
        let mut running = self.begin(length, active)?;
        while running.goes_on() {}
        self.end(running)
    }

    /// Begins a slice of `length` with the sources of the streams that `active` picks; it must be ended.
    ///
    /// # Errors
    /// If a source cannot start or the run is interrupted.
    pub fn begin(&mut self, length: Nanos, active: impl Fn(&StreamSpec) -> bool) -> anyhow::Result<Running> {
        interrupt::check()?;
        let from = now() + LEAD;
        let until = from + length;
        let mut sources = Vec::new();
        for (index, stream) in self.streams.iter_mut().enumerate().filter(|(_, stream)| active(&stream.spec))
        {
            let Some(sending) = stream.sending.take() else { continue };
            let class = stream.spec.sender_class(self.real_time);
            sources.push((index, Source::start(sending, stream.spec.arrivals.clone(), class, from, until)?));
        }
        self.running = Some(from);
        Ok(Running { slice: Slice { from, until }, sources, interrupted: Ok(()) })
    }

    /// Ends a slice that is complete.
    ///
    /// # Errors
    /// If a stream broke or the run is interrupted.
    pub fn end(&mut self, running: Running) -> anyhow::Result<Slice> {
        for (index, source) in running.sources {
            let sending =
                source.join().with_context(|| format!("stream {}", self.streams[index].spec.name))?;
            self.streams[index].sending = Some(sending);
        }
        self.running = None;
        running.interrupted?;
        self.loaded.push(running.slice.from, running.slice.until);
        Ok(running.slice)
    }

    /// How long its sources have run, the present slice included.
    pub fn loaded_so_far(&self) -> Nanos {
        self.loaded.total() + self.running.map(|from| now().since(from)).unwrap_or_default()
    }

    /// The running figures of every stream.
    pub fn views(&self, excuses: &Excuses) -> Vec<(&StreamSpec, LiveView)> {
        self.streams.iter().map(|stream| (&stream.spec, stream.live.view(excuses))).collect()
    }

    /// Waits for messages in transit, then ends everything.
    ///
    /// # Errors
    /// If a stream broke.
    pub fn finish(self) -> anyhow::Result<Vec<Finished>> {
        self.drain()?;
        let mut answering: HashMap<&str, Sending> = HashMap::new();
        let mut ended = Vec::with_capacity(self.streams.len());
        for stream in self.streams {
            let Stream { spec, sending, sink, .. } = stream;
            let (received, answers) = sink.end().with_context(|| format!("stream {}", spec.name))?;
            if let (Some(name), Some(answers)) = (spec.answered_by, answers) {
                answering.insert(name, answers);
            }
            ended.push((spec, sending, received));
        }
        ended
            .into_iter()
            .map(|(spec, sending, received)| {
                let Some(sending) = sending.or_else(|| answering.remove(spec.name)) else {
                    bail!("stream {} has lost its sender", spec.name)
                };
                Ok(Finished { spec, sent: sending.log, received })
            })
            .collect()
    }

    /// Waits until the last message is due, and then some.
    fn drain(&self) -> anyhow::Result<()> {
        let last = self.streams.iter().filter_map(|stream| {
            let sent = stream.sending.as_ref()?.log.iter().rev().find(|sent| sent.taken)?;
            // The kernel sends at once what a regulator would delay.
            let from = if self.system == System::Punctual { sent.logical } else { sent.sent };
            Some(from + stream.spec.deadline().unwrap_or_default())
        });
        let due = last.max().unwrap_or_default() + LOST_AFTER;
        Ok(wait_until(due.min(now() + DRAIN_MAX))?)
    }
}

/// The sending end of an opened stream, for the sink that answers through it.
fn take_sending(streams: &mut [Stream], name: &str) -> anyhow::Result<Sending> {
    let stream = streams.iter_mut().find(|stream| stream.spec.name == name);
    stream
        .and_then(|stream| stream.sending.take())
        .with_context(|| format!("{name} must be opened first, once"))
}

#[cfg(test)]
mod tests {
    use punctual::{BitRate, Ppm};

    use super::*;
    use crate::loads::Content;
    use crate::measure::{Question, StreamSummary};
    use crate::testbed::stream::contract;
    use crate::testbed::{LinkSpec, Network, NetworkSpec, Privilege};

    /// A slice, and its messages: the last ones are due long before its end, so that a source that is late sends all.
    const SLICE: Nanos = Nanos::from_millis(800);
    const MESSAGES: u64 = 30;

    fn streams() -> Vec<StreamSpec> {
        let times = (0..MESSAGES).map(|index| Nanos::from_millis(10) * index).collect();
        let arrivals = Arrivals::Recorded { times, period: SLICE };
        let small = Content::of_size(256);
        let promise = contract(256, 100, 2, 50);
        let answer = StreamSpec {
            from: "b",
            to: "a",
            ..StreamSpec::guaranteed("answer", promise, small.clone(), arrivals.clone())
        };
        let control = StreamSpec {
            answered_by: Some("answer"),
            ..StreamSpec::guaranteed("control", promise, small, arrivals.clone())
        };
        // Two packets each: all of a slice fit a socket's buffer.
        vec![answer, control, StreamSpec::best_effort("bulk", Content::of_size(2_000), arrivals)]
    }

    #[test]
    fn streams_run_in_slices_and_answers_come_back() {
        if !Privilege::detect().is_ok_and(|privilege| privilege == Privilege::Root) {
            punctual_skip::skipped!("network namespaces need root");
            return;
        }
        let link = LinkSpec::new(BitRate(50_000_000), Nanos::from_millis(200));
        let spec = NetworkSpec { hosts: vec!["a", "b"], links: vec![link] };
        let mut world = World::kernel(Some(Network::create(&spec).expect("a network")));
        let mut track = Track::open(&mut world, &streams(), false).expect("streams");
        for with_bulk in [false, true] {
            let active = |spec: &StreamSpec| with_bulk || spec.name != "bulk";
            track.slice(SLICE, active).expect("a slice");
        }
        let loaded = track.loaded.clone();
        assert_eq!(loaded.total(), SLICE * 2);
        let finished = track.finish().expect("the logs");
        let excuses = Excuses::new(&[], Ppm(0));
        let figures = |index: usize| {
            let one: &Finished = &finished[index];
            let question = Question {
                contract: one.spec.contract.as_ref(),
                excuses: &excuses,
                judged: &Windows::everything(),
                loaded: &loaded,
                steady: &loaded,
            };
            StreamSummary::new(&one.sent, &one.received, &question)
        };
        let [answer, control, bulk] = [figures(0), figures(1), figures(2)];
        assert_eq!((control.offered, control.delivered, control.lost, control.damaged), (60, 60, 0, 0));
        assert_eq!((answer.offered, answer.delivered, answer.damaged), (60, 60, 0), "one answer each");
        assert_eq!((bulk.offered, bulk.delivered, bulk.damaged), (30, 30, 0), "only in the second slice");
    }
}
