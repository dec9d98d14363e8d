//! Finds the paths that a file names, and where it names them.

use super::cfg::is_test_attribute;
use super::lexer::{Kind, Source, Token};

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

/// Reads what `source` names.
pub fn outline(source: &Source) -> Outline {
    let mut reader = Reader {
        tokens: &source.tokens,
        at: 0,
        scopes: Vec::new(),
        file_is_test: false,
        pending_test: None,
        is_test_fn: false,
        brackets: 0,
        found: Outline::default(),
    };
    reader.read();
    reader.found
}

/// An open `{`.
struct Scope {
    module: Option<String>,
    in_test: bool,
    /// How many brackets were open around it, to go on with after it.
    brackets: u32,
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    scopes: Vec<Scope>,
    file_is_test: bool,
    /// A test attribute waits for its item's body or `;` at this depth of brackets.
    pending_test: Option<u32>,
    /// A `#[test]` waits for its function.
    is_test_fn: bool,
    brackets: u32,
    found: Outline,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        while let Some(token) = self.tokens.get(self.at) {
            match &token.kind {
                Kind::Punct('#') => self.attribute(),
                Kind::Punct('{') => self.open(None),
                Kind::Punct('}') => self.close(),
                Kind::Punct('(' | '[') => {
                    self.brackets += 1;
                    self.at += 1;
                }
                Kind::Punct(')' | ']') => {
                    self.brackets = self.brackets.saturating_sub(1);
                    self.at += 1;
                }
                Kind::Punct(';') => {
                    if self.pending_test == Some(self.brackets) {
                        self.pending_test = None;
                    }
                    self.at += 1;
                }
                Kind::Ident(name) => self.name(name),
                _ => self.at += 1,
            }
        }
    }

    fn kind(&self, offset: usize) -> Option<&'a Kind> {
        self.tokens.get(self.at + offset).map(|token| &token.kind)
    }

    fn ident(&self, offset: usize) -> Option<&'a str> {
        match self.kind(offset)? {
            Kind::Ident(name) => Some(name),
            _ => None,
        }
    }

    fn is(&self, offset: usize, wanted: char) -> bool {
        self.kind(offset) == Some(&Kind::Punct(wanted))
    }

    fn in_test(&self) -> bool {
        self.file_is_test
            || self.pending_test.is_some()
            || self.scopes.last().is_some_and(|scope| scope.in_test)
    }

    fn modules(&self) -> Vec<String> {
        self.scopes
            .iter()
            .filter_map(|scope| scope.module.clone())
            .collect()
    }

    /// `#[…]` belongs to the next item, `#![…]` to what encloses it.
    fn attribute(&mut self) {
        let inner = self.is(1, '!');
        let start = if inner { 2 } else { 1 };
        if !self.is(start, '[') {
            self.at += 1;
            return;
        }
        let first = self.at + start + 1;
        let mut depth = 1;
        let mut end = first;
        while depth > 0 && end < self.tokens.len() {
            match self.tokens[end].kind {
                Kind::Punct('[') => depth += 1,
                Kind::Punct(']') => depth -= 1,
                _ => {}
            }
            end += 1;
        }
        let body = &self.tokens[first..end.saturating_sub(1).max(first)];
        if is_test_attribute(body) {
            match self.scopes.last_mut() {
                _ if !inner => self.pending_test = Some(self.brackets),
                Some(scope) => scope.in_test = true,
                None => self.file_is_test = true,
            }
        }
        let names_test = matches!(body, [Token { kind: Kind::Ident(name), .. }] if name == "test");
        self.is_test_fn |= names_test;
        self.at = end;
    }

    fn open(&mut self, module: Option<String>) {
        let takes_pending = self.pending_test == Some(self.brackets);
        let scope = Scope {
            module,
            in_test: self.in_test(),
            brackets: self.brackets,
        };
        if takes_pending {
            self.pending_test = None;
        }
        self.scopes.push(scope);
        self.brackets = 0;
        self.at += 1;
    }

    fn close(&mut self) {
        if let Some(scope) = self.scopes.pop() {
            self.brackets = scope.brackets;
        }
        // An attribute on a field or an arm reaches no further than the braces around it.
        self.pending_test = None;
        self.at += 1;
    }

    fn name(&mut self, name: &'a str) {
        match name {
            "mod" if self.ident(1).is_some() && self.is(2, '{') => {
                let module = self.ident(1).map(str::to_string);
                self.at += 2;
                self.open(module);
            }
            "mod" if self.ident(1).is_some() && self.is(2, ';') => {
                if self.in_test() {
                    let mut path = self.modules();
                    path.extend(self.ident(1).map(str::to_string));
                    self.found.test_modules.push(path);
                }
                self.at += 2;
            }
            "fn" => {
                if let Some(function) = self.ident(1) {
                    self.found.functions.push(function.to_string());
                    if std::mem::take(&mut self.is_test_fn) {
                        self.found.tests.push(function.to_string());
                    }
                }
                self.at += 1;
            }
            "extern" if self.ident(1) == Some("crate") => {
                self.at += 2;
                if let Some(name) = self.ident(0) {
                    let is_renamed = self.ident(1) == Some("as");
                    self.mention(vec![name.to_string()], self.at, is_renamed);
                }
                self.at += 1;
            }
            // `use<'a>` bounds a type and imports nothing.
            "use" if !self.is(1, '<') => {
                self.at += 1;
                self.use_tree(&[]);
            }
            _ => self.path(),
        }
    }

    fn mention(&mut self, segments: Vec<String>, at: usize, imported: bool) {
        let line = self.tokens[at.min(self.tokens.len() - 1)].line;
        let (modules, in_test) = (self.modules(), self.in_test());
        self.found.mentions.push(Mention {
            segments,
            line,
            modules,
            in_test,
            imported,
        });
    }

    /// A path in code: two names or more, or one that is called as a macro.
    fn path(&mut self) {
        let start = self.at;
        let continues = start > 0 && self.tokens[start - 1].kind == Kind::PathSep;
        let after_name = continues
            && start > 1
            && matches!(
                self.tokens[start - 2].kind,
                Kind::Ident(_) | Kind::Punct('>' | ')' | ']')
            );
        let is_field = start > 0 && self.tokens[start - 1].kind == Kind::Punct('.');
        let mut segments = vec![self.ident(0).unwrap_or_default().to_string()];
        self.at += 1;
        while self.kind(0) == Some(&Kind::PathSep) && self.ident(1).is_some() {
            segments.push(self.ident(1).unwrap_or_default().to_string());
            self.at += 2;
        }
        let is_macro = self.is(0, '!') && !self.is(1, '=');
        if !after_name && !is_field && (segments.len() > 1 || is_macro) {
            self.mention(segments, start, false);
        }
    }

    /// `a::{b, c as d, e::*, self}`: one mention a leaf.
    fn use_tree(&mut self, prefix: &[String]) {
        let start = self.at;
        let mut segments = prefix.to_vec();
        loop {
            match self.kind(0) {
                Some(Kind::PathSep) => self.at += 1,
                Some(Kind::Punct('*')) => {
                    segments.push("*".into());
                    self.at += 1;
                    break self.mention(segments, start, true);
                }
                Some(Kind::Punct('{')) => {
                    self.at += 1;
                    while self.kind(0).is_some() && !self.is(0, '}') && !self.is(0, ';') {
                        let before = self.at;
                        self.use_tree(&segments);
                        if self.is(0, ',') || self.at == before {
                            self.at += 1;
                        }
                    }
                    if self.is(0, '}') {
                        self.at += 1;
                    }
                    break;
                }
                Some(Kind::Ident(name)) if name == "as" => {
                    self.at += 2;
                    break self.mention(segments, start, true);
                }
                // `self` inside braces is the prefix; at the front it is this module.
                Some(Kind::Ident(name)) if name == "self" && !segments.is_empty() => self.at += 1,
                Some(Kind::Ident(name)) => {
                    segments.push(name.clone());
                    self.at += 1;
                }
                // `$crate` in a macro.
                Some(Kind::Punct('$')) => self.at += 1,
                _ if segments.len() > prefix.len() || self.at > start => {
                    break self.mention(segments, start, true);
                }
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests;
