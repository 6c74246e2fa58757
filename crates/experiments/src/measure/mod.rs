//! What is measured: latencies from the logical arrival, misses, rates.

pub mod latency;
pub mod live;
pub mod stream;
pub mod throughput;
pub mod windows;

pub use latency::{Latencies, LatencySummary};
pub use live::{Live, LiveView};
pub use stream::{Question, StreamSummary};
pub use throughput::Throughput;
pub use windows::Windows;
