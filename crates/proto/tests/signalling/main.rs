//! RTCOP and HELLO between real instances on a virtual clock and a hostile medium.

mod crowds;
mod deciding;
mod ends;
mod establishment;
mod faults;
mod limits;
mod network;
mod news;
mod offers;
mod order;
mod properties;
mod seals;
mod versions;
