//! The preprocessor: files to one list of tokens.
//!
//! | module | owns |
//! |---|---|
//! | this | files: inclusion and its limits |
//! | `directive` | the lines that begin with `#` |
//! | `condition` | the values of `#if` |
//! | `macros` | definitions of macros and what they produce |
//!
//! Tokens keep the place where they were written, those of a macro the place where it was used.

mod condition;
mod directive;
mod macros;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::diagnostic::{Session, TooMany};
use crate::lexer::Lexer;
use crate::limits::{
    FILE_BYTES_MAX, INCLUDE_DEPTH_MAX, INCLUDES_MAX, OPEN_TWICE_MAX, READ_BYTES_MAX, TOKENS_MAX,
};
use crate::source::{FileId, Location};
use crate::token::{Token, TokenKind};
use crate::{Loader, Options};

use directive::Condition;
use macros::Macros;

/// A file that is being read.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    lexer: Lexer,
    conditions: Vec<Condition>,
}

/// Reads files.
pub(crate) struct Preprocessor<'a> {
    session: &'a mut Session,
    loader: &'a mut dyn Loader,
    include_dirs: &'a [PathBuf],
    macros: Macros,
    open: Vec<Open>,
    once: Vec<PathBuf>,
    includes: usize,
    read_bytes: usize,
    output: Vec<Token>,
}

impl<'a> Preprocessor<'a> {
    pub fn new(session: &'a mut Session, loader: &'a mut dyn Loader, options: &'a Options) -> Self {
        let mut new = Self {
            session,
            loader,
            include_dirs: &options.include_dirs,
            macros: Macros::default(),
            open: Vec::new(),
            once: Vec::new(),
            includes: 0,
            read_bytes: 0,
            output: Vec::new(),
        };
        for (name, value) in &options.defines {
            let file = new.session.sources.add("<command line>", format!("{name} {value}").into());
            let mut lexer = Lexer::within_line(file, new.session.sources.text(file));
            new.define(&mut lexer);
        }
        new
    }

    /// All tokens of the file at `path`, whose text is `bytes`, and of what it includes. The last one is
    /// [`TokenKind::End`].
    pub fn run(mut self, path: &Path, bytes: Vec<u8>) -> Result<Vec<Token>, TooMany> {
        let file = self.session.sources.add(&path.display().to_string(), bytes);
        let end = self.file(path.to_owned(), file)?;
        self.output.push(Token { kind: TokenKind::End, at: end, is_glued: false, begins_line: true });
        Ok(self.output)
    }

    fn file(&mut self, path: PathBuf, file: FileId) -> Result<Location, TooMany> {
        let lexer = Lexer::new(file, self.session.sources.text(file));
        self.open.push(Open { path, lexer, conditions: Vec::new() });
        loop {
            self.session.is_full()?;
            let token = self.next();
            if token.kind == TokenKind::End {
                if let Some(open) = self.open.pop() {
                    self.check_conditions(&open.conditions);
                }
                return Ok(token.at);
            }
            if token.begins_line && token.kind == TokenKind::Sign('#') {
                self.directive(token.at)?;
            } else if self.is_skipping() {
                self.lexer().rest_of_line();
            } else {
                self.expand(token)?;
            }
        }
    }

    /// The file that is being read.
    fn lexer(&mut self) -> &mut Lexer {
        &mut self.open.last_mut().expect("a file is being read").lexer
    }

    /// The next token: what a macro produced, or the file's.
    fn next(&mut self) -> Token {
        self.macros.pending.pop().unwrap_or_else(|| self.lexer().next())
    }

    fn emit(&mut self, token: Token) -> Result<(), TooMany> {
        if self.output.len() >= TOKENS_MAX {
            self.session.error(token.at, format!("more than {TOKENS_MAX} tokens"));
            return Err(TooMany);
        }
        self.output.push(token);
        Ok(())
    }

    fn emit_kind(&mut self, kind: TokenKind, at: Location) -> Result<(), TooMany> {
        self.emit(Token { kind, at, is_glued: false, begins_line: false })
    }

    /// `#include`: `name` in quotes is searched beside the including file first, in angles not there.
    fn include(&mut self, at: Location, name: &str, is_quoted: bool) -> Result<(), TooMany> {
        let beside = self.open.last().and_then(|open| open.path.parent()).map(Path::to_owned);
        let folders = beside.into_iter().filter(|_| is_quoted).chain(self.include_dirs.iter().cloned());
        let candidates: Vec<PathBuf> = folders.map(|folder| folder.join(name)).collect();
        for path in candidates {
            match self.loader.load(&path) {
                Ok(Some(bytes)) => return self.enter(at, path, bytes),
                Ok(None) => {}
                // A folder may have the name of a file that is in another one.
                Err(error) if error.kind() == ErrorKind::IsADirectory => {}
                Err(error) => {
                    self.session.error(at, format!("cannot read {}: {error}", path.display()));
                    return Ok(());
                }
            }
        }
        self.session.error(at, format!("cannot find the file \"{name}\": is a folder missing (-I)?"));
        Ok(())
    }

    /// Reads an included file, unless a limit forbids it.
    fn enter(&mut self, at: Location, path: PathBuf, bytes: Vec<u8>) -> Result<(), TooMany> {
        if self.once.contains(&path) {
            return Ok(());
        }
        if let Some(why) = self.refusal(&path, bytes.len()) {
            self.session.error(at, why);
            return Err(TooMany);
        }
        self.includes += 1;
        self.read_bytes += bytes.len();
        let file = self.session.sources.add(&path.display().to_string(), bytes);
        self.emit_kind(TokenKind::Enter, at)?;
        let end = self.file(path, file)?;
        self.emit_kind(TokenKind::Leave, end)
    }

    /// Why the file must not be included.
    fn refusal(&self, path: &Path, bytes: usize) -> Option<String> {
        let open = self.open.iter().filter(|open| open.path == path).count();
        if open >= OPEN_TWICE_MAX {
            let chain: Vec<_> = self.open.iter().map(|open| open.path.display().to_string()).collect();
            let chain = chain[chain.len() - chain.len().min(4)..].join(", which includes ");
            return Some(format!("{} includes itself ({chain})", path.display()));
        }
        let exceeded = [
            (self.open.len(), INCLUDE_DEPTH_MAX, "files that include each other"),
            (self.includes, INCLUDES_MAX, "included files"),
            (bytes.saturating_sub(1), FILE_BYTES_MAX, "bytes in one file"),
            ((self.read_bytes + bytes).saturating_sub(1), READ_BYTES_MAX, "bytes in all files"),
        ];
        let (_, limit, what) = exceeded.into_iter().find(|(there, limit, _)| there >= limit)?;
        Some(format!("more than {limit} {what}"))
    }

    /// `#pragma once`.
    fn once(&mut self) {
        if let Some(open) = self.open.last() {
            self.once.push(open.path.clone());
        }
    }
}

/// The words of a line, for messages and for names of macros.
fn word(token: &Token) -> Option<Rc<str>> {
    match &token.kind {
        TokenKind::Word(word) => Some(Rc::clone(word)),
        _ => None,
    }
}
