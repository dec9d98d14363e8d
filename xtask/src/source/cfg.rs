//! Tells whether a `cfg` predicate holds in test builds alone.

use super::lexer::{Kind, Token};

/// Says whether the attribute whose tokens (between `[` and `]`) are given makes its item test code.
///
/// That is `test` itself and every `cfg` that cannot hold without `test`: `all` with one such part, `any`
/// with nothing else. A `not` never counts.
pub fn is_test_attribute(tokens: &[Token]) -> bool {
    let mut reader = Reader { tokens };
    match reader.name() {
        Some("test") => tokens.len() == 1,
        Some("cfg") => reader.list().first() == Some(&true),
        _ => false,
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
}

impl<'a> Reader<'a> {
    fn name(&mut self) -> Option<&'a str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        match &first.kind {
            Kind::Ident(name) => Some(name),
            _ => None,
        }
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self
            .tokens
            .first()
            .is_some_and(|token| token.kind == Kind::Punct(wanted));
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    /// Reads `(predicate, …)` and says of each whether it implies `test`.
    fn list(&mut self) -> Vec<bool> {
        let mut answers = Vec::new();
        if !self.eat('(') {
            return answers;
        }
        while !self.tokens.is_empty() && !self.eat(')') {
            answers.push(self.predicate());
            self.eat(',');
        }
        answers
    }

    fn predicate(&mut self) -> bool {
        match self.name() {
            Some("all") => self.list().contains(&true),
            Some("any") => {
                let answers = self.list();
                !answers.is_empty() && !answers.contains(&false)
            }
            Some("not") => {
                self.list();
                false
            }
            Some(name) => {
                if self.eat('=') {
                    self.tokens = self.tokens.get(1..).unwrap_or(&[]);
                    return false;
                }
                name == "test"
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::lex;
    use super::*;

    fn test_only(attribute: &str) -> bool {
        is_test_attribute(&lex(attribute).tokens)
    }

    #[test]
    fn a_predicate_that_needs_test_is_test_only() {
        assert!(test_only("test"));
        assert!(test_only("cfg(test)"));
        assert!(test_only("cfg(all(test, not(any(loom, shuttle))))"));
        assert!(test_only(
            "cfg(all(feature = \"std\", any(test, all(test, loom))))"
        ));
    }

    #[test]
    fn a_predicate_that_holds_without_test_is_not() {
        assert!(!test_only("cfg(not(test))"));
        assert!(!test_only("cfg(any(test, loom))"));
        assert!(!test_only("cfg(all(loom, not(test)))"));
        assert!(!test_only("cfg(feature = \"test\")"));
        assert!(!test_only("cfg_attr(test, allow(dead_code))"));
        assert!(!test_only("cfg()"));
        assert!(!test_only("cfg"));
        assert!(!test_only(""));
    }
}
