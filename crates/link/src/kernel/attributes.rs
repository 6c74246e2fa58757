//! Netlink attributes: written one behind the other, read by their kind.

use netlink_packet_core::NlasIterator;

/// Header and attributes of a message, as they grow.
#[derive(Debug, Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    /// Starts with the family's fixed header.
    pub fn new(header: &[u8]) -> Self {
        Self(header.to_vec())
    }

    /// Adds an attribute.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.append(kind, value);
        self
    }

    /// Adds a 32-bit number.
    pub fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds a string with its zero.
    pub fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), b"\0"].concat())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn append(&mut self, kind: u16, value: &[u8]) {
        // Values here are names, addresses and data that the kernel itself had sent: far below 64 KiB.
        let length = (value.len() + 4) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Attributes that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes behind a fixed header of `header_bytes`.
    pub fn after(message: &'a [u8], header_bytes: usize) -> Self {
        Self(message.get(header_bytes..).unwrap_or_default())
    }

    /// The value of the first of this kind.
    pub fn get(self, wanted: u16) -> Option<&'a [u8]> {
        self.iter().find_map(|(kind, value)| (kind == wanted).then_some(value))
    }

    /// The attributes inside one.
    pub fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    /// A number of 8 to 64 bits, as wide as it came.
    pub fn number(self, kind: u16) -> Option<u64> {
        self.get(kind).and_then(number)
    }

    /// A number that must fit 32 bits.
    pub fn u32(self, kind: u16) -> Option<u32> {
        self.number(kind).and_then(|number| u32::try_from(number).ok())
    }

    /// A string up to its zero.
    pub fn text(self, kind: u16) -> Option<String> {
        let value = self.get(kind)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }

    /// Kind and value of each attribute; ends at one that is cut off.
    pub fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let whole = self.0;
        let mut at = 0;
        NlasIterator::new(whole).map_while(Result::ok).map(move |attribute| {
            let start = at + 4;
            at += usize::from(attribute.length()).next_multiple_of(4);
            (attribute.kind(), &whole[start..start + attribute.value_length()])
        })
    }
}

fn number(value: &[u8]) -> Option<u64> {
    match *value {
        [a] => Some(a.into()),
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLA_F_NESTED;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inner = Body::default().with_u32(1, 7);
        let body =
            Body::new(&[9; 8]).with_text(3, "eth0").with(4, &[1]).with(5 | NLA_F_NESTED, inner.bytes());
        let read = Attributes::after(body.bytes(), 8);
        assert_eq!(read.text(3).as_deref(), Some("eth0"));
        assert_eq!(read.number(4), Some(1));
        assert_eq!(read.nested(5).u32(1), Some(7));
        assert_eq!(read.get(6), None);
        assert_eq!(read.iter().count(), 3);
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        let body = Body::default().with_u32(1, 7).with_u32(2, 8);
        for end in 0..body.bytes().len() {
            let read = Attributes::after(&body.bytes()[..end], 0);
            assert!(read.iter().count() <= end / 8, "{end}");
            assert_eq!(Attributes::after(body.bytes(), 99).iter().count(), 0);
        }
        assert_eq!(number(&[1, 2, 3]), None);
    }
}
