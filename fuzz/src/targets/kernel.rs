//! The kernel's answers by netlink, and the record of a device's former state.

use punctual_link::kernel::answers;

/// A datagram, or a record.
pub fn run(data: &[u8]) {
    let _ = answers::read(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = answers::read_record(text);
    }
}

/// This kernel's answers about its devices, routes, neighbours and qdiscs, and a record as it is written.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = answers::examples().unwrap_or_default();
    seeds.push(answers::example_record().into_bytes());
    seeds
}
