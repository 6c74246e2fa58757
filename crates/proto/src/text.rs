//! Text from an untrusted source: another host, another program, another user.
//!
//! It is shown on terminals and written into logs, where some characters are commands rather than text:
//! escape sequences, line ends that forge another line, marks that change the direction of the following
//! text. Each of those is replaced by a harmless character when the bytes become a [`Foreign`], which can be
//! printed safely.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use punctual_trial::{Defence, holds};
use serde::{Deserialize, Serialize};

/// Replaces a character that must not be shown.
const SHOWN_INSTEAD: char = '\u{fffd}';

/// Control characters (C0, DEL, C1), ends of lines and paragraphs, marks of direction, invisible characters.
const fn is_order(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// The text without control characters: one line, in its original direction. The number of characters stays
/// the same.
pub fn harmless(text: &str) -> Cow<'_, str> {
    replaced(text, is_order)
}

/// Does the same as [`harmless`] for text of several lines: line feeds and tabs stay.
pub fn harmless_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_order(c) && !matches!(c, '\n' | '\t'))
}

fn replaced(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if holds(Defence::HarmlessText) && text.contains(&is_bad) {
        Cow::Owned(text.chars().map(|c| if is_bad(c) { SHOWN_INSTEAD } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Text from an untrusted source, made harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Foreign(String);

impl Foreign {
    /// The first `chars` characters of `text`.
    pub fn beginning(text: &str, chars: usize) -> Self {
        text.chars().take(chars).collect::<String>().into()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Foreign {
    fn from(text: &str) -> Self {
        Self(harmless(text).into_owned())
    }
}

impl From<String> for Foreign {
    fn from(text: String) -> Self {
        match harmless(&text) {
            Cow::Borrowed(_) => Self(text),
            Cow::Owned(text) => Self(text),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_replaced_and_text_of_any_language_stays() {
        for text in ["", "no room", "kein Platz für Übergrößen", "定員に達しました", "לא", "naïve 👍"]
        {
            assert_eq!(harmless(text), text);
            assert!(matches!(harmless(text), Cow::Borrowed(_)), "what is harmless is not copied");
        }
        assert_eq!(harmless("a\x1b[2J\r\nb\u{9b}31m\u{202e}c\u{2028}d\x7f"), "a�[2J��b�31m�c�d�");
        assert_eq!(harmless_lines("a\tb\nc\x1b\r"), "a\tb\nc��");
    }

    /// Text that is decoded from a packet is made harmless in the same way.
    #[test]
    fn what_is_decoded_is_harmless() {
        let bytes = postcard::to_allocvec("a\x1bb").expect("encoded");
        let text: Foreign = postcard::from_bytes(&bytes).expect("decoded");
        assert_eq!(text.as_str(), "a�b");
        assert_eq!(
            postcard::from_bytes::<String>(&postcard::to_allocvec(&text).expect("encoded")).as_deref(),
            Ok("a�b")
        );
    }

    #[test]
    fn every_character_that_the_standard_library_calls_a_control_is_replaced() {
        let missed =
            (0..=u32::from(char::MAX)).filter_map(char::from_u32).find(|c| c.is_control() && !is_order(*c));
        assert_eq!(missed, None);
    }
}
