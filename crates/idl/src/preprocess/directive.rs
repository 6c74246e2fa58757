//! The lines that begin with `#`.

use std::rc::Rc;

use super::{Preprocessor, word};
use crate::diagnostic::TooMany;
use crate::lexer::Lexer;
use crate::limits::CONDITIONS_MAX;
use crate::source::Location;
use crate::token::{Pragma, Token, TokenKind};

/// A `#if` that is open.
#[derive(Debug)]
pub(super) struct Condition {
    at: Location,
    /// What is around it is skipped.
    is_outer_skipped: bool,
    /// One of its parts was read.
    was_true: bool,
    /// The present part is read.
    is_true: bool,
    has_else: bool,
}

impl Preprocessor<'_> {
    /// Whether the present lines are skipped.
    pub(super) fn is_skipping(&self) -> bool {
        let conditions = self.open.last().map(|open| &open.conditions);
        conditions.and_then(|all| all.last()).is_some_and(|last| last.is_outer_skipped || !last.is_true)
    }

    pub(super) fn check_conditions(&mut self, conditions: &[Condition]) {
        for condition in conditions {
            self.session.error(condition.at, "this condition has no #endif");
        }
    }

    /// A directive, from its `#` on, up to the end of its line.
    pub(super) fn directive(&mut self, at: Location) -> Result<(), TooMany> {
        let Some(first) = self.lexer().next_on_line() else { return Ok(()) };
        let name = word(&first).unwrap_or_default();
        match &*name {
            "if" | "ifdef" | "ifndef" => self.open_condition(&name, first.at)?,
            "elif" | "else" | "endif" => self.go_on(&name, first.at),
            _ if self.is_skipping() => {}
            "include" => return self.include_line(first.at),
            "define" => self.with_lexer(Self::define),
            "undef" => match self.lexer().next_on_line().as_ref().and_then(word) {
                Some(name) => self.macros.undefine(&name),
                None => self.session.error(first.at, "#undef needs the name of a macro"),
            },
            "pragma" => return self.pragma(first.at),
            "line" => self.marker(at, None)?,
            "error" | "warning" => {
                let text = self.lexer().rest_of_line();
                match &*name {
                    "error" => self.session.error(first.at, format!("#error {text}")),
                    _ => self.session.warning(first.at, format!("#warning {text}")),
                }
            }
            "ident" | "sccs" => {}
            _ => match first.kind {
                TokenKind::Number(_) => self.marker(at, Some(first))?,
                _ => self.session.error(first.at, format!("unknown directive: {}", first.kind.describe())),
            },
        }
        self.lexer().rest_of_line();
        Ok(())
    }

    /// Calls `act` with the lexer of the present file.
    fn with_lexer(&mut self, act: impl FnOnce(&mut Self, &mut Lexer)) {
        let file = self.lexer().location().file;
        let empty = Lexer::new(file, Rc::from(""));
        let mut lexer = std::mem::replace(self.lexer(), empty);
        act(self, &mut lexer);
        *self.lexer() = lexer;
    }

    fn open_condition(&mut self, name: &str, at: Location) -> Result<(), TooMany> {
        let is_outer_skipped = self.is_skipping();
        let is_true = !is_outer_skipped && self.is_true(name, at);
        let conditions = &mut self.open.last_mut().expect("a file is being read").conditions;
        if conditions.len() >= CONDITIONS_MAX {
            self.session.error(at, format!("more than {CONDITIONS_MAX} nested conditions"));
            return Err(TooMany);
        }
        conditions.push(Condition { at, is_outer_skipped, was_true: is_true, is_true, has_else: false });
        Ok(())
    }

    fn is_true(&mut self, name: &str, at: Location) -> bool {
        if name == "if" || name == "elif" {
            return self.value_of_condition(at);
        }
        match self.lexer().next_on_line().as_ref().and_then(word) {
            Some(word) => self.macros.is_defined(&word) == (name == "ifdef"),
            None => {
                self.session.error(at, format!("#{name} needs the name of a macro"));
                false
            }
        }
    }

    /// `#elif`, `#else` and `#endif`.
    fn go_on(&mut self, name: &str, at: Location) {
        let conditions = &mut self.open.last_mut().expect("a file is being read").conditions;
        let Some(mut condition) = conditions.pop() else {
            self.session.error(at, format!("#{name} without #if"));
            return;
        };
        if name == "endif" {
            return;
        }
        if condition.has_else {
            self.session.error(at, format!("#{name} after #else"));
        }
        let may_be = !condition.was_true && !condition.is_outer_skipped;
        condition.is_true = may_be && (name == "else" || self.is_true(name, at));
        condition.was_true |= condition.is_true;
        condition.has_else |= name == "else";
        self.open.last_mut().expect("a file is being read").conditions.push(condition);
    }

    /// `#include "NAME"`, `#include <NAME>`, or with a macro that is one of them.
    fn include_line(&mut self, at: Location) -> Result<(), TooMany> {
        let mut line = self.lexer().rest_of_line();
        if !line.starts_with(['"', '<'])
            && let Some(body) = self.macros.text_of(&line)
        {
            line = body;
        }
        let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let angled = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        match (quoted, angled) {
            (Some((name, _)), _) if !name.is_empty() => self.include(at, name, true),
            (_, Some((name, _))) if !name.is_empty() => self.include(at, name, false),
            _ => {
                self.session.error(at, "#include needs \"FILE\" or <FILE>");
                Ok(())
            }
        }
    }

    /// `#line 12 "a.idl"`, `# 12 "a.idl" 1`: flag 1 begins an included file, flag 2 ends one.
    fn marker(&mut self, at: Location, number: Option<Token>) -> Result<(), TooMany> {
        let number = number.or_else(|| self.lexer().next_on_line());
        let line = match number.as_ref().map(|token| &token.kind) {
            Some(TokenKind::Number(digits)) => digits.parse::<u64>().ok(),
            _ => None,
        };
        let Some(line) = line else {
            self.session.error(at, "a line marker needs the number of a line");
            return Ok(());
        };
        let name = self.lexer().next_on_line().and_then(|token| match token.kind {
            TokenKind::Text { units, .. } => Some(String::from_utf16_lossy(&units)),
            _ => None,
        });
        let flags = self.lexer().rest_of_line();
        self.session.sources.mark(at, line, name.as_deref());
        match flags.split_whitespace().next() {
            Some("1") => self.emit_kind(TokenKind::Enter, at),
            Some("2") => self.emit_kind(TokenKind::Leave, at),
            _ => Ok(()),
        }
    }

    /// `#pragma prefix "P"`, `ID NAME "ID"`, `version NAME 1.2`, `once`; others are for other compilers.
    fn pragma(&mut self, at: Location) -> Result<(), TooMany> {
        let Some(kind) = self.lexer().next_on_line().as_ref().and_then(word) else { return Ok(()) };
        let pragma = match &*kind {
            "prefix" => self.lexer().next_on_line().as_ref().and_then(text).map(Pragma::Prefix),
            "ID" => self
                .name_and_rest()
                .and_then(|(name, rest)| Some(Pragma::Id { name, id: rest.as_ref().and_then(text)? })),
            "version" => self.name_and_rest().and_then(|(name, rest)| match rest?.kind {
                TokenKind::Number(version) => Some(Pragma::Version { name, version: version.to_string() }),
                _ => None,
            }),
            "once" => {
                self.once();
                return Ok(());
            }
            _ => {
                self.lexer().rest_of_line();
                return Ok(());
            }
        };
        let is_whole = self.lexer().rest_of_line().is_empty();
        match pragma.filter(|_| is_whole) {
            Some(pragma) => self.emit_kind(TokenKind::Pragma(Rc::new(pragma)), at),
            None => {
                let form = match &*kind {
                    "prefix" => "prefix \"PREFIX\"",
                    "ID" => "ID NAME \"ID\"",
                    _ => "version NAME MAJOR.MINOR",
                };
                self.session.error(at, format!("this pragma has the form: #pragma {form}"));
                Ok(())
            }
        }
    }

    /// A scoped name, and the token behind it.
    fn name_and_rest(&mut self) -> Option<(String, Option<Token>)> {
        let mut name = String::new();
        loop {
            let token = self.lexer().next_on_line();
            match token.as_ref().map(|token| &token.kind) {
                Some(TokenKind::Scope) => name.push_str("::"),
                Some(TokenKind::Word(word)) if name.is_empty() || name.ends_with("::") => name.push_str(word),
                _ => return Some((name, token)),
            }
        }
    }
}

/// The text of a string.
fn text(token: &Token) -> Option<String> {
    match &token.kind {
        TokenKind::Text { is_wide: false, units } => Some(String::from_utf16_lossy(units)),
        _ => None,
    }
}
