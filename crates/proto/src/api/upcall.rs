//! Messages between a node and the handler of a program in another process: calls in the ring to the program, reports
//! in the ring back (RTU 5.1, 5.2; ADR 0051).

/// Bytes of a call in its ring.
pub const UPCALL_BYTES: usize = 8;
/// Bytes of a report in its ring.
pub const UPCALL_REPORT_BYTES: usize = 12;

/// Flag of a report: there is more work.
const MORE: u32 = 1;
/// Flag of a report: the call with this number is done. Without the flag the report only announces work.
const ENDS: u32 = 2;

/// A call. The next one comes only after this one is reported as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallRequest {
    /// Number of the call; the first is 1.
    pub number: u32,
    /// PDUs that may be processed before the report.
    pub units: u32,
}

impl UpcallRequest {
    /// The bytes in the ring.
    pub const fn to_bytes(self) -> [u8; UPCALL_BYTES] {
        ((self.units as u64) << 32 | self.number as u64).to_le_bytes()
    }

    /// Reads the bytes; `None` if they are too few.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self { number: word(bytes, 0)?, units: word(bytes, 1)? })
    }
}

/// A report of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallReport {
    /// The handler has work.
    Ready,
    /// A call is done.
    Done {
        /// Number of the call.
        number: u32,
        /// PDUs that were processed.
        units: u32,
        /// Whether there is more to do at once.
        more: bool,
    },
}

impl UpcallReport {
    /// The bytes in the ring.
    pub fn to_bytes(self) -> [u8; UPCALL_REPORT_BYTES] {
        let [number, units, flags] = match self {
            Self::Ready => [0, 0, MORE],
            Self::Done { number, units, more } => [number, units, ENDS | if more { MORE } else { 0 }],
        };
        let mut bytes = [0; UPCALL_REPORT_BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[4..8].copy_from_slice(&units.to_le_bytes());
        bytes[8..].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    /// Reads the bytes; `None` if they are no report.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (number, units, flags) = (word(bytes, 0)?, word(bytes, 1)?, word(bytes, 2)?);
        match flags {
            MORE => Some(Self::Ready),
            flags if flags & !MORE == ENDS => Some(Self::Done { number, units, more: flags & MORE != 0 }),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let bytes = bytes.get(index * 4..index * 4 + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let request = UpcallRequest { number: 7, units: u32::MAX };
        assert_eq!(UpcallRequest::read(&request.to_bytes()), Some(request));
        for report in [
            UpcallReport::Ready,
            UpcallReport::Done { number: 9, units: 3, more: true },
            UpcallReport::Done { number: u32::MAX, units: 0, more: false },
        ] {
            assert_eq!(UpcallReport::read(&report.to_bytes()), Some(report));
        }
        assert_eq!(UpcallReport::read(&[0; UPCALL_REPORT_BYTES]), None, "no flag");
        assert_eq!(UpcallReport::read(&[0xff; UPCALL_REPORT_BYTES]), None, "unknown flags");
        assert_eq!((UpcallReport::read(&[0; 11]), UpcallRequest::read(&[0; 7])), (None, None));
    }

    /// Programs and daemons of different builds share these rings: the layout is fixed, fields without a meaning are zero.
    #[test]
    fn bytes_in_the_rings_have_a_fixed_layout() {
        let request = UpcallRequest { number: 0x0403_0201, units: 0x0807_0605 };
        assert_eq!(request.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(UpcallReport::Ready.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        let done = |more| UpcallReport::Done { number: 0x0403_0201, units: 0x0807_0605, more };
        assert_eq!(done(false).to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0]);
        assert_eq!(done(true).to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 3, 0, 0, 0]);
    }
}
