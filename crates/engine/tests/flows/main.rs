//! TCP of this host's own (`punctual-tcp`), native on the wire over the `xdp` driver: with the host's own address, to kernels
//! of other hosts, beside the kernel's own TCP on the same device. Network namespaces and veth pairs; needs root.

#[path = "../../../link/tests/common/host.rs"]
mod host;

mod handlers;
mod kernel;
mod native;
mod network;
mod streams;
mod trouble;
