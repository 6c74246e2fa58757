//! Stages on a channel's way that break their promise while `send` or `recv` runs: reported as soon as this
//! host is notified, and once more at the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use punctual::{BrokenStage, ChannelEvent, ChannelWatch, Lateness};
use serde::Serialize;

use crate::output::{Output, print_note};
use crate::units::with_units;

/// A stage that broke its promise during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedStage {
    /// `link a-r`, or `processor of r`.
    pub stage: String,
    /// A word for the likely cause.
    pub cause_kind: String,
    /// The cause as text.
    pub cause_text: String,
    /// Lateness of the stage in the second before the first report.
    pub late_at_first: Lateness,
    /// True if the stage keeps its promise again.
    pub healed: bool,
}

/// Reports the stages of one channel, on a thread of its own, until the channel has ended or is dropped.
pub struct Stages {
    seen: Arc<Mutex<Vec<ReportedStage>>>,
    thread: JoinHandle<()>,
}

impl Stages {
    /// Prints the events of `watch` on standard error; `channel` is its name in the text.
    pub fn of(watch: ChannelWatch, channel: String, output: Output) -> Self {
        let seen = Arc::default();
        let noting = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            for event in watch {
                if let Some(line) = note(&noting, &event).and_then(|stage| line(&channel, &stage, output)) {
                    print_note(&line);
                }
            }
        });
        Self { seen, thread }
    }

    /// The stages that were seen so far.
    pub fn so_far(&self) -> Vec<ReportedStage> {
        lock(&self.seen).clone()
    }

    /// All of them. The channel has ended or was dropped.
    pub fn end(self) -> Vec<ReportedStage> {
        // A panic there has been printed.
        let _ = self.thread.join();
        lock(&self.seen).clone()
    }
}

fn lock(seen: &Mutex<Vec<ReportedStage>>) -> MutexGuard<'_, Vec<ReportedStage>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes an event down; the stage that it is about, as it is known now.
fn note(seen: &Mutex<Vec<ReportedStage>>, event: &ChannelEvent) -> Option<ReportedStage> {
    let (stage, healed) = match event {
        ChannelEvent::Degraded(stage) => (stage, false),
        ChannelEvent::Healed(stage) => (stage, true),
        _ => return None,
    };
    let BrokenStage { late, cause, .. } = stage;
    let (cause_kind, cause_text) = (cause.name().to_owned(), cause.to_string());
    let mut seen = lock(seen);
    let known = seen.iter_mut().find(|known| known.stage == stage.name());
    let now = ReportedStage { stage: stage.name(), cause_kind, cause_text, late_at_first: *late, healed };
    match known {
        Some(known) => {
            // A better cause may come later; how late it was at first stays.
            *known = ReportedStage { late_at_first: known.late_at_first, ..now };
            Some(known.clone())
        }
        None => {
            seen.push(now.clone());
            Some(now)
        }
    }
}

/// One line on standard error; none if it cannot be written as JSON.
fn line(channel: &str, stage: &ReportedStage, output: Output) -> Option<String> {
    if output.json {
        let key = if stage.healed { "healed" } else { "degraded" };
        let printed = serde_json::json!({ "channel": channel, key: stage });
        return serde_json::to_string(&with_units(printed)).ok();
    }
    let ReportedStage { stage, cause_text, late_at_first: Lateness { times, by_max }, healed, .. } = stage;
    // The line may contain the progress.
    let start = if output.is_foreground() { "\r\x1b[K" } else { "" };
    Some(match healed {
        true => format!("{start}{channel}: healed: {stage} keeps its promise again"),
        false => format!(
            "{start}{channel}: DEGRADED: {stage} {cause_text}; up to {by_max} late, {times} times in a second; nothing is \
             guaranteed until it has healed"
        ),
    })
}

/// The part of a summary about them; empty if there were none.
pub fn summary(seen: &[ReportedStage]) -> String {
    let printed = |ReportedStage { stage, cause_text, healed, .. }: &ReportedStage| {
        format!("{stage} {cause_text}{}", if *healed { " (healed since)" } else { "" })
    };
    match seen {
        [] => String::new(),
        _ => format!(
            "; DEGRADED on the way, nothing was guaranteed meanwhile: {}",
            seen.iter().map(printed).collect::<Vec<_>>().join("; ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use punctual::{BitRate, Cause, Nanos};

    use super::*;

    fn broken(cause: Cause) -> BrokenStage {
        let late = Lateness { times: 9, by_max: Nanos::from_millis(12) };
        BrokenStage { host: "a".into(), towards: Some("b".into()), late, cause, channels: None }
    }

    #[test]
    fn a_stage_is_printed_when_it_breaks_when_it_heals_and_at_the_end() {
        let seen = Mutex::default();
        let printed = |event| {
            let stage = note(&seen, &event).expect("a stage");
            let line = |json| line("cam@b", &stage, Output { json }).expect("a line");
            (line(false), line(true))
        };
        let (text, json) = printed(ChannelEvent::Degraded(broken(Cause::LongerTravel)));
        assert!(text.starts_with("cam@b: DEGRADED: link a-b takes longer than"), "{text}");
        assert!(text.contains("up to 12.00 ms late, 9 times in a second"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["degraded"]["cause_kind"], "longer-travel");
        assert_eq!(json["degraded"]["late_at_first"]["by_max_ns"], 12_000_000);
        let slow = Cause::SlowLink { drains: BitRate(20_000_000), configured: BitRate(95_000_000) };
        printed(ChannelEvent::Degraded(broken(slow)));
        let (text, _) = printed(ChannelEvent::Healed(broken(slow)));
        assert_eq!(text, "cam@b: healed: link a-b keeps its promise again");
        assert!(note(&seen, &ChannelEvent::Late).is_none());
        assert_eq!(
            summary(&lock(&seen)),
            "; DEGRADED on the way, nothing was guaranteed meanwhile: link a-b drains at 20.0 Mbit/s for us, configured 95.0 \
             Mbit/s: slower, or shared beyond this host (healed since)"
        );
        assert_eq!(summary(&[]), "");
    }
}
