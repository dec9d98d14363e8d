//! Reads Rust source far enough to know what it names.
//!
//! The checks of this crate ask "which paths does this file name, in which module, in test code or not?" and "what do
//! its comments say?". `proc-macro2` cuts the text into trees of tokens; nothing is parsed further, because the bodies of
//! macros name things as well and have no other form.
//!
//! Nothing here resolves names as the compiler does. Where that matters (a glob, a renamed crate) the rules forbid the form
//! that would hide something.

use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use crate::report::Failure;

/// A path that a file names.
#[derive(Clone, Debug, PartialEq)]
pub struct Mention {
    /// Its parts: `["crate", "wake", "Parker"]`; a glob ends in `"*"`, an imported `self` is left out.
    pub segments: Vec<String>,
    /// Its line, from 1.
    pub line: u32,
    /// The inline modules around it, outermost first.
    pub modules: Vec<String>,
    /// Whether it stands in code that only a test build has.
    pub in_test: bool,
    /// Whether a `use` imports it, or an `extern crate` that renames it.
    pub imported: bool,
    /// The name under which a `pub use` gives it on.
    pub given_on: Option<String>,
}

/// What a file names and declares.
#[derive(Debug, Default)]
pub struct Outline {
    /// Paths of two parts or more, imports of any length, and macros called by a bare name.
    pub mentions: Vec<Mention>,
    /// Modules in files of their own that only a test build has, as paths from this file's module.
    pub test_modules: Vec<Vec<String>>,
    /// Functions that carry `#[test]`.
    pub tests: Vec<String>,
    /// All functions.
    pub functions: Vec<String>,
}

/// A `//` comment that documents nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// Its line, from 1.
    pub line: u32,
    /// What stands behind the slashes.
    pub text: String,
}

/// Reads what `text` names.
///
/// # Errors
///
/// The text is no Rust.
pub fn outline(text: &str) -> Result<Outline, Failure> {
    let mut reader = Reader::default();
    reader.read(&trees(tokens(text)?), false);
    Ok(reader.found)
}

/// Returns the line comments of `text`.
///
/// # Errors
///
/// The text is no Rust.
pub fn comments(text: &str) -> Result<Vec<Comment>, Failure> {
    // Up to which column code reaches in each line; what stands behind it is white space or comment.
    let mut code = vec![0; text.lines().count() + 1];
    cover(&mut code, tokens(text)?);
    let lines = text.lines().zip(&code).zip(1..);
    let comments = lines.filter_map(|((line, &code), number)| {
        let rest: String = line.chars().skip(code).collect();
        let text = rest.trim_start().strip_prefix("//")?.to_string();
        Some(Comment { line: number, text })
    });
    Ok(comments.collect())
}

fn tokens(text: &str) -> Result<TokenStream, Failure> {
    TokenStream::from_str(text).map_err(|error| {
        let line = error.span().start().line;
        Failure::new(format!("line {line} is no Rust: {error}"))
    })
}

fn cover(code: &mut [usize], tokens: TokenStream) {
    for tree in tokens {
        let spans = match tree {
            TokenTree::Group(group) => {
                cover(code, group.stream());
                [group.span_open(), group.span_close()]
            }
            leaf => [leaf.span(); 2],
        };
        for (start, end) in spans.map(|span| (span.start(), span.end())) {
            code[start.line - 1..end.line - 1].fill(usize::MAX);
            let last = &mut code[end.line - 1];
            *last = end.column.max(*last);
        }
    }
}

fn trees(tokens: TokenStream) -> Vec<TokenTree> {
    tokens.into_iter().collect()
}

/// Returns the name at `at`, if there is one and it is no lifetime's.
fn ident(trees: &[TokenTree], at: usize) -> Option<String> {
    let TokenTree::Ident(name) = trees.get(at)? else {
        return None;
    };
    let is_lifetime = at > 0 && punct(trees, at - 1) == Some('\'');
    let name = name.to_string();
    (!is_lifetime).then(|| name.strip_prefix("r#").unwrap_or(&name).to_string())
}

fn punct(trees: &[TokenTree], at: usize) -> Option<char> {
    match trees.get(at)? {
        TokenTree::Punct(punct) => Some(punct.as_char()),
        _ => None,
    }
}

fn group(trees: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match trees.get(at)? {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Returns whether `::` stands at `at`.
fn is_separator(trees: &[TokenTree], at: usize) -> bool {
    let is_joint = |tree: &TokenTree| matches!(tree, TokenTree::Punct(colon) if colon.spacing() == Spacing::Joint);
    punct(trees, at) == Some(':') && is_joint(&trees[at]) && punct(trees, at + 1) == Some(':')
}

#[derive(Default)]
struct Reader {
    /// The inline modules around what is read.
    modules: Vec<String>,
    found: Outline,
}

impl Reader {
    /// Reads what stands between two delimiters, in test code or not.
    fn read(&mut self, trees: &[TokenTree], mut in_test: bool) {
        // A test attribute waits for its item's body or `;`, a `#[test]` for its function.
        let (mut pending, mut is_test_fn) = (false, false);
        let mut at = 0;
        while at < trees.len() {
            let here = in_test || pending;
            match (&trees[at], ident(trees, at).as_deref()) {
                (_, Some("mod")) if ident(trees, at + 1).is_some() => {
                    self.modules.extend(ident(trees, at + 1));
                    if let Some(body) = group(trees, at + 2, Delimiter::Brace) {
                        self.read(&self::trees(body.stream()), here);
                        pending = false;
                    } else if here {
                        self.found.test_modules.push(self.modules.clone());
                    }
                    self.modules.pop();
                    at += if punct(trees, at + 2) == Some(';') {
                        2
                    } else {
                        3
                    };
                }
                (_, Some("fn")) => {
                    if let Some(name) = ident(trees, at + 1) {
                        self.found.functions.push(name.clone());
                        if std::mem::take(&mut is_test_fn) {
                            self.found.tests.push(name);
                        }
                    }
                    at += 1;
                }
                (_, Some("extern")) if ident(trees, at + 1).as_deref() == Some("crate") => {
                    let is_renamed = ident(trees, at + 3).as_deref() == Some("as");
                    if let Some(name) = ident(trees, at + 2) {
                        self.mention(vec![name], trees[at].span(), here, is_renamed, None);
                    }
                    at += 3;
                }
                // `use<'a>` bounds a type and imports nothing.
                (_, Some("use")) if punct(trees, at + 1) != Some('<') => {
                    let rest = &trees[at + 1..];
                    let end = (0..rest.len()).find(|&at| punct(rest, at) == Some(';'));
                    let end = end.unwrap_or(rest.len());
                    let is_public = at.checked_sub(1).is_some_and(|before| {
                        let before = before
                            - usize::from(
                                group(trees, before, Delimiter::Parenthesis).is_some()
                                    && before > 0,
                            );
                        ident(trees, before).as_deref() == Some("pub")
                    });
                    self.imports(&rest[..end], &[], here, is_public);
                    at += 1 + end;
                }
                (_, Some(_)) => at = self.path(trees, at, here),
                (TokenTree::Punct(hash), _) if hash.as_char() == '#' => {
                    let is_inner = punct(trees, at + 1) == Some('!');
                    let body = at + 1 + usize::from(is_inner);
                    let Some(body_trees) = group(trees, body, Delimiter::Bracket) else {
                        at += 1;
                        continue;
                    };
                    let body_trees = self::trees(body_trees.stream());
                    if is_test_attribute(&body_trees) {
                        *(if is_inner { &mut in_test } else { &mut pending }) = true;
                    }
                    is_test_fn |=
                        body_trees.len() == 1 && ident(&body_trees, 0).as_deref() == Some("test");
                    at = body + 1;
                }
                (TokenTree::Punct(end), _) if end.as_char() == ';' => {
                    pending = false;
                    at += 1;
                }
                (TokenTree::Group(group), _) => {
                    self.read(&self::trees(group.stream()), here);
                    if group.delimiter() == Delimiter::Brace {
                        pending = false;
                    }
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    fn mention(
        &mut self,
        segments: Vec<String>,
        span: Span,
        in_test: bool,
        imported: bool,
        given_on: Option<String>,
    ) {
        self.found.mentions.push(Mention {
            segments,
            line: span.start().line as u32,
            modules: self.modules.clone(),
            in_test,
            imported,
            given_on,
        });
    }

    /// A path in code: two names or more, or one that is called as a macro. Returns what stands behind it.
    fn path(&mut self, trees: &[TokenTree], start: usize, in_test: bool) -> usize {
        let continues = start > 2
            && is_separator(trees, start - 2)
            && (ident(trees, start - 3).is_some()
                || punct(trees, start - 3) == Some('>')
                || matches!(trees[start - 3], TokenTree::Group(_)));
        let is_field = start > 0 && punct(trees, start - 1) == Some('.');
        let mut segments: Vec<String> = ident(trees, start).into_iter().collect();
        let mut at = start + 1;
        while is_separator(trees, at)
            && let Some(name) = ident(trees, at + 2)
        {
            segments.push(name);
            at += 3;
        }
        let is_macro = punct(trees, at) == Some('!') && punct(trees, at + 1) != Some('=');
        if !continues && !is_field && (segments.len() > 1 || is_macro) {
            self.mention(segments, trees[start].span(), in_test, false, None);
        }
        at
    }

    /// `a::{b, c as d, e::*, self}`: one mention a leaf.
    fn imports(&mut self, trees: &[TokenTree], prefix: &[String], in_test: bool, is_public: bool) {
        for leaf in
            trees.split(|tree| matches!(tree, TokenTree::Punct(comma) if comma.as_char() == ','))
        {
            let mut segments = prefix.to_vec();
            let mut alias = None;
            let mut at = 0;
            let mut is_spread = false;
            while at < leaf.len() {
                match ident(leaf, at).as_deref() {
                    Some("as") => {
                        alias = ident(leaf, at + 1);
                        at += 1;
                    }
                    // `self` inside braces is the prefix; at the front it is this module.
                    Some("self") if !segments.is_empty() => {}
                    Some(name) => segments.push(name.into()),
                    None if punct(leaf, at) == Some('*') => segments.push("*".into()),
                    None => {
                        if let Some(inner) = group(leaf, at, Delimiter::Brace) {
                            self.imports(
                                &self::trees(inner.stream()),
                                &segments,
                                in_test,
                                is_public,
                            );
                            is_spread = true;
                        }
                    }
                }
                at += 1;
            }
            if let (Some(first), false) = (leaf.first(), is_spread || segments.is_empty()) {
                let name = alias.or_else(|| segments.last().cloned());
                let given_on = name.filter(|_| is_public);
                self.mention(segments, first.span(), in_test, true, given_on);
            }
        }
    }
}

/// Returns whether the attribute whose tokens (between `[` and `]`) are given makes its item test code.
///
/// That is `test` itself and every `cfg` that cannot hold without `test`: `all` with one such part, `any`
/// with nothing else. A `not` never counts.
fn is_test_attribute(trees: &[TokenTree]) -> bool {
    match (ident(trees, 0).as_deref(), trees.get(1)) {
        (Some("test"), None) => true,
        (Some("cfg"), Some(TokenTree::Group(predicates))) => {
            implying_test(predicates).first() == Some(&true)
        }
        _ => false,
    }
}

/// Returns of each predicate of a list whether it implies `test`.
fn implying_test(list: &Group) -> Vec<bool> {
    let trees = trees(list.stream());
    let predicates =
        trees.split(|tree| matches!(tree, TokenTree::Punct(comma) if comma.as_char() == ','));
    let implies = |predicate: &[TokenTree]| match (ident(predicate, 0).as_deref(), predicate.get(1))
    {
        (Some("test"), None) => true,
        (Some("all"), Some(TokenTree::Group(list))) => implying_test(list).contains(&true),
        (Some("any"), Some(TokenTree::Group(list))) => {
            let answers = implying_test(list);
            !answers.is_empty() && !answers.contains(&false)
        }
        _ => false,
    };
    predicates
        .filter(|it| !it.is_empty())
        .map(implies)
        .collect()
}

#[cfg(test)]
mod tests;
