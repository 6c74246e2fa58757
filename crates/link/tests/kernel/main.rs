//! What links ask of the kernel, on devices of namespaces that the tests make (needs root).

mod care;
mod facts;
mod follow;
mod namespaces;
