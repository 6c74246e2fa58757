//! What the lexer makes of text, and the preprocessor hands to the parser.

use std::rc::Rc;

use crate::source::Location;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub at: Location,
    /// No space is between it and the token before: `>>` is two of them.
    pub is_glued: bool,
    /// It is the first of its line.
    pub begins_line: bool,
}

impl Token {
    /// The place behind it; of strings and characters, where they begin.
    pub fn behind(&self) -> Location {
        let bytes = match &self.kind {
            TokenKind::Word(text) | TokenKind::Number(text) => text.len() as u32,
            TokenKind::Scope => 2,
            TokenKind::Sign(_) => 1,
            _ => 0,
        };
        Location { offset: self.at.offset + bytes, ..self.at }
    }
}

/// Kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// An identifier or a keyword, with its underscore if it is escaped.
    Word(Rc<str>),
    /// A number as C's preprocessor reads it; the parser examines it.
    Number(Rc<str>),
    /// A character literal. UTF-16 units; narrow ones are at most 255.
    Character { is_wide: bool, units: Rc<[u16]> },
    /// A string literal.
    Text { is_wide: bool, units: Rc<[u16]> },
    /// `::`
    Scope,
    /// Any other character of the grammar.
    Sign(char),
    /// Text that is no token, and why. An error where the parser sees it, not in what `#if` skips.
    Bad(Rc<str>),
    /// A pragma that has a meaning here.
    Pragma(Rc<Pragma>),
    /// An included file begins.
    Enter,
    /// An included file ends.
    Leave,
    /// A macro's replacement ends: it may be expanded again.
    EndMacro(Rc<str>),
    /// The end of all text.
    End,
}

/// Pragmas of CORBA 10.7.5.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pragma {
    Prefix(String),
    Id { name: String, id: String },
    Version { name: String, version: String },
}

impl TokenKind {
    /// As a message names it.
    pub fn describe(&self) -> String {
        match self {
            Self::Word(text) | Self::Number(text) => format!("\"{text}\""),
            Self::Character { .. } => "a character".into(),
            Self::Text { .. } => "a string".into(),
            Self::Scope => "\"::\"".into(),
            Self::Sign(sign) => format!("\"{sign}\""),
            Self::Bad(why) => why.to_string(),
            Self::Pragma(_) => "a pragma".into(),
            Self::Enter | Self::Leave | Self::EndMacro(_) | Self::End => "the end of the file".into(),
        }
    }
}
