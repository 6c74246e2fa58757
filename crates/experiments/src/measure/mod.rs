//! The measurements: latencies from the logical arrival, misses, rates.

pub mod ab;
pub mod cpu;
pub mod laps;
pub mod latency;
pub mod live;
pub mod log;
pub mod samples;
pub mod stamp;
pub mod stream;
pub mod throughput;
pub mod windows;

pub use ab::{Figures, Ratio, Side, compare, compare_rounds};
pub use laps::Laps;
pub use latency::{Latencies, LatencySummary};
pub use live::{Live, LiveView};
pub use log::{ReceiveLog, Received, SendLog, Sent};
pub use samples::{Moments, Sample, Statistic};
pub use stamp::Stamp;
pub use stream::{Question, StreamSummary};
pub use throughput::Throughput;
pub use windows::Windows;
