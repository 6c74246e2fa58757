//! What is measured: latencies from the logical arrival, misses, rates.

pub mod latency;
pub mod throughput;

pub use latency::Latencies;
pub use throughput::Throughput;
