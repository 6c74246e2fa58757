//! The XDP program by itself (`BPF_PROG_TEST_RUN`: no device, no traffic) and on devices of namespaces that the tests
//! make. What needs rights is skipped visibly where they are missing.

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
