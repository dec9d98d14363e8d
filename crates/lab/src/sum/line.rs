//! Lines of checksums, as sha256sum writes and reads them.

/// A SHA-256 checksum.
pub type Digest = [u8; 32];

/// Returns the line for a file, with its end.
///
/// A name with a backslash, newline or carriage return is escaped, and the line begins with a backslash.
#[must_use]
pub fn format(digest: &Digest, name: &[u8]) -> Vec<u8> {
    let (name, escaped) = escape(name);
    let mut line = Vec::with_capacity(2 * digest.len() + name.len() + 4);
    if escaped {
        line.push(b'\\');
    }
    line.extend_from_slice(hex(digest).as_bytes());
    line.extend_from_slice(b"  ");
    line.extend_from_slice(&name);
    line.push(b'\n');
    line
}

/// Returns the line for a file that ends in NUL; nothing in it is escaped.
#[must_use]
pub fn format_zero(digest: &Digest, name: &[u8]) -> Vec<u8> {
    [hex(digest).as_bytes(), b"  ", name, b"\0"].concat()
}

/// Returns the checksum in lower-case hexadecimal digits.
#[must_use]
pub fn hex(digest: &Digest) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = digest
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .map(|digit| char::from(DIGITS[usize::from(digit)]));
    digits.collect()
}

/// Reads a line without its end; `None` when it is none of a checksum.
///
/// Understood are both ways of writing one, `HEX  NAME` and `SHA256 (NAME) = HEX`.
#[must_use]
pub fn parse(line: &[u8]) -> Option<(Digest, Vec<u8>)> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (digest, name) = parse_tagged(line).or_else(|| parse_plain(line))?;
    let name = if escaped {
        unescape(name)?
    } else {
        name.to_vec()
    };
    (!name.is_empty()).then_some((digest, name))
}

fn parse_plain(line: &[u8]) -> Option<(Digest, &[u8])> {
    let (digits, rest) = line.split_at_checked(2 * size_of::<Digest>())?;
    // A blank and a star meant text and binary once.
    let name = rest.strip_prefix(b"  ").or(rest.strip_prefix(b" *"))?;
    Some((unhex(digits)?, name))
}

fn parse_tagged(line: &[u8]) -> Option<(Digest, &[u8])> {
    let rest = line.strip_prefix(b"SHA256 (")?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(2 * size_of::<Digest>())?)?;
    Some((unhex(digits)?, rest.strip_suffix(b") = ")?))
}

fn unhex(digits: &[u8]) -> Option<Digest> {
    let mut digest = Digest::default();
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Some(digest)
}

/// Returns the name as it stands in a line, and whether that differs from it.
#[must_use]
pub fn escape(name: &[u8]) -> (Vec<u8>, bool) {
    let mut escaped = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            _ => escaped.push(byte),
        }
    }
    let differs = escaped.len() > name.len();
    (escaped, differs)
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = name.iter();
    let mut plain = Vec::with_capacity(name.len());
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            0 => return None,
            _ => byte,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGITS: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";

    #[test]
    fn lines_are_those_of_sha256sum() {
        let digest = unhex(DIGITS.as_bytes()).unwrap();
        assert_eq!(
            format(&digest, b"a b"),
            format!("{DIGITS}  a b\n").as_bytes()
        );
        let awkward = format(&digest, b"a\\b\nc\r");
        assert_eq!(awkward, format!("\\{DIGITS}  a\\\\b\\nc\\r\n").as_bytes());
        assert_eq!(
            format_zero(&digest, b"a\\b"),
            format!("{DIGITS}  a\\b\0").as_bytes()
        );
    }

    #[test]
    fn both_ways_of_writing_are_read() {
        let digest = unhex(DIGITS.as_bytes()).unwrap();
        for line in [
            format!("{DIGITS}  a (b) = c"),
            format!("{DIGITS} *a (b) = c"),
            format!("{}  a (b) = c", DIGITS.to_uppercase()),
            format!("SHA256 (a (b) = c) = {DIGITS}"),
        ] {
            assert_eq!(
                parse(line.as_bytes()),
                Some((digest, b"a (b) = c".to_vec())),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_checksum_is_not_read_as_one() {
        for line in [
            String::new(),
            "# a comment".into(),
            DIGITS.into(),
            format!("{DIGITS}  "),
            format!("{DIGITS} a"),
            format!("{}  a", &DIGITS[1..]),
            format!("{}g  a", &DIGITS[1..]),
            format!("\\{DIGITS}  a\\x"),
            format!("\\{DIGITS}  a\\"),
            format!("MD5 (a) = {DIGITS}"),
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(digest: Digest, name in "[^\0]{1,40}") {
            let line = format(&digest, name.as_bytes());
            let line = line.strip_suffix(b"\n").unwrap();
            prop_assert!(!line.contains(&b'\n'));
            prop_assert_eq!(parse(line), Some((digest, name.into_bytes())));
        }

        #[test]
        fn no_bytes_make_it_panic(line: Vec<u8>) {
            let _ = parse(&line);
        }
    }
}
