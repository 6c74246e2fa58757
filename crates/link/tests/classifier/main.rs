//! The XDP program alone (`BPF_PROG_TEST_RUN`: no device, no traffic) and on devices of namespaces that the
//! tests make. Without the necessary rights a test is skipped with a message.

mod accounts;
mod attach;
mod flows;
mod frames;
mod fuzz;
mod model;
mod rates;
mod seals;
mod segments;
mod support;
mod verdicts;
