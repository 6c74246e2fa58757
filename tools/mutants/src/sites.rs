//! The places of a source text where a mistake can be made.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Signature, Stmt};

use crate::Error;
use crate::operators::{self, Operator};

/// How a mistake is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The expression is this one.
    Expression(String),
    /// The statement is left out.
    Deletion,
    /// The function returns this at once; the range is where its body begins.
    Return(String),
}

/// A place and a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Byte range in the text.
    pub range: Range<usize>,
    /// From 1.
    pub line: usize,
    /// The function, with its type.
    pub function: String,
    /// The kind of mistake.
    pub operator: Operator,
    /// The original text, with each run of white space as one space.
    pub original: String,
    /// The mutated text; empty: nothing.
    pub mutated: String,
    /// Which of several in one function with the same texts, from 1.
    pub nth: usize,
    /// How it is written.
    pub change: Change,
}

/// All sites of a file, and the modules that it declares for tests only.
#[derive(Debug, Default)]
pub struct Found {
    /// The sites, in the order of the text.
    pub sites: Vec<Site>,
    /// Names of modules in files of their own that are compiled for tests only.
    pub test_modules: Vec<String>,
}

/// Finds all sites of `text`.
///
/// # Errors
/// If it is not valid Rust.
pub fn find(path: &Path, text: &str) -> Result<Found, Error> {
    let file = syn::parse_file(text).map_err(|cause| Error::Syntax { path: path.into(), cause })?;
    let mut finder = Finder { text, found: Found::default(), place: Vec::new(), seen: HashMap::new() };
    finder.visit_file(&file);
    finder.found.sites.sort_by_key(|site| (site.range.start, usize::MAX - site.range.end));
    Ok(finder.found)
}

struct Finder<'t> {
    text: &'t str,
    found: Found,
    /// Types and functions around.
    place: Vec<String>,
    seen: HashMap<(String, Operator, String, String), usize>,
}

/// White space counts once.
pub fn normalised(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether only tests, or the check by deliberate faults, compile this.
fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let conditions = || match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        path.is_ident("test")
            || path.is_ident("cfg") && {
                let conditions = conditions();
                conditions.contains("test") || conditions.contains("mutations")
            }
    })
}

/// Whether there is a `let` among the conditions of `expression`: such a one is no value.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl Finder<'_> {
    fn text_of(&self, part: &impl Spanned) -> &str {
        &self.text[part.span().byte_range()]
    }

    fn add(
        &mut self,
        operator: Operator,
        range: Range<usize>,
        line: usize,
        original: String,
        change: Change,
    ) {
        let mutated = match &change {
            Change::Expression(text) => normalised(text),
            Change::Deletion => String::new(),
            Change::Return(value) => format!("return {value}").trim_end().to_owned(),
        };
        let function = self.place.join("::");
        let key = (function.clone(), operator, original.clone(), mutated.clone());
        let nth = self.seen.entry(key).and_modify(|nth| *nth += 1).or_insert(1);
        let site = Site { range, line, function, operator, original, mutated, nth: *nth, change };
        self.found.sites.push(site);
    }

    fn add_expression(&mut self, operator: Operator, whole: &impl Spanned, mutated: String) {
        let span = whole.span();
        let original = normalised(self.text_of(whole));
        self.add(operator, span.byte_range(), span.start().line, original, Change::Expression(mutated));
    }

    /// The text of `whole` with `part` of it replaced.
    fn with(&self, whole: &impl Spanned, part: &impl Spanned, by: &str) -> String {
        let (whole, part) = (whole.span().byte_range(), part.span().byte_range());
        format!("{}{by}{}", &self.text[whole.start..part.start], &self.text[part.end..whole.end])
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() {
            return;
        }
        self.place.push(signature.ident.to_string());
        let inside =
            block.brace_token.span.open().byte_range().end..block.brace_token.span.close().byte_range().start;
        let body = normalised(&self.text[inside.clone()]);
        if !body.is_empty() {
            for value in operators::defaults(&signature.output).into_iter().filter(|value| *value != body) {
                let line = block.span().start().line;
                let start = inside.start..inside.start;
                self.add(Operator::Return, start, line, "the body".into(), Change::Return(value));
            }
        }
        self.visit_block(block);
        self.place.pop();
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        if has_let(&binary.left) || has_let(&binary.right) {
            return;
        }
        if let Some((operator, other)) = operators::binary(&binary.op) {
            let (left, right) = (self.text_of(&binary.left), self.text_of(&binary.right));
            let assigns = other.ends_with('=') && operator != Operator::Comparison;
            let mutated = if assigns {
                format!("{left} {other} {right}")
            } else {
                format!("({left}) {other} ({right})")
            };
            self.add_expression(operator, binary, mutated);
        }
    }

    fn condition(&mut self, condition: &Expr) {
        if !has_let(condition) {
            let mutated = format!("!({})", self.text_of(condition));
            self.add_expression(Operator::Condition, condition, mutated);
        }
    }

    fn literal(&mut self, literal: &syn::ExprLit) {
        let syn::Lit::Int(number) = &literal.lit else {
            return;
        };
        let Ok(value) = number.base10_parse::<u128>() else {
            return;
        };
        let suffix = number.suffix();
        for other in [value.checked_add(1), value.checked_sub(1)].into_iter().flatten() {
            self.add_expression(Operator::Literal, literal, format!("{other}{suffix}"));
        }
    }

    fn method(&mut self, call: &syn::ExprMethodCall) {
        if let Some(other) = operators::method(&call.method.to_string()) {
            let mutated = self.with(call, &call.method, other);
            self.add_expression(Operator::Method, call, mutated);
        }
    }

    /// Whether a condition queries a deliberate fault (ADR 0017): those have their own check.
    fn is_deliberate(&self, expression: &Expr) -> bool {
        self.text_of(expression).contains("Mutation::")
    }
}

/// Whether a statement that is this expression can be left out.
fn can_go(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => operators::binary(&binary.op).is_some_and(|(_, other)| other.ends_with('=')),
        Expr::Try(inner) => can_go(&inner.expr),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !only_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        } else if module.content.is_none() {
            self.found.test_modules.push(module.ident.to_string());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !only_for_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !only_for_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of_trait = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let of_trait = of_trait.map(|segment| segment.ident.to_string());
        let shows = of_trait.as_ref().is_some_and(|name| name == "Debug" || name == "Display");
        if shows || only_for_tests(&item.attrs) {
            return;
        }
        let own = normalised(self.text_of(&item.self_ty));
        self.place.push(of_trait.map_or(own.clone(), |name| format!("<{own} as {name}>")));
        item.items.iter().for_each(|item| self.visit_impl_item(item));
        self.place.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.place.push(item.ident.to_string());
        item.items.iter().for_each(|item| self.visit_trait_item(item));
        self.place.pop();
    }

    // Expressions that the compiler evaluates, and items that are no expressions.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        if self.is_deliberate(&branch.cond) {
            if let Some((_, other)) = &branch.else_branch {
                self.visit_expr(other);
            }
            return;
        }
        self.condition(&branch.cond);
        visit::visit_expr_if(self, branch);
    }

    fn visit_expr_while(&mut self, repeated: &'ast syn::ExprWhile) {
        self.condition(&repeated.cond);
        visit::visit_expr_while(self, repeated);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            if self.is_deliberate(guard) {
                return;
            }
            self.condition(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let sides = [&*binary.left, &*binary.right];
        if sides.iter().any(|side| self.is_deliberate(side)) {
            for side in sides {
                if !self.is_deliberate(side) {
                    self.visit_expr(side);
                }
            }
            return;
        }
        self.binary(binary);
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, syn::UnOp::Not(_)) && !self.is_deliberate(&unary.expr) {
            let mutated = self.text_of(&unary.expr).to_owned();
            self.add_expression(Operator::NotLeftOut, unary, mutated);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        self.literal(literal);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.method(call);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && can_go(expression)
        {
            let span = statement.span();
            let original = normalised(self.text_of(statement));
            self.add(Operator::Deletion, span.byte_range(), span.start().line, original, Change::Deletion);
        }
        visit::visit_stmt(self, statement);
    }
}
