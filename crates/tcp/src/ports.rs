//! Ephemeral ports by RFC 6056, algorithm 4 (double hash): unpredictable, and a port is not reused soon. Where a port is taken, the next
//! one to try is far away: the connections to one place hold ports in a row.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::secrets::{Secrets, Use};

/// First port of the dynamic range (RFC 6056 3.2 allows from 1024; these are IANA's).
const FIRST: u16 = 49_152;
/// Ports in the range.
const COUNT: u32 = 65_536 - FIRST as u32;
const _: () = assert!(COUNT.is_power_of_two());
/// Number of counters; more of them give an attacker less information (RFC 6056 3.3.4 suggests 10).
const TABLE: usize = 64;

/// Chooses local ports.
#[derive(Debug)]
pub struct EphemeralPorts {
    counters: Vec<u32>,
}

impl Default for EphemeralPorts {
    fn default() -> Self {
        Self { counters: vec![0; TABLE] }
    }
}

impl EphemeralPorts {
    /// A port for a connection from `local` to `remote` for which `is_free` is true; `None` if all are taken.
    /// Calls `is_free` at most 16,384 times.
    pub fn choose(
        &mut self,
        secrets: &Secrets,
        local: IpAddr,
        remote: SocketAddr,
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let offset = secrets.hash(Use::Port, (local, remote)) as u32;
        let hash = secrets.hash(Use::PortTable, (local, remote));
        let index = hash as usize % TABLE;
        let begin = offset.wrapping_add(self.counters[index]);
        self.counters[index] = self.counters[index].wrapping_add(1);
        // A quarter of the range at least, in either direction. Odd, and COUNT is a power of two: all ports are tried.
        let stride = ((hash >> 32) as u32 % (COUNT / 2) + COUNT / 4) | 1;
        let ports =
            (0..COUNT).map(|step| FIRST + (begin.wrapping_add(step.wrapping_mul(stride)) % COUNT) as u16);
        { ports }.find(|port| is_free(*port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(ports: &mut EphemeralPorts, remote: u16, taken: &[u16]) -> Option<u16> {
        let local = IpAddr::from([10, 0, 0, 1]);
        let secrets = Secrets::new([3; 16]);
        ports.choose(&secrets, local, ([10, 0, 0, 2], remote).into(), |port| !taken.contains(&port))
    }

    /// RFC 6056 3.3.4: consecutive connections to one place get different ports, and never one that is taken.
    #[test]
    fn ports_do_not_repeat_and_are_free() {
        let mut ports = EphemeralPorts::default();
        let mut taken = Vec::new();
        for _ in 0..200 {
            let port = choose(&mut ports, 80, &taken).expect("ports are left");
            assert!(port >= FIRST && !taken.contains(&port));
            taken.push(port);
        }
    }

    #[test]
    fn destinations_begin_elsewhere() {
        let mut ports = EphemeralPorts::default();
        let first = |ports: &mut EphemeralPorts, remote| choose(ports, remote, &[]).expect("free");
        let begins: Vec<_> = (1..20).map(|remote| first(&mut ports, remote)).collect();
        let near = begins.windows(2).filter(|two| two[0].abs_diff(two[1]) < 2).count();
        assert!(near < 3, "{begins:?}");
    }

    /// Connections to one place hold ports in a row. Those to another place, whose ports begin among them, find a free one soon.
    #[test]
    fn a_row_of_taken_ports_is_left_soon() {
        let (local, secrets) = (IpAddr::from([10, 0, 0, 1]), Secrets::new([3; 16]));
        let mut ports = EphemeralPorts::default();
        let taken: Vec<u16> = (0..4_000).map(|_| choose(&mut ports, 80, &[]).expect("free")).collect();
        let mut most = 0;
        for remote in 1..2_000 {
            let mut tries = 0;
            let found = ports.choose(&secrets, local, ([10, 0, 0, 3], remote).into(), |port| {
                tries += 1;
                !taken.contains(&port)
            });
            assert!(found.is_some());
            most = most.max(tries);
        }
        assert!(most <= 32, "{most}");
    }

    /// Each port is tried once.
    #[test]
    fn a_full_range_is_refused() {
        let mut ports = EphemeralPorts::default();
        let (local, secrets) = (IpAddr::from([10, 0, 0, 1]), Secrets::new([3; 16]));
        let mut tried = Vec::new();
        let none = ports.choose(&secrets, local, ([10, 0, 0, 2], 80).into(), |port| {
            tried.push(port);
            false
        });
        tried.sort_unstable();
        assert!(none.is_none() && tried.iter().copied().eq(FIRST..=u16::MAX));
    }
}
