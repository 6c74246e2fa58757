//! RTCOP and HELLO between real instances on a virtual clock and a hostile medium.

mod crowds;
mod ends;
mod establishment;
mod faults;
mod limits;
mod link_events;
mod network;
mod offer_probes;
mod one_way;
mod order;
mod properties;
mod seals;
mod stage_decisions;
mod versions;
