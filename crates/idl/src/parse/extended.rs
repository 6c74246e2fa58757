//! Bit sets, bit masks and annotations (IDL 4.2, 7.4.13.4.3 and 7.4.15).

use super::{Parsed, Parser};
use crate::model::{Annotation, Kind};
use crate::token::{Token, TokenKind};

/// Bits of a bit set, and of a bit mask.
const BITS_MAX: u32 = 64;

impl Parser<'_> {
    /// Whether `bitset` or `bitmask` begins a definition here, and is no name.
    pub(super) fn is_extended(&mut self) -> bool {
        matches!(self.ahead(1), TokenKind::Word(_)) && matches!(self.ahead(2), TokenKind::Sign('{' | ':'))
    }

    /// `bitset` or `bitmask`.
    pub(super) fn extended(&mut self, word: &str, annotations: Vec<Annotation>) -> Parsed<()> {
        self.take();
        let name = self.identifier("a name")?;
        let empty = if word == "bitset" { Kind::Bitset(Vec::new()) } else { Kind::Bitmask(Vec::new()) };
        let id = self.scopes.declare(&name, empty)?;
        self.scopes.draft(id).annotations = annotations;
        let kind = self.inside(id, |parser| match word {
            "bitset" => parser.bit_fields(),
            _ => parser.bit_flags(),
        })?;
        self.scopes.draft(id).kind = kind;
        Ok(())
    }

    /// `{ bitfield<3> a; bitfield<1>; }`, behind an optional base.
    fn bit_fields(&mut self) -> Parsed<Kind> {
        let mut fields = Vec::new();
        if self.eat_sign(':') {
            let at = self.here();
            if let Some(base) = self.resolved("the name of a bit set")? {
                match self.scopes.kind(base) {
                    Kind::Bitset(of) => fields.extend(of.iter().map(|(_, bits)| (None, *bits))),
                    _ => self.note_error(at, "the base of a bit set is a bit set")?,
                }
            }
        }
        self.body("behind the name of the bit set", |parser, _| {
            let at = parser.here();
            parser.expect_word("bitfield")?;
            parser.expect_sign('<', "behind \"bitfield\"")?;
            let bits = parser.integer("the width of a bit field", 1)?;
            if parser.eat_sign(',') {
                parser.primitive()?;
            }
            parser.expect_sign('>', "behind the width")?;
            let used: u32 = fields.iter().map(|(_, bits)| bits).sum();
            if bits > BITS_MAX - used.min(BITS_MAX) {
                return parser.fail_at(at, format!("a bit set has at most {BITS_MAX} bits"));
            }
            let mut named = false;
            while !parser.is_sign(';') {
                let name = parser.identifier("the name of a bit field")?;
                parser.scopes.declare_instance(&name);
                fields.push((Some(name.text.to_string()), bits));
                named = true;
                if !parser.eat_sign(',') {
                    break;
                }
            }
            if !named {
                fields.push((None, bits));
            }
            parser.semicolon("behind the bit field")
        })?;
        Ok(Kind::Bitset(fields))
    }

    /// `{ a, @position(4) b }`
    fn bit_flags(&mut self) -> Parsed<Kind> {
        let mut flags: Vec<(String, u32)> = Vec::new();
        self.expect_sign('{', "behind the name of the bit mask")?;
        loop {
            let annotations = self.annotations()?;
            let name = self.identifier("the name of a flag")?;
            self.scopes.declare_instance(&name);
            let given = annotations.iter().find(|annotation| annotation.name == "position");
            let next = flags.last().map_or(0, |(_, position)| position + 1);
            let position = given.map_or(Some(next), |given| given.parameters.parse().ok());
            match position.filter(|position| *position < BITS_MAX) {
                Some(position) => flags.push((name.text.to_string(), position)),
                None => self.note_error(name.at, format!("a position is from 0 to {}", BITS_MAX - 1))?,
            }
            if !self.eat_sign(',') {
                break;
            }
        }
        self.expect_sign('}', "or \",\" behind the flag")?;
        Ok(Kind::Bitmask(flags))
    }

    /// Annotations before a definition, and definitions of annotations, which have no effect.
    pub(super) fn annotations(&mut self) -> Parsed<Vec<Annotation>> {
        let mut all = Vec::new();
        while self.is_sign('@') {
            self.take();
            let mut name = String::new();
            if self.token().kind == TokenKind::Scope {
                self.take();
                name.push_str("::");
            }
            loop {
                let Some(word) = self.word() else { return self.unexpected("the name of an annotation") };
                name.push_str(&word);
                self.take();
                if self.token().kind != TokenKind::Scope {
                    break;
                }
                self.take();
                name.push_str("::");
            }
            let defines =
                matches!(self.ahead(0), TokenKind::Word(_)) && matches!(self.ahead(1), TokenKind::Sign('{'));
            if name == "annotation" && defines {
                self.annotation_definition()?;
                continue;
            }
            let parameters = if self.is_sign('(') { self.balanced('(', ')')? } else { String::new() };
            all.push(Annotation { name, parameters });
        }
        Ok(all)
    }

    /// `@annotation NAME { ... };`
    fn annotation_definition(&mut self) -> Parsed<()> {
        let at = self.here();
        self.take();
        self.balanced('{', '}')?;
        self.semicolon("behind the annotation")?;
        self.scopes.session.warning(at, "the definition of an annotation has no effect");
        Ok(())
    }

    /// What is between two signs, with one space between tokens.
    fn balanced(&mut self, opens: char, closes: char) -> Parsed<String> {
        let (mut depth, mut text) = (0usize, String::new());
        loop {
            let token = self.take();
            match &token.kind {
                TokenKind::End => return self.unexpected(&format!("\"{closes}\"")),
                TokenKind::Bad(why) => return self.fail_at(token.at, why.to_string()),
                TokenKind::Sign(sign) if *sign == opens => depth += 1,
                TokenKind::Sign(sign) if *sign == closes => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(text);
            }
            if !(depth == 1 && text.is_empty() && token.kind == TokenKind::Sign(opens)) {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(&spelling(&token));
            }
        }
    }
}

/// How a token was written, nearly.
fn spelling(token: &Token) -> String {
    match &token.kind {
        TokenKind::Word(text) | TokenKind::Number(text) => text.to_string(),
        TokenKind::Character { units, .. } => format!("'{}'", String::from_utf16_lossy(units)),
        TokenKind::Text { units, .. } => format!("\"{}\"", String::from_utf16_lossy(units)),
        TokenKind::Scope => "::".into(),
        TokenKind::Sign(sign) => sign.to_string(),
        _ => String::new(),
    }
}
