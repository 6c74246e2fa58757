//! A message that is read later than its connection's buffer is used again.

use alloc::vec::Vec;

use crate::Decoder;

/// A copy of what a [`Decoder`] reads, with its place in it, its code set, and where fragments begin.
#[derive(Clone, Debug)]
pub struct Kept {
    bytes: Vec<u8>,
    breaks: Vec<usize>,
    /// The place, without the bytes.
    place: Decoder<'static>,
}

impl Decoder<'_> {
    /// What it reads, to be read later.
    pub fn keep(&self) -> Kept {
        let (bytes, breaks) = self.parts();
        Kept { bytes: bytes.to_vec(), breaks: breaks.to_vec(), place: self.over(&[], &[]) }
    }
}

impl Kept {
    /// Reads what was left when it was kept.
    pub fn decoder(&self) -> Decoder<'_> {
        self.place.over(&self.bytes, &self.breaks)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;
    use crate::{ByteOrder, CharacterSet, Decode, Encode, Encoder, Version};

    #[test]
    fn it_is_read_in_the_code_set_of_its_connection() {
        for characters in [CharacterSet::Utf8, CharacterSet::Latin1] {
            let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
            to.set_characters(characters);
            String::from("\u{fc}1").encode(&mut to).expect("it has bytes");
            let mut reply = Decoder::new(to.as_bytes(), ByteOrder::Big, Version::V1_2);
            reply.set_characters(characters);
            let kept = reply.keep();
            assert_eq!(String::decode(&mut kept.decoder()).as_deref(), Ok("\u{fc}1"), "{characters:?}");
        }
    }

    #[test]
    fn fragments_of_giop_1_1_are_aligned_as_before() {
        // Behind its header, 12 bytes, a number of 8 bytes is padded by 4.
        let mut bytes = [0; 28];
        bytes[27] = 2;
        let mut from = Decoder::new(&bytes, ByteOrder::Big, Version::V1_1).with_breaks(&[16]);
        from.read(16).expect("bytes");
        let kept = from.keep();
        for mut from in [from, kept.decoder()] {
            assert_eq!((u64::decode(&mut from), from.remaining()), (Ok(2), 0));
        }
    }
}
