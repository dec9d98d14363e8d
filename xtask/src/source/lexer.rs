//! Cuts Rust text into tokens and comments.

/// A file cut up: what the compiler reads, and what only people read.
#[derive(Debug, Default, PartialEq)]
pub struct Source {
    /// Everything but comments and white space, in order.
    pub tokens: Vec<Token>,
    /// One entry a line comment or block comment, in order.
    pub comments: Vec<Comment>,
}

/// A token and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its line, from 1.
    pub line: u32,
}

/// What a token is; literals keep no text, because no rule looks into them.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A name or a keyword; `r#type` is the name `type`.
    Ident(String),
    /// `'a`, and `'label` before a loop.
    Lifetime,
    /// A number, a character or a string of any sort.
    Literal,
    /// `::`.
    PathSep,
    /// Any other character.
    Punct(char),
}

/// A comment and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// Its first line, from 1.
    pub line: u32,
    /// Its text without the opening `//` or `/*` and the closing `*/`.
    pub text: String,
}

/// Cuts `text` up; text that is no Rust gives some tokens, never a panic.
pub fn lex(text: &str) -> Source {
    let mut cursor = Cursor {
        rest: text,
        line: 1,
    };
    let mut source = Source::default();
    while let Some(first) = cursor.peek() {
        let line = cursor.line;
        if cursor.rest.starts_with("//") || cursor.rest.starts_with("/*") {
            source.comments.push(Comment {
                line,
                text: cursor.comment(),
            });
        } else if first.is_whitespace() {
            cursor.bump();
        } else {
            source.tokens.push(Token {
                kind: cursor.token(first),
                line,
            });
        }
    }
    source
}

struct Cursor<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.skip(next.len_utf8());
        Some(next)
    }

    /// Takes `bytes` bytes, which end at a character's end.
    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        self.skip(end)
    }

    fn comment(&mut self) -> String {
        if self.rest.starts_with("//") {
            return self.take_while(|c| c != '\n')[2..].to_string();
        }
        self.skip(2);
        let body = self.rest;
        let mut depth = 1;
        let mut length = 0;
        while depth > 0 && !self.rest.is_empty() {
            let step = match () {
                () if self.rest.starts_with("/*") => {
                    depth += 1;
                    2
                }
                () if self.rest.starts_with("*/") => {
                    depth -= 1;
                    2
                }
                () => self.peek().map_or(1, char::len_utf8),
            };
            self.skip(step);
            length += step;
        }
        let body = &body[..length];
        body.strip_suffix("*/").unwrap_or(body).to_string()
    }

    fn token(&mut self, first: char) -> Kind {
        match first {
            '"' => self.string(),
            '\'' => self.quote(),
            c if c.is_ascii_digit() => self.number(),
            c if starts_name(c) => self.name(),
            _ if self.rest.starts_with("::") => {
                self.skip(2);
                Kind::PathSep
            }
            c => {
                self.bump();
                Kind::Punct(c)
            }
        }
    }

    fn string(&mut self) -> Kind {
        self.bump();
        self.until_quote('"')
    }

    /// Takes up to and with an unescaped `quote`.
    fn until_quote(&mut self, quote: char) -> Kind {
        while let Some(next) = self.bump() {
            if next == '\\' {
                self.bump();
            } else if next == quote {
                break;
            }
        }
        Kind::Literal
    }

    /// A character, or a lifetime: `'a'` ends in a quote, `'a` does not.
    fn quote(&mut self) -> Kind {
        self.bump();
        let mut ahead = self.rest.chars();
        match (ahead.next(), ahead.next()) {
            (Some('\\'), _) | (Some(_), Some('\'')) => self.until_quote('\''),
            (Some(c), _) if starts_name(c) => {
                self.take_while(continues_name);
                Kind::Lifetime
            }
            _ => Kind::Punct('\''),
        }
    }

    fn number(&mut self) -> Kind {
        self.take_while(continues_name);
        let mut ahead = self.rest.chars();
        if ahead.next() == Some('.') && ahead.next().is_some_and(|c| c.is_ascii_digit()) {
            self.bump();
            self.take_while(continues_name);
        }
        Kind::Literal
    }

    fn name(&mut self) -> Kind {
        let name = self.take_while(continues_name);
        let hashes = self.rest.len() - self.rest.trim_start_matches('#').len();
        let quoted = self.rest[hashes..].starts_with('"');
        match name {
            "r" | "br" | "cr" if quoted => self.raw_string(hashes),
            "b" | "c" if hashes == 0 && quoted => self.string(),
            "b" if self.rest.starts_with('\'') => {
                self.bump();
                self.until_quote('\'')
            }
            "r" if hashes == 1 && self.rest[1..].starts_with(starts_name) => {
                self.bump();
                Kind::Ident(self.take_while(continues_name).to_string())
            }
            _ => Kind::Ident(name.to_string()),
        }
    }

    fn raw_string(&mut self, hashes: usize) -> Kind {
        self.skip(hashes + 1);
        let end = format!("\"{}", "#".repeat(hashes));
        let length = self
            .rest
            .find(&end)
            .map_or(self.rest.len(), |at| at + end.len());
        self.skip(length);
        Kind::Literal
    }
}

fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let idents = lex(text)
            .tokens
            .into_iter()
            .filter_map(|token| match token.kind {
                Kind::Ident(name) => Some(name),
                _ => None,
            });
        idents.collect()
    }

    #[test]
    fn comments_and_strings_hide_names() {
        let text = r##"
            a // b
            /* c /* d */ e */ f
            "g \" h" r"i \" j r#"k " l"# b"m" br#"n"# c"o" 'p' b'q' '\'' r
        "##;
        assert_eq!(names(text), ["a", "f", "j", "r"]);
    }

    #[test]
    fn a_lifetime_is_not_an_open_quote() {
        assert_eq!(
            names("fn f<'a>(x: &'a str) -> char { 'x: loop { break 'x 'y' } }"),
            ["fn", "f", "x", "str", "char", "loop", "break"]
        );
    }

    #[test]
    fn a_raw_identifier_is_its_name() {
        assert_eq!(names("r#type::r#match r"), ["type", "match", "r"]);
    }

    #[test]
    fn numbers_do_not_swallow_ranges_or_methods() {
        assert_eq!(names("0..len 1.5e3 1.max(x) 0xff_u8"), ["len", "max", "x"]);
    }

    #[test]
    fn comments_keep_text_and_line() {
        let source = lex("x\n// one\n/* two\n three */ y //! four");
        let comments: Vec<_> = source
            .comments
            .iter()
            .map(|c| (c.line, c.text.as_str()))
            .collect();
        assert_eq!(comments, [(2, " one"), (3, " two\n three "), (4, "! four")]);
        assert_eq!(source.tokens.last().unwrap().line, 4);
    }

    #[test]
    fn lines_are_counted_inside_strings() {
        let source = lex("\"a\nb\" r#\"c\nd\"# x");
        assert_eq!(source.tokens.last().unwrap().line, 3);
    }

    #[test]
    fn unfinished_text_ends_and_never_panics() {
        for text in [
            "\"abc",
            "r##\"abc\"#",
            "/* abc",
            "'",
            "'\\",
            "b'",
            "r#",
            "é'ü'",
            "//",
            "/*/",
        ] {
            lex(text);
        }
    }
}
