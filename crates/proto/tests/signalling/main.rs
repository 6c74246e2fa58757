//! RTCOP and HELLO between real instances on a virtual clock and a hostile medium.

mod deciding;
mod ends;
mod establishment;
mod faults;
mod network;
mod news;
mod offers;
mod seals;
mod versions;
