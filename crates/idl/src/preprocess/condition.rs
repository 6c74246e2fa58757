//! The values of `#if` and `#elif`: C's expressions over 64-bit integers (ISO C 6.10.1).

use super::{Preprocessor, word};
use crate::limits::NESTING_MAX;
use crate::source::Location;
use crate::token::{Token, TokenKind};

/// Binary operators, and how strongly they bind. Longer ones first.
const OPERATORS: &[(&str, u8)] = &[
    ("||", 1),
    ("&&", 2),
    ("==", 6),
    ("!=", 6),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("<", 7),
    (">", 7),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

/// Reads an expression.
struct Reader {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Preprocessor<'_> {
    /// Whether the expression on the rest of the line is true. An error is false.
    pub(super) fn value_of_condition(&mut self, at: Location) -> bool {
        let mut tokens = Vec::new();
        while let Some(token) = self.lexer().next_on_line() {
            tokens.push(token);
        }
        let tokens = self.replace_defined(tokens);
        let tokens = self.expand_all(tokens);
        let mut reader = Reader { tokens, at: 0, depth: 0 };
        let value = reader.binary(1).and_then(|value| match reader.tokens.get(reader.at) {
            None => Ok(value),
            Some(token) => Err(format!("{} is not expected in this condition", token.kind.describe())),
        });
        value.map(|value| value != 0).unwrap_or_else(|why| {
            self.session.error(at, why);
            false
        })
    }

    /// Replaces `defined NAME` and `defined(NAME)` by 1 or 0.
    fn replace_defined(&self, tokens: Vec<Token>) -> Vec<Token> {
        let mut replaced = Vec::new();
        let mut rest = tokens.into_iter().peekable();
        while let Some(token) = rest.next() {
            if word(&token).as_deref() != Some("defined") {
                replaced.push(token);
                continue;
            }
            let in_parentheses = rest.next_if(|next| next.kind == TokenKind::Sign('(')).is_some();
            let name = rest.next().as_ref().and_then(word).unwrap_or_default();
            if in_parentheses {
                rest.next_if(|next| next.kind == TokenKind::Sign(')'));
            }
            let value = if self.macros.is_defined(&name) { "1" } else { "0" };
            replaced.push(Token { kind: TokenKind::Number(value.into()), ..token });
        }
        replaced
    }
}

impl Reader {
    /// The operator at the present place, if it binds at least as strongly as `least`.
    fn operator(&self, least: u8) -> Option<(&'static str, u8)> {
        let (operator, strength) = *OPERATORS.iter().find(|(operator, _)| {
            operator.chars().enumerate().all(|(number, sign)| {
                let token = self.tokens.get(self.at + number);
                token.is_some_and(|t| t.kind == TokenKind::Sign(sign) && (number == 0 || t.is_glued))
            })
        })?;
        (strength >= least).then_some((operator, strength))
    }

    fn binary(&mut self, least: u8) -> Result<i64, String> {
        let mut left = self.unary()?;
        while let Some((operator, strength)) = self.operator(least) {
            self.at += operator.len();
            let right = self.binary(strength + 1)?;
            left = apply(operator, left, right)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(format!("a condition with more than {NESTING_MAX} levels"));
        }
        let value = self.operand();
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Result<i64, String> {
        let token = self.tokens.get(self.at).ok_or("this condition is not complete")?;
        self.at += 1;
        match &token.kind {
            TokenKind::Sign('!') => Ok(i64::from(self.unary()? == 0)),
            TokenKind::Sign('-') => Ok(self.unary()?.wrapping_neg()),
            TokenKind::Sign('+') => self.unary(),
            TokenKind::Sign('~') => Ok(!self.unary()?),
            TokenKind::Sign('(') => {
                let value = self.binary(1)?;
                let closes = self.tokens.get(self.at).is_some_and(|t| t.kind == TokenKind::Sign(')'));
                self.at += 1;
                if closes { Ok(value) } else { Err("this condition lacks a \")\"".into()) }
            }
            TokenKind::Number(digits) => number(digits),
            TokenKind::Character { units, .. } => Ok(units.first().map_or(0, |&unit| i64::from(unit))),
            // What is no macro counts as 0.
            TokenKind::Word(_) => Ok(0),
            other => Err(format!("{} is not expected in this condition", other.describe())),
        }
    }
}

fn apply(operator: &str, left: i64, right: i64) -> Result<i64, String> {
    Ok(match operator {
        "||" => i64::from(left != 0 || right != 0),
        "&&" => i64::from(left != 0 && right != 0),
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "<<" => left.wrapping_shl(right as u32),
        ">>" => left.wrapping_shr(right as u32),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        _ if right == 0 => return Err("division by zero in this condition".into()),
        "/" => left.wrapping_div(right),
        _ => left.wrapping_rem(right),
    })
}

/// C's integers: decimal, octal, hexadecimal, with suffixes.
fn number(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    u64::from_str_radix(digits, radix)
        .map(|value| value as i64)
        .map_err(|_| format!("not an integer: {text}"))
}
