//! Tokens to definitions.
//!
//! | module | reads |
//! |---|---|
//! | this | tokens, and what is common to all definitions |
//! | `definition` | modules, constants, exceptions, `typeid`, and which definition comes next |
//! | `types` | types and their declarators |
//! | `constructed` | structures, unions, enumerations |
//! | `constant`, `operators`, `literal` | constant expressions |
//! | `interface` | interfaces, operations, attributes |
//! | `value` | value types |
//! | `component` | components, homes, ports: checked, and generated nowhere |
//! | `extended` | bit sets, bit masks and annotations of IDL 4.2 |
//! | `keyword` | words that are no identifiers |
//!
//! IDL declares names before it uses them, so one pass reads, resolves and checks. After an error the rest of
//! the definition is skipped and reading goes on.

mod component;
mod constant;
mod constructed;
mod definition;
mod extended;
mod interface;
mod keyword;
mod literal;
mod operators;
mod types;
mod value;

use std::rc::Rc;

use crate::diagnostic::{Session, TooMany};
use crate::limits::NESTING_MAX;
use crate::model::{Annotation, DefinitionId, Specification};
use crate::scope::{Name, ScopedName, Scopes};
use crate::source::Location;
use crate::token::{Pragma, Token, TokenKind};

/// Why reading a definition stopped. The error is reported.
#[derive(Debug)]
enum Stop {
    /// Go on with the next one.
    Here,
    /// The limit of errors is reached.
    Run,
}

impl From<TooMany> for Stop {
    fn from(_: TooMany) -> Self {
        Self::Run
    }
}

type Parsed<T> = Result<T, Stop>;

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    /// Scopes, types and expressions around the present place.
    depth: usize,
    /// The place behind the token that was taken last.
    behind: Location,
    /// The token at which the last error was.
    failed_at: Option<usize>,
    /// `>>` closes two templates; to shift, an expression needs parentheses.
    is_in_template: bool,
    scopes: Scopes<'a>,
}

/// Reads all tokens. The session may have errors afterwards.
pub(crate) fn parse(tokens: Vec<Token>, session: &mut Session) -> Result<Specification, TooMany> {
    let mut parser = Parser {
        behind: tokens[0].at,
        tokens,
        at: 0,
        depth: 0,
        failed_at: None,
        is_in_template: false,
        scopes: Scopes::new(session),
    };
    parser.specification()?;
    Ok(parser.scopes.finish())
}

impl Parser<'_> {
    /// The next token. Pragmas before it take effect.
    fn token(&mut self) -> &Token {
        while let TokenKind::Pragma(_) | TokenKind::Enter | TokenKind::Leave = self.tokens[self.at].kind {
            let at = self.tokens[self.at].at;
            match self.tokens[self.at].kind.clone() {
                TokenKind::Enter => self.scopes.enter_file(),
                TokenKind::Leave => self.scopes.leave_file(),
                TokenKind::Pragma(pragma) => self.pragma(at, &pragma),
                _ => {}
            }
            self.at += 1;
        }
        &self.tokens[self.at]
    }

    fn pragma(&mut self, at: Location, pragma: &Pragma) {
        match pragma {
            Pragma::Prefix(prefix) => self.scopes.set_prefix(prefix),
            Pragma::Id { name, id } => self.scopes.pragma_id(at, name, id),
            Pragma::Version { name, version } => self.scopes.pragma_version(at, name, version),
        }
    }

    fn here(&mut self) -> Location {
        self.token().at
    }

    /// Takes the next token; the last one, the end, stays.
    fn take(&mut self) -> Token {
        let token = self.token().clone();
        self.behind = token.behind();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// The token `ahead` of the next one, without effects of pragmas.
    fn ahead(&mut self, ahead: usize) -> &TokenKind {
        self.token();
        let tokens = self.tokens[self.at..].iter().map(|token| &token.kind);
        let mut real =
            tokens.filter(|kind| !matches!(kind, TokenKind::Pragma(_) | TokenKind::Enter | TokenKind::Leave));
        real.nth(ahead).unwrap_or(&TokenKind::End)
    }

    /// Reports an error at the next token, unless one is there.
    fn fail<T>(&mut self, message: impl Into<String>) -> Parsed<T> {
        let at = self.here();
        if self.failed_at.replace(self.at) == Some(self.at) {
            return Err(Stop::Here);
        }
        self.fail_at(at, message)
    }

    fn fail_at<T>(&mut self, at: Location, message: impl Into<String>) -> Parsed<T> {
        self.scopes.session.error(at, message);
        self.scopes.session.is_full()?;
        Err(Stop::Here)
    }

    /// "expected A, found B".
    fn unexpected<T>(&mut self, expected: &str) -> Parsed<T> {
        let found = match &self.token().kind {
            TokenKind::Bad(why) => why.to_string(),
            kind => format!("expected {expected}, found {}", kind.describe()),
        };
        self.fail(found)
    }

    fn is_sign(&mut self, sign: char) -> bool {
        self.token().kind == TokenKind::Sign(sign)
    }

    fn eat_sign(&mut self, sign: char) -> bool {
        let is_sign = self.is_sign(sign);
        if is_sign {
            self.take();
        }
        is_sign
    }

    fn expect_sign(&mut self, sign: char, behind: &str) -> Parsed<()> {
        if self.eat_sign(sign) { Ok(()) } else { self.unexpected(&format!("\"{sign}\" {behind}")) }
    }

    /// The semicolon at an end. If it is missing at the end of a line, that is reported there, and reading goes on.
    fn semicolon(&mut self, behind: &str) -> Parsed<()> {
        let next = self.token();
        if !next.begins_line || next.kind == TokenKind::Sign(';') || matches!(next.kind, TokenKind::Bad(_)) {
            return self.expect_sign(';', behind);
        }
        match self.fail_at(self.behind, format!("expected \";\" {behind}")) {
            Err(Stop::Here) => Ok(()),
            other => other,
        }
    }

    fn is_word(&mut self, word: &str) -> bool {
        matches!(&self.token().kind, TokenKind::Word(text) if **text == *word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let is_word = self.is_word(word);
        if is_word {
            self.take();
        }
        is_word
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { self.unexpected(&format!("\"{word}\"")) }
    }

    /// The next token's text, if it is a word.
    fn word(&mut self) -> Option<Rc<str>> {
        match &self.token().kind {
            TokenKind::Word(text) => Some(Rc::clone(text)),
            _ => None,
        }
    }

    /// A name that is declared. A leading underscore escapes a keyword and is no part of the name.
    fn identifier(&mut self, what: &str) -> Parsed<Name> {
        let word = self.word().unwrap_or_default();
        let is_escaped = word.starts_with('_');
        if keyword::is_keyword(&word)
            && let Some(keyword::Clash::Error(message)) = keyword::clash(&word)
        {
            return self.fail(format!("expected {what}; {message}"));
        }
        let name = self.used_identifier(what)?;
        match keyword::clash(&name.text).filter(|_| !is_escaped) {
            Some(keyword::Clash::Error(message)) => return self.fail_at(name.at, message),
            Some(keyword::Clash::Warning(message)) => self.scopes.session.warning(name.at, message),
            None => {}
        }
        Ok(name)
    }

    /// A name that is used: it may be declared with an underscore, and used without.
    fn used_identifier(&mut self, what: &str) -> Parsed<Name> {
        let Some(word) = self.word().filter(|word| !keyword::is_keyword(word)) else {
            return self.unexpected(what);
        };
        let at = self.here();
        let text = match word.strip_prefix('_') {
            Some(escaped) => escaped.into(),
            None => word,
        };
        if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return self.fail(format!("\"{text}\" does not begin with a letter"));
        }
        self.take();
        Ok(Name { text, at })
    }

    fn is_scoped_name(&mut self) -> bool {
        match &self.token().kind {
            TokenKind::Scope => true,
            TokenKind::Word(text) => !keyword::is_keyword(text),
            _ => false,
        }
    }

    fn scoped_name(&mut self, what: &str) -> Parsed<ScopedName> {
        let is_absolute = self.token().kind == TokenKind::Scope;
        if is_absolute {
            self.take();
        }
        let mut parts = vec![self.used_identifier(what)?];
        while self.token().kind == TokenKind::Scope {
            self.take();
            parts.push(self.used_identifier("a name behind \"::\"")?);
            if parts.len() > NESTING_MAX {
                return self.fail(format!("a name with more than {NESTING_MAX} parts"));
            }
        }
        Ok(ScopedName { is_absolute, parts })
    }

    /// A name that must be declared.
    fn resolved(&mut self, what: &str) -> Parsed<Option<DefinitionId>> {
        let name = self.scoped_name(what)?;
        let found = self.scopes.resolve(&name);
        self.scopes.session.is_full()?;
        Ok(found)
    }

    /// Names between commas, each of which `accepts` takes. Those that are not declared are left out.
    fn names(
        &mut self,
        what: &str,
        mut accepts: impl FnMut(&mut Self, &ScopedName, DefinitionId) -> bool,
    ) -> Parsed<Vec<DefinitionId>> {
        let mut names = Vec::new();
        loop {
            let name = self.scoped_name(what)?;
            if let Some(id) = self.scopes.resolve(&name)
                && accepts(self, &name, id)
            {
                if names.contains(&id) {
                    self.scopes.session.error(name.at(), format!("\"{}\" is named twice", name.text()));
                } else {
                    names.push(id);
                }
            }
            self.scopes.session.is_full()?;
            if !self.eat_sign(',') {
                return Ok(names);
            }
        }
    }

    /// A string, as one text.
    fn string(&mut self, what: &str) -> Parsed<String> {
        match &self.token().kind {
            TokenKind::Text { is_wide: false, units } => {
                let text = String::from_utf16_lossy(units);
                self.take();
                Ok(text)
            }
            _ => self.unexpected(what),
        }
    }

    /// Reads with `read` one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= NESTING_MAX {
            self.fail::<()>(format!("more than {NESTING_MAX} levels of nesting")).ok();
            return Err(Stop::Run);
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Reads the scope of a definition with `read`.
    fn inside<T>(&mut self, id: DefinitionId, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.deeper(|parser| {
            let outer = parser.scopes.enter(id);
            let read = read(parser);
            parser.scopes.leave(outer);
            read
        })
    }

    /// Reads parts between braces with `read`, each of which ends itself. An error in one skips that part.
    fn body(
        &mut self,
        what: &str,
        mut read: impl FnMut(&mut Self, Vec<Annotation>) -> Parsed<()>,
    ) -> Parsed<()> {
        let begin = self.here();
        self.expect_sign('{', what)?;
        while !self.eat_sign('}') {
            if self.token().kind == TokenKind::End {
                return self.unclosed(begin);
            }
            let before = self.at;
            let part = self.annotations().and_then(|annotations| match self.is_sign('}') {
                // What defined an annotation was the last.
                true if annotations.is_empty() => Ok(()),
                _ => read(self, annotations),
            });
            self.recover(part, before)?;
        }
        Ok(())
    }

    /// The file ends before the brace that belongs to the one at `begin`. Only the innermost is reported.
    fn unclosed(&mut self, begin: Location) -> Parsed<()> {
        if self.failed_at.replace(self.at) != Some(self.at) {
            let notes = [(begin, "it would close this one".to_owned())];
            let message = "expected \"}\", found the end of the file";
            self.scopes.session.error_with(self.behind, message, &notes);
            self.scopes.session.is_full()?;
        }
        Err(Stop::Here)
    }

    /// After an error: goes on behind the next semicolon, or before the brace that ends the scope.
    fn recover(&mut self, read: Parsed<()>, before: usize) -> Parsed<()> {
        match read {
            Ok(()) => return Ok(()),
            Err(Stop::Run) => return Err(Stop::Run),
            Err(Stop::Here) => {}
        }
        let mut depth = 0usize;
        loop {
            match self.token().kind {
                TokenKind::End => return Ok(()),
                TokenKind::Sign('{') => depth += 1,
                TokenKind::Sign('}') if depth == 0 => break,
                TokenKind::Sign('}') => depth -= 1,
                TokenKind::Sign(';') if depth == 0 => {
                    self.take();
                    break;
                }
                _ => {}
            }
            self.take();
        }
        if self.at == before && self.depth == 0 {
            self.take();
        }
        Ok(())
    }
}
