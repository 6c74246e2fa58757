//! Macros: their definitions, and what they produce (ISO C 6.10.3).

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::{Preprocessor, word};
use crate::diagnostic::TooMany;
use crate::lexer::Lexer;
use crate::limits::{MACRO_PARAMETERS_MAX, MACRO_TOKENS_MAX, NESTING_MAX};
use crate::source::Location;
use crate::token::{Token, TokenKind};

/// A definition.
#[derive(Debug)]
struct Macro {
    /// `None`: it has no parentheses.
    parameters: Option<Vec<Rc<str>>>,
    body: Vec<Token>,
    /// The text of the body, for `#include NAME`.
    text: String,
}

/// All definitions.
#[derive(Debug, Default)]
pub(super) struct Macros {
    defined: HashMap<Rc<str>, Rc<Macro>>,
    /// Macros whose replacement is being read: they are not replaced again.
    active: HashSet<Rc<str>>,
    /// What was produced and not read yet, in reverse order.
    pub pending: Vec<Token>,
    produced: usize,
    depth: usize,
}

impl Macros {
    pub fn is_defined(&self, name: &str) -> bool {
        self.defined.contains_key(name)
    }

    pub fn undefine(&mut self, name: &str) {
        self.defined.remove(name);
    }

    pub fn text_of(&self, name: &str) -> Option<String> {
        Some(self.defined.get(name)?.text.clone())
    }
}

impl Preprocessor<'_> {
    /// `#define`, from the macro's name on.
    pub(super) fn define(&mut self, lexer: &mut Lexer) {
        let at = lexer.location();
        let Some(name) = lexer.next_on_line().as_ref().and_then(word) else {
            self.session.error(at, "#define needs the name of a macro");
            return;
        };
        let mut next = lexer.next_on_line();
        let opens = next.as_ref().is_some_and(|t| t.kind == TokenKind::Sign('(') && t.is_glued);
        let mut parameters = None;
        if opens {
            match self.parameters(lexer) {
                Some(found) => parameters = Some(found),
                None => {
                    self.session.error(at, format!("the parameters of the macro {name} are not names"));
                    return;
                }
            }
            next = lexer.next_on_line();
        }
        let mut body = Vec::new();
        let mut text = String::new();
        while let Some(token) = next {
            text.push_str(&spelling(&token));
            body.push(token);
            next = lexer.next_on_line();
        }
        self.macros.defined.insert(name, Rc::new(Macro { parameters, body, text }));
    }

    fn parameters(&mut self, lexer: &mut Lexer) -> Option<Vec<Rc<str>>> {
        let mut parameters = Vec::new();
        loop {
            let token = lexer.next_on_line()?;
            match (&token.kind, parameters.len()) {
                (TokenKind::Sign(')'), 0) => return Some(parameters),
                (TokenKind::Word(name), there) if there < MACRO_PARAMETERS_MAX => {
                    parameters.push(Rc::clone(name));
                }
                _ => return None,
            }
            match lexer.next_on_line()?.kind {
                TokenKind::Sign(',') => {}
                TokenKind::Sign(')') => return Some(parameters),
                _ => return None,
            }
        }
    }

    /// Emits a token, or what stands for it.
    pub(super) fn expand(&mut self, token: Token) -> Result<(), TooMany> {
        if let TokenKind::EndMacro(name) = &token.kind {
            self.macros.active.remove(name);
            return Ok(());
        }
        match self.begin_macro(&token, true) {
            true => Ok(()),
            false => self.emit(token),
        }
    }

    /// Expands `tokens` for themselves: an argument, or a condition.
    pub(super) fn expand_all(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        if self.macros.depth >= NESTING_MAX {
            if let Some(token) = tokens.first() {
                self.session.error(token.at, format!("more than {NESTING_MAX} nested uses of macros"));
            }
            return tokens;
        }
        self.macros.depth += 1;
        let outer = std::mem::replace(&mut self.macros.pending, tokens);
        self.macros.pending.reverse();
        let mut expanded = Vec::new();
        while let Some(token) = self.macros.pending.pop() {
            if let TokenKind::EndMacro(name) = &token.kind {
                self.macros.active.remove(name);
            } else if !self.begin_macro(&token, false) {
                expanded.push(token);
            }
        }
        self.macros.pending = outer;
        self.macros.depth -= 1;
        expanded
    }

    /// Puts what stands for `token` before the tokens to be read. Returns whether it is a macro.
    fn begin_macro(&mut self, token: &Token, from_file: bool) -> bool {
        let Some(name) = word(token) else { return false };
        let Some(found) = self.macros.defined.get(&name).filter(|_| !self.macros.active.contains(&name))
        else {
            return false;
        };
        let found = Rc::clone(found);
        let arguments = match &found.parameters {
            None => Vec::new(),
            Some(parameters) => match self.arguments(parameters.len(), token.at, from_file) {
                Some(arguments) => arguments,
                None => return false,
            },
        };
        let replacement = self.substitute(&found, &arguments, token.at);
        self.macros.produced += replacement.len() + 1;
        if self.macros.produced > MACRO_TOKENS_MAX {
            self.session.error(token.at, format!("macros produce more than {MACRO_TOKENS_MAX} tokens"));
            self.macros.defined.clear();
            return true;
        }
        self.macros.active.insert(Rc::clone(&name));
        self.macros.pending.push(Token { kind: TokenKind::EndMacro(name), ..token.clone() });
        let first = token.is_glued;
        let placed = replacement.into_iter().enumerate().map(|(number, body)| Token {
            at: token.at,
            is_glued: if number == 0 { first } else { body.is_glued },
            begins_line: false,
            ..body
        });
        let mut placed: Vec<Token> = placed.collect();
        placed.reverse();
        self.macros.pending.append(&mut placed);
        true
    }

    fn next_of(&mut self, from_file: bool) -> Option<Token> {
        match self.macros.pending.pop() {
            Some(token) => Some(token),
            None if from_file => Some(self.lexer().next()).filter(|token| token.kind != TokenKind::End),
            None => None,
        }
    }

    /// The arguments in parentheses behind a macro's name; `None` if no parenthesis follows.
    fn arguments(&mut self, count: usize, at: Location, from_file: bool) -> Option<Vec<Vec<Token>>> {
        let next = loop {
            match self.next_of(from_file)? {
                Token { kind: TokenKind::EndMacro(name), .. } => {
                    self.macros.active.remove(&name);
                }
                token => break token,
            }
        };
        if next.kind != TokenKind::Sign('(') {
            self.macros.pending.push(next);
            return None;
        }
        let (mut arguments, mut depth) = (vec![Vec::new()], 0usize);
        loop {
            let Some(token) = self.next_of(from_file) else {
                self.session.error(at, "the arguments of this macro have no \")\"");
                break;
            };
            match token.kind {
                TokenKind::EndMacro(name) => {
                    self.macros.active.remove(&name);
                    continue;
                }
                TokenKind::Sign('(') => depth += 1,
                TokenKind::Sign(')') if depth == 0 => break,
                TokenKind::Sign(')') => depth -= 1,
                TokenKind::Sign(',') if depth == 0 && arguments.len() < count => {
                    arguments.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            arguments.last_mut().expect("there is one").push(token);
        }
        if count == 0 && arguments == [Vec::new()] {
            arguments.clear();
        }
        if arguments.len() != count {
            let given = arguments.len();
            self.session.error(at, format!("this macro has {count} parameters, and {given} are given"));
            arguments.resize(count, Vec::new());
        }
        Some(arguments)
    }

    /// The body with arguments in the place of parameters.
    fn substitute(&mut self, found: &Macro, arguments: &[Vec<Token>], at: Location) -> Vec<Token> {
        let Some(parameters) = &found.parameters else { return paste(found.body.clone()) };
        let number = |token: &Token| word(token).and_then(|name| parameters.iter().position(|p| *p == name));
        let is_sign = |at: usize| found.body.get(at).is_some_and(|t| t.kind == TokenKind::Sign('#'));
        let mut expanded: Vec<Option<Vec<Token>>> = vec![None; arguments.len()];
        let (mut replaced, mut here) = (Vec::new(), 0);
        while let Some(token) = found.body.get(here) {
            if replaced.len() > MACRO_TOKENS_MAX {
                break;
            }
            let pastes_next = is_sign(here + 1) && is_sign(here + 2);
            let pasted = here >= 2 && is_sign(here - 1) && is_sign(here - 2);
            if is_sign(here) && is_sign(here + 1) {
                replaced.extend(found.body[here..here + 2].iter().cloned());
                here += 2;
                continue;
            }
            if is_sign(here)
                && !pasted
                && let Some(parameter) = found.body.get(here + 1).and_then(number)
            {
                replaced.push(stringify(&arguments[parameter], at));
                here += 2;
                continue;
            }
            match number(token) {
                Some(parameter) if pastes_next || pasted => {
                    replaced.extend(arguments[parameter].iter().cloned())
                }
                Some(parameter) => {
                    if expanded[parameter].is_none() {
                        expanded[parameter] = Some(self.expand_all(arguments[parameter].clone()));
                    }
                    replaced.extend(expanded[parameter].iter().flatten().cloned());
                }
                None => replaced.push(token.clone()),
            }
            here += 1;
        }
        paste(replaced)
    }
}

/// How a token was written, nearly: enough for `#`, `##` and file names.
fn spelling(token: &Token) -> String {
    let quoted = |is_wide: bool, quote: char, units: &[u16]| {
        let text = String::from_utf16_lossy(units).replace('\\', "\\\\").replace('"', "\\\"");
        format!("{}{quote}{text}{quote}", if is_wide { "L" } else { "" })
    };
    match &token.kind {
        TokenKind::Word(text) | TokenKind::Number(text) => text.to_string(),
        TokenKind::Character { is_wide, units } => quoted(*is_wide, '\'', units),
        TokenKind::Text { is_wide, units } => quoted(*is_wide, '"', units),
        TokenKind::Scope => "::".into(),
        TokenKind::Sign(sign) => sign.to_string(),
        _ => String::new(),
    }
}

/// `#`: the text of an argument as a string.
fn stringify(argument: &[Token], at: Location) -> Token {
    let mut text = String::new();
    for token in argument {
        if !token.is_glued && !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&spelling(token));
    }
    let units: Vec<u16> = text.encode_utf16().collect();
    Token {
        kind: TokenKind::Text { is_wide: false, units: units.into() },
        at,
        is_glued: false,
        begins_line: false,
    }
}

/// `##`: one token of the two beside it. What is no word or number stays two tokens side by side.
fn paste(tokens: Vec<Token>) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        let is_sign = |token: &Token| token.kind == TokenKind::Sign('#');
        if !(is_sign(&token) && rest.peek().is_some_and(|next| is_sign(next) && next.is_glued)) {
            out.push(token);
            continue;
        }
        rest.next();
        let Some(right) = rest.next() else { break };
        let Some(left) = out.pop() else {
            out.push(right);
            continue;
        };
        let text = spelling(&left) + &spelling(&right);
        match (&left.kind, &right.kind) {
            (TokenKind::Word(_), TokenKind::Word(_) | TokenKind::Number(_)) => {
                out.push(Token { kind: TokenKind::Word(text.into()), ..left });
            }
            (TokenKind::Number(_), TokenKind::Word(_) | TokenKind::Number(_)) => {
                out.push(Token { kind: TokenKind::Number(text.into()), ..left });
            }
            _ => out.extend([left, Token { is_glued: true, ..right }]),
        }
    }
    out
}
