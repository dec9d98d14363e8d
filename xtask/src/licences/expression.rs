//! Evaluates SPDX licence expressions: `(MIT OR Apache-2.0) AND Unicode-3.0`.

/// Says whether `text` can be satisfied with the licences that `accepted` accepts.
///
/// `AND` binds tighter than `OR`. `X WITH Y` is one licence of that whole name; where only the exception
/// is unknown, `X` alone suffices, for an exception only permits more. The old form `MIT/Apache-2.0` is an
/// `OR`; a trailing `+` is dropped.
///
/// # Errors
///
/// What is wrong with the text, in a few words.
pub fn satisfied(text: &str, accepted: impl Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = text
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        accepted: &accepted,
    };
    let answer = parser.either()?;
    match parser.words.first() {
        None => Ok(answer),
        Some(word) => Err(format!("`{word}` was not expected")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    accepted: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found = self.words.first() == Some(&wanted);
        if found {
            self.next();
        }
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut answer = self.both()?;
        while self.eat("OR") {
            answer |= self.both()?;
        }
        Ok(answer)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut answer = self.one()?;
        while self.eat("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    fn one(&mut self) -> Result<bool, String> {
        match self.next() {
            None => Err("it ends too early".into()),
            Some("(") => {
                let answer = self.either()?;
                if self.eat(")") {
                    Ok(answer)
                } else {
                    Err("a parenthesis is not closed".into())
                }
            }
            Some(word @ (")" | "OR" | "AND" | "WITH")) => Err(format!("`{word}` was not expected")),
            Some(name) => {
                let name = name.trim_end_matches('+');
                let known = (self.accepted)(name);
                if self.eat("WITH") {
                    let exception = self.next().ok_or("it ends too early")?;
                    return Ok(known || (self.accepted)(&format!("{name} WITH {exception}")));
                }
                Ok(known)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts names of one capital letter up to `M`.
    fn with_a_to_m(text: &str) -> Result<bool, String> {
        satisfied(text, |name| name.len() == 1 && name <= "M")
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(with_a_to_m("A OR Y AND Z"), Ok(true));
        assert_eq!(with_a_to_m("(A OR Y) AND Z"), Ok(false));
        assert_eq!(with_a_to_m("Y AND Z OR B"), Ok(true));
        assert_eq!(with_a_to_m("A AND (Z OR B) AND C"), Ok(true));
    }

    #[test]
    fn old_and_rare_forms_are_read() {
        assert_eq!(with_a_to_m("A/Z"), Ok(true));
        assert_eq!(with_a_to_m("Y / Z"), Ok(false));
        assert_eq!(with_a_to_m("A+"), Ok(true));
        assert_eq!(with_a_to_m("A WITH an-exception"), Ok(true));
        assert_eq!(with_a_to_m("Z WITH an-exception"), Ok(false));
        assert_eq!(satisfied("Z WITH X", |name| name == "Z WITH X"), Ok(true));
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for text in ["", "A OR", "AND A", "(A", "A)", "A B", "A WITH", "()"] {
            assert!(with_a_to_m(text).is_err(), "{text}");
        }
    }
}
