//! Text to tokens. Never fails: what is no token becomes [`TokenKind::Bad`].

use std::rc::Rc;

use crate::limits::IDENTIFIER_BYTES_MAX;
use crate::source::{FileId, Location};
use crate::token::{Token, TokenKind};

/// Reads one file.
#[derive(Debug)]
pub(crate) struct Lexer {
    file: FileId,
    text: Rc<str>,
    at: usize,
    begins_line: bool,
}

impl Lexer {
    pub fn new(file: FileId, text: Rc<str>) -> Self {
        Self { file, text, at: 0, begins_line: true }
    }

    /// Reads text that is the rest of a line.
    pub fn within_line(file: FileId, text: Rc<str>) -> Self {
        Self { begins_line: false, ..Self::new(file, text) }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Where the next token would begin if no space were before it.
    pub fn location(&self) -> Location {
        Location { file: self.file, offset: self.at as u32 }
    }

    /// Length of a backslash with the line end behind it, which are no characters of the text.
    fn continuation(&self) -> Option<usize> {
        let rest = self.rest();
        ["\\\n", "\\\r\n"].iter().find(|end| rest.starts_with(**end)).map(|end| end.len())
    }

    /// Skips space and comments. An error is where this comment has no end begins.
    fn skip_space(&mut self) -> Result<(), Location> {
        loop {
            if let Some(length) = self.continuation() {
                self.at += length;
            } else if self.byte(0) == b'/' && self.byte(1) == b'/' {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if self.byte(0) == b'/' && self.byte(1) == b'*' {
                let Some(length) = self.rest()[2..].find("*/") else {
                    let begin = self.location();
                    self.at = self.text.len();
                    return Err(begin);
                };
                self.at += 2 + length + 2;
            } else {
                match self.rest().chars().next() {
                    Some('\n') => self.begins_line = true,
                    Some(c) if c.is_whitespace() || c == '\u{feff}' || c == '\u{1a}' => {}
                    _ => return Ok(()),
                }
                self.at += self.rest().chars().next().map_or(0, char::len_utf8);
            }
        }
    }

    /// The next token, [`TokenKind::End`] at the end of the file.
    pub fn next(&mut self) -> Token {
        let before = self.at;
        let is_first = self.at == 0;
        if let Err(at) = self.skip_space() {
            let kind = TokenKind::Bad("this comment has no end".into());
            return Token { kind, at, is_glued: false, begins_line: false };
        }
        let begins_line = std::mem::take(&mut self.begins_line);
        let (at, is_glued) = (self.location(), before == self.at && !is_first);
        let kind = self.token();
        Token { kind, at, is_glued, begins_line }
    }

    /// The next token if it is on the present line.
    pub fn next_on_line(&mut self) -> Option<Token> {
        let (at, begins_line) = (self.at, self.begins_line);
        let token = self.next();
        if token.begins_line || token.kind == TokenKind::End {
            (self.at, self.begins_line) = (at, begins_line);
            return None;
        }
        Some(token)
    }

    /// The rest of the line, without comments, lines that continue it joined.
    pub fn rest_of_line(&mut self) -> String {
        let mut line = String::new();
        let mut quoted = false;
        loop {
            if let Some(length) = self.continuation() {
                self.at += length;
                continue;
            }
            match (self.byte(0), self.byte(1)) {
                (b'/', b'/') if !quoted => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                (b'/', b'*') if !quoted => {
                    let end = self.rest()[2..].find("*/").map_or(self.rest().len(), |end| 2 + end + 2);
                    self.at += end;
                    line.push(' ');
                }
                _ => {}
            }
            let Some(c) = self.rest().chars().next().filter(|&c| c != '\n') else { break };
            quoted ^= c == '"';
            if self.continuation().is_none() {
                line.push(c);
                self.at += c.len_utf8();
            }
        }
        line.trim().to_owned()
    }

    fn token(&mut self) -> TokenKind {
        let Some(c) = self.rest().chars().next() else { return TokenKind::End };
        match c {
            'L' if matches!(self.byte(1), b'"' | b'\'') => {
                self.at += 1;
                self.quoted(true)
            }
            '"' | '\'' => self.quoted(false),
            c if c.is_ascii_alphabetic() || c == '_' => self.word(),
            c if c.is_ascii_digit() || (c == '.' && self.byte(1).is_ascii_digit()) => self.number(),
            ':' if self.byte(1) == b':' => {
                self.at += 2;
                TokenKind::Scope
            }
            c if c.is_ascii_graphic() && c != '\\' && c != '`' && c != '$' => {
                self.at += 1;
                TokenKind::Sign(c)
            }
            c => {
                self.at += c.len_utf8();
                TokenKind::Bad(format!("a character that IDL does not have: {c:?}").into())
            }
        }
    }

    fn word(&mut self) -> TokenKind {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word: Rc<str> = rest[..length].into();
        self.at += length;
        if length > IDENTIFIER_BYTES_MAX {
            return TokenKind::Bad(format!("an identifier longer than {IDENTIFIER_BYTES_MAX} bytes").into());
        }
        TokenKind::Word(word)
    }

    fn number(&mut self) -> TokenKind {
        let rest = self.rest().as_bytes();
        let mut length = 0;
        while let Some(&byte) = rest.get(length) {
            let is_sign = matches!(byte, b'+' | b'-')
                && length > 0
                && matches!(rest[length - 1], b'e' | b'E')
                && !matches!(rest.get(1), Some(b'x' | b'X'));
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || is_sign) {
                break;
            }
            length += 1;
        }
        let number: Rc<str> = self.rest()[..length].into();
        self.at += length;
        TokenKind::Number(number)
    }

    /// A string or a character, from its first quote on. It must end on its line.
    fn quoted(&mut self, is_wide: bool) -> TokenKind {
        let quote = self.byte(0);
        self.at += 1;
        let mut units = Vec::new();
        let mut wrong: Option<Rc<str>> = None;
        loop {
            if let Some(length) = self.continuation() {
                self.at += length;
                continue;
            }
            let Some(c) = self.rest().chars().next().filter(|&c| c != '\n') else {
                return TokenKind::Bad("this string or character does not end on its line".into());
            };
            self.at += c.len_utf8();
            if c as u32 == u32::from(quote) {
                break;
            }
            let value = if c == '\\' { self.escape(is_wide) } else { Ok(c) };
            match value {
                Ok(c) if !is_wide && u32::from(c) > 255 => {
                    wrong = Some("a character that needs a wide string or character (L)".into());
                }
                Ok(c) => units.extend(c.encode_utf16(&mut [0; 2]).iter()),
                Err(why) => wrong = Some(why),
            }
        }
        match wrong {
            Some(why) => TokenKind::Bad(why),
            None if quote == b'"' => TokenKind::Text { is_wide, units: units.into() },
            None => TokenKind::Character { is_wide, units: units.into() },
        }
    }

    /// What is behind a backslash (IDL 4.2, table 7-9).
    fn escape(&mut self, is_wide: bool) -> Result<char, Rc<str>> {
        let c = self.rest().chars().next().ok_or("a backslash at the end")?;
        let simple = match c {
            'n' => Some('\n'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            'b' => Some('\u{8}'),
            'r' => Some('\r'),
            'f' => Some('\u{c}'),
            'a' => Some('\u{7}'),
            '\\' | '?' | '\'' | '"' => Some(c),
            _ => None,
        };
        if let Some(simple) = simple {
            self.at += 1;
            return Ok(simple);
        }
        let (skip, radix, digits_max) = match c {
            '0'..='7' => (0, 8, 3),
            'x' => (1, 16, 2),
            'u' if is_wide => (1, 16, 4),
            'u' => return Err("\\u outside of a wide string or character".into()),
            _ => return Err(format!("an unknown escape sequence: \\{}", c.escape_debug()).into()),
        };
        self.at += skip;
        let digits =
            self.rest().bytes().take(digits_max).take_while(|b| char::from(*b).is_digit(radix)).count();
        let value = u32::from_str_radix(&self.rest()[..digits], radix)
            .map_err(|_| Rc::from("an escape sequence without digits"))?;
        self.at += digits;
        char::from_u32(value)
            .filter(|_| is_wide || value <= 255)
            .ok_or_else(|| "this escape sequence is not a character".into())
    }
}
